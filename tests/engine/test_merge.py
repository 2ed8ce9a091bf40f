import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_assets.domain.bundle import Aggregate, BundleTask, Manifest, RunMetadata, Score, Summary, Trial
from harbor_assets.domain.errors import Broken
from harbor_assets.domain.outcomes import Measurements, Reason, TrialError, TrialOutcome
from harbor_assets.domain.plans import AgentSpec
from harbor_assets.domain.policies import OutcomeSummary
from harbor_assets.engine.merge import BundleContent
from tests.fakes.accounts import RUN_ID, agent_error, make_bundle, make_plan, make_row


def read(content: BundleContent) -> dict[str, bytes]:
    return {name: b"".join(pieces) for name, pieces in content.files()}


def rows_of[T](model: type[T], data: bytes) -> list[T]:
    return [model(**json.loads(line)) for line in data.splitlines()]


@pytest.fixture
def mixed() -> BundleContent:
    """Two tasks, two attempts: a pass with a side reward, a timeout that was graded, a lost sandbox, a bad reward."""
    plan = make_plan(["alpha", "beta"], n_attempts=2)
    return make_bundle(
        plan,
        [
            make_row(plan, 1, 2, Reason.REWARD_NOT_A_NUMBER, message="reward.txt holds 'x'"),
            make_row(plan, 0, 1, 1.0, rewards={"reward": 1.0, "format_ok": 0.5}),
            make_row(plan, 1, 1, Reason.SANDBOX_LOST, error=TrialError(type="SandboxLost", traceback="T" * 9000)),
            make_row(plan, 0, 2, 0.25, reason=Reason.GRADED_AFTER_AGENT_TIMEOUT, error=agent_error()),
        ],
    )


def test_every_file_of_the_format_is_there_and_the_manifest_comes_last(mixed: BundleContent):
    files = read(mixed)
    assert list(files) == [
        "tasks.jsonl",
        "trials.jsonl",
        "scores.jsonl",
        "outcomes.jsonl",
        "outcomes.json",
        "summary.json",
        "metadata.json",
        "run.json",
    ]
    manifest = Manifest.model_validate_json(files["run.json"])
    assert (manifest.run_id, manifest.dashboard_path) == (RUN_ID, "report.html")
    assert Summary.model_validate_json(files["summary.json"]) == mixed.summary
    assert OutcomeSummary.model_validate_json(files["outcomes.json"]) == mixed.outcomes


def test_tasks_declare_the_primary_reward_and_every_other_name_seen(mixed: BundleContent):
    alpha, beta = rows_of(BundleTask, read(mixed)["tasks.jsonl"])
    assert (alpha.id, alpha.intent, alpha.inputs) == ("org/alpha", "org/alpha", {"instruction": "Say hello-alpha."})
    assert [(o.name, o.required) for o in alpha.metrics[0].outputs] == [("reward", True), ("format_ok", False)]
    assert [o.name for o in beta.metrics[0].outputs] == ["reward"]
    assert alpha.metrics[0].type == "harbor_reward"


def test_a_trial_is_completed_partial_or_failed(mixed: BundleContent):
    first, second, third, fourth = rows_of(Trial, read(mixed)["trials.jsonl"])
    assert [t.id for t in (first, second, third, fourth)] == [row.trial_id for row in mixed.rows]
    assert (first.status, first.error) == ("completed", None)
    assert second.status == "partial"
    assert second.error is not None
    assert (second.error.type, second.error.occurred_at) == ("AgentTimeoutError", "2026-01-02T03:04:06")
    assert third.status == fourth.status == "failed"
    assert third.error is not None
    assert third.error.type == "sandbox_lost"
    assert third.error.traceback == "T" * 8192
    assert fourth.error is not None
    assert (fourth.error.type, fourth.error.message) == ("reward_not_a_number", "reward.txt holds 'x'")
    assert {t.metadata["harbor_primary_reward_key"] for t in (first, second, third, fourth)} == {"reward"}
    assert third.metadata["reward"] is None
    assert first.metadata["reward_details"] == {"reward": 1.0, "format_ok": 0.5}


