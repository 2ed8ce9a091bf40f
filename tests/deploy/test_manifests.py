"""What stands in deploy/: rights, labels, security, and that it fits the code that relies on it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli
import yaml

from harbor_assets.domain.errors import Refused
from harbor_assets.interfaces.deployment.install import OVERLAYS
from harbor_assets.interfaces.deployment.manifests import (
    CONFIGURATION,
    UNFILLED,
    Install,
    adapt,
    environment,
    has,
    unfilled,
)
from harbor_assets.sandboxes.kubernetes.network import PORTS, policies
from harbor_assets.sandboxes.profiles import FolderProfiles
from harbor_assets.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
INSTALL = Install(
    service_image="r/service:1",
    worker_image="r/worker:1",
    password="0a1b",
    egress_secret="2c3d",
    namespace="elsewhere",
    settings={"HARBOR_ASSETS_REGISTRY": "r/tasks"},
    nodes=("203.0.113.7",),
)

CLUSTER_WIDE = ("Namespace", "PriorityClass")

type Object = dict[str, Any]


def objects(*names: str) -> list[Object]:
    return [item for name in names for item in yaml.safe_load_all((DEPLOY / "base" / name).read_text())]


def rules(name: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of every right of a role."""
    [role] = [item for item in objects("rbac.yaml") if item["kind"] == "Role" and item["metadata"]["name"] == name]
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def rights(group: str, resource: str, verbs: str) -> set[tuple[str, str, str]]:
    return {(group, resource, verb) for verb in verbs.split()}


def test_rights_are_these_and_no_more():
    jobs = rights("batch", "jobs", "create list delete") | rights("batch", "jobs/status", "get")
    unread = ("secrets", "configmaps", "persistentvolumeclaims")
    bags = {right for kind in unread for right in rights("", kind, "deletecollection")}
    events = rights("", "events", "list")
    assert rules("harbor-assets-service") == jobs | rights("", "pods", "list delete") | bags | events
    assert rules("harbor-assets-run-worker") == jobs | rights("", "pods", "list") | events
    assert rules("harbor-assets-trial-worker") == (
        rights("", "pods", "create get list watch patch delete") | rights("", "pods/exec", "create get") | events
    )


def test_each_account_has_its_own_role_and_nothing_reaches_beyond_the_namespace():
    found = objects("rbac.yaml")
    assert {item["kind"] for item in found} == {"ServiceAccount", "Role", "RoleBinding"}
    accounts = {item["metadata"]["name"] for item in found if item["kind"] == "ServiceAccount"}
    assert accounts == {"harbor-assets-service", "harbor-assets-run-worker", "harbor-assets-trial-worker"}
    for binding in (item for item in found if item["kind"] == "RoleBinding"):
        name = binding["metadata"]["name"]
        assert binding["roleRef"]["name"] == name
        assert [(s["kind"], s["name"]) for s in binding["subjects"]] == [("ServiceAccount", name)]


def test_sandbox_policies_are_those_of_the_code():
    assert objects("sandbox-network.yaml") == policies()


