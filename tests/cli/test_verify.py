"""`tasksets verify`, and where its marks are shown."""

from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.tasks import TasksetInput
from tests.cli.conftest import Cli
from tests.interfaces.backends import NOW, World, outcome, task_input

LOST = Reason.SANDBOX_LOST


def answers(w: World, oracle: list[list[float | Reason]], nop: list[list[float | Reason]]) -> None:
    """Let runs end at once: for each task, how its trials end, by the run's agent."""

    def work(run_id: str) -> None:
        run = w.catalog.get_run(run_id)
        w.catalog.mark_started(run_id, NOW)
        for task, ended in zip(run.plan.tasks, {"oracle": oracle, "nop": nop}[run.plan.agent.name], strict=True):
            for k, end in enumerate(ended, 1):
                w.catalog.add_outcome(outcome(run_id, task, end).model_copy(update={"k": k}))
        w.catalog.finish(run_id, RunPhase.COMPLETED, ResultState.READY, at=NOW)

    w.executions.on_start = work


def runs_of(w: World) -> dict[str, str]:
    return {run.plan.agent.name: run.id for run in w.catalog.list_runs("default").items}


def test_tasks_are_judged_marked_and_the_runs_that_show_it_are_linked(cli: Cli, w: World) -> None:
    ref = w.publish("a", "b", "c", "d", "e")
    answers(
        w,
        [[1.0, 1.0], [1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [1.0, LOST]],
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]],
    )
    said = cli("tasksets", "verify", "suite", "-n", "2")
    assert said.code == 3, said.err
    runs = runs_of(w)
    lines = {line.split()[1]: line.split()[2:5] for line in said.out.splitlines() if line[:1].isdigit() and "/" in line}
    assert lines["a"] == ["good", "2/2", "0/2"]
    assert lines["b"] == ["flaky", "1/2", "0/2"]
    assert lines["c"] == ["oracle_fails", "0/2", "0/2"]
    assert lines["d"] == ["nop_passes", "2/2", "1/2"]
    assert lines["e"] == ["undecided", "1/2", "0/2"]
    assert "1 sandbox_lost" in said.out
    assert f"1 of 5 tasks good, of {ref}" in said.out
    assert all(f"runs results {run_id}" in said.out for run_id in runs.values())
    tasks = w.catalog.get_run(runs["nop"]).plan.tasks
    marks = w.catalog.marks_of("default", [task.ref for task in tasks])
    assert [[mark.verdict.value for mark in marks.get(task.ref, ())] for task in tasks] == [
        ["good"],
        ["flaky"],
        ["oracle_fails"],
        ["nop_passes"],
        [],
    ]
    assert marks[tasks[1].ref][0].runs == (runs["oracle"], runs["nop"])
    assert "--tasks 4" in said.out


def test_all_good_is_0_none_is_4_and_json_says_the_same(cli: Cli, w: World) -> None:
    w.publish("a", "b")
    answers(w, [[1.0] * 3, [1.0] * 3], [[0.0] * 3, [0.0] * 3])
    said = cli("tasksets", "verify", "suite", "--json")
    assert said.code == 0
    assert [task["verdict"] for task in said.json["tasks"]] == ["good", "good"]
    assert {said.json["oracle_run"], said.json["nop_run"]} == {*runs_of(w).values()}
    answers(w, [[LOST] * 3, [0.0] * 3], [[0.0] * 3, [0.0] * 3])
    again = cli("tasksets", "verify", "suite", "--json")
    assert again.code == 4
    assert [task["verdict"] for task in again.json["tasks"]] == [None, "oracle_fails"]


def test_two_runs_that_are_there_are_judged_and_unfit_ones_are_refused(cli: Cli, w: World) -> None:
    w.publish("a", "b")
    answers(w, [[1.0], [1.0]], [[0.0], [0.0]])
    assert cli("tasksets", "verify", "suite", "-n", "1").code == 0
    runs = runs_of(w)
    both = f"{runs['oracle']},{runs['nop']}"
    assert cli("tasksets", "verify", "suite", "--runs", both).code == 0
    swapped = cli("tasksets", "verify", "suite", "--runs", f"{runs['nop']},{runs['oracle']}")
    assert (swapped.code, "ran the agent 'nop', not oracle" in swapped.err) == (2, True)
    answers(w, [[1.0]], [[0.0]])
    cli("runs", "submit", "--taskset", "suite", "--tasks", "0", "--agent", "nop")
    other = next(run.id for run in w.catalog.list_runs("default").items if run.id not in runs.values())
    apart = cli("tasksets", "verify", "suite", "--runs", f"{runs['oracle']},{other}")
    assert (apart.code, "has another tasks than" in apart.err) == (2, True), apart.err
    assert cli("tasksets", "verify", "suite", "--runs", runs["nop"]).code == 2
    assert cli("tasksets", "verify", "suite", "--runs", both, "--tasks", "0").code == 2