def test_refs_are_relative_to_the_bundle(mixed: BundleContent):
    trial = rows_of(Trial, read(mixed)["trials.jsonl"])[0]
    assert trial.evidence is not None
    refs = {key: descriptor.ref for key, descriptor in trial.evidence.descriptors.items()}
    folder = f"evidence/harbor/{RUN_ID}-task-0/hello-alpha__00000-1"
    assert refs["trial_dir"] == folder
    assert refs["result"] == refs["json:result.json"] == f"{folder}/result.json"
    assert refs["log:verifier/test-stdout.txt"] == f"{folder}/verifier/test-stdout.txt"
    assert refs["artifact:manifest.json"] == refs["artifact:artifacts/manifest.json"]
    assert all(ref is not None and ref.startswith(folder) for ref in refs.values())


def test_scores_tell_a_dead_trial_from_a_missing_output(mixed: BundleContent):
    first, second, third, _ = rows_of(Score, read(mixed)["scores.jsonl"])
    assert first.id == f"{RUN_ID}:org/alpha:hello-alpha__00000-1:harbor_reward"
    assert {o.name: o.value for o in first.outputs} == {"reward": 1.0, "format_ok": 0.5}
    assert {o.name: o.value for o in second.outputs} == {"reward": 0.25}
    (diagnostic,) = second.diagnostics
    assert diagnostic.severity == "info"
    assert diagnostic.details == {"output": "format_ok", "reason": "absent"}
    assert third.of_dead_trial
    assert third.outputs == []
    assert third.metadata["row_index"] == 1
    assert third.metadata["trial_metadata"] == rows_of(Trial, read(mixed)["trials.jsonl"])[2].metadata


def test_the_two_summaries_agree(mixed: BundleContent):
    found = mixed.summary.aggregate("harbor_reward.reward")
    assert isinstance(found, Aggregate)
    assert found.mean == mixed.outcomes.policies.scored_only.mean == 0.625
    assert (found.count, found.nan_count) == (2, 2)
    assert mixed.outcomes.policies.missing_as_zero.mean == 0.3125
    once = mixed.summary.aggregate("harbor_reward.reward.pass@1")
    assert once is not None
    assert once.mean == mixed.outcomes.policies.missing_as_zero.pass_at_k["1"] == 0.25
    assert list(mixed.summary.error_trial_ids) == ["AgentTimeoutError", "sandbox_lost", "reward_not_a_number"]


def test_outcome_rows_come_back_as_they_were(mixed: BundleContent):
    assert rows_of(TrialOutcome, read(mixed)["outcomes.jsonl"]) == list(mixed.rows)


def test_rejected_rewards_and_flags_are_told_in_diagnostics():
    plan = make_plan(["alpha"])
    rejected = {"ok": "boolean", "reward.pass@1": "reserved_key"}
    row = make_row(
        plan, 0, 1, 1.5,
        reward_rejections=rejected, reward_entry_rejections=("invalid_key",), flags=("reward_above_1",),
    )  # fmt: skip
    files = read(make_bundle(plan, [row]))
    (score,) = rows_of(Score, files["scores.jsonl"])
    assert [d.details for d in score.diagnostics] == [
        {"output": "reward", "reason": "reward_above_1"},
        {"output": "ok", "reason": "boolean"},
        {"reason": "reserved_key"},
        {"reason": "invalid_key"},
    ]
    (task,) = rows_of(BundleTask, files["tasks.jsonl"])
    assert [o.name for o in task.metrics[0].outputs] == ["reward", "ok"]


def test_metadata_names_the_runner_without_secrets():
    agent = AgentSpec(name="oracle", kwargs={"api_key": "hunter2", "nested": [{"token": "hunter2"}], "depth": 3})
    plan = make_plan(["alpha"], agent=agent)
    data = read(make_bundle(plan, [make_row(plan, 0)]))["metadata.json"]
    assert b"hunter2" not in data
    metadata = RunMetadata.model_validate_json(data)
    assert metadata.target is not None
    assert (metadata.target.name, metadata.target.kind, metadata.target.version) == ("harbor", "runner", "0.26.0")
    assert metadata.target.config["agent_kwargs"] == {
        "api_key": "[redacted]", "nested": [{"token": "[redacted]"}], "depth": 3,
    }  # fmt: skip
    assert metadata.labels["taskset_ref"] == plan.taskset_ref
    assert metadata.duration_sec == 30.0


