"""Publish a build: `publish.py --build DIR --registry DIR`. Whole or not at all; a second try changes nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from workloads.flights import registry


def main() -> int:
    """Returns the exit code: 2 with one sentence where the build or the registry cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="folder with manifest.json, model.pt2, preprocessing.json, schema.json")
    parser.add_argument("--registry", type=Path, required=True)
    options = parser.parse_args()
    try:
        name, changed = registry.publish(options.build, options.registry)
    except (registry.RegistryError, OSError) as error:
        print(f"publish.py: {error}", file=sys.stderr)
        return 2
    print(f"{name} is in service" if changed else f"{name} was already published and in service: nothing changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
