"""Runs that are published to an Experiment: what a submit makes and refuses, over the command line and the SDK."""

import pytest

from harbor_assets.domain.errors import IdempotencyConflict, Refused
from harbor_assets.domain.experiments import ExperimentInput
from harbor_assets.interfaces.sdk.evaluator import Evaluator
from tests.cli.conftest import Cli
from tests.interfaces.backends import World, evaluator_of
from tests.suites import make

DEEP = "datacurve/deep-swe@sha256:3f9a"


@pytest.fixture
def experiment(w: World) -> str:
    return w.catalog.create_experiment("default", ExperimentInput(name="nightly")).name


@pytest.fixture
def cli(w: World, tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("harbor_assets.wiring.wire", lambda settings: w)
    return Cli(monkeypatch, capsys)


@pytest.fixture
def evaluator(w: World) -> Evaluator:
    return evaluator_of(w)


def test_the_evaluation_is_there_before_anything_starts(w: World, cli: Cli, experiment: str):
    ref = w.publish("a", "b")
    seen: list[tuple[str, str | None]] = []

    def look(run_id: str) -> None:
        (evaluation,) = w.catalog.list_evaluations("default").items
        seen.append((evaluation.name, evaluation.status))

    w.executions.on_start = look
    said = cli("runs", "submit", "--taskset", ref, "--experiment", experiment)
    assert said.code == 0
    (run_id,) = w.executions.started
    assert seen == [(f"oracle-{run_id}", "running")]
    digest = ref.partition("#")[2]
    assert f"Evaluation oracle-{run_id} in Experiment nightly, dataset suite@{digest}" in said.out
    assert f"--experiment {experiment}" in said.out  # the line that reruns it
    status = cli("runs", "status", run_id)
    assert f"oracle-{run_id} in Experiment nightly" in status.out
    found = cli("runs", "status", run_id, "--json").json["run"]["publication"]
    assert (found["experiment"], found["dataset"], found["dataset_version"]) == ("nightly", "suite", digest)


def test_the_dataset_can_be_that_of_the_source(w: World, cli: Cli, experiment: str):
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--experiment", experiment, "--intake-dataset", DEEP)
    assert said.code == 0
    (evaluation,) = w.catalog.list_evaluations("default").items
    assert (evaluation.dataset_name, evaluation.dataset_version) == ("datacurve/deep-swe", "sha256:3f9a")


def test_a_suite_of_this_machine_has_the_label_that_creating_it_tells(w: World, cli: Cli, experiment: str, tmp_path):
    suite = make.make_suite(tmp_path / "geo", 2)
    label = cli("tasksets", "create", "--harbor-dir", suite, "--json").json["intake_dataset"]
    assert cli("runs", "submit", "--harbor-dir", suite, "--experiment", experiment).code == 0
    (evaluation,) = w.catalog.list_evaluations("default").items
    assert f"{evaluation.dataset_name}@{evaluation.dataset_version}" == label


def test_an_experiment_that_is_not_there_is_refused_before_anything_is_stored(w: World, cli: Cli, tmp_path):
    suite = make.make_suite(tmp_path / "geo", 1)
    said = cli("runs", "submit", "--harbor-dir", suite, "--experiment", "nightly")
    assert (said.code, said.out) == (2, "")
    assert "harbor-assets experiments create nightly" in said.err
    assert w.catalog.list_tasks("default").total == 0
    stored = cli("runs", "submit", "--taskset", w.publish("a"), "--experiment", "nightly", "--agent", "nop")
    assert stored.code == 2
    assert w.executions.started == []


def test_the_same_key_twice_is_one_evaluation_and_another_experiment_is_another_request(
    w: World, evaluator: Evaluator, experiment: str
):
    ref = w.publish("a")
    w.catalog.create_experiment("default", ExperimentInput(name="other"))
    runs = evaluator.runs
    first = runs.submit(ref, experiment=experiment, idempotency_key="k")
    again = runs.submit(ref, experiment=experiment, idempotency_key="k")
    assert (first.created, again.created, again.run.id) == (True, False, first.run.id)
    assert again.run.publication == first.run.publication
    assert w.catalog.list_evaluations("default").total == 1
    for changed in ({"experiment": "other"}, {"experiment": experiment, "dataset": "d@1"}, {}):
        with pytest.raises(IdempotencyConflict, match="changed: spec"):
            runs.submit(ref, idempotency_key="k", **changed)
    assert w.catalog.list_evaluations("default").total == 1


def test_a_key_repeated_after_a_crash_between_run_and_evaluation_makes_it(
    w: World, evaluator: Evaluator, experiment: str, monkeypatch: pytest.MonkeyPatch
):
    ref = w.publish("a")
    with monkeypatch.context() as broken:
        broken.setattr(w.evaluations, "_announce", lambda run: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            w.evaluations.submit("default", _request(ref, experiment), idempotency_key="k")
    assert w.catalog.list_evaluations("default").total == 0
    again = w.evaluations.submit("default", _request(ref, experiment), idempotency_key="k")
    assert again.created is False
    assert [e.name for e in w.catalog.list_evaluations("default").items] == [f"oracle-{again.run.id}"]


def test_a_rerun_is_an_evaluation_of_its_own_in_the_same_experiment(w: World, evaluator: Evaluator, experiment: str):
    first = evaluator.runs.submit(w.publish("a"), experiment=experiment, dataset="d@1").run
    w.end(first.id, 1.0)
    again = evaluator.runs.rerun(first.id).run
    assert again.publication
    assert (again.publication.experiment, again.publication.dataset) == ("nightly", "d")
    assert {e.name for e in w.catalog.list_evaluations("default").items} == {f"oracle-{r.id}" for r in (first, again)}


def test_a_dataset_without_an_experiment_is_refused(w: World, evaluator: Evaluator):
    with pytest.raises(Refused, match="`experiment`"):
        evaluator.runs.submit(w.publish("a"), dataset="d")


def _request(ref: str, experiment: str):
    from harbor_assets.domain.requests import RunRequest

    return RunRequest.model_validate(
        {"spec": {"tasks": {"taskset": ref}, "publication": {"intake": {"experiment": experiment}}}}
    )


def test_an_ended_run_is_published_again_by_hand(w: World, cli: Cli, evaluator: Evaluator, experiment: str):
    run_id = evaluator.runs.submit(w.publish("a", "b"), experiment=experiment).run.id
    early = cli("runs", "publish", run_id)
    assert early.code != 0
    assert "published as they end" in early.err
    w.end(run_id, 1.0, 0.5)
    w.catalog.delete_evaluation("default", f"oracle-{run_id}")
    said = cli("runs", "publish", run_id)
    assert (said.code, said.err) == (0, "")
    assert (
        said.out == f"Evaluation oracle-{run_id} in Experiment nightly: 2 of 2 trials published, the rest was there\n"
    )
    again = cli("runs", "publish", run_id, "--json").json
    assert (again["published"], again["trials"], again["failed"]) == (0, 2, [])
    evaluation = w.catalog.get_evaluation("default", f"oracle-{run_id}")
    assert (evaluation.status, evaluation.metadata["coverage"]) == ("completed", "2 of 2 trials scored")
    assert evaluation.aggregate_scores["harbor_reward.reward"].mean == 0.75


def test_a_run_that_is_published_nowhere_stays_so(w: World, cli: Cli, evaluator: Evaluator):
    run_id = evaluator.runs.submit(w.publish("a")).run.id
    w.end(run_id, 1.0)
    said = cli("runs", "publish", run_id)
    assert said.code == 2
    assert f"{run_id} is published nowhere" in said.err


def test_what_could_not_be_published_is_told(
    w: World, cli: Cli, evaluator: Evaluator, experiment: str, monkeypatch: pytest.MonkeyPatch
):
    run_id = evaluator.runs.submit(w.publish("a"), experiment=experiment).run.id
    w.end(run_id, 1.0)

    def fails(*args: object) -> None:
        raise Refused("the session\x1b[2J is odd")

    monkeypatch.setattr(w.catalog, "put_session", fails)
    said = cli("runs", "publish", run_id)
    assert said.code == 1
    assert "Not published: a__00000-1: the session\\x1b[2J is odd" in said.err