def test_a_run_in_which_nothing_ran_still_has_a_clock_and_an_account():
    plan = make_plan(["alpha"])
    content = make_bundle(plan, [make_row(plan, 0, 1, Reason.NEVER_STARTED)], started_at=None)
    files = read(content)
    assert RunMetadata.model_validate_json(files["metadata.json"]).started_at == plan.created_at
    (trial,) = rows_of(Trial, files["trials.jsonl"])
    assert (trial.status, trial.output, trial.evidence) == ("failed", None, None)
    assert content.summary.scores.scores[0].mean is None


def test_the_agents_last_words_come_from_its_trajectory():
    plan = make_plan(["alpha", "beta"])
    steps: list[dict[str, Any]] = [
        {"step_id": 1, "source": "user", "message": "do"},
        {"step_id": 2, "source": "agent", "message": [{"type": "text", "text": "done"}, {"type": "image"}]},
        {"step_id": 3, "source": "agent", "message": ""},
    ]
    atif = json.dumps({"schema_version": "ATIF-v1.7", "agent": {}, "steps": steps}).encode()
    rows = [make_row(plan, 0), make_row(plan, 1)]
    files = [("agent/trajectory.json", 100), ("agent/traces/a.jsonl", 1), ("agent/traces/b.atif.json", 1)]
    content = make_bundle(
        plan, rows,
        evidence={row.trial_id: files for row in rows},
        trajectories={rows[0].trial_id: atif, rows[1].trial_id: b'{"steps": [1]}'},
    )  # fmt: skip
    first, second = rows_of(Trial, read(content)["trials.jsonl"])
    assert first.output is not None
    assert second.output is not None
    assert (first.output.output_text, second.output.output_text) == ("done", None)
    assert first.evidence is not None
    assert second.evidence is not None
    keys = set(first.evidence.descriptors)
    assert {"trace", "trace:atif", "trace:otlp", "trace:agent/trajectory.json", "trace:agent/traces/a.jsonl"} <= keys
    assert first.evidence.descriptors["trace"].format == "atif"
    assert "artifact:agent/trajectory.json" in second.evidence.descriptors


def test_long_last_words_are_cut_and_say_so():
    plan = make_plan(["alpha"])
    row = make_row(plan, 0)
    steps = [{"source": "agent", "message": "x" * 100_000}]
    atif = json.dumps({"schema_version": "ATIF-v1.7", "steps": steps}).encode()
    (trial,) = rows_of(Trial, read(make_bundle(plan, [row], trajectories={row.trial_id: atif}))["trials.jsonl"])
    assert trial.output is not None
    assert len(trial.output.output_text or "") == 64 * 1024
    assert trial.output.metadata["output_text_characters"] == 100_000


def test_files_that_cannot_be_named_or_are_too_many_are_counted():
    plan = make_plan(["alpha"])
    row = make_row(plan, 0)
    files = [(f"artifacts/{i}", 1) for i in range(600)] + [("bad\udcff", 1), ("../../etc/passwd", 1)]
    (trial,) = rows_of(Trial, read(make_bundle(plan, [row], evidence={row.trial_id: files}))["trials.jsonl"])
    assert trial.evidence is not None
    assert trial.evidence.metadata == {"files_not_listed": 100, "files_with_unusable_names": 2}
    assert not any(".." in (d.ref or "") for d in trial.evidence.descriptors.values())


