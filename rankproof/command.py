"""`rankproof audit | judge | watch | ...`: the suite as one command, from any folder, on any job.toml.

Test suites that are installed (numpy.test(), sympy's, ibis' and airflow's) put their tests, and with them names like `conftest`, into everybody's
site-packages, or register a pytest plugin that then loads in every session of that environment. Here one package is installed and no plugin is: the
rooms are files below it, on `sys.path` of this command's own process alone. They come first there, and the current folder does not come at all, so a job
that has a `fixtures/` or a `reports/` of its own neither sees ours nor is seen; pytest's settings come along (`-c`), those of the current folder, of
PYTEST_ADDOPTS and of plugins that happen to be installed do not count.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOMS = HERE / "rooms" if (HERE / "rooms").is_dir() else HERE.parent
OF_SUITE = {
    "init": "write a first job.toml from one observed run: rankproof init -- torchrun --nproc-per-node 2 train.py ...",
    "judge": "judge the stored traces of an audit again: no GPU, no rerun",
    "watch": "name the rank that is gone, stands still, or makes the others wait",
    "metrics": "print a run's metrics as OpenMetrics text",
}
OF_REPORTS = {
    "page": "write audit.json and audit.html again from the evidence",
    "runbook": "write RUNBOOK.md and alerts.yml again from the evidence",
    "explain": "say what one criterion claims, what was found and how to check it",
    "verify": "recompute the digest of every trace file and name what differs",
    "history": "the verdicts of a job from audit to audit",
    "compare": "compare two audits: verdict changes first, then numbers by interval",
}
AUDIT = "rankproof audit job.toml [job.toml ...] [-m cpu|gpu|bench] [--world-size N] [any option of pytest]"
AREAS = ("equivalence", "efficiency", "recovery", "stragglers", "inputs", "release")
PLUGINS = ("xdist", "timeout")
EXIT_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    verb, rest = (words[0], words[1:]) if words else ("--help", [])
    _enter_rooms()
    if verb in ("--help", "-h"):
        print(_usage())
        return 0
    if verb == "--version":
        print(_version())
        return 0
    if verb == "audit":
        return audit(rest)
    if verb in OF_SUITE:
        from suite.__main__ import main as suite

        return suite([verb, *rest], prog="rankproof")
    if verb in OF_REPORTS:
        from reports.__main__ import main as reports

        return reports([verb, *rest], prog="rankproof")
    print(f"error: {verb!r} is no verb of rankproof: use one of {', '.join(('audit', *OF_SUITE, *OF_REPORTS))}", file=sys.stderr)
    return EXIT_USAGE


def audit(words: Sequence[str]) -> int:
    """Run the criteria on the jobs named; pytest's exit code: 0 only if everything that was selected passed."""
    if any(word in ("-h", "--help") for word in words):
        print(f"usage: {AUDIT}\n")
    import pytest

    os.environ.pop("PYTEST_ADDOPTS", None)
    os.environ.pop("PYTEST_PLUGINS", None)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return int(pytest.main(pytest_words(words)))


def pytest_words(words: Sequence[str]) -> list[str]:
    """What pytest is given: our settings, our plugins, the criteria; files named *.toml are jobs, `suite/...` are criteria of ours."""
    bench = ["bench"] if "bench" in words else []  # the plugin makes a folder where it is started, whether it measures or not
    plugins = (*PLUGINS, *(["benchmark"] if bench else []), "no:cacheprovider", "fixtures.plugin", "fixtures.benchmarks")
    loaded = [word for name in plugins for word in ("-p", name)]
    given: list[str] = []
    criteria: list[str] = []
    for before, word in zip(("", *words), words, strict=False):
        named = word.removeprefix("--job=")
        if named.endswith(".toml") and (before == "--job" or named != word or not before.startswith("-")):
            ours = ROOMS / named
            given += [*([] if before == "--job" else ["--job"]), str(ours) if ours.is_file() and not Path(named).exists() else named]
        elif word.startswith("suite/"):
            criteria.append(str(ROOMS / word))
        else:
            given.append(word)
    marked = [] if any(word == "-m" or (word.startswith("-m") and not word.startswith("--")) for word in words) else ["-m", "cpu"]
    criteria = criteria or [str(ROOMS / "suite" / area) for area in (*AREAS, *bench)]
    return ["-c", str(ROOMS / "pyproject.toml"), "--rootdir", str(ROOMS), *loaded, *marked, *given, *criteria]


def _enter_rooms() -> None:
    """Our rooms before all else; the current folder, which `python -m` puts first, out of the way."""
    here = {"", os.getcwd()}
    sys.path[:] = [str(ROOMS), *(entry for entry in sys.path if entry not in here and entry != str(ROOMS))]


def _usage() -> str:
    verbs = {"audit": f"audit jobs: {AUDIT}", **OF_SUITE, **OF_REPORTS}
    lines = [f"  {name:<10}{words}" for name, words in verbs.items()]
    return "\n".join(["usage: rankproof VERB ...", "", *lines, "", "`rankproof VERB --help` explains a verb."])


def _version() -> str:
    from fixtures.environment import git_identity

    try:
        number = version("rankproof")
    except PackageNotFoundError:
        number = "not installed"
    code = git_identity(ROOMS)
    commit = f"commit {code['commit'][:12]}{' with changes' if code['dirty'] else ''}" if code["commit"] else "commit not known"
    return f"rankproof {number}, {commit}, {ROOMS}"
