"""Publishing a run: an Evaluation before anything runs, each trial once however often it is published, no 0 for what
infrastructure failed, and no run that fails because of it."""

import json
from datetime import timedelta
from typing import Any

import pytest

from harbor_assets.domain.errors import NotFound, Refused, ServiceUnavailable
from harbor_assets.domain.experiments import EvaluationInput, ExperimentInput
from harbor_assets.domain.outcomes import Measurements, Reason, TrialError, TrialOutcome
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.publication import Intake, Publication
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.tasks import Taskset
from harbor_assets.engine.publication import Publisher
from harbor_assets.engine.publishing import Publishing
from tests.fakes.accounts import RUN_ID, START, agent_error, make_plan, make_row
from tests.fakes.artifacts import MemoryArtifacts
from tests.fakes.experiments import MemoryExperiments

PUBLICATION = Publication(
    experiment="e", evaluation=f"oracle-{RUN_ID}", dataset="suite", dataset_version="v1", agent_name="oracle"
)
EVALUATION = PUBLICATION.evaluation
TASKSET = Taskset(
    id="taskset-1",
    name="suite",
    workspace="default",
    revision=1,
    created_at=START,
    updated_at=START,
    tasks=[],
    digest="a" * 64,
)


class World:
    def __init__(self) -> None:
        self.experiments, self.artifacts = MemoryExperiments(), MemoryArtifacts()
        self.publisher = Publisher(self.experiments, self.artifacts)
        self.experiments.create_experiment("default", ExperimentInput(name="e"))

    def run(self, names: list[str], *, publication: Publication | None = PUBLICATION, **more: Any) -> Run:
        plan = make_plan(names, publication=publication, **more)
        self.publisher.begin(plan)
        phase = RunPhase.RUNNING
        return Run(plan=plan, phase=phase, result_state=ResultState.PENDING, created_at=START, started_at=START)

    def leave(self, row: TrialOutcome, path: str, data: bytes) -> None:
        self.artifacts.put_bytes(f"{bundle_key(row.run_id)}/{row.evidence}/{path}", data)

    def sessions(self) -> dict[str, Any]:
        return {s.session_id: s for s in self.experiments.list_sessions("default", EVALUATION).items}


@pytest.fixture
def w() -> World:
    return World()


def trajectory(text: str = "I said.", **more: Any) -> bytes:
    steps = [{"step_id": 1, "source": "agent", "message": text, "metrics": {"prompt_tokens": 7, "cost_usd": 0.5}}]
    agent = {"name": "codex", "version": "3.1", "model_name": "m"}
    return json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": steps, **more}).encode()


# --- at submit ----------------------------------------------------------------------------------------------------


def test_an_experiment_that_is_not_there_is_refused_with_the_command_that_makes_it(w: World):
    (problem,) = w.publisher.problems("ws", Intake(experiment="nightly"))
    assert str(problem).endswith("make it: harbor-assets experiments create nightly --workspace ws")
    assert w.publisher.problems("default", Intake(experiment="e")) == []
    with pytest.raises(Refused, match="'nightly'"):
        w.publisher.of("default", Intake(experiment="nightly"), TASKSET, agent="nop", run_id=RUN_ID)


def test_the_dataset_is_the_taskset_unless_somebody_says_otherwise(w: World):
    plain = w.publisher.of("default", Intake(experiment="e"), TASKSET, agent="nop", run_id=RUN_ID)
    assert (plain.dataset, plain.dataset_version, plain.evaluation) == ("suite", "a" * 64, f"nop-{RUN_ID}")
    named = Intake(experiment="e", dataset_name="org/deep")
    found = w.publisher.of("default", named, TASKSET, agent="nop", run_id=RUN_ID)
    assert (found.dataset, found.dataset_version) == ("org/deep", "a" * 64)