def test_tasks_of_two_suites_with_one_native_id_stay_apart():
    plan = make_plan(["alpha", "beta"])
    twin = plan.tasks[1].model_copy(update={"native_task_id": "org/alpha"})
    plan = plan.model_copy(update={"tasks": (plan.tasks[0], twin)})
    content = make_bundle(plan, [make_row(plan, 0), make_row(plan, 1, 1, 0.0)])
    tasks = rows_of(BundleTask, read(content)["tasks.jsonl"])
    assert [task.id for task in tasks] == ["org/alpha (hello-alpha)", "org/alpha (hello-beta)"]
    assert set(content.summary.task_metric_values) == {task.id for task in tasks}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[:-1], "1 trials without a row .task 1 trial 1."),
        (lambda rows: [*rows, rows[0]], "more than one row"),
        (lambda rows: [*rows, rows[0].model_copy(update={"k": 2})], "not planned"),
        (lambda rows: [rows[0].model_copy(update={"run_id": "run-1"}), rows[1]], "another run"),
    ],
)
def test_an_account_that_does_not_cover_the_plan_is_refused(change: Any, message: str):
    plan = make_plan(["alpha", "beta"])
    with pytest.raises(Broken, match=message):
        make_bundle(plan, change([make_row(plan, 0), make_row(plan, 1)]))


def test_table_rows_have_one_shape_and_can_be_read_twice(mixed: BundleContent):
    trials, scores = list(mixed.tables.trials), list(mixed.tables.scores)
    assert len({tuple(row) for row in trials}) == len({tuple(row) for row in scores}) == 1
    assert list(mixed.tables.trials) == trials
    assert [(s["output"], s["state"], s["value"]) for s in scores] == [
        ("reward", "observed", 1.0),
        ("format_ok", "observed", 0.5),
        ("reward", "observed", 0.25),
        ("format_ok", "missing", None),
        ("reward", "trial_failed", None),
        ("reward", "trial_failed", None),
    ]
    assert trials[0]["duration_sec"] == 1.5


endings = st.one_of(
    st.floats(-1, 2), st.sampled_from([Reason.SANDBOX_LOST, Reason.REWARD_MISSING, Reason.NEVER_STARTED])
)


@settings(max_examples=40)
@given(
    st.integers(1, 3).flatmap(lambda n: st.lists(st.lists(endings, min_size=n, max_size=n), min_size=1, max_size=4)),
    st.randoms(use_true_random=False),
)
def test_the_same_account_gives_the_same_bytes_in_any_order(tasks: list[list[float | Reason]], rng: random.Random):
    plan = make_plan([f"t{i}" for i in range(len(tasks))], n_attempts=len(tasks[0]))
    rows = [make_row(plan, i, k, end) for i, ends in enumerate(tasks) for k, end in enumerate(ends, start=1)]
    content = make_bundle(plan, rows)
    shuffled = rows[:]
    rng.shuffle(shuffled)
    assert read(make_bundle(plan, shuffled)) == read(content)
    found = content.summary.aggregate("harbor_reward.reward")
    assert found is not None
    assert found.mean == content.outcomes.policies.scored_only.mean
    for k in range(1, plan.n_attempts + 1):
        at_k = content.summary.aggregate(f"harbor_reward.reward.pass@{k}")
        assert at_k is not None
        assert at_k.mean == content.outcomes.policies.missing_as_zero.pass_at_k[str(k)]


class Lazy(Mapping[str, Sequence[tuple[str, int]]]):
    """Evidence that is looked up as it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getitem__(self, key: str) -> Sequence[tuple[str, int]]:
        self.asked.append(key)
        return [("trial.log", 1)]

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def test_evidence_is_asked_for_as_its_row_is_written():
    plan = make_plan(["alpha", "beta"])
    lazy = Lazy()
    content = make_bundle(plan, [make_row(plan, 0), make_row(plan, 1)], evidence=lazy)
    _ = content.summary
    assert lazy.asked == []
    pieces = dict(content.files())["trials.jsonl"]
    next(pieces)
    assert lazy.asked == ["hello-alpha__00000-1"]


def test_measurements_add_up():
    plan = make_plan(["alpha"])
    used = Measurements(prompt_tokens=10, completion_tokens=5, cost_usd=0.01, runtime_sec=2)
    (trial,) = rows_of(Trial, read(make_bundle(plan, [make_row(plan, 0, measurements=used)]))["trials.jsonl"])
    assert trial.measurements.total_tokens == 15