def test_runs_of_another_taskset_are_refused_before_anything_is_said(cli: Cli, w: World) -> None:
    ref = w.publish("a")
    answers(w, [[1.0]], [[0.0]])
    assert cli("tasksets", "verify", "suite", "-n", "1").code == 0
    runs = runs_of(w)
    both = f"{runs['oracle']},{runs['nop']}"
    w.catalog.put_taskset("default", "other", TasksetInput(tasks=["a"]))
    other = cli("tasksets", "verify", "other", "--runs", both)
    assert (other.code, f"ran {ref}, not default/other#" in other.err, other.out) == (2, True, ""), other.err
    none = cli("tasksets", "verify", "nowhere", "--runs", both)
    assert (none.code, "nowhere" in none.err, none.out) == (2, True, "")
    swapped = cli("tasksets", "verify", "suite", "--runs", f"{runs['nop']},{runs['oracle']}")
    assert (swapped.code, swapped.out) == (2, "")
    n = cli("tasksets", "verify", "suite", "--runs", both, "-n", "3")
    assert (n.code, "-n, --tasks" in n.err) == (2, True)
    w.publish("a", "b")  # a newer revision of the suite; the command that was printed names no digest
    assert cli("tasksets", "verify", "suite", "--runs", both).code == 0
    pinned = w.catalog.get_taskset("default", "suite").ref
    assert cli("tasksets", "verify", pinned, "--runs", both).code == 2


def test_older_runs_leave_the_mark_of_newer_ones(cli: Cli, w: World) -> None:
    w.publish("a")
    answers(w, [[0.0]], [[0.0]])
    assert cli("tasksets", "verify", "suite", "-n", "1").code == 4
    old = runs_of(w)
    answers(w, [[1.0]], [[0.0]])
    assert cli("tasksets", "verify", "suite", "-n", "1").code == 0
    ref = w.catalog.get_task("default", "a").ref
    (mark,) = w.catalog.marks_of("default", [ref])[ref]
    said = cli("tasksets", "verify", "suite", "--runs", f"{old['oracle']},{old['nop']}")
    assert said.code == 4
    assert f"Not marked: 1 task (a), marked by runs that are newer ({', '.join(mark.runs)})" in said.out
    assert w.catalog.marks_of("default", [ref])[ref] == [mark]
    again = cli("tasksets", "verify", "suite", "--runs", ",".join(mark.runs))
    assert "Not marked" not in again.out


def test_marks_are_shown_wherever_the_revision_is_used(cli: Cli, w: World) -> None:
    w.publish("a", "b")
    answers(w, [[1.0], [1.0]], [[0.0], [1.0]])
    cli("tasksets", "verify", "suite", "-n", "1")
    shown = cli("tasksets", "show", "suite")
    assert "Marked: good 1, nop_passes 1" in shown.out
    assert "is marked nop_passes: oracle passed 1 of 1, nop passed 1 of 1" in shown.out
    assert {mark["verdict"] for mark in cli("tasksets", "show", "suite", "--json").json["marks"]} == {
        "good",
        "nop_passes",
    }
    assert "Marked:      nop_passes: " in cli("tasks", "show", "b").out
    assert [mark["verdict"] for mark in cli("tasks", "show", "a", "--json").json["marks"]] == ["good"]
    answers(w, [[1.0], [1.0]], [])
    submitted = cli("runs", "submit", "--taskset", "suite")
    assert "Warning: default/b#" in submitted.out
    assert "default/a#" not in submitted.out
    run_id = w.catalog.list_runs("default").items[0].id
    w.merge(run_id)
    for command in ("tasks", "results", "status"):
        assert "is marked nop_passes" in cli("runs", command, run_id).out, command
    found = cli("runs", "tasks", run_id, "--json").json["data"]
    assert [[mark["verdict"] for mark in task["marks"]] for task in found] == [["good"], ["nop_passes"]]
    assert {mark["verdict"] for mark in cli("runs", "results", run_id, "--json").json["marks"]} == {
        "good",
        "nop_passes",
    }
    assert [mark.verdict for mark in w.catalog.get_run(run_id).plan.marks] == [Verdict.NOP_PASSES]


def test_a_new_revision_has_no_marks_and_a_person_is_heard_first(cli: Cli, w: World) -> None:
    w.publish("a", "b")
    old = w.catalog.get_task("default", "a").ref
    run = "run-" + "1" * 16
    for verdict, runs in ((Verdict.FLAKY, (run,)), (Verdict.BAD, ())):
        w.catalog.put_mark(
            Mark(workspace="default", subject=old, verdict=verdict, who="ann", why="seen", at=NOW, runs=runs)
        )
    shown = cli("tasksets", "show", "suite").out
    assert shown.index("is marked bad") < shown.index("is marked flaky")
    w.catalog.put_task("default", "a", task_input("org/other"))
    assert "Marked" not in cli("tasks", "show", "a").out
    assert "Marked" in cli("tasks", "show", old).out