def test_an_evaluation_that_is_there_keeps_its_dataset_and_its_experiment(w: World):
    (problem,) = w.publisher.problems("default", Intake(evaluation_id="mine"))
    assert "Evaluation 'mine'" in str(problem)
    there = w.experiments.get_experiment("default", "e")
    body = EvaluationInput(name="mine", experiment_ids=[there.id], dataset_name="d", dataset_version="2")
    w.experiments.create_evaluation("default", body)
    found = w.publisher.of("default", Intake(evaluation_id="mine"), TASKSET, agent="nop", run_id=RUN_ID)
    assert (found.experiment, found.evaluation, found.dataset, found.dataset_version) == ("e", "mine", "d", "2")
    w.publisher.begin(make_plan(["alpha"], publication=found))
    assert w.experiments.list_evaluations("default").total == 1


def test_an_evaluation_is_made_once_and_says_what_is_planned(w: World):
    plan = w.run(["alpha", "beta"], n_attempts=2).plan
    w.publisher.begin(plan)
    (made,) = w.experiments.list_evaluations("default").items
    assert (made.name, made.dataset_name, made.dataset_version, made.status) == (EVALUATION, "suite", "v1", "running")
    assert made.created_by == "ada"
    assert (made.metadata["run_id"], made.metadata["trials_planned"], made.metadata["tasks_planned"]) == (
        RUN_ID,
        "4",
        "2",
    )
    other = plan.model_copy(update={"run_id": "run-ffffffffffffffff"})
    with pytest.raises(Refused):
        w.publisher.begin(other)
    w.publisher.begin(plan.model_copy(update={"publication": None}))


# --- trials -------------------------------------------------------------------------------------------------------


def test_a_scored_trial_is_a_session_with_a_result_for_each_reward(w: World):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0, 1, 0.5, rewards={"reward": 0.5, "format_ok": 1.0}, reward_rejections={"bad": "boolean"})
    published = w.publisher.publish_trials(run, [row])
    assert (published.sessions, published.results, published.failed) == (1, 2, ())
    (session,) = w.sessions().values()
    assert session.session_id == f"{RUN_ID}:{row.trial_id}"
    assert (session.test_case_name, session.agent_name, session.status) == ("org/alpha", "oracle", "ok")
    assert (session.started_at, session.latency_ms) == (row.tries[0].start, 700.0)
    assert session.evaluator_scores == {"harbor_reward.reward": 0.5, "harbor_reward.format_ok": 1.0}
    assert session.metadata["task_ref"] == run.plan.tasks[0].ref
    (span,) = w.experiments.session_spans("default", session.session_id)
    assert (span.kind, span.name, span.output) == ("agent", "oracle", None)
    assert {result.span_id for result in session.results} == {span.span_id}


@pytest.mark.parametrize(
    "reason", [Reason.SANDBOX_LOST, Reason.REWARD_MISSING, Reason.CANCELLED_BY_USER, Reason.NEVER_STARTED]
)
def test_a_trial_without_a_score_has_its_error_and_never_a_zero(w: World, reason: Reason):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0, 1, reason, message="what happened", rewards={"format_ok": 1.0})
    w.publisher.publish_trials(run, [row])
    (session,) = w.sessions().values()
    assert (session.status, session.error_type, session.error_message) == ("error", reason.value, "what happened")
    assert session.results == []
    assert w.experiments.get_evaluation("default", EVALUATION).aggregate_scores == {}


def test_a_trial_graded_after_an_error_has_both(w: World):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0, 1, 1.0, reason=Reason.GRADED_AFTER_AGENT_TIMEOUT, error=agent_error())
    w.publisher.publish_trials(run, [row])
    (session,) = w.sessions().values()
    assert (session.status, session.error_type) == ("error", "AgentTimeoutError")
    assert session.evaluator_scores == {"harbor_reward.reward": 1.0}