def test_the_proxy_listens_where_sandboxes_may_go():
    service, deployment = objects("egress.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {port["containerPort"] for port in container["ports"]} == set(PORTS.values())
    assert {port["port"] for port in service["spec"]["ports"]} == set(PORTS.values())


def test_every_setting_is_one(overlay: list[Object]):
    for item in overlay:
        if item["kind"] == "ConfigMap" and item["metadata"]["name"] == "harbor-assets-env":
            settings = Settings.load(item["data"])
            assert settings.executor == "kubernetes"
            assert settings.unknown == ()
            return
    raise AssertionError("no settings")


def test_every_object_is_labelled_and_in_the_namespace(overlay: list[Object]):
    for item in overlay:
        assert item["metadata"]["labels"]["app.kubernetes.io/part-of"] == "harbor-assets", item
        if item["kind"] not in CLUSTER_WIDE:
            assert item["metadata"]["namespace"] == "harbor-assets", item
        if item["kind"] == "Deployment":
            assert item["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "harbor-assets"


def test_only_the_overlays_say_that_all_may_do_all_and_an_access_file_ends_that(overlay: list[Object]):
    assert "ALLOW_REMOTE" not in (DEPLOY / "base" / "settings.env").read_text()
    alone = Settings.load(environment(overlay))
    path = "/etc/harbor-assets/access/access.toml"
    assert (alone.allow_remote, alone.access) == ((True, "") if inner(overlay) else (False, path))
    given = adapt(overlay, replace(INSTALL, access="# none yet", guarded=True))
    kept = adapt(overlay, replace(INSTALL, guarded=True))  # an upgrade that does not name it again
    for made in (given, kept):
        settings = Settings.load(environment(made))
        assert (settings.allow_remote, settings.access) == (False, path)
    secrets = [item for item in given if item["metadata"]["name"] == "harbor-assets-access"]
    assert [(item["kind"], item["stringData"]) for item in secrets] == [("Secret", {"access.toml": "# none yet"})]
    assert not [item for item in kept if item["metadata"]["name"] == "harbor-assets-access"]


def inner(overlay: list[Object]) -> bool:
    """Whether it is one of those that bring a database and all else they need."""
    return has(overlay, "Deployment", "harbor-assets-postgres")


def containers(overlay: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    for item in overlay:
        if item["kind"] == "Deployment":
            pod = item["spec"]["template"]["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                yield f"{item['metadata']['name']}/{container['name']}", pod, container


def test_our_own_pods_would_pass_the_restricted_level(overlay: list[Object]):
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"""
    for name, pod, container in containers(overlay):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"]["allowPrivilegeEscalation"] is False, name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert not any("hostPath" in volume for volume in pod.get("volumes", ())), name
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}, name
        assert "memory" in container["resources"]["limits"], name


def test_only_who_needs_the_apiserver_has_a_token(overlay: list[Object]):
    for name, pod, _ in containers(overlay):
        wanted = not name.startswith(("harbor-assets-postgres", "harbor-assets-egress"))
        assert pod["automountServiceAccountToken"] is wanted, name


def test_everything_that_uses_the_databases_waits_for_their_migration(overlay: list[Object]):
    for item in overlay:
        if item["kind"] == "Deployment" and item["metadata"]["name"] not in (
            "harbor-assets-postgres",
            "harbor-assets-egress",
        ):
            first = item["spec"]["template"]["spec"]["initContainers"][0]
            assert first["command"][:3] == ["harbor-assets", "cluster", "migrate"]


def test_an_install_sets_images_secrets_nodes_and_namespace(overlay: list[Object]):
    made = {(item["kind"], item["metadata"]["name"]): item for item in adapt(overlay, INSTALL)}
    assert ("Namespace", "elsewhere") in made
    named = {item["metadata"].get("namespace") for (kind, _), item in made.items() if kind not in CLUSTER_WIDE}
    assert named == {"elsewhere"}
    images = {container["image"] for _, _, container in containers(list(made.values()))}
    assert images == {"r/service:1", *(["postgres:15"] if inner(overlay) else [])}
    env = made["ConfigMap", "harbor-assets-env"]["data"]
    assert env["HARBOR_ASSETS_WORKER_IMAGE"] == "r/worker:1"
    assert env["HARBOR_ASSETS_REGISTRY"] == "r/tasks"
    assert made["Secret", "harbor-assets-egress-generated"]["stringData"] == {"HARBOR_ASSETS_EGRESS_SECRET": "2c3d"}
    if inner(overlay):
        assert made["Secret", "harbor-assets-database-generated"]["stringData"] == {
            "POSTGRES_PASSWORD": "0a1b",
            "DAGSTER_PG_PASSWORD": "0a1b",
            "HARBOR_ASSETS_CATALOG_URL": "postgresql+psycopg://harbor:0a1b@harbor-assets-postgres:5432/harbor_assets",
        }
    else:  # another's database has another's password
        assert ("Secret", "harbor-assets-database-generated") not in made
    overlays_own = {("Secret", "harbor-assets-database"), ("Secret", "harbor-assets-egress")}
    assert not overlays_own & made.keys()  # it stands beside them: a plain apply afterwards changes no secret in use
    public = made["NetworkPolicy", "harbor-assets-sandbox-public"]
    assert "203.0.113.7/32" in public["spec"]["egress"][1]["to"][0]["ipBlock"]["except"]
    for binding in (item for (kind, _), item in made.items() if kind == "RoleBinding"):
        assert {subject["namespace"] for subject in binding["subjects"]} == {"elsewhere"}


def secret_names(sources: list[Object]) -> list[str]:
    """Names of the Secrets that a container's environment comes from; each must be allowed to be missing."""
    found = [s.get("secretRef") or s.get("secret_ref") for s in sources]
    assert all(ref["optional"] is True for ref in found if ref)
    return [ref["name"] for ref in found if ref]


def test_what_an_install_generated_counts_before_what_the_overlay_brings(overlay: list[Object]):
    both = {
        "database": ["harbor-assets-database", "harbor-assets-database-generated"],  # of two, the later one counts
        "egress": ["harbor-assets-egress", "harbor-assets-egress-generated"],
    }
    store = ["harbor-assets-object-store"]
    for name, _, container in containers(overlay):
        alone = {
            "harbor-assets-egress": both["egress"],
            "harbor-assets-postgres": both["database"],
            # The sensors run there, and nobody else is to know where others are told.
            "harbor-assets-code": [*both["database"], *store, *(["harbor-assets-webhook"] * (name.endswith("/code")))],
        }
        assert secret_names(container["envFrom"]) == alone.get(name.split("/")[0], both["database"] + store), name
        assert not any("secretKeyRef" in v.get("valueFrom", {}) for v in container.get("env", ())), name
    instance = yaml.safe_load((DEPLOY / "base" / "instance" / "dagster.yaml").read_text())
    workers = instance["run_launcher"]["config"]["run_k8s_config"]["container_config"]["env_from"]
    assert secret_names(workers) == [*both["database"], *both["egress"], *store, "harbor-assets-trial-variables"]


def test_pods_are_made_anew_when_what_they_read_has_changed(overlay: list[Object]):
    def marks(install: Install) -> set[str]:
        return {
            item["spec"]["template"]["metadata"]["annotations"][CONFIGURATION]
            for item in adapt(overlay, install)
            if item["kind"] == "Deployment" and item["metadata"]["name"] != "harbor-assets-postgres"
        }

    before = marks(INSTALL)
    assert len(before) == 1
    assert marks(INSTALL) == before
    other = Install(**{**{f: getattr(INSTALL, f) for f in INSTALL.__slots__}, "worker_image": "r/worker:2"})
    assert marks(other) != before


def test_profiles_can_be_read_and_have_the_ceilings_promised(tmp_path: Path):
    for name in OVERLAYS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "profiles.yaml").write_bytes((DEPLOY / "profiles" / name / "profiles.yaml").read_bytes())
        FolderProfiles(tmp_path / name).get(None)
    test = FolderProfiles(tmp_path / "test").get(None)
    assert (test.name, test.max_cpus, test.max_memory_mb) == ("harbor-standard", 4, 8192)
    assert (test.requests.cpu, test.requests.memory) == ("50m", "64Mi")
    dev = FolderProfiles(tmp_path / "dev").get("harbor-standard")
    assert (dev.requests.cpu, dev.requests.memory) == (None, None)
    assert FolderProfiles(tmp_path / "ack").get("harbor-gpu").gpu_resource == "nvidia.com/gpu"


def test_the_instance_fits_the_launcher_that_reads_it():
    import dagster as dg
    from dagster._config import process_config

    from harbor_assets.run_launcher import DeploymentRunLauncher

    instance = yaml.safe_load((DEPLOY / "base" / "instance" / "dagster.yaml").read_text())
    launcher = instance["run_launcher"]
    assert (launcher["module"], launcher["class"]) == (
        DeploymentRunLauncher.__module__,
        DeploymentRunLauncher.__name__,
    )
    config = {**launcher["config"], "job_namespace": "harbor-assets"}
    checked = process_config(dg.Shape(DeploymentRunLauncher.config_type()), config)
    assert checked.success, checked.errors
    assert instance["telemetry"] == {"enabled": False}
    assert instance["run_monitoring"]["max_resume_run_attempts"] == 3


def test_images_hold_only_packages_of_the_project_at_its_versions():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomli.load(file)
    pins = {line.split("==")[0] for line in project["tool"]["uv"]["constraint-dependencies"]}
    wanted = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["cluster"]]
    direct = {re.split(r"[=><\[]", line)[0] for line in wanted}
    listed: dict[str, set[str]] = {}
    for name in ("base.txt", "service/requirements.txt"):
        lines = [line for line in (DEPLOY / "images" / name).read_text().splitlines() if not line.startswith("#")]
        listed[name] = {line.split("[")[0] for line in lines}
        assert listed[name] <= pins
    assert listed["base.txt"] | listed["service/requirements.txt"] == direct  # the service image does everything
    assert listed["base.txt"].isdisjoint({"dagster-webserver", "fastapi", "uvicorn"})


def test_both_images_begin_with_the_same_layer():
    def head(name: str) -> list[str]:
        lines = (DEPLOY / "images" / name / "Containerfile").read_text().splitlines()
        steps = [line for line in lines if line and not line.startswith("#")]
        return steps[:4]

    assert head("service") == head("worker")
    assert "base.txt" in head("worker")[-1]


def test_the_database_is_where_the_settings_say(overlay: list[Object]):
    from dagster._config import process_config

    from harbor_assets.cluster.storage import DeploymentStorage

    instance = yaml.safe_load((DEPLOY / "base" / "instance" / "dagster.yaml").read_text())
    wanted = instance["storage"]["custom"]["config"]["postgres_db"]
    env = {**environment(overlay), "DAGSTER_PG_PASSWORD": "p"}
    given = {key: value if isinstance(value, str) else env[value["env"]] for key, value in wanted.items()}
    checked = process_config(DeploymentStorage.config_type(), {"postgres_db": {**given, "port": int(given["port"])}})
    assert checked.success, checked.errors
    host = "harbor-assets-postgres" if inner(overlay) else UNFILLED
    assert (given["hostname"], given["db_name"], given["port"]) == (host, "dagster", "5432")


def test_what_an_admin_has_to_fill_in_is_named(overlay: list[Object]):
    missing = unfilled(overlay)
    if inner(overlay):
        assert missing == []
        return
    assert "ConfigMap harbor-assets-env: data.DAGSTER_PG_HOST" in missing
    assert "ConfigMap harbor-assets-env: data.HARBOR_ASSETS_ARTIFACTS_URL" in missing
    assert not [field for field in missing if "image" in field.lower()]  # an install sets them
    filled = json.loads(json.dumps(overlay).replace(UNFILLED, "there"))
    assert unfilled(filled) == []


@pytest.mark.parametrize("name", ["production", "ack"])
def test_what_is_marked_yours_and_has_no_value_is_what_must_be_filled_in(name: str):
    lines = (DEPLOY / "overlays" / name / "kustomization.yaml").read_text().splitlines()
    assert all("# yours" in line for line in lines if UNFILLED in line)


@pytest.mark.parametrize(("name", "pulls"), [("production", "harbor-assets-pull"), ("ack", "acr-pull-secret")])
def test_a_deployment_that_counts(kustomized: Callable[[str], list[Object]], name: str, pulls: str):
    made = {(item["kind"], item["metadata"]["name"]): item for item in kustomized(name)}
    assert not [key for key in made if "postgres" in key[1]]
    labels = made["Namespace", "harbor-assets"]["metadata"]["labels"]
    levels = {mode: labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "audit", "warn")}
    assert levels == {"enforce": "baseline", "audit": "restricted", "warn": "restricted"}
    for (kind, program), item in made.items():
        if kind == "Deployment":
            pod = item["spec"]["template"]["spec"]
            assert pod["imagePullSecrets"] == [{"name": pulls}], program
            assert pod["priorityClassName"] == "harbor-assets-programs", program
    classes = {key[1] for key in made if key[0] == "PriorityClass"}
    env = made["ConfigMap", "harbor-assets-env"]["data"]
    workers = json.loads(Settings.load(env).worker_pods)
    assert workers == {"imagePullSecrets": [{"name": pulls}], "priorityClassName": "harbor-assets-runs"}
    profiles = yaml.safe_load(made["ConfigMap", "harbor-assets-profiles"]["data"]["profiles.yaml"])["profiles"]
    for profile in profiles:
        assert profile["image_pull_secrets"] == [pulls]
        assert profile["pod_overrides"]["priorityClassName"] in classes
    assert {workers["priorityClassName"], "harbor-assets-programs"} == classes
    budgets = {key[1]: item["spec"] for key, item in made.items() if key[0] == "PodDisruptionBudget"}
    run = {"app.kubernetes.io/part-of": "harbor-assets", "harbor/run-id": "run-0"}
    assert matches(budgets["harbor-assets-runs"]["selector"], run)
    assert not matches(budgets["harbor-assets-runs"]["selector"], {"app.kubernetes.io/part-of": "harbor-assets"})
    egress = made["Deployment", "harbor-assets-egress"]["spec"]
    assert egress["replicas"] > budgets["harbor-assets-egress"]["minAvailable"]  # else no node could ever be drained
    assert matches(budgets["harbor-assets-egress"]["selector"], egress["template"]["metadata"]["labels"])
    scraped = made["Deployment", "harbor-assets"]["spec"]["template"]["metadata"]["annotations"]
    assert scraped["prometheus.io/path"] == "/metrics"
    assert made["PersistentVolumeClaim", "harbor-assets-artifacts"]["spec"]["accessModes"] == ["ReadWriteMany"]
    assert made["Service", "harbor-assets"]["spec"].get("type", "ClusterIP") == "ClusterIP"


def matches(selector: Object, labels: dict[str, str]) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        expression["operator"] == "Exists" and expression["key"] in labels
        for expression in selector.get("matchExpressions", ())
    )


