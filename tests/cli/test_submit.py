"""`runs submit`, `tasksets create`, `quickstart`: what they print, refuse and return. The worker is a script."""

import re
import shlex
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import RunPhase
from harbor_assets.interfaces.sdk.publishing import Publishing
from harbor_assets.interfaces.sdk.runs import Runs
from tests.cli.conftest import Cli
from tests.interfaces.backends import NOW, World
from tests.suites import make

DIGEST = "[0-9a-f]{64}"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return make.make_suite(tmp_path / "geo", 3)


def scores(w: World, *rewards: float | Reason) -> None:
    """Let the worker end every run like this at once."""

    def end(run_id: str) -> None:
        w.end(run_id, *rewards)
        w.merge(run_id)

    w.executions.on_start = end


# --- tasksets create ----------------------------------------------------------------------------------------------


def test_create_publishes_and_ends_with_the_reference(cli: Cli, suite: Path):
    said = cli("tasksets", "create", "--harbor-dir", suite)
    assert (said.code, said.err) == (0, "")
    *tasks, taskset, last = said.out.splitlines()
    assert [re.fullmatch(rf"Published task default/geo-task-00\d#{DIGEST}", line) is not None for line in tasks] == [
        True
    ] * 3
    assert re.fullmatch(rf"Published taskset default/geo-[0-9a-f]{{8}}#{DIGEST} \(3 of 3 tasks\)", taskset)
    assert re.fullmatch(rf"default/geo-[0-9a-f]{{8}}#{DIGEST}", last)
    again = cli("tasksets", "create", "--harbor-dir", suite)
    assert again.out.count("Unchanged task ") == 3
    assert again.out.splitlines()[-1] == last


def test_create_chooses_and_tells_in_json(cli: Cli, suite: Path):
    said = cli("tasksets", "create", "--harbor-dir", suite, "--tasks", "0,task-002", "--workspace", "ws", "--json")
    assert said.code == 0
    found = said.json
    assert found["taskset_ref"].startswith("ws/geo-")
    assert [task["name"] for task in found["tasks"]] == ["geo-task-000", "geo-task-002"]
    assert "(2 of 3 tasks)" in said.err
    filtered = cli("tasksets", "create", "--harbor-dir", suite, "-i", "task-*", "-x", "*1", "-l", "1", "--json").json
    assert [task["name"] for task in filtered["tasks"]] == ["geo-task-000"]


# --- which tasks --------------------------------------------------------------------------------------------------


def test_listing_stores_and_starts_nothing(w: World, cli: Cli, suite: Path):
    said = cli("runs", "submit", "--harbor-dir", suite, "--list-tasks")
    assert said.code == 0
    assert said.out.splitlines() == [
        "INDEX  NAME          NATIVE ID",
        "0      geo-task-000  tests/task-000",
        "1      geo-task-001  tests/task-001",
        "2      geo-task-002  tests/task-002",
    ]
    assert w.artifacts.objects == {}
    assert w.catalog.list_tasks("default").total == 0
    found = cli("runs", "submit", "--harbor-dir", suite, "--list-tasks", "-x", "*1", "--json").json
    assert [(task["index"], task["name"]) for task in found["data"]] == [(0, "geo-task-000"), (2, "geo-task-002")]
    assert found["pagination"]["total_results"] == 2