def test_publishing_again_replaces(w: World):
    run = w.run(["alpha"])
    rows = [make_row(run.plan, 0)]
    w.publisher.publish_trials(run, rows)
    before = w.sessions()
    w.publisher.publish_trials(run, rows)
    after = w.sessions()
    gone = {"updated_at", "results"}
    assert [s.model_dump(exclude=gone) for s in after.values()] == [s.model_dump(exclude=gone) for s in before.values()]
    evaluation = w.experiments.get_evaluation("default", EVALUATION)
    assert (evaluation.run_count, evaluation.aggregate_scores["harbor_reward.reward"].count) == (1, 1)


def test_the_trace_is_what_the_agent_left_and_usage_counts_once(w: World):
    run = w.run(["alpha"])
    used = Measurements(prompt_tokens=9, completion_tokens=2, cost_usd=0.25, runtime_sec=3.0)
    row = make_row(run.plan, 0, measurements=used)
    w.leave(row, "agent/trajectory.json", trajectory())
    w.publisher.publish_trials(run, [row])
    (session,) = w.sessions().values()
    # What the row says, as every other place does, and nothing of the steps' added to it.
    assert (session.prompt_tokens, session.completion_tokens, session.cost_usd) == (9, 2, 0.25)
    assert (session.final_message, session.model_name, session.agent_version) == ("I said.", "m", "3.1")
    root, step = w.experiments.session_spans("default", session.session_id)
    assert (root.span_id, step.parent_span_id, step.output) == ("agent", "agent", "I said.")
    assert root.ended_at
    assert root.started_at
    assert (root.ended_at - root.started_at).total_seconds() == 3.0


def test_an_unknown_cost_stays_empty(w: World):
    run = w.run(["alpha"])
    w.publisher.publish_trials(run, [make_row(run.plan, 0)])
    (session,) = w.sessions().values()
    assert (session.cost_usd, session.prompt_tokens, session.tokens) == (None, None, None)
    assert w.experiments.get_evaluation("default", EVALUATION).cost_usd is None


def test_opentelemetry_goes_first_if_it_has_one_root(w: World):
    def export(*parents: str) -> bytes:
        spans = [{"spanId": f"s{n}", "parentSpanId": parent, "name": "x"} for n, parent in enumerate(parents)]
        return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()

    for parents, root in ((("", "s0"), "s0"), (("", ""), "agent")):
        run = w.run(["alpha"])
        row = make_row(run.plan, 0)
        w.leave(row, "agent/trajectory.json", trajectory())
        w.leave(row, "agent/traces/t.jsonl", export(*parents))
        w.publisher.publish_trials(run, [row])
        spans = w.experiments.session_spans("default", f"{RUN_ID}:{row.trial_id}")
        assert (len(spans), spans[0].span_id) == (2, root)


@pytest.mark.parametrize("data", [b"", b"{", b"[" * 100_000, b'{"schema_version": "ATIF-v1.7", "steps": [5]}'])
def test_a_trajectory_that_cannot_be_read_is_no_reason_to_publish_nothing(w: World, data: bytes):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0)
    w.leave(row, "agent/trajectory.json", data)
    assert w.publisher.publish_trials(run, [row]).sessions == 1
    assert len(w.experiments.session_spans("default", f"{RUN_ID}:{row.trial_id}")) == 1


def test_hostile_names_and_numbers_are_published_or_told(w: World):
    run = w.run(["alpha"])
    rewards = {"reward": 1.0, "x" * 255: 1.0, "a\u200bb": 0.5}
    error = TrialError(type="\x1b[2J" * 300, message="\ud800" + "m" * 50_000)
    row = make_row(run.plan, 0, 1, 1.0, rewards=rewards, error=error, reason=Reason.GRADED_AFTER_AGENT_ERROR)
    published = w.publisher.publish_trials(run, [row])
    assert (published.sessions, published.results) == (1, 1)
    assert len(published.skipped) == 2
    (session,) = w.sessions().values()
    assert session.error_type.isprintable()
    assert session.error_message.startswith("?mmm")
    assert "cut, 50001 characters" in session.error_message


