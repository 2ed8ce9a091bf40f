"""Settling, killed at every point, and done again from what the trials left."""

from pathlib import Path

import pytest

from harbor_assets.domain import bundle
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.runs import bundle_key
from harbor_assets.engine.bundles import EVIDENCE
from harbor_assets.engine.inspection import FILES
from harbor_assets.wiring import Services
from tests.fakes.accounts import RUN_ID
from tests.fakes.matrix import twenty_trials

KEY = bundle_key(RUN_ID)


class Killed(BaseException):
    """Nothing catches it, as nothing catches SIGKILL."""


def files(services: Services) -> dict[str, bytes]:
    found = {}
    for path, _ in services.artifacts.list(KEY):
        with services.artifacts.open(f"{KEY}/{path}") as file:
            found[path] = file.read()
    return found


def dumped(services: Services) -> list[object]:
    """What the leaderboard says of the run."""
    return [row.model_dump() for row in services.rankings.leaderboard("default").runs]


def test_a_bundle_made_afresh_from_the_records_of_trials_is_the_first_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with twenty_trials(tmp_path, monkeypatch) as services:
        services.engine.finish(RUN_ID, services.engine.settle(RUN_ID))
        first, board = files(services), dumped(services)
        assert set(FILES) < first.keys()
        for path in first:
            if not path.startswith(f"{EVIDENCE}/"):
                services.artifacts.remove(f"{KEY}/{path}")
        services.leaderboard.file_of("default").unlink()
        services.engine.settle_again(RUN_ID)
        assert files(services) == first
        assert dumped(services) == board


@pytest.mark.parametrize("stored", range(len(FILES)))
def test_a_merge_killed_after_any_file_is_no_bundle_and_the_next_makes_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored: int
):
    with twenty_trials(tmp_path, monkeypatch) as services:
        real, put = services.artifacts.put_file, list[str]()

        def dying(key: str, source: Path) -> None:
            if len(put) == stored:
                raise Killed
            put.append(key)
            real(key, source)

        with monkeypatch.context() as patched:
            patched.setattr(services.artifacts, "put_file", dying)
            with pytest.raises(Killed):
                services.engine.settle(RUN_ID)
        assert len(put) == stored
        assert not services.artifacts.exists(f"{KEY}/{bundle.MANIFEST}")  # it comes last: without it there is no bundle
        assert not services.catalog.get_run(RUN_ID).phase.terminal
        rows = services.catalog.outcomes(RUN_ID)
        services.engine.finish(RUN_ID, services.engine.settle(RUN_ID))
        whole = files(services)
        assert services.catalog.outcomes(RUN_ID) == rows
        services.engine.settle_again(RUN_ID)
        assert files(services) == whole


def test_a_settling_killed_before_its_last_word_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with twenty_trials(tmp_path, monkeypatch) as services:
        services.engine.settle(RUN_ID)  # and killed before `finish`
        before, board = files(services), dumped(services)
        run = services.engine.finish(RUN_ID, services.engine.settle(RUN_ID))
        assert (run.phase, run.result_state) == (RunPhase.CANCELLED, ResultState.READY)
        assert files(services) == before
        assert dumped(services) == board
