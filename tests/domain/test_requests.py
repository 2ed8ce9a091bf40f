from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harbor_assets.domain.credentials import plaintext
from harbor_assets.domain.errors import Refused
from harbor_assets.domain.plans import HARBOR_AGENTS
from harbor_assets.domain.requests import RequestFile, RunRequest, TaskSelection, changes, check_key, unsupported
from harbor_assets.domain.validation import problems_of


def file(**spec: Any) -> dict[str, Any]:
    return {"spec": spec, "execution": {}}


def target(**members: Any) -> dict[str, Any]:
    return file(target=members)


def problems(document: Any) -> list[str]:
    try:
        RequestFile.model_validate(document)
    except ValidationError as error:
        return [str(problem) for problem in problems_of(error, RequestFile, quiet=("spec.target.agent_kwargs",))]
    return []


def refused(document: Any) -> list[str]:
    return [str(problem) for problem in unsupported(RequestFile.model_validate(document).spec)]


def test_the_guide_s_own_request_file_is_understood_to_the_last_field():
    document = {
        "spec": {
            "target": {
                "kind": "harbor",
                "source": {"name": "openhands", "model": {"ref": "default/nemotron-super-closed-book"}},
                "agent_kwargs": {"version": "1.6.0", "temperature": "1", "top_p": "0.95", "disable_vision": True},
                "env_secrets": {"LLM_API_KEY": "evals-inference-key"},
                "n_attempts": 1,
                "max_retries": 1,
            }
        },
        "execution": {
            "sandbox": {"profile": "harbor-standard", "cpus": 2, "memory_mb": 4096, "storage_mb": 10240},
            "max_concurrent_task_jobs": 5,
        },
        "timeout_seconds": 7200,
    }
    assert problems(document) == []
    (agent,) = refused(document)
    assert "default/nemotron-super-closed-book" in agent
    assert "the secret evals-inference-key for LLM_API_KEY" in agent


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (target(n_attempt=2), "spec.target.n_attempt: is no field; did you mean n_attempts?"),
        ({"execution": {"sandbox": {"cpu": 1}}}, "execution.sandbox.cpu: is no field; did you mean cpus?"),
        ({"execution": {}, "zzz": 1}, "zzz: is no field; known here: spec, execution, timeout_seconds"),
        ({"spec": {}}, "execution: is missing"),
        (target(n_attempts=0), "spec.target.n_attempts: must be at least 1; it is 0"),
        (target(n_attempts="two"), "spec.target.n_attempts: must be a whole number; it is 'two'"),
        ({"execution": {"sandbox": {"kind": "vm"}}}, "execution.sandbox.kind: must be 'auto'"),
        ({"execution": []}, "execution: must be an object with members; it is []"),
        ([], "must be an object with members; it is []"),
        (target(source={"name": ""}), "spec.target.source.name: must not be empty"),
        (target(agent_kwargs={"api_key": "abc"}), "spec.target.agent_kwargs: api_key is named like a credential"),
        (target(agent_kwargs={"x": ["sk-abc"]}), "spec.target.agent_kwargs: x.0 looks like a key"),
        (target(agent_kwargs={"x": "${HOME}"}), "spec.target.agent_kwargs: x takes no ${...}"),
        (target(env_secrets={"KEY": "sk-abc"}), "KEY must be the name of a secret"),
        (target(env_secrets={"KEY": "a b"}), "KEY must be the name of a secret"),
        (file(publication={}), "spec.publication.intake: is missing"),
        (file(publication={"intake": {}}), "exactly one of `experiment` and `evaluation_id` must be given"),
        (
            file(publication={"intake": {"experiment": "e", "evaluation_id": "v"}}),
            "exactly one of `experiment` and `evaluation_id`",
        ),
        (
            file(publication={"intake": {"evaluation_id": "v", "dataset_name": "d"}}),
            "`dataset_name` is only for a new Evaluation",
        ),
        (file(publication={"intake": {"experiment": "e", "dataset_version": "1"}}), "needs `dataset_name`"),
        (file(publication={"intake": {"experiment": "a b"}}), "spec.publication.intake.experiment: must match"),
        (
            file(publication={"intake": {"experiment": "e", "dataset_name": "a\x1b[2J"}}),
            "holds characters that cannot be printed",
        ),
    ],
)
def test_each_problem_has_its_path_and_the_rule_in_our_words(document: Any, says: str):
    (said,) = problems(document)
    assert says in said
    assert "Input should" not in said
    assert "sk-abc" not in said


@pytest.mark.parametrize(
    ("document", "says"),
    [
        (target(source={"name": "oracle", "model": {"ref": "ws/m"}}), "agent 'oracle' calls no model"),
        (target(env_secrets={"A": "b"}), "spec.target.env_secrets: agent 'oracle' needs no secret"),
        (target(source={"name": "openhand"}), "did you mean openhands"),
        (target(source={"name": "codex"}), "a model (spec.target.source.model.ref of a request file)"),
    ],
)
def test_what_does_not_work_yet_is_refused_by_name(document: Any, says: str):
    assert any(says in said for said in refused(document))


def test_every_agent_of_harbor_that_calls_a_model_is_told_what_is_missing():
    for name in HARBOR_AGENTS:
        (said,) = refused(target(source={"name": name, "model": {"ref": "ws/m"}}))
        assert "calls a model" in said


def test_numbers_are_no_credentials():
    assert list(plaintext({"max_tokens": "4096", "tokens": 5, "keys": ["a"], "n": {"auth": "none"}})) == [
        ("keys.0", "is named like a credential; secrets are named in spec.target.env_secrets, their values stay out")
    ]