def test_one_trials_failure_does_not_stop_the_others(w: World, monkeypatch: pytest.MonkeyPatch):
    run = w.run(["alpha", "beta", "gamma"])
    rows = [make_row(run.plan, index) for index in range(3)]
    put = w.experiments.put_session

    def fails(workspace: str, session: Any, *rest: Any) -> Any:
        if "00001" in session.session_id:
            raise ServiceUnavailable("the database restarts")
        return put(workspace, session, *rest)

    monkeypatch.setattr(w.experiments, "put_session", fails)
    published = w.publisher.publish_trials(run, rows)
    assert published.sessions == 2
    assert [said.partition(": ")[2] for said in published.failed] == ["the database restarts"]


# --- when the run is settled --------------------------------------------------------------------------------------


def end(w: World, run: Run, rows: list[TrialOutcome]) -> str | None:
    return w.publisher.settled(run, rows, phase=RunPhase.COMPLETED, ended_at=START + timedelta(seconds=30))


def test_settling_publishes_what_is_missing_or_has_changed_and_says_how_it_ended(
    w: World, monkeypatch: pytest.MonkeyPatch
):
    run = w.run(["alpha", "beta", "gamma"])
    rows = [make_row(run.plan, 0), make_row(run.plan, 1), make_row(run.plan, 2, 1, Reason.NEVER_STARTED)]
    w.publisher.publish_trials(run, rows[:1])
    w.publisher.publish_trials(run, [make_row(run.plan, 1, 1, 0.25)])
    written: list[str] = []
    put = w.experiments.put_session
    monkeypatch.setattr(
        w.experiments, "put_session", lambda ws, s, *rest: (written.append(s.session_id), put(ws, s, *rest))
    )
    assert end(w, run, rows) is None
    assert sorted(written) == sorted(f"{RUN_ID}:{row.trial_id}" for row in rows[1:])
    evaluation = w.experiments.get_evaluation("default", EVALUATION)
    assert evaluation.status == "completed"
    assert evaluation.metadata["eval_duration_sec"] == "30.0"
    assert float(evaluation.metadata["publish_duration_sec"]) >= 0
    assert evaluation.metadata["coverage"] == "2 of 3 trials scored"
    assert evaluation.metadata["run_id"] == RUN_ID
    written.clear()
    assert end(w, run, rows) is None
    assert written == []


def test_the_figures_count_a_task_without_a_score_as_zero_so_coverage_stands_beside_them(w: World):
    run = w.run(["alpha", "beta"])
    end(w, run, [make_row(run.plan, 0, 1, 1.0), make_row(run.plan, 1, 1, Reason.SANDBOX_LOST)])
    evaluation = w.experiments.get_evaluation("default", EVALUATION)
    figure = evaluation.aggregate_scores["harbor_reward.reward"]
    assert (figure.mean, figure.count, evaluation.test_case_count) == (0.5, 1, 2)
    assert evaluation.metadata["coverage"] == "1 of 2 trials scored"


@pytest.mark.parametrize("required", [True, False])
def test_what_could_not_be_published_is_told_only_if_it_is_required(w: World, required: bool):
    publication = PUBLICATION.model_copy(update={"required": required})
    run = w.run(["alpha"], publication=publication)
    w.experiments.delete_evaluation("default", EVALUATION)
    said = end(w, run, [make_row(run.plan, 0)])
    assert (said is not None) is required
    if said:
        assert said.startswith(f"not published to the Evaluation '{EVALUATION}': ")


def test_a_run_that_never_began_still_has_its_evaluation(w: World):
    run = w.run(["alpha"]).model_copy(update={"started_at": None})
    w.experiments.delete_evaluation("default", EVALUATION)
    assert end(w, run, [make_row(run.plan, 0, 1, Reason.CANCELLED_BY_USER)]) is None
    assert w.experiments.get_evaluation("default", EVALUATION).run_count == 1


# --- while it goes on ---------------------------------------------------------------------------------------------


