"""The selftests of judges hold what the judges found against what was found before (`recorded.py`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from suite.selftest import recorded


@pytest.fixture(autouse=True)
def _findings_are_as_before(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    renewing = next((one for one in request.config.pluginmanager.get_plugins() if isinstance(one, recorded.Renewing)), None)
    test, file = request.node.name, request.path
    before = recorded.stored(file).get(test)
    if renewing is None and before is None:
        yield
        return
    recording = recorded.Recording()
    for name, judge in recorded.judges_in(request.module).items():
        monkeypatch.setattr(request.module, name, recording.wrap(judge))
    yield
    if renewing is not None:
        renewing.keep(file, test, recording.listed())
    else:
        now = recording.listed()
        assert recorded.as_before(before or (), now), (
            f"the judges found {before} before and find {now}; if that is meant, run python -m suite.selftest.recorded suite/selftest/{file.name}"
        )