def test_a_secret_of_the_admins_own_stays_as_it_is_where_the_database_is_elsewhere():
    own = {"kind": "Secret", "metadata": {"name": "harbor-assets-database", "namespace": "x"}, "data": {"A": "Yg=="}}
    [kept, egress] = adapt([own], INSTALL)
    assert (kept["metadata"]["name"], kept["data"]) == ("harbor-assets-database", {"A": "Yg=="})
    assert egress["metadata"]["name"] == "harbor-assets-egress-generated"


def test_only_our_own_programs_reach_the_buildkit(kustomized: Callable[[str], list[Object]]):
    made = {item["kind"]: item for item in kustomized("buildkit")}
    assert {item["metadata"].get("namespace") for kind, item in made.items() if kind != "Namespace"} == {
        "harbor-assets-buildkit"
    }
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    [rule] = made["NetworkPolicy"]["spec"]["ingress"]
    [source] = rule["from"]
    assert {"sandbox", "egress"} <= set(source["podSelector"]["matchExpressions"][0]["values"])
    assert source["namespaceSelector"]["matchLabels"] == {"app.kubernetes.io/part-of": "harbor-assets"}
    with (DEPLOY / "components" / "buildkit" / "buildkitd.toml").open("rb") as file:
        assert tomli.load(file)["registry"]["docker.io"]["mirrors"]
    [mount] = [v for v in made["Deployment"]["spec"]["template"]["spec"]["volumes"] if v["name"] == "registry"]
    assert mount["secret"]["secretName"] == "harbor-assets-registry"
    [port] = made["Service"]["spec"]["ports"]
    assert f"harbor-assets-buildkit.harbor-assets-buildkit:{port['port']}" in str(environment(kustomized("ack")))