class Heard:
    def __init__(self) -> None:
        self.said: list[str] = []

    def task_began(self, run_id: str, task: Any) -> None:
        self.said.append(f"began {task.index}")

    def task_ended(self, run_id: str, task: Any, rows: Any) -> None:
        self.said.append(f"ended {task.index}")


def test_each_task_is_published_as_it_ends_and_everything_is_passed_on(w: World):
    run, heard = w.run(["alpha", "beta"], n_attempts=2), Heard()
    with Publishing(w.publisher, run, heard) as listener:
        for task in run.plan.tasks:
            listener.task_began(run.id, task)
            listener.task_ended(run.id, task, [make_row(run.plan, task.index, k) for k in (1, 2)])
    assert heard.said == ["began 0", "ended 0", "began 1", "ended 1"]
    assert len(w.sessions()) == 4
    with Publishing(w.publisher, run.model_copy(update={"plan": make_plan(["alpha"])}), heard) as listener:
        assert listener is heard


def test_names_that_begin_as_keys_do_keep_nothing_from_being_published(w: World):
    run = w.run(["alpha"], owner="hf_somebody", taskset_ref=f"sk-learn/hello#{'a' * 64}")
    row = make_row(run.plan, 0).model_copy(update={"task": "sk-learn-fix"})
    assert w.publisher.publish_trials(run, [row]).failed == ()
    (session,) = w.sessions().values()
    assert session.metadata["task"].startswith("(left out")
    assert w.experiments.get_evaluation("default", EVALUATION).metadata["owner"].startswith("(left out")


@pytest.mark.parametrize(
    "step",
    [
        {"model_name": "\U000e0001" * 200, "metrics": {"prompt_tokens": 10**400, "cost_usd": 10**400}},
        {"timestamp": "9999-12-31T23:59:59Z"},
        {"timestamp": "0001-01-01T00:00:00+23:59"},
        {"tool_calls": [{"function_name": "\U000e0001" * 500, "arguments": {"\ud800": ["\udfff"]}}]},
        {"message": "\ud800", "reasoning_content": "\x00"},
    ],
)
def test_what_an_agent_writes_keeps_its_trial_from_nothing(w: World, step: dict[str, Any]):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0)
    whole = {
        "schema_version": "ATIF-v1.7",
        "agent": {"name": "\U000e0001" * 300},
        "steps": [{"source": "agent", **step}],
    }
    w.leave(row, "agent/trajectory.json", json.dumps(whole).encode())
    published = w.publisher.publish_trials(run, [row])
    assert (published.sessions, published.failed) == (1, ())
    assert len(w.experiments.session_spans("default", f"{RUN_ID}:{row.trial_id}")) >= 2


def test_a_store_that_does_not_answer_leaves_the_trial_for_later(w: World, monkeypatch: pytest.MonkeyPatch):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0)
    w.leave(row, "agent/trajectory.json", trajectory())

    def silent(key: str) -> Any:
        raise ServiceUnavailable("the bucket does not answer")

    with monkeypatch.context() as down:
        down.setattr(w.artifacts, "open", silent)
        assert w.publisher.publish_trials(run, [row]).sessions == 0
    assert end(w, run, [row]) is None
    assert len(w.experiments.session_spans("default", f"{RUN_ID}:{row.trial_id}")) == 2


def test_publishing_again_where_the_experiment_is_gone_names_the_next_steps(w: World):
    run = w.run(["alpha"])
    row = make_row(run.plan, 0)
    ended = run.model_copy(update={"phase": RunPhase.COMPLETED, "ended_at": START})
    w.experiments.delete_experiment("default", "e")
    with pytest.raises(NotFound) as refused:
        w.publisher.again(ended, [row])
    make, publish = "harbor-assets experiments create e, then: ", f"harbor-assets runs publish {RUN_ID}"
    assert str(refused.value).endswith(make + publish)
    w.experiments.create_experiment("default", ExperimentInput(name="e"))
    assert w.publisher.again(ended, [row]).published == 1
