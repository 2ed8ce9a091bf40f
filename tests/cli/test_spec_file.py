"""`runs submit --spec-file`: the request file, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.interfaces.backends import World

REQUEST: dict[str, Any] = {
    "spec": {"target": {"source": {"name": "nop"}, "n_attempts": 3, "max_retries": 0}},
    "execution": {"sandbox": {"cpus": 2}, "max_concurrent_task_jobs": 2},
    "timeout_seconds": 7200,
}


def written(tmp_path: Path, document: Any, name: str = "request.json") -> Path:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_a_request_file_decides_agent_attempts_and_execution(cli: Cli, w: World, tmp_path: Path):
    path = written(tmp_path, REQUEST)
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", path)
    assert said.code == 0
    plan = w.catalog.get_run(w.executions.started[0]).plan
    assert (plan.agent.name, plan.n_attempts, plan.n_concurrent) == ("nop", 3, 2)
    assert (plan.sizing.cpus, plan.timeout_seconds) == (2, 7200)
    assert f"--spec-file {path}" in said.out
    assert "--agent" not in said.out


def test_yaml_says_the_same(cli: Cli, w: World, tmp_path: Path):
    text = "spec:\n  target:\n    source: {name: nop}\n    n_attempts: 2\nexecution: {}\n"
    path = written(tmp_path, text, "request.yaml")
    assert cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", path).code == 0
    assert w.catalog.get_run(w.executions.started[0]).plan.n_attempts == 2


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (
            {**REQUEST, "spec": {"target": {"n_attempt": 1}}},
            "spec.target.n_attempt: is no field; did you mean n_attempts?",
        ),
        ({"spec": {}}, "execution: is missing; {} takes the deployment's defaults"),
        ({"spec": {"tasks": {"taskset": "x"}}, "execution": {}}, "spec.tasks: take it out"),
        (
            {"spec": {"target": {"max_retries": -1}}, "execution": {}},
            "spec.target.max_retries: must be at least 0; it is -1",
        ),
        ({"spec": {"publication": {"intake": {}}}, "execution": {}}, "spec.publication"),
        ('{"execution": {}, "execution": {}}', "the key 'execution' stands twice"),
        ('{"execution": {"sandbox": {"cpus": NaN}}}', "NaN is not a JSON number"),
        ("{", "it is not JSON"),
        ("[" * 100_000, "it is not JSON"),
        ("[]", "the document: must be an object with members"),
        (" " * (1 << 20) + "{}", "more than 1048576 bytes"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_stored(cli: Cli, w: World, tmp_path: Path, document: Any, says: str):
    from tests.suites import make

    suite = make.make_suite(tmp_path / "geo", 1)
    said = cli("runs", "submit", "--harbor-dir", suite, "--spec-file", written(tmp_path, document))
    assert (said.code, said.out) == (2, "")
    assert says in said.err
    assert w.catalog.list_tasks("default").total == 0
    assert w.executions.started == []


def test_a_missing_file_is_named(cli: Cli, w: World, tmp_path: Path):
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", tmp_path / "no.json")
    assert said.code == 2
    assert f"{tmp_path}/no.json cannot be read: No such file" in said.err


def test_yaml_is_data_only(cli: Cli, w: World, tmp_path: Path):
    for text in ("!!python/object/apply:os.system [true]", "execution: {a: 1, a: 2}", "execution: {cpus: .nan}"):
        said = cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", written(tmp_path, text, "r.yml"))
        assert said.code == 2
        assert "it is not YAML" in said.err


def test_flags_beside_it_are_refused_each_with_its_place_in_the_file(cli: Cli, w: World, tmp_path: Path):
    flags = ("--cpus", "2", "--sandbox-profile", "p", "--agent", "nop", "-k", "2", "-n", "1", "--sandbox", "process")
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", written(tmp_path, REQUEST), *flags)
    assert said.code == 2
    assert "--cpus: not beside --spec-file; write it in the file, as execution.sandbox.cpus" in said.err
    assert "--agent: not beside --spec-file; write it in the file, as spec.target.source.name" in said.err
    assert said.err.count("not beside --spec-file") == 6


def test_a_secret_in_the_wrong_place_is_never_repeated(cli: Cli, w: World, tmp_path: Path):
    target = {
        "source": {"name": "openhands", "model": {"ref": "default/m"}},
        "agent_kwargs": {"api_key": "hush-hush"},
        "env_secrets": {"LLM_API_KEY": "sk-hush-hush"},
    }
    path = written(tmp_path, {"spec": {"target": target}, "execution": {}})
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", path)
    assert said.code == 2
    assert "hush" not in said.err + said.out
    assert "api_key is named like a credential" in said.err
    assert "LLM_API_KEY must be the name of a secret" in said.err


def test_an_agent_that_calls_a_model_is_told_what_is_missing(cli: Cli, w: World, tmp_path: Path):
    target = {
        "source": {"name": "openhands", "model": {"ref": "default/closed-book"}},
        "env_secrets": {"LLM_API_KEY": "evals-inference-key"},
    }
    path = written(tmp_path, {"spec": {"target": target}, "execution": {}})
    said = cli("runs", "submit", "--taskset", w.publish("a"), "--spec-file", path)
    assert said.code == 2
    for named in ("agent 'openhands'", "default/closed-book", "evals-inference-key", "LLM_API_KEY", "oracle, nop"):
        assert named in said.err


def test_an_experiment_replaces_what_the_file_says_of_publication(cli: Cli, w: World, tmp_path: Path):
    from harbor_assets.interfaces.cli.asked import Asked

    document = {"spec": {"publication": {"intake": {"experiment": "of-the-file"}}}, "execution": {}}
    path = written(tmp_path, document)
    (before, after) = (
        Asked(spec_file=path).read(),
        Asked(spec_file=path, experiment="e", intake_dataset="d@1@2").read(),
    )
    assert before.spec.publication
    assert before.spec.publication.intake.experiment == "of-the-file"
    assert after.spec.publication
    intake = after.spec.publication.intake
    assert (intake.experiment, intake.dataset_name, intake.dataset_version) == ("e", "d@1", "2")
    assert after.model_copy(update={"spec": before.spec}) == before
    asked = Asked(spec_file=path, experiment="e", intake_dataset="d@1")
    assert asked.words() == ["--spec-file", path, "--experiment", "e", "--intake-dataset", "d@1"]


def test_a_dataset_needs_a_stored_taskset_and_an_experiment(cli: Cli, w: World, tmp_path: Path):
    from tests.suites import make

    alone = cli("runs", "submit", "--taskset", w.publish("a"), "--intake-dataset", "d")
    assert (alone.code, alone.out) == (2, "")
    assert "write --experiment NAME, too" in alone.err
    suite = make.make_suite(tmp_path / "geo", 1)
    own = cli("runs", "submit", "--harbor-dir", suite, "--experiment", "e", "--intake-dataset", "d")
    assert own.code == 2
    assert "--intake-dataset is only for --taskset" in own.err
    bad = cli("runs", "submit", "--taskset", w.publish("a"), "--experiment", "e", "--intake-dataset", "@1")
    assert bad.code == 2
    assert "--intake-dataset: '@1' is no NAME or NAME@VERSION" in bad.err
    assert w.executions.started == []