def request(**members: Any) -> RunRequest:
    return RequestFile.model_validate({"execution": {}, **members}).request(TaskSelection(taskset="ws/a#1"), [])


def test_a_default_that_is_written_out_changes_no_digest_and_every_change_has_its_path():
    plain = request()
    assert request(spec={"target": {"n_attempts": 1, "max_retries": 0}}, execution={"sandbox": {}}).digest() == (
        plain.digest()
    )
    other = request(spec={"target": {"source": {"name": "nop"}}}, execution={"sandbox": {"cpus": 2}})
    assert other.digest() != plain.digest()
    assert list(changes(plain.canonical(), other.canonical())) == ["execution.sandbox.cpus", "spec.target.source.name"]
    again = request(spec={"target": {"source": {"name": "oracle"}}}, execution={"sandbox": {"cpus": 3}})
    assert list(changes(other.canonical(), again.canonical())) == ["execution.sandbox.cpus", "spec.target.source.name"]


leaves = st.booleans() | st.integers(1) | st.text(min_size=1, max_size=3)
documents = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3), max_leaves=6
)


@given(st.dictionaries(st.sampled_from("abc"), documents), st.dictionaries(st.sampled_from("abc"), documents))
def test_documents_differ_where_and_only_where_a_path_is_named(a: Any, b: Any):
    assert (list(changes(a, b)) == []) == (a == b)
    assert list(changes(a, b)) == list(changes(b, a))


@pytest.mark.parametrize("key", ["", " ", "ü", "a\nb", "x" * 256])
def test_a_key_that_no_header_carries_or_that_was_not_set_is_refused(key: str):
    with pytest.raises(Refused, match="idempotency key"):
        check_key(key)


def test_a_field_in_the_wrong_place_is_told_its_place():
    (problem,) = problems({"execution": {}, "publication": {}})
    assert problem == "publication: is no field here; did you mean spec.publication?"


def test_a_key_within_a_text_is_seen_and_a_word_like_one_is_not():
    secret = "Bearer " + "ghp_" + "a1" * 18
    assert [at for at, _ in plaintext({"note": {"deep": [secret]}})] == ["note.deep.0"]
    assert list(plaintext({"prompt": "the task-of-the-day-is-risk-assessment-for-pk-holders"})) == []


@pytest.mark.parametrize("text", ["Bearer a1b2", "basic dXNlcjpwYXNz", "https://user:word@host/v1"])
def test_what_proves_who_calls_is_seen_under_any_name(text: str):
    assert [at for at, _ in plaintext({"x": text})] == ["x"]


@pytest.mark.parametrize(
    "text", ["Bearer of bad news", "basic", "https://host:80/v1", "https://user@host", "a://b/c:d@e"]
)
def test_what_is_only_like_it_is_let_pass(text: str):
    assert list(plaintext({"x": text})) == []


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("OPENAI_API_KEY", "hunter22", "OPENAI_API_KEY is named like a credential"),
        ("GH_TOKEN", "12345678", "GH_TOKEN is named like a credential"),
        ("OPENAI_API_KEY", "", "OPENAI_API_KEY is empty; is the variable set"),
        ("HARMLESS", "sk-abcdefghijklmnop", "HARMLESS looks like a key"),
        ("PROXY", "http://me:hunter22@proxy.test", "PROXY looks like a key"),
        ("GREETING", "hello ${USER}", "GREETING holds ${ beside other text"),
        ("GREETING", "${USER:-nobody}", "GREETING holds ${ beside other text"),
        ("HARMLESS", "${OPENAI_API_KEY}", "HARMLESS takes OPENAI_API_KEY, which is named like a credential"),
        ("A", "b\0c", "A holds a NUL"),
    ],
)
def test_a_secret_of_an_agent_comes_by_reference_alone_and_is_never_repeated(name: str, value: str, says: str):
    (problem,) = problems({"spec": {"target": {"env_vars": {name: value}}}, "execution": {}})
    assert problem.startswith(f"spec.target.env_vars: {says}")
    assert "hunter22" not in problem
    assert "abcdefghijklmnop" not in problem


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_API_KEY", "${EVALS_KEY}"),
        ("MAX_TOKENS", "4096"),  # Harbor takes the plural for no credential
        ("FORCE_AUTH", "1"),
        ("LOG_LEVEL", "debug"),
        ("LINES", "a\nb"),
        ("EMPTY", ""),
    ],
)
def test_other_variables_of_an_agent_are_let_pass(name: str, value: str):
    assert problems({"spec": {"target": {"env_vars": {name: value}}}, "execution": {}}) == []


def test_what_harbor_scrubs_is_what_may_hold_a_secret():
    from harbor.utils.env import is_bool_env_value, is_sensitive_env_key

    for name in ("API_KEY", "MAX_TOKENS", "GH_TOKEN", "PASSWORD_FILE", "PATH", "AUTHOR"):
        refused = problems({"spec": {"target": {"env_vars": {name: "plain"}}}, "execution": {}})
        assert bool(refused) == is_sensitive_env_key(name)
    for value in ("true", "1", "yes", "0", "no", "False"):
        assert is_bool_env_value(value)
        assert problems({"spec": {"target": {"env_vars": {"API_KEY": value}}}, "execution": {}}) == []


@pytest.mark.parametrize("multiplier", [0, -1, 101, float("nan"), float("inf"), "two"])
def test_a_multiplier_is_a_sensible_number(multiplier: Any):
    (problem,) = problems(target(agent_timeout_multiplier=multiplier))
    assert problem.startswith("spec.target.agent_timeout_multiplier: must be ")