def test_where_workers_go_is_said_by_a_setting_and_reaches_the_jobs_of_runs_and_of_tasks():
    from dagster_k8s.job import UserDefinedDagsterK8sConfig

    from harbor_assets.cluster.launcher import placed

    config = yaml.safe_load((DEPLOY / "base" / "instance" / "dagster.yaml").read_text())["run_launcher"]["config"]
    fields = json.dumps({"nodeSelector": {"pool": "evals"}, "imagePullSecrets": [{"name": "p"}]})
    made = placed(config["run_k8s_config"], Settings.load({"HARBOR_ASSETS_WORKER_PODS": fields}).worker_pods)
    pod = UserDefinedDagsterK8sConfig.from_dict(made).pod_spec_config
    assert pod["node_selector"] == {"pool": "evals"}
    assert pod["image_pull_secrets"] == [{"name": "p"}]
    assert pod["security_context"]["run_as_non_root"] is True  # what the base says stays
    assert placed(config["run_k8s_config"], "") == config["run_k8s_config"]


@pytest.mark.parametrize("text", ["{", "[]", '{"containers": []}', '{"securityContext": {}}'])
def test_a_worker_pods_other_fields_are_fixed(text: str):
    with pytest.raises(Refused, match="HARBOR_ASSETS_WORKER_PODS"):
        Settings.load({"HARBOR_ASSETS_WORKER_PODS": text})
