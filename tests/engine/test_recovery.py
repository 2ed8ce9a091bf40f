"""Runs without a worker: taken up, or held up with a reason; never started for ever."""

from collections.abc import Sequence
from types import SimpleNamespace

from harbor_assets.domain.errors import Broken, StorageFull
from harbor_assets.engine.recovery import MAX_FALSE_STARTS, Recovery


class Workers:
    """Each worker that is started dies at once; `takes_up` says whether it took its run up before."""

    def __init__(self, *runs: str) -> None:
        self.runs = {run: SimpleNamespace(id=run, executions=1) for run in runs}
        self.takes_up, self.full, self.started = False, None, list[str]()

    def list_runs(self, **_: object) -> SimpleNamespace:
        return SimpleNamespace(items=list(self.runs.values()))

    def start(self, run_id: str) -> bool:
        self.started.append(run_id)
        self.runs[run_id].executions += self.takes_up
        return True

    def alive(self, run_id: str) -> bool:
        return False

    def blocked(self) -> str | None:
        return self.full

    def last_words(self, run_id: str) -> str | None:
        return "exit code 1: no"

    def clean(self) -> Sequence[str]:
        return ()


def recovery(workers: Workers) -> Recovery:
    return Recovery(workers, workers)  # type: ignore[arg-type]


def test_workers_that_never_take_their_run_up_are_not_started_for_ever() -> None:
    workers = Workers("run-a")
    them = recovery(workers)
    for _ in range(MAX_FALSE_STARTS):
        (taken,) = them.recover().taken_up
        assert (taken.run_id, taken.why) == ("run-a", "exit code 1: no")
    for _ in range(3):
        found = them.recover()
        assert found.taken_up == ()
        (held,) = found.held_up
        assert isinstance(held.error, Broken)
        assert str(held.error) == "run-a cannot go on, its worker cannot start: exit code 1: no"
    assert len(workers.started) == MAX_FALSE_STARTS


def test_a_worker_that_took_its_run_up_is_counted_by_the_catalog() -> None:
    workers = Workers("run-a")
    workers.takes_up = True
    them = recovery(workers)
    assert [len(them.recover().taken_up) for _ in range(5)] == [1] * 5


def test_without_space_nothing_is_started_until_there_is_some() -> None:
    workers = Workers("run-a", "run-b")
    workers.full = "no space"
    them = recovery(workers)
    for _ in range(5):
        held = them.recover().held_up
        assert [(h.run_id, type(h.error)) for h in held] == [("run-a", StorageFull), ("run-b", StorageFull)]
    assert workers.started == []
    workers.full = None
    assert [taken.run_id for taken in them.recover().taken_up] == ["run-a", "run-b"]
