import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.domain.errors import Broken, IdempotencyConflict, NotFound, NotReady, Refused, StorageFull
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase, TaskPhase
from harbor_assets.domain.requests import RunRequest, Spec, TaskSelection
from harbor_assets.domain.tasks import TasksetInput
from harbor_assets.engine.recovery import Recovered, TakenUp
from harbor_assets.interfaces.sdk import tasks as tasks_module
from harbor_assets.interfaces.sdk.evaluator import Evaluator
from harbor_assets.interfaces.sdk.runs import AsyncRuns
from tests.interfaces.backends import World, evaluator_of, task_input

ACCOUNT = b'{"planned": 1, "counts": {"scored": 1}, "policies": {"scored_only": %s, "missing_as_zero": %s}}'.replace(
    b"%s",
    b'{"mean": 0.5, "pass_at_k": {"1": 0.0}, "coverage": {"trials": 1, "tasks": 1, "of_trials": 1, "of_tasks": 1}}',
)


@pytest.fixture
def evaluator(w: World) -> Iterator[Evaluator]:
    with evaluator_of(w) as made:
        yield made


def ask(taskset: str) -> RunRequest:
    return RunRequest(spec=Spec(tasks=TaskSelection(taskset=taskset)))


def ended(w: World, evaluator: Evaluator, *rewards: float | Reason, state: ResultState = ResultState.READY) -> str:
    names = [f"t{at}" for at in range(len(rewards))]
    run_id = evaluator.runs.submit_request(ask(w.publish(*names))).run.id
    w.end(run_id, *rewards, state=state)
    return run_id


def test_records_come_back_with_the_digest_the_catalog_computed(w: World, evaluator: Evaluator):
    task, cut = evaluator.publishing.put_task("default", "a", task_input("org/a", deep={"x": [None, {"y": None}]}))
    assert cut
    assert evaluator.publishing.put_task("default", "a", task_input("org/a"))[1] is False  # config is no content
    stored = w.catalog.get_task("default", "a")
    assert evaluator.tasks.retrieve("a").ref == evaluator.tasks.retrieve(f"default/a#{task.digest}").ref == stored.ref
    assert evaluator.publishing.get_tasks("default", ["a", "b"]).keys() == {"a"}
    taskset, cut = evaluator.publishing.put_taskset("default", "s", TasksetInput(tasks=["a"]))
    assert cut
    assert (
        evaluator.tasksets.retrieve("default/s#latest").ref == taskset.ref == w.catalog.get_taskset("default", "s").ref
    )
    assert [found.ref for found in evaluator.tasks.pinned(taskset.tasks)] == [stored.ref]


def test_look_ups_of_any_size_are_one_answer(w: World, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tasks_module, "LOOKUP_SIZE", 2)
    w.publish(*"abcde")
    assert sorted(evaluator.publishing.get_tasks("default", list("abcdefg"))) == list("abcde")


def test_submitting_twice_with_a_key_is_one_run_and_another_request_a_conflict(w: World, evaluator: Evaluator):
    first = evaluator.runs.submit_request(ask(w.publish("a")), idempotency_key="k")
    again = evaluator.runs.submit_request(ask(w.publish("a")), idempotency_key="k")
    assert (first.created, again.created, again.run.id) == (True, False, first.run.id)
    with pytest.raises(IdempotencyConflict):
        evaluator.runs.submit_request(ask(w.publish("b", taskset="other")), idempotency_key="k")


def test_a_refusal_carries_its_problems(w: World, evaluator: Evaluator):
    w.publish("alpha")
    with pytest.raises(Refused) as refused:
        evaluator.runs.submit_request(RunRequest(spec=Spec(tasks=TaskSelection(taskset="suite", select=["alpa"]))))
    assert [problem.subject for problem in refused.value.problems] == ["task 'alpa'"]


