"""What a deployment refuses at submit, in the words of the guide to runs; and images over REST."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.images import TaskImages
from harbor_assets.domain.plans import ImageConfig, ImageProblem, SandboxChoice
from harbor_assets.domain.tasks import Task, TasksetInput
from harbor_assets.engine.evaluations import Evaluations
from harbor_assets.engine.planning import Deployment
from harbor_assets.interfaces.cli.building import exit_code
from harbor_assets.sandboxes.profiles import FolderProfiles
from tests.api.test_api import RUNS, Api
from tests.interfaces.backends import Logs, World, task_input

REF = "r/x@sha256:" + "a" * 64
PROFILES = """
default: standard
profiles:
  - {name: standard, hosts: ["*"], max_cpus: 4, max_memory_mb: 8192, max_lifetime_seconds: 7200}
  - {name: small, max_cpus: 1}
  - {name: placed, node_selector_keys: [pool], toleration_keys: [gpu]}
"""


class Sandboxes:
    def choose(self, requested: str, tasks: object) -> SandboxChoice:
        return SandboxChoice(kind="kubernetes", why="the deployment's")


class Images:
    def __init__(self) -> None:
        self.of: dict[str, TaskImages] = {}

    def resolve(self, tasks: Sequence[Task]) -> Sequence[TaskImages]:
        ready = TaskImages({"agent": REF}, {"agent": ImageConfig(user="app")}, None, ())
        return [self.of.get(task.name, ready) for task in tasks]


@pytest.fixture
def images() -> Images:
    return Images()


@pytest.fixture
def api(w: World, images: Images, tmp_path: Path) -> Api:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "profiles.yaml").write_text(PROFILES)
    evaluations = Evaluations(
        tasks=w.catalog,
        runs=w.catalog,
        artifacts=w.artifacts,
        executions=w.executions,
        sandboxes=Sandboxes(),
        logs=Logs(),
        deployment=Deployment(
            owner="me",
            n_concurrent=4,
            timeout_seconds=60,
            harbor_version="0.26.0",
            version="0",
            variables={"EVALS_KEY"},
            variables_setting="HARBOR_ASSETS_TRIAL_VARIABLES",
        ),
        profiles=FolderProfiles(tmp_path / "profiles"),
        images_of=lambda kind: images,
    )
    w.backend = replace(w.backend, evaluations=evaluations)
    return Api(w)


def publish(w: World, **configs: dict[str, Any]) -> str:
    for name, config in configs.items():
        w.catalog.put_task("default", name, task_input(f"org/{name}", **config))
    return w.catalog.put_taskset("default", "suite", TasksetInput(tasks=list(configs)))[0].ref


def submit(api: Api, ref: str, **execution: Any) -> Any:
    return api("POST", RUNS, json={"spec": {"tasks": {"taskset": ref}}, "execution": execution})


def test_the_plan_holds_images_and_a_copy_of_the_profile(api: Api, w: World):
    run_id = submit(api, publish(w, a={})).json()["run"]["id"]
    plan = w.catalog.get_run(run_id).plan
    assert plan.profile
    assert (plan.profile.name, plan.profile.max_cpus) == ("standard", 4)
    assert plan.tasks[0].images == {"agent": REF}
    assert plan.tasks[0].image_config["agent"].user == "app"


def test_image_and_profile_decide_whether_trials_compare(api: Api, w: World, images: Images):
    ref = publish(w, a={})

    def key(**execution: Any) -> str:
        return w.catalog.get_run(submit(api, ref, **execution).json()["run"]["id"]).plan.tasks[0].trial_key

    keys = [key(), key(), key(sandbox={"profile": "small"})]
    images.of["a"] = TaskImages({"agent": REF[:-1] + "b"}, {}, None, ())
    keys.append(key())
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_an_unknown_profile_is_422_with_the_valid_names(api: Api, w: World):
    answer = submit(api, publish(w, a={}), sandbox={"profile": "huge"})
    assert answer.status_code == 422
    says = "sandbox profile 'huge': is not known; valid names: placed, small, standard (the default)"
    assert says in answer.json()["detail"]


def test_flags_and_every_task_above_a_ceiling_are_422_at_once(api: Api, w: World):
    ref = publish(
        w,
        fine={"environment": {"memory_mb": 8192}},
        big={"environment": {"memory_mb": 16384}},
        long={"agent": {"timeout_sec": 9000}},
        wide={"environment": {"cpus": 64}},
    )
    answer = submit(api, ref, sandbox={"cpus": 8, "storage_mb": 131073})
    assert answer.status_code == 422
    assert answer.json()["detail"].split("\n")[1:] == [
        "  execution.sandbox.cpus: 8 is above max_cpus = 4 of sandbox profile 'standard'; ask for less, or choose "
        "another profile",
        "  execution.sandbox.storage_mb: 131073 is above max_disk_mb = 131072 of sandbox profile 'standard'; ask for "
        "less, or choose another profile",
        "  tasks without images: big: resources_exceed_policy: [environment] memory_mb = 16384 is above max_memory_mb "
        "= 8192 of sandbox profile 'standard'",
        "  tasks without images: long: timeout_exceeds_policy: agent and verifier together may take 9600 s, above "
        "max_lifetime_seconds = 7200 of sandbox profile 'standard'; lower timeout_sec in task.toml, or choose another "
        "profile",
    ]
    assert not w.executions.started


def test_flags_lower_the_agents_sandbox_and_not_the_verifiers(api: Api, w: World):
    ref = publish(w, a={"environment": {"cpus": 8}, "verifier": {"environment": {"cpus": 8}}})
    answer = submit(api, ref, sandbox={"cpus": 2})
    assert answer.status_code == 422
    (line,) = answer.json()["detail"].split("\n")[1:]
    assert line.startswith("  tasks without images: a: resources_exceed_policy: [verifier.environment] cpus = 8")


def test_only_the_tasks_of_the_run_are_held_to_it(api: Api, w: World):
    ref = publish(w, big={"environment": {"cpus": 8}}, fine={})
    body = {"spec": {"tasks": {"taskset": ref, "select": ["fine"]}}}
    assert api("POST", RUNS, json=body).status_code == 201


def test_tasks_whose_image_was_never_built_are_named(api: Api, w: World, images: Images):
    ref = publish(w, a={}, b={}, c={})
    images.of["b"] = images.of["c"] = TaskImages({}, {}, None, ("agent",))
    answer = submit(api, ref)
    assert answer.status_code == 422
    lines = answer.json()["detail"].split("\n")[1:]
    assert [line.split(";")[0] for line in lines] == [
        f"  tasks without images: {name}: image_not_built: its image was never built" for name in "bc"
    ]
    assert f"tasksets build-images '{ref}' --wait" in lines[0]


def test_an_image_that_failed_is_planned_as_it_is(api: Api, w: World, images: Images):
    problem = ImageProblem(reason="image_build", message="exit code: 1")
    images.of["b"] = TaskImages({}, {}, problem, ())
    answer = submit(api, publish(w, a={}, b={}))
    assert answer.status_code == 201
    plan = w.catalog.get_run(answer.json()["run"]["id"]).plan
    assert [task.image_problem for task in plan.tasks] == [None, problem]


def test_a_laptop_refuses_a_profile_by_name(w: World):
    answer = submit(Api(w), publish(w, a={}), sandbox={"profile": "standard"})
    assert answer.status_code == 422
    assert "sandbox profile 'standard': is not known here" in answer.json()["detail"]


def test_a_laptop_needs_no_images(w: World):
    publish(w, a={})
    for answer in (
        Api(w)("POST", "/tasksets/suite/images", json={}),
        Api(w)("GET", "/tasksets/suite/images"),
    ):
        assert answer.status_code in (200, 202)
        assert answer.json()["needed"] is False
    assert Api(w)("POST", "/tasksets/none/images", json={}).status_code == 404
    assert Api(w)("GET", f"/images/{'a' * 64}/log").status_code == 404


@pytest.mark.parametrize(("states", "code"), [("", 0), ("r", 0), ("rr", 0), ("rf", 3), ("ff", 4), ("rm", 3), ("m", 4)])
def test_the_exit_code_tells_all_some_or_none(states: str, code: int):
    from harbor_assets.domain.images import ImageStatus, ImageView

    names = {"r": "ready", "f": "failed", "m": "missing"}
    views = [ImageView.model_validate({"task": "t", "state": names[state]}) for state in states]
    assert exit_code(ImageStatus(taskset_ref="x", images=tuple(views))) == code


CHECK = f"{RUNS}:check"


def check(api: Api, *tasks: dict[str, Any], **more: Any) -> Any:
    return api("POST", CHECK, json={"tasks": list(tasks), **more})


def test_everything_wrong_with_a_suite_is_told_before_it_is_published(api: Api, w: World):
    dockerfile = {"files": ["environment/Dockerfile"]}
    answer = check(
        api,
        {"name": "fine", "config": {}, "files": ["environment/Dockerfile", "solution/solve.sh"]},
        {"name": "big", "config": {"environment": {"memory_mb": 16384}}, **dockerfile},
        {"name": "bare", "config": {}},
        {"name": "late", "config": {"agent": {"timeout_sec": -1}}, **dockerfile},
        {"name": "asks", "config": {"environment": {"env": {"A": "${HOME}"}}}, **dockerfile},
        timeout_seconds=72 * 3600 + 1,
        execution={"sandbox": {"profile": "huge", "cpus": 2}},
    )
    assert answer.status_code == 422
    lines = answer.json()["detail"].split("\n")[1:]
    assert [line.strip().split(" is ")[0] for line in lines] == [
        "timeout_seconds: 259201 s",
        "sandbox profile 'huge':",
        "tasks without images: bare: image_impossible: it has neither environment/Dockerfile nor a docker_image in "
        "task.toml; add one",
        "late: timeout_invalid: [agent] timeout_sec = -1: write seconds above 0",
        "asks: variable_unset: [environment.env] A = '${HOME}': HOME",
    ]
    ceilings = check(api, {"name": "big", "config": {"environment": {"memory_mb": 16384}}, **dockerfile})
    assert "tasks without images: big: resources_exceed_policy: [environment] memory_mb = 16384" in ceilings.text
    assert not w.catalog.list_tasks("default").items


def test_what_can_run_is_200_with_the_tasks_that_have_no_solution(api: Api):
    answer = check(api, {"name": "a", "files": ["environment/Dockerfile"]})
    assert (answer.status_code, answer.json()) == (200, {"without_solution": ["a"]})


def test_a_task_that_can_have_no_image_is_refused(api: Api, w: World, images: Images):
    ref = publish(w, a={}, b={})
    images.of["b"] = TaskImages({}, {}, None, (), "it has neither a Dockerfile nor a docker_image")
    answer = submit(api, ref)
    assert answer.status_code == 422
    assert answer.json()["detail"].split("\n")[1:] == [
        "  tasks without images: b: image_impossible: it has neither a Dockerfile nor a docker_image"
    ]


def test_a_multiplier_counts_where_times_are_bounded_and_in_the_trial_key(api: Api, w: World):
    ref = publish(w, short={"agent": {"timeout_sec": 10}}, long={"agent": {"timeout_sec": 1000}}, open={})

    def asked(multiplier: float | None, seconds: int = 7000) -> Any:
        spec = {"tasks": {"taskset": ref}, "target": {"agent_timeout_multiplier": multiplier}}
        return api("POST", RUNS, json={"spec": spec, "timeout_seconds": seconds})

    assert asked(8).json()["detail"].split("\n")[1:] == [
        "  tasks without images: long: timeout_exceeds_policy: agent and verifier together may take 8600 s (the agent "
        "1000 s × 8), above max_lifetime_seconds = 7200 of sandbox profile 'standard'; lower the multiplier or "
        "timeout_sec in task.toml, or choose another profile",
        "  long: timeout_exceeds_run: the agent's 1000 s × 8 = 8000 s is above the run's own timeout_seconds = 7000; "
        "lower the multiplier, or give the run more time",
    ]
    assert asked(None, 5).status_code == 201  # a run that is merely short may end first
    plans = [w.catalog.get_run(asked(by).json()["run"]["id"]).plan for by in (None, 1, 2, 0.5)]
    assert [plan.agent_timeout_multiplier for plan in plans] == [None, None, 2, 0.5]
    assert [plan.tasks[0].trial_key == plans[0].tasks[0].trial_key for plan in plans] == [True, True, False, False]


def test_variables_are_planned_and_a_reference_must_be_one_that_trials_are_given(api: Api, w: World):
    ref = publish(w, a={})

    def asked(route: str, **variables: str) -> Any:
        spec: dict[str, Any] = {"target": {"env_vars": variables}}
        if route == RUNS:
            spec["tasks"] = {"taskset": ref}
        return api("POST", route, json={"spec": spec})

    for route in (RUNS, f"{RUNS}:check"):
        assert asked(route, API_KEY="${EVALS_KEY}", B="${NOPE}").json()["detail"].split("\n")[1:] == [
            "  spec.target.env_vars: B = '${NOPE}': NOPE is not set where trials run; set it there, and name it in "
            "HARBOR_ASSETS_TRIAL_VARIABLES"
        ]
    run_id = asked(RUNS, API_KEY="${EVALS_KEY}", LOG="debug").json()["run"]["id"]
    assert w.catalog.get_run(run_id).plan.agent.env == {"API_KEY": "${EVALS_KEY}", "LOG": "debug"}


def test_nodes_are_planned_as_far_as_the_profile_leaves_them_open(api: Api, w: World):
    ref = publish(w, a={})
    answer = submit(api, ref, sandbox={"node_selector": {"pool": "gpu"}, "tolerations": [{"key": "gpu"}]})
    assert answer.status_code == 422
    assert [line.partition(": is not among")[0] for line in answer.json()["detail"].split("\n")[1:]] == [
        "  execution.sandbox.node_selector: pool",
        "  execution.sandbox.tolerations: gpu",
    ]
    sandbox = {"profile": "placed", "node_selector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "value": "yes"}]}
    plan = w.catalog.get_run(submit(api, ref, sandbox=sandbox).json()["run"]["id"]).plan
    assert plan.profile
    assert plan.profile.node_selector == {"pool": "gpu"}
    assert plan.profile.tolerations == ({"key": "gpu", "operator": "Equal", "value": "yes"},)
    bad = submit(api, ref, sandbox={"node_selector": {"a b": "c"}, "tolerations": [{"key": "a", "operator": "Any"}]})
    assert bad.status_code == 422


def test_a_laptop_has_no_nodes(w: World):
    answer = submit(Api(w), w.publish("a"), sandbox={"node_selector": {"pool": "gpu"}})
    assert answer.status_code == 422
    assert "there are no nodes to choose from" in answer.json()["detail"]


def test_sandboxes_are_kept_as_long_as_the_profile_allows(api: Api, w: World):
    ref = publish(w, a={})
    answer = submit(api, ref, sandbox={"keep_seconds": 3601})
    assert answer.status_code == 422
    assert "execution.sandbox.keep_seconds: 3601 is above max_keep_seconds = 3600" in answer.json()["detail"]
    run = submit(api, ref, sandbox={"keep_seconds": 600}).json()["run"]
    assert w.catalog.get_run(run["id"]).plan.keep_seconds == 600
    (note,) = run["sandbox_notes"]
    assert note.startswith("each sandbox stays for 600 s after its trial, and holds its place on a node: kubectl")
    assert run["id"] in note


def test_a_laptop_keeps_no_sandbox(w: World):
    answer = submit(Api(w), w.publish("a"), sandbox={"keep_seconds": 60})
    assert answer.status_code == 422
    assert "execution.sandbox.keep_seconds: sandboxes on this machine end with their trial" in answer.json()["detail"]