def test_a_stored_taskset_is_listed_too(cli: Cli, w: World):
    ref = w.publish("b", "a")
    assert cli("runs", "submit", "--taskset", ref, "--list-tasks").out.splitlines()[1:] == [
        "0      a     org/a",
        "1      b     org/b",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "--harbor-dir DIR"),
        (("--harbor-dir", "x", "--taskset", "y"), "two sources"),
        (("--taskset", "y", "--strict"), "--strict: only for --harbor-dir"),
        (("--taskset", "nope"), "nope"),
        (("--taskset", "no such ref"), "write name, workspace/name"),
        (("--harbor-dir", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_a_source_is_one_that_exists(w: World, cli: Cli, words: tuple[str, ...], says: str):
    said = cli("runs", "submit", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert w.executions.started == []


def test_unknown_names_and_indexes_are_refused_together_with_the_nearest(cli: Cli, suite: Path, w: World):
    said = cli("runs", "submit", "--harbor-dir", suite, "--tasks", "task-01,7", "-x", "taks-*")
    assert said.code == 2
    assert "task 'task-01': no such task; did you mean" in said.err
    assert "task '7': no such index; there are 3 tasks, 0 to 2" in said.err
    assert "-x 'taks-*': matches no task" in said.err
    assert w.catalog.list_tasks("default").total == 0


def test_broken_tasks_refuse_the_suite_unless_they_are_skipped(cli: Cli, suite: Path, w: World):
    make.no_instruction(suite)
    make.bad_toml(suite)
    said = cli("runs", "submit", "--harbor-dir", suite)
    assert said.code == 2
    assert "2 of 5 tasks in suite 'geo' cannot be used" in said.err
    assert "no-instruction: instruction.md: " in said.err
    assert "bad-toml: task.toml: " in said.err
    assert w.executions.started == []
    listed = cli("runs", "submit", "--harbor-dir", suite, "--list-tasks", "--json")
    assert {fault["name"] for fault in listed.json["invalid"]} == {"no-instruction", "bad-toml"}
    assert "Invalid bad-toml: task.toml: " in listed.err
    skipped = cli("runs", "submit", "--harbor-dir", suite, "--skip-invalid", "--json")
    assert skipped.code == 0
    assert "Skipped bad-toml: task.toml: " in skipped.err
    assert "(3 of 5 tasks)" in skipped.err
    assert {fault["name"] for fault in skipped.json["run"]["skipped"]} == {"no-instruction", "bad-toml"}
    status = cli("runs", "status", skipped.json["run"]["id"])
    assert "Skipped:   bad-toml: task.toml: " in status.out


def test_warnings_are_told_and_cut_and_strict_refuses(cli: Cli, suite: Path):
    for number in range(25):
        make.misspelt(suite, f"odd-{number:02}")
    said = cli("runs", "submit", "--harbor-dir", suite, "--list-tasks")
    warnings = [line for line in said.err.splitlines() if line.startswith("Warning: ")]
    assert len(warnings) == 21
    assert "enviroment" in warnings[0]
    assert "and 5 more" in warnings[-1]
    strict = cli("tasksets", "create", "--harbor-dir", suite, "--strict")
    assert strict.code == 2
    assert strict.err.count("enviroment") == 25


# --- submit -------------------------------------------------------------------------------------------------------


def test_only_tasks_that_moved_are_named(cli: Cli, suite: Path):
    said = cli("runs", "submit", "--harbor-dir", suite, "--tasks", "0,2")
    assert "Indexes in this run differ from those of the suite: 2 is 1\n" in said.out


def test_submit_says_what_it_did_and_how_to_go_on(cli: Cli, suite: Path, w: World):
    said = cli("runs", "submit", "--harbor-dir", suite, "--tasks", "1", "--agent", "nop", "-n", "2", "--cpus", "1.5")
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    (run_id,) = w.executions.started
    ref = w.catalog.get_run(run_id).plan.taskset_ref
    assert lines[0].startswith("Published task default/geo-task-001#")
    assert lines[1] == f"Published taskset {ref} (1 of 3 tasks)"
    assert lines[2] == "Indexes in this run differ from those of the suite: 1 is 0"
    assert lines[3] == "Sandbox process: asked for auto"
    assert lines[4] == "Note: a fake one"
    assert lines[5] == f"Run {run_id} accepted: 1 tasks, queued; the worker starts them"
    assert lines[7] == f"View evaluation run: harbor-assets runs status {run_id} --watch"
    again = lines[6].removeprefix("Rerun these tasks: harbor-assets ")
    assert f"'{ref}'" in again
    rerun = cli(*shlex.split(again))
    assert rerun.code == 0
    assert f"{run_id} is already running {ref}" in rerun.out
    first, second = (w.catalog.get_run(run).plan for run in w.executions.started)
    changed = {"run_id", "created_at"}
    assert first.model_dump(exclude=changed) == second.model_dump(exclude=changed)
    assert (second.n_concurrent, second.sizing.cpus, second.agent.name) == (2, 1.5, "nop")


def test_a_part_of_a_stored_taskset_keeps_its_indexes(cli: Cli, w: World):
    ref = w.publish("a", "b", "c")
    said = cli("runs", "submit", "--taskset", ref, "-x", "b", "--workspace", "other")
    assert said.code == 0
    (run_id,) = w.executions.started
    assert [task.index for task in w.catalog.get_run(run_id).plan.tasks] == [0, 2]
    assert "--tasks 0,2 --workspace other" in said.out
    assert f"runs status {run_id} --watch --workspace other" in said.out


def test_submit_as_json_is_one_document(cli: Cli, suite: Path):
    said = cli("runs", "submit", "--harbor-dir", suite, "--json")
    run = said.json["run"]
    assert (run["phase"], run["result_state"]) == ("accepted", "pending")
    assert re.fullmatch(r"run-[0-9a-f]{16}", run["id"])
    assert run["taskset_ref"].startswith("default/geo-")
    assert f"Run {run['id']} accepted" in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--agent", "claude-code"), "calls a model"),
        (("--agent", "orcale"), "did you mean oracle"),
        (
            ("--sandbox", "vm"),
            "--sandbox: must be 'auto', 'process', 'docker', 'podman' or 'kubernetes'; it is 'vm'",
        ),
        (("--memory-mb", "0", "--cpus", "-1"), "--cpus: must be above 0; it is -1.0"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_stored(
    cli: Cli, w: World, suite: Path, words: tuple[str, ...], says: str
):
    said = cli("runs", "submit", "--harbor-dir", suite, *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert w.artifacts.objects == {}


@pytest.mark.parametrize(
    ("rewards", "code"),
    [
        ((1.0, 0.0, 0.5), 0),
        ((1.0, Reason.REWARD_MISSING, 0.5), 3),
        ((Reason.REWARD_EMPTY, Reason.SANDBOX_LOST, Reason.AGENT_SETUP_ERROR), 4),
    ],
)
def test_wait_ends_with_how_the_run_ended(
    cli: Cli, w: World, suite: Path, rewards: tuple[float | Reason, ...], code: int
):
    scores(w, *rewards)
    said = cli("runs", "submit", "--harbor-dir", suite, "--wait")
    assert said.code == code
    scored = [reward for reward in rewards if isinstance(reward, float)]
    mean = f"{sum(scored) / len(scored):.4f}" if scored else "-"
    assert f"Mean {mean} (scored {len(scored)} of 3 trials, {len(scored)} of 3 tasks)" in said.out
    assert ("Not scored" in said.out) == (code != 0)
    assert "3/3 geo-task-002 " in said.out
    assert re.search(r"^Report: memory://.*/report.html$", said.out, re.MULTILINE)


def test_wait_as_json_tells_the_end(cli: Cli, w: World, suite: Path):
    scores(w, 1.0, 1.0, 1.0)
    said = cli("runs", "submit", "--harbor-dir", suite, "--wait", "--json")
    assert said.code == 0
    assert (said.json["run"]["phase"], said.json["run"]["result_state"]) == ("completed", "ready")
    assert "1/3 geo-task-000 scored 1.0000" in said.err


@pytest.mark.parametrize(("phase", "code"), [(RunPhase.CANCELLED, 5), (RunPhase.EXPIRED, 6)])
def test_cancelled_and_expired_runs_have_codes_of_their_own(cli: Cli, w: World, phase: RunPhase, code: int):
    def end(run_id: str) -> None:
        finish, w.catalog.finish = w.catalog.finish, lambda *_, **__: w.catalog.get_run(run_id)  # type: ignore[method-assign]
        w.end(run_id, 1.0, Reason.CANCELLED_BY_USER)
        w.merge(run_id)
        w.catalog.finish = finish  # type: ignore[method-assign]
        from harbor_assets.domain.phases import ResultState

        finish(run_id, phase, ResultState.READY, at=NOW)

    w.executions.on_start = end
    assert cli("runs", "submit", "--taskset", w.publish("a", "b"), "--wait").code == code


def test_quickstart_is_submit_and_wait(cli: Cli, w: World):
    scores(w, 1.0)
    said = cli("quickstart")
    assert said.code == 0
    plan = w.catalog.get_run(w.executions.started[0]).plan
    assert (plan.agent.name, plan.sandbox.why) == ("oracle", "asked for process")
    assert "hello-world scored 1.0000" in said.out
    assert "Report: " in said.out


# --- Ctrl-C -------------------------------------------------------------------------------------------------------


def test_ctrl_c_before_the_run_is_accepted_starts_nothing(
    cli: Cli, w: World, suite: Path, monkeypatch: pytest.MonkeyPatch
):
    real = Publishing.put_task

    def interrupted(self: Publishing, *args: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return real(self, *args)

    monkeypatch.setattr(Publishing, "put_task", interrupted)
    said = cli("runs", "submit", "--harbor-dir", suite, "--wait")
    assert said.code == 130
    assert "nothing was started" in said.err
    assert w.catalog.list_runs().total == 0


def test_ctrl_c_while_it_is_being_accepted_tells_the_run(cli: Cli, w: World):
    w.executions.on_start = lambda run_id: signal.raise_signal(signal.SIGINT)
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--wait", "--json")
    (run_id,) = w.executions.started
    assert said.code == 130
    assert f"Run {run_id} accepted" in said.err
    assert f"{run_id} was accepted and goes on" in said.err
    assert said.json["run"]["id"] == run_id


def test_ctrl_c_while_waiting_leaves_the_run_alone(cli: Cli, w: World, monkeypatch: pytest.MonkeyPatch):
    real, calls = Runs.status, []

    def interrupted(self: Runs, run_id: str) -> Any:
        calls.append(run_id)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)
        return real(self, run_id)

    monkeypatch.setattr(Runs, "status", interrupted)
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--wait", "--json")
    (run_id,) = w.executions.started
    assert said.code == 130
    assert f"{run_id} goes on. Follow it again with: harbor-assets runs status {run_id} --watch" in said.err
    assert said.json["run"]["phase"] == "accepted"
    assert w.catalog.get_run(run_id).cancel_requested_at is None


# --- refused before anything is published -------------------------------------------------------------------------


def test_tasks_that_can_never_run_are_named_all_at_once_and_nothing_is_published(cli: Cli, w: World, suite: Path):
    for number, text in ((0, "[environment]\ngpus = 1\n"), (2, "[agent]\ntimeout_sec = -5\n")):
        toml = suite / f"task-00{number}" / "task.toml"
        kept = [block for block in toml.read_text().split("\n\n") if not block.startswith(text.split("\n")[0])]
        toml.write_text("\n\n".join([*kept, text]))
    said = cli("runs", "submit", "--harbor-dir", suite)
    assert said.code == 2
    assert [line.strip() for line in said.err.splitlines()[1:]] == [
        "geo-task-000: gpus_unavailable: [environment] gpus = 1: the sandbox 'process' has none; run it on a "
        "deployment",
        "geo-task-002: timeout_invalid: [agent] timeout_sec = -5: write seconds above 0",
    ]
    assert "Published" not in said.out
    assert not w.catalog.list_tasks("default").items
    assert cli("runs", "submit", "--harbor-dir", suite, "--tasks", "1").code == 0


def test_the_oracle_is_warned_of_tasks_without_a_solution(cli: Cli, suite: Path):
    shutil.rmtree(suite / "task-001" / "solution", ignore_errors=True)
    said = cli("runs", "submit", "--harbor-dir", suite)
    assert said.code == 0
    assert "geo-task-001" in said.err
    assert "no solution/solve.sh" in said.err
    assert "solution" not in cli("runs", "submit", "--harbor-dir", suite, "--agent", "nop").err


# --- the agent's variables and time -------------------------------------------------------------------------------


def test_variables_and_time_of_the_agent_are_planned_and_asked_for_again(cli: Cli, suite: Path, w: World):
    words = ("--ae", "LOG_LEVEL=debug", "--ae", "EQUATION=a=b c", "--agent-timeout-multiplier", "2.5")
    said = cli("runs", "submit", "--harbor-dir", suite, *words)
    assert said.code == 0
    (again,) = (line for line in said.out.splitlines() if line.startswith("Rerun these tasks: "))
    assert cli(*shlex.split(again.removeprefix("Rerun these tasks: harbor-assets "))).code == 0
    first, second = (w.catalog.get_run(run).plan for run in w.executions.started)
    assert first.agent.env == second.agent.env == {"LOG_LEVEL": "debug", "EQUATION": "a=b c"}
    assert first.agent_timeout_multiplier == second.agent_timeout_multiplier == 2.5
    assert [task.trial_key for task in first.tasks] == [task.trial_key for task in second.tasks]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--ae", "sk-hush-hush-hush-hush"), "--ae: number 1 is no KEY=VALUE"),
        (("--ae", "=hush"), "--ae: number 1 is no KEY=VALUE"),
        (("--ae", "A=1", "--ae", "A=hush"), "--ae: A is given twice"),
        (("--ae", "9A=hush"), "--ae: number 1 is no KEY=VALUE"),
        (
            ("--ae", "ANTHROPIC_API_KEY=hush"),
            "--ae: ANTHROPIC_API_KEY is named like a credential, and those are never given as text: write "
            "'ANTHROPIC_API_KEY=${NAME}' in single quotes",
        ),
        (("--agent-timeout-multiplier", "0"), "--agent-timeout-multiplier: must be above 0"),
        (("--agent-timeout-multiplier", "inf"), "--agent-timeout-multiplier: must be at most 100"),
        (("--spec-file", "x.json", "--ae", "A=hush"), "--ae: not beside --spec-file; write it in the file"),
    ],
)
def test_bad_variables_and_times_are_refused_without_a_value(
    cli: Cli, suite: Path, w: World, words: tuple[str, ...], says: str
):
    said = cli("runs", "submit", "--harbor-dir", suite, *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert "hush" not in said.err
    assert w.artifacts.objects == {}


def test_the_oracle_is_told_of_stored_tasks_without_a_solution(cli: Cli, suite: Path, w: World, tmp_path: Path):
    make.make_task(suite, "bare", native_id="tests/bare", solve=None)
    ref = cli("tasksets", "create", "--harbor-dir", suite).out.splitlines()[-1]
    w.look_at_archives(tmp_path / "unpacked")
    told = cli("runs", "submit", "--taskset", ref)
    assert told.code == 0
    assert told.err == (
        "Warning: geo-bare: no solution/solve.sh, so the agent oracle has nothing to apply "
        "and its trials earn nothing\n"
    )
    assert cli("runs", "submit", "--taskset", ref, "-x", "bare").err == ""
    assert cli("runs", "submit", "--taskset", ref, "--agent", "nop").err == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--node-selector", "pool"), "--node-selector: 'pool' is no KEY=VALUE"),
        (("--node-selector", "a=1", "--node-selector", "a=2"), "--node-selector: 'a' is given twice"),
        (("--toleration", "gpu:Never"), "--toleration: 'gpu:Never': 'Never' is no effect; write NoSchedule"),
        (("--toleration", "a b"), "--toleration: 'a b': key 'a b' is no label's key"),
        (("--node-selector", "pool=gpu"), "there are no nodes to choose from"),
    ],
)
def test_nodes_that_cannot_be_are_refused(cli: Cli, suite: Path, words: tuple[str, ...], says: str):
    said = cli("runs", "submit", "--harbor-dir", suite, *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err