def test_runs_their_status_and_their_tasks(w: World, evaluator: Evaluator):
    run_id = ended(w, evaluator, 1.0, Reason.REWARD_MISSING, 0.0)
    assert evaluator.runs.retrieve(run_id).phase is RunPhase.COMPLETED
    assert [task.phase for task in evaluator.runs.status(run_id).tasks] == ["succeeded", "failed", "succeeded"]
    assert [task.index for task in evaluator.runs.tasks(run_id, page_size=2)] == [0, 1, 2]
    assert [task.index for task in evaluator.runs.tasks(run_id, phase=TaskPhase.FAILED)] == [1]
    assert [*evaluator.runs.tasks(run_id, phase=TaskPhase.EXPIRED)] == []
    page = evaluator.runs.tasks(run_id, page=2, page_size=2)
    assert ([task.index for task in page.data], page.pagination.total_results) == ([2], 3)
    assert [run.id for run in evaluator.runs.list().data] == [run_id]
    assert evaluator.runs.list(active=True).pagination.total_results == 0
    assert [row.reward for row in evaluator.runs.outcomes(run_id)] == [1.0, None, 0.0]
    assert evaluator.runs.cancel(run_id).phase is RunPhase.COMPLETED
    assert evaluator.runs.logs(run_id, task=0).done


def test_an_unknown_run_is_not_found(evaluator: Evaluator):
    with pytest.raises(NotFound, match="run-0"):
        evaluator.runs.status("run-0000000000000000")


def test_results_are_the_files_of_the_bundle(w: World, evaluator: Evaluator):
    run_id = ended(w, evaluator, 0.5)
    w.put_bundle(run_id, {"summary.json": b'{"task_count": 1}', "outcomes.json": ACCOUNT})
    results = evaluator.runs.results(run_id)
    assert results.summary == {"task_count": 1}
    assert isinstance(results.outcomes, dict)
    assert results.outcomes["counts"] == {"scored": 1}
    assert results.account.policies.scored_only.mean == 0.5
    assert evaluator.runs.bundle_location(run_id, "report.html").endswith(f"{run_id}/agent-eval-results/report.html")


def test_results_without_a_bundle_are_counted_from_the_rows(w: World, evaluator: Evaluator):
    run_id = ended(w, evaluator, 0.5, Reason.REWARD_MISSING, state=ResultState.FAILED)
    results = evaluator.runs.results(run_id)
    assert results.summary is None
    assert results.account.policies.missing_as_zero.mean == 0.25


def test_results_of_a_run_that_goes_on_are_not_ready(w: World, evaluator: Evaluator):
    run_id = evaluator.runs.submit_request(ask(w.publish("a"))).run.id
    with pytest.raises(NotReady):
        evaluator.runs.results(run_id)
    with pytest.raises(NotReady):
        evaluator.runs.download(run_id, Path())


# --- download -----------------------------------------------------------------------------------------------------

FILES = {"summary.json": b"{}", "evidence/harbor/job/trial/a b#%?.txt": b"text", "big": bytes(range(256)) * 20_000}


@pytest.fixture
def run_id(w: World, evaluator: Evaluator) -> str:
    made = ended(w, evaluator, 0.5)
    w.put_bundle(made, FILES)
    return made


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_download_holds_every_file_and_says_how_far_it_is(evaluator: Evaluator, run_id: str, tmp_path: Path):
    told: list[tuple[int, int]] = []
    folder = evaluator.runs.download(run_id, tmp_path / "out", lambda done, total: told.append((done, total)))
    assert folder == tmp_path / "out" / run_id / "agent-eval-results"
    assert tree(folder) == FILES
    total = sum(map(len, FILES.values()))
    assert told[-1] == (total, total)
    assert len(told) > len(FILES)  # the big one came in pieces
    assert [p.name for p in folder.parent.iterdir()] == ["agent-eval-results"]


def test_the_same_bundle_again_is_left_alone_and_another_is_refused(evaluator: Evaluator, run_id: str, tmp_path: Path):
    folder = evaluator.runs.download(run_id, tmp_path)
    before = (folder / "big").stat().st_mtime_ns
    assert evaluator.runs.download(run_id, tmp_path) == folder
    assert (folder / "big").stat().st_mtime_ns == before
    (folder / "summary.json").write_text("edited")
    (folder / "mine").write_text("mine")
    (folder / "big").unlink()
    with pytest.raises(Refused, match="--output") as refused:
        evaluator.runs.download(run_id, tmp_path)
    assert {problem.subject for problem in refused.value.problems} == {"summary.json", "mine", "big"}
    assert (folder / "summary.json").read_text() == "edited"


def test_a_link_in_place_of_the_bundle_is_refused(evaluator: Evaluator, run_id: str, tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / run_id).mkdir()
    (tmp_path / run_id / "agent-eval-results").symlink_to(elsewhere)
    with pytest.raises(Refused):
        evaluator.runs.download(run_id, tmp_path)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a//b", "a/./b", "a\0b", ""])
