"""Builds the wheel: one package, `rankproof`, that carries the four rooms as files below `rankproof/rooms`, stamped with commit and digest.

Everything else about the distribution stands in pyproject.toml.
"""

import json
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from fixtures.installed import STAMP, bundle, stamp  # noqa: E402 - found only once the root is on the path


class BuildWithRooms(build_py):
    """Copies the rooms into the package; an editable install finds them beside it instead."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        rooms = Path(self.build_lib) / "rankproof" / "rooms"
        shutil.rmtree(rooms, ignore_errors=True)  # what an earlier build left there would be packed too
        for name in bundle(ROOT):
            (rooms / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, rooms / name)
        (rooms / STAMP).write_text(json.dumps(stamp(ROOT), indent=1, sort_keys=True) + "\n")


class SourceWithRooms(sdist):
    """A source archive has no git: it carries the stamp."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, [*files, *(name for name in bundle(ROOT) if name not in files)])
        (Path(base_dir) / STAMP).write_text(json.dumps(stamp(ROOT), indent=1, sort_keys=True) + "\n")


setup(cmdclass={"build_py": BuildWithRooms, "sdist": SourceWithRooms})
