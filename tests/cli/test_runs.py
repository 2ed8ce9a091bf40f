"""Commands that look at runs, fetch what they gave, and stop them."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.errors import StorageFull
from harbor_assets.domain.outcomes import Reason, Try
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.requests import RunRequest, Spec, TaskSelection
from harbor_assets.domain.views import LogChunk, RunStatus
from harbor_assets.domain.waiting import RunWaits, WaitReason, wait
from harbor_assets.interfaces.cli import fetch, report
from harbor_assets.interfaces.sdk.runs import Runs
from tests.cli.conftest import Cli
from tests.interfaces.backends import NOW, Logs, World, evaluator_of, outcome, task_input


def submit(w: World, *names: str) -> str:
    request = RunRequest(spec=Spec(tasks=TaskSelection(taskset=w.publish(*names))))
    return w.evaluations.submit("default", request).run.id


def ended(w: World, *rewards: float | Reason, state: ResultState = ResultState.READY) -> str:
    run_id = submit(w, *(f"t{at}" for at in range(len(rewards))))
    w.end(run_id, *rewards, state=state)
    if state is ResultState.READY:
        w.merge(run_id)
    return run_id


@pytest.mark.parametrize(("asked", "told"), [(0.9, True), (0.5, False), (None, False)])
def test_less_than_the_run_asked_for_is_told_with_its_results(cli: Cli, w: World, asked: float | None, told: bool):
    tasks = TaskSelection(taskset=w.publish("a", "b"))
    run_id = w.evaluations.submit("default", RunRequest(spec=Spec(tasks=tasks), min_coverage=asked)).run.id
    w.end(run_id, 1.0, Reason.REWARD_EMPTY)
    w.merge(run_id)
    said = "Too few: a share of 0.5000 was scored, and the run asks for 0.9"
    assert (said in cli("runs", "results", run_id).out) is told
    found = cli("runs", "results", run_id, "--json").json["coverage"]
    assert found == {"share": 0.5, "min_coverage": asked, "enough": not told}
    assert (said in cli("runs", "status", run_id, "--watch").out) is told


def test_what_came_before_a_score_is_shown_beside_it(cli: Cli, w: World):
    run_id = submit(w, "a")
    (task,) = w.catalog.get_run(run_id).plan.tasks
    w.catalog.mark_started(run_id, NOW)
    first = Try(start=NOW, end=NOW, reason=Reason.SANDBOX_LOST, reward=0.5, cost=0.25)
    w.catalog.add_outcome(outcome(run_id, task, 1.0, tries=(first, Try(start=NOW, end=NOW, reward=1.0))))
    w.catalog.finish(run_id, RunPhase.COMPLETED, ResultState.READY, at=NOW)
    w.merge(run_id)
    said = "Tried again: 0 a, trial 1: sandbox_lost; reward 0.5, not counted; 0.25 USD"
    assert said in cli("runs", "results", run_id).out
    found = cli("runs", "results", run_id, "--json").json
    assert found["coverage"] == {"share": 1.0, "min_coverage": None, "enough": True}
    (again,) = found["tried_again"]
    assert (again["task"], again["reward"], again["n_tries"], again["earlier"][0]["reward"]) == ("a", 1.0, 2, 0.5)


def test_lists_of_runs(cli: Cli, w: World):
    first, second = ended(w, 1.0, Reason.REWARD_EMPTY), submit(w, "a")
    lines = cli("runs", "list").out.splitlines()
    assert lines[0].split() == ["RUN", "PHASE", "RESULTS", "SCORED", "AGENT", "SUBMITTED", "TASKSET", "NOTE"]
    assert [line.split()[:4] for line in lines[1:]] == [
        [second, "accepted", "pending", "0/1"],
        [first, "completed", "ready", "1/2"],
    ]
    found = cli("runs", "list", "--active", "--mine", "--json").json
    assert [(run["id"], run["phase"], run["result_state"]) for run in found["data"]] == [
        (second, "accepted", "pending")
    ]
    assert found["pagination"] == {
        "page": 1,
        "page_size": 100,
        "current_page_size": 1,
        "total_pages": 1,
        "total_results": 1,
    }


def test_a_list_that_is_cut_says_so(cli: Cli, w: World):
    for _ in range(3):
        submit(w, "a")
    said = cli("runs", "list", "--page-size", "2")
    assert len(said.out.splitlines()) == 3
    assert "2 of 3 runs; page 1 of 2" in said.err
    assert cli("runs", "list", "--page-size", "2", "--page", "2", "--json").json["pagination"]["total_pages"] == 2


def test_runs_that_cannot_be_read_are_named(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    from dataclasses import replace

    real = w.catalog.list_runs
    monkeypatch.setattr(w.catalog, "list_runs", lambda *a, **k: replace(real(*a, **k), unreadable=("run-broken",)))
    said = cli("runs", "list")
    assert said.code == 0
    assert "run-broken is stored but cannot be read" in said.err


def test_status_of_a_run(cli: Cli, w: World):
    run_id = submit(w, "a", "b")
    text = cli("runs", "status", run_id)
    assert "Phase:     accepted, results pending" in text.out
    assert f"Follow it: harbor-assets runs status {run_id} --watch" in text.out
    found = cli("runs", "status", run_id, "--json").json
    assert found["run"]["taskset_ref"].startswith("default/suite#")
    assert [task["task"] for task in found["tasks"]] == ["a", "b"]


def test_the_status_of_a_large_run_is_cut_and_says_where_the_rest_is(
    cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(report, "STATUS_MAX", 2)
    run_id = submit(w, "a", "b", "c")
    said = cli("runs", "status", run_id)
    assert f"… and 1 more; all of them: harbor-assets runs tasks {run_id}" in said.out
    assert len(cli("runs", "status", run_id, "--json").json["tasks"]) == 3


FITS_NOWHERE = wait(WaitReason.SCHEDULING, "no node takes the pod of its sandbox: 0/1 nodes are available")
SLOTS = wait(WaitReason.POOL_FULL, "waits for a slot: 1 of 1 are taken")


def test_what_is_waited_for_is_told_with_the_task_and_the_run(cli: Cli, w: World):
    run_id = submit(w, "a", "b", "c")
    run = w.catalog.get_run(run_id)
    w.catalog.add_outcome(outcome(run_id, run.plan.task(0), 1.0))
    w.waits.said = RunWaits(wait(WaitReason.QUEUED, "in the queue of runs"), {0: SLOTS, 1: FITS_NOWHERE, 2: SLOTS})
    text = cli("runs", "status", run_id).out
    assert "Waiting:   in the queue of runs" in text
    assert "waits          no node takes the pod of its sandbox: 0/1 nodes are available" in text
    lines = cli("runs", "tasks", run_id).out.splitlines()
    assert "scored 1.0000" in lines[1]
    assert "waits" not in lines[1]  # it has ended since
    assert lines[3].endswith("waits          waits for a slot: 1 of 1 are taken")
    found = cli("runs", "tasks", run_id, "--json").json["data"]
    assert [task["waiting"] and task["waiting"]["reason"] for task in found] == [None, "scheduling", "pool_full"]
    assert cli("runs", "status", run_id, "--json").json["run"]["waiting"]["reason"] == "queued"
    w.catalog.request_cancel(run_id, NOW)
    assert cli("runs", "status", run_id, "--json").json["run"]["waiting"] is None


def test_watching_tells_once_what_is_waited_for(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    run_id = submit(w, "a", "b")
    w.waits.said = RunWaits(tasks={0: FITS_NOWHERE, 1: SLOTS})
    looks = iter(range(100))

    def look(_: float) -> None:
        if next(looks) == 2:
            w.end(run_id, 1.0, 1.0)
            w.merge(run_id)

    monkeypatch.setattr("harbor_assets.interfaces.cli.progress.time.sleep", look)
    lines = cli("runs", "status", run_id, "--watch").out.splitlines()
    assert [line for line in lines if " waits: " in line] == [f"a waits: {FITS_NOWHERE.message}"]


def test_tasks_by_phase(cli: Cli, w: World):
    run_id = ended(w, 1.0, Reason.REWARD_MISSING)
    found = cli("runs", "tasks", run_id, "--phase", "failed", "--json").json
    assert [(task["index"], task["task"], task["phase"]) for task in found["data"]] == [(1, "t1", "failed")]
    assert found["data"][0]["outcomes"][0]["outcome"] == "verifier_failed"
    assert found["pagination"]["total_results"] == 1
    lines = cli("runs", "tasks", run_id).out.splitlines()
    assert lines[1].split() == ["0", "t0", "succeeded", "scored", "1.0000"]
    assert lines[2].split()[:5] == ["1", "t1", "failed", "verifier_failed", "reward_missing"]
    assert cli("runs", "tasks", run_id, "--phase", "expired", "--json").json["data"] == []


def test_results_show_means_with_what_they_rest_on(cli: Cli, w: World):
    run_id = ended(w, 1.0, Reason.REWARD_MISSING, 0.5)
    said = cli("runs", "results", run_id)
    assert said.code == 0
    assert "mean, scored only        0.7500  0.0000 to 1.0000  2 of 3 trials, 2 of 3 tasks" in said.out
    assert "mean, missing as zero    0.5000" in said.out
    assert "pass@1, scored only      0.5000" in said.out
    assert "1      t1    1  verifier_failed  -       reward_missing" in said.out
    found = cli("runs", "results", run_id, "--json").json
    assert found["summary"] == {"task_count": 1}
    assert found["outcomes"]["policies"]["scored_only"]["mean"] == 0.75


def test_flags_and_side_rewards_are_shown_wherever_a_score_is(cli: Cli, w: World):
    run_id = submit(w, "a", "b")
    first, second = w.catalog.get_run(run_id).plan.tasks
    w.catalog.mark_started(run_id, NOW)
    flagged = {"flags": ("solution_exit_9",), "rewards": {"reward": 0.0, "speed": 3.5}}
    w.catalog.add_outcome(outcome(run_id, first, 0.0, **flagged))
    w.catalog.add_outcome(outcome(run_id, second, 1.0, rewards={"reward": 1.0}))
    w.catalog.finish(run_id, RunPhase.COMPLETED, ResultState.READY, at=NOW)
    w.merge(run_id)
    watched = cli("runs", "status", run_id, "--watch").out
    assert "1/2 a scored 0.0000 [solution_exit_9]\n" in watched
    assert "Flagged: 1 scored task (solution_exit_9)\n" in watched
    assert "scored 0.0000 [solution_exit_9]" in cli("runs", "tasks", run_id).out
    (trial,) = cli("runs", "tasks", run_id, "--json").json["data"][0]["outcomes"]
    assert (trial["flags"], trial["rewards"]) == (["solution_exit_9"], {"reward": 0.0, "speed": 3.5})
    table = cli("runs", "results", run_id).out
    assert "K  OUTCOME  REWARD  speed   REASON  FLAGS" in table
    assert [line.split()[4:] for line in table.splitlines() if line.startswith(("0 ", "1 "))] == [
        ["0.0000", "3.5000", "graded", "solution_exit_9"],
        ["1.0000", "-", "graded"],
    ]


def test_results_survive_a_failed_merge(cli: Cli, w: World):
    run_id = ended(w, 1.0, 0.5, state=ResultState.FAILED)
    said = cli("runs", "results", run_id)
    assert said.code == 0
    assert "mean, scored only        0.7500" in said.out
    assert "could not be merged" in said.out
    assert cli("runs", "results", run_id, "--json").json["summary"] is None


@pytest.mark.parametrize("verb", ["results", "download"])
def test_what_is_not_ready_says_when_it_will_be(cli: Cli, w: World, verb: str):
    run_id = submit(w, "a")
    said = cli("runs", verb, run_id)
    assert (said.code, said.out) == (2, "")
    assert f"runs status {run_id} --watch" in said.err


@pytest.mark.parametrize("verb", ["status", "results", "download", "tasks", "cancel", "logs"])
def test_an_unknown_run_is_refused_with_the_nearest(cli: Cli, w: World, verb: str):
    run_id = submit(w, "a")
    said = cli("runs", verb, run_id[:-1])
    assert (said.code, said.out) == (2, "")
    assert run_id in said.err


def test_download_writes_the_bundle(cli: Cli, w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_id = ended(w, 1.0)
    monkeypatch.chdir(tmp_path)
    said = cli("runs", "download", run_id)
    assert said.code == 0
    assert (tmp_path / run_id / "agent-eval-results" / "report.html").read_bytes() == b"<html>"
    assert f"Report: {tmp_path}/{run_id}/agent-eval-results/report.html" in said.out
    found = cli("runs", "download", run_id, "--output", tmp_path / "x", "--json").json
    assert Path(found["folder"]).is_dir()
    (tmp_path / run_id / "agent-eval-results" / "report.html").write_text("mine")
    refused = cli("runs", "download", run_id)
    assert refused.code == 2
    assert "report.html: has another size" in refused.err


def test_download_writes_the_bundle_to_an_object_store(cli: Cli, w: World, tmp_path: Path):
    import fsspec  # type: ignore[import-untyped]

    run_id = ended(w, 1.0)
    url = f"memory://{tmp_path.name}/results"
    place = f"{url}/{run_id}/agent-eval-results"
    said = cli("runs", "download", run_id, "--output", url)
    assert (said.code, said.out) == (0, f"Stored {place}\n")
    store = fsspec.filesystem("memory")
    assert store.cat_file(f"{place}/report.html") == b"<html>"
    assert cli("runs", "download", run_id, "--output", url, "--json").json == {"run_id": run_id, "folder": place}
    store.rm_file(f"{place}/report.html")  # as an upload that broke off
    assert cli("runs", "download", run_id, "--output", url).code == 0
    assert store.cat_file(f"{place}/report.html") == b"<html>"
    store.pipe_file(f"{place}/mine", b"")
    refused = cli("runs", "download", run_id, "--output", url)
    assert (refused.code, refused.out) == (2, "")
    assert "holds something else already" in refused.err
    unknown = cli("runs", "download", run_id, "--output", "nope://x")
    assert unknown.code == 2
    assert "nope" in unknown.err
    assert cli("runs", "download", run_id, "--output", f"file://{tmp_path}/y").code == 0
    assert (tmp_path / "y" / run_id / "agent-eval-results" / "report.html").is_file()


def test_ctrl_c_during_a_download_keeps_nothing(cli: Cli, w: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_id = ended(w, 1.0)
    w.put_bundle(run_id, {"big": b"x" * 20_000_000})
    real = w.artifacts.open

    def interrupted(key: str) -> Any:
        if key.endswith("outcomes.json"):
            os.kill(os.getpid(), signal.SIGINT)  # routes run in threads; the signal is the main thread's
        return real(key)

    monkeypatch.setattr(w.artifacts, "open", interrupted)
    said = cli("runs", "download", run_id, "--output", tmp_path / "out")
    assert said.code == 130
    assert "nothing of the bundle was kept" in said.err
    assert list((tmp_path / "out").iterdir()) == []


def test_cancel_says_what_it_did(cli: Cli, w: World):
    run_id = submit(w, "a")
    said = cli("runs", "cancel", run_id)
    assert (said.code, f"{run_id} is being cancelled: 0 of 1 trial had ended" in said.out) == (0, True)
    assert w.catalog.get_run(run_id).cancel_requested_at
    w.end(run_id, 1.0)
    again = cli("runs", "cancel", run_id, "--json")
    assert (again.json["run"]["phase"], "has ended already" in again.err) == ("completed", True)


def test_logs_are_printed_whole_and_harmless(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    run_id = submit(w, "a")
    text = "one\r\n\x1b]0;evil\x07two\n"
    pieces = [LogChunk(text=text[at : at + 9], next_offset=at + 9, done=False) for at in range(0, len(text), 9)]
    pieces[-1] = pieces[-1].model_copy(update={"done": True})

    def read(*_: object, task: int | None = None, offset: int = 0) -> LogChunk:
        return pieces[offset // 9]

    monkeypatch.setattr(w.evaluations, "logs", read)
    said = cli("runs", "logs", run_id, "--task", "0")
    assert (said.code, said.out) == (0, "one\n\\x1b]0;evil\\x07two\n")
    refused = cli("runs", "logs", run_id, "--task", "-1")
    assert refused.code == 2


def test_following_a_log_waits_for_more_and_takes_up_a_lost_run(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    run_id = submit(w, "a")
    w.executions.started.clear()
    monkeypatch.setattr(fetch, "RECOVER_SECONDS", 0.0)
    idle, end = LogChunk(text="", next_offset=0, done=False), LogChunk(text="end\n", next_offset=4, done=True)
    answers = [idle, idle, idle, end]

    def read(*_: object, task: int | None = None, offset: int = 0) -> LogChunk:
        if len(answers) == 3:
            w.executions.dead.add(run_id)
        return answers.pop(0)

    monkeypatch.setattr(w.evaluations, "logs", read)
    assert cli("runs", "logs", run_id).out == ""
    assert w.executions.started == []
    said = cli("runs", "logs", run_id, "--follow")
    assert said.out == "end\n"
    assert w.executions.started == [run_id]


def test_a_log_without_a_word_yet_says_once_what_is_waited_for(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    run_id = submit(w, "a", "b")
    nothing, end = LogChunk(text="", next_offset=0, done=False), LogChunk(text="began\n", next_offset=6, done=True)
    pieces = iter([nothing, nothing, nothing, end])
    monkeypatch.setattr(Logs, "read", lambda *_: next(pieces))
    w.waits.said = RunWaits(tasks={1: FITS_NOWHERE})
    assert cli("runs", "logs", run_id, "--task", "1").err == f"Waits: {FITS_NOWHERE.message}\n"
    said = cli("runs", "logs", run_id, "--task", "1", "--follow")
    assert (said.out, said.err) == ("began\n", f"Waits: {FITS_NOWHERE.message}\n")


def test_of_a_long_log_the_end_is_shown_unless_all_is_asked_for(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    run_id = submit(w, "a")
    text = "".join(f"line {n}\n" for n in range(100))
    monkeypatch.setattr(fetch, "LOG_SHOWN_BYTES", 20)

    def read(*_: object, task: int | None = None, offset: int = 0) -> LogChunk:
        piece = text[offset : offset + 15]
        end = offset + len(piece)
        return LogChunk(text=piece, next_offset=end, done=end == len(text), size=len(text) if offset == 0 else None)

    monkeypatch.setattr(w.evaluations, "logs", read)
    said = cli("runs", "logs", run_id)
    assert said.out == "line 98\nline 99\n"
    assert "--all" in said.err
    whole = cli("runs", "logs", run_id, "--all")
    assert (whole.out, whole.err) == (text, "")


# --- watching -----------------------------------------------------------------------------------------------------


def test_watching_tells_each_task_as_it_ends(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    run_id = submit(w, "a", "b")
    tasks = w.catalog.get_run(run_id).plan.tasks

    def end() -> None:
        w.end(run_id, 0.25, Reason.REWARD_EMPTY)
        w.merge(run_id)

    steps = [
        lambda: None,
        lambda: w.catalog.mark_started(run_id, NOW),
        lambda: w.catalog.add_outcome(outcome(run_id, tasks[1], Reason.REWARD_EMPTY)),
        lambda: None,
        end,
    ]
    real = Runs.status

    def look(self: Runs, run_id: str) -> RunStatus:
        steps.pop(0)()
        return real(self, run_id)

    monkeypatch.setattr(Runs, "status", look)
    said = cli("runs", "status", run_id, "--watch")
    assert said.code == 3
    assert said.out.splitlines()[:5] == [
        f"{run_id} accepted",
        f"{run_id} running",
        "1/2 b verifier_failed reward_empty",
        "2/2 a scored 0.2500",
        f"{run_id} completed",
    ]


def test_watching_takes_up_a_run_whose_worker_dies(cli: Cli, w: World):
    run_id = submit(w, "a")
    w.executions.dead.add(run_id)
    w.executions.on_start = lambda lost: w.end(lost, 1.0)
    said = cli("runs", "status", run_id, "--watch")
    assert said.code == 0
    assert f"{run_id} had lost its worker (killed by SIGKILL); it goes on" in said.err
    assert "scored 1 of 1 trial" in said.out


def test_an_ended_run_is_told_at_once_and_as_json(cli: Cli, w: World):
    run_id = ended(w, 1.0, 1.0)
    said = cli("runs", "status", run_id, "--watch", "--json")
    assert (said.code, said.json["run"]["phase"]) == (0, "completed")
    assert "Mean 1.0000 (scored 2 of 2 trials, 2 of 2 tasks), 95 % interval 0.3424 to 1.0000" in said.err


def test_many_that_were_not_scored_are_counted_and_the_first_named(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(report, "NAMED_MAX", 2)
    run_id = ended(w, 1.0, *[Reason.REWARD_EMPTY] * 3, Reason.SANDBOX_LOST)
    said = cli("runs", "status", run_id, "--watch")
    assert "Not scored: 3 verifier_failed (reward_empty 3)" in said.out
    assert "Not scored: 1 infra_failed (sandbox_lost 1)" in said.out
    assert "  1 t1 verifier_failed reward_empty: as the test wanted" in said.out
    assert f"  … and 2 more; all of them: harbor-assets runs tasks {run_id}" in said.out


def test_the_live_picture_holds_thousands_of_tasks_and_no_markup(
    w: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.progress import LiveView

    with evaluator_of(w) as evaluator:
        status = evaluator.runs.status(ended(w, 1.0, *[Reason.REWARD_EMPTY] * 19))
    many = [
        task.model_copy(update={"index": at, "task": "[red]evil[/red]\x1b[2J", **({"running": 1} if at % 3 else {})})
        for at, task in enumerate(status.tasks * 500)
    ]
    monkeypatch.setenv("COLUMNS", "100")
    with LiveView(Output()) as view:
        view.show(status.model_copy(update={"tasks": tuple(many)}))
    said = capsys.readouterr().out
    assert "[red]evil[/red]\\x1b[2J" in said
    assert "\x1b[2J" not in said
    assert "more" in said
    assert [line for line in said.splitlines() if set(line) <= set("━╸╺ ") and line.strip()], said
    assert len(said.splitlines()) < 24


# --- faults -------------------------------------------------------------------------------------------------------


def test_a_recovery_that_fails_does_not_fail_the_command(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    def full() -> list[str]:
        raise StorageFull("no space left")

    monkeypatch.setattr(w.evaluations, "recover", full)
    said = cli("runs", "list")
    assert said.code == 0
    assert "could not be taken up: no space left" in said.err


def test_a_run_that_goes_on_says_how_it_lost_its_worker(cli: Cli, w: World):
    run_id = submit(w, "a")
    w.executions.dead.add(run_id)
    said = cli("runs", "list")
    assert f"{run_id} had lost its worker (killed by SIGKILL); it goes on" in said.err
    assert f"Its log: harbor-assets runs logs {run_id}" in said.err


def test_a_followed_run_that_cannot_go_on_ends_the_command(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harbor_assets.interfaces.cli.progress.RECOVER_SECONDS", 0.0)
    run_id = submit(w, "a")
    w.executions.dead.add(run_id)
    w.executions.full = "No space left below /home/me: 0.0 MB are free, a run needs 4. Free some, then repeat."
    said = cli("runs", "status", run_id, "--watch")
    assert said.code == 1
    assert "No space left below /home/me" in said.err
    assert f"harbor-assets runs status {run_id} --watch" in said.err
    listed = cli("runs", "list")
    assert listed.code == 0
    assert f"{run_id} has lost its worker and cannot go on: No space left" in listed.err
    assert cli("runs", "submit", "--taskset", w.publish("b")).code == 1  # before anything is stored
    assert len(cli("runs", "list", "--json").json["data"]) == 1


@pytest.mark.parametrize(("debug", "shown"), [("", False), ("1", True)])
def test_what_nobody_foresaw_is_one_line_unless_debugging(
    cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch, debug: str, shown: bool
):
    def fail(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("by\nnothing\x1b[2J")

    monkeypatch.setattr(w.evaluations, "list_runs", fail)
    monkeypatch.setenv("HARBOR_ASSETS_DEBUG", debug)
    said = cli("runs", "list")
    assert (said.code, said.out) == (1, "")
    assert "Unexpected ZeroDivisionError: by nothing\\x1b[2J" in said.err
    assert ("Traceback" in said.err) is shown


def test_names_of_strangers_do_not_reach_the_terminal_raw(cli: Cli, w: World):
    w.catalog.put_task("default", "t", task_input("org/\x1b[31mred"))
    run_id = submit_of(w, "t")
    said = cli("runs", "submit", "--taskset", "suite", "--list-tasks")
    assert "org/\\x1b[31mred" in said.out
    assert run_id in cli("runs", "list").out


def submit_of(w: World, name: str) -> str:
    from harbor_assets.domain.tasks import TasksetInput

    w.catalog.put_taskset("default", "suite", TasksetInput(tasks=[name]))
    request = RunRequest(spec=Spec(tasks=TaskSelection(taskset="suite")))
    return w.evaluations.submit("default", request).run.id