def test_a_path_that_leaves_the_bundle_writes_nothing(
    w: World, evaluator: Evaluator, run_id: str, tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(w.artifacts, "list", lambda key: iter([("summary.json", 2), (path, 1)]))
    with pytest.raises(Broken, match="outside"):
        evaluator.runs.download(run_id, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_download_that_fails_leaves_nothing(
    w: World, evaluator: Evaluator, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    listed = list(w.artifacts.list(f"runs/{run_id}/agent-eval-results"))
    monkeypatch.setattr(w.artifacts, "list", lambda key: iter([*listed, ("missing", 3)]))
    with pytest.raises(NotFound):
        evaluator.runs.download(run_id, tmp_path)
    assert list(tmp_path.glob("run-*")) == []
    monkeypatch.setattr(w.artifacts, "list", lambda key: iter([("summary.json", 3)]))
    with pytest.raises(Broken, match="3 were promised"):
        evaluator.runs.download(run_id, tmp_path)
    assert list(tmp_path.glob("run-*")) == []


def test_an_output_that_cannot_be_written_is_refused_by_name(evaluator: Evaluator, run_id: str, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Refused, match="file"):
        evaluator.runs.download(run_id, tmp_path / "file")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")  # noqa: PTH110
def test_a_full_disk_is_told_as_such(
    evaluator: Evaluator, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    real = Path.open

    def full(self: Path, mode: str = "r", **more: object) -> object:
        return real(Path("/dev/full"), "wb", buffering=0) if self.name == "big" else real(self, mode)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StorageFull, match="no space"):
        evaluator.runs.download(run_id, tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.glob("run-*")) == []


# --- in process ---------------------------------------------------------------------------------------------------


def test_what_nobody_foresaw_reaches_the_caller_with_its_own_traceback(
    w: World, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("here")

    monkeypatch.setattr(w.backend.evaluations, "list_runs", fail)
    with pytest.raises(ZeroDivisionError, match="here"):
        evaluator.runs.list()


def test_an_answer_is_streamed_a_little_ahead_of_its_reader(
    w: World, evaluator: Evaluator, run_id: str, monkeypatch: pytest.MonkeyPatch
):
    """A bundle of gigabytes must not lie in memory: what is read from the store stays near what is written."""
    size, piece = 64 * 2**20, 2**20
    read = threading.Semaphore(0)
    counts: list[int] = []
    produced = 0

    class Endless:
        def __enter__(self) -> "Endless":
            return self

        def __exit__(self, *_: object) -> None:
            read.release()

        def read(self, n: int) -> bytes:
            nonlocal produced
            out = min(n, size - produced)
            produced += out
            return b"x" * out

    monkeypatch.setattr(w.artifacts, "open", lambda key: Endless())

    async def slowly() -> None:
        seen = 0
        async with evaluator.client.twin.http.stream(
            AsyncRuns(evaluator.client.twin).bundle_path(run_id, "big")
        ) as pieces:
            async for data in pieces:
                seen += len(data)
                counts.append(produced - seen)

    evaluator.client.loop.run(slowly())
    assert sum(1 for _ in counts) == size // piece
    assert max(counts) <= 5 * piece
    assert read.acquire(timeout=5)  # the file was closed


def test_an_answer_that_is_not_read_to_its_end_closes_its_file(
    w: World, evaluator: Evaluator, run_id: str, monkeypatch: pytest.MonkeyPatch
):
    import io

    file = io.BytesIO(b"x" * 64 * 2**20)
    monkeypatch.setattr(w.artifacts, "open", lambda key: file)

    async def a_bit() -> None:
        async with evaluator.client.twin.http.stream(
            AsyncRuns(evaluator.client.twin).bundle_path(run_id, "big")
        ) as pieces:
            await anext(pieces)

    evaluator.client.loop.run(a_bit())
    assert file.closed


def test_recover_takes_up_what_lost_its_worker(w: World, evaluator: Evaluator):
    run_id = evaluator.runs.submit_request(ask(w.publish("a"))).run.id
    assert evaluator.recover() == Recovered()
    w.executions.dead.add(run_id)
    assert evaluator.recover() == Recovered(taken_up=(TakenUp(run_id, "killed by SIGKILL"),))
