"""What stands in deploy/: rights, labels, security, and that it fits the code that relies on it."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli
import yaml

from harbor_assets.interfaces.deployment.manifests import CONFIGURATION, Install, adapt
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
    assert rules("harbor-assets-run-worker") == jobs | rights("", "pods", "list")
    assert rules("harbor-assets-trial-worker") == (
        rights("", "pods", "create get list watch patch delete") | rights("", "pods/exec", "create get")
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
        if item["kind"] != "Namespace":
            assert item["metadata"]["namespace"] == "harbor-assets", item
        if item["kind"] == "Deployment":
            assert item["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/part-of"] == "harbor-assets"


def test_only_the_overlays_say_that_all_may_do_all_and_an_access_file_ends_that(overlay: list[Object]):
    assert "ALLOW_REMOTE" not in (DEPLOY / "base" / "settings.env").read_text()
    open_to_all = Settings.load(environment(overlay))
    assert (open_to_all.allow_remote, open_to_all.access) == (True, "")
    given = adapt(overlay, replace(INSTALL, access="# none yet", guarded=True))
    kept = adapt(overlay, replace(INSTALL, guarded=True))  # an upgrade that does not name it again
    for made in (given, kept):
        settings = Settings.load(environment(made))
        assert (settings.allow_remote, settings.access) == (False, "/etc/harbor-assets/access/access.toml")
    secrets = [item for item in given if item["metadata"]["name"] == "harbor-assets-access"]
    assert [(item["kind"], item["stringData"]) for item in secrets] == [("Secret", {"access.toml": "# none yet"})]
    assert not [item for item in kept if item["metadata"]["name"] == "harbor-assets-access"]


def environment(made: list[Object]) -> dict[str, str]:
    [found] = [item for item in made if (item["kind"], item["metadata"]["name"]) == ("ConfigMap", "harbor-assets-env")]
    return found["data"]


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
    assert {item["metadata"].get("namespace") for (kind, _), item in made.items() if kind != "Namespace"} == {
        "elsewhere"
    }
    images = {container["image"] for _, _, container in containers(list(made.values()))}
    assert images == {"r/service:1", "postgres:15"}
    env = made["ConfigMap", "harbor-assets-env"]["data"]
    assert env["HARBOR_ASSETS_WORKER_IMAGE"] == "r/worker:1"
    assert env["HARBOR_ASSETS_REGISTRY"] == "r/tasks"
    assert made["Secret", "harbor-assets-database-generated"]["stringData"] == {
        "POSTGRES_PASSWORD": "0a1b",
        "DAGSTER_PG_PASSWORD": "0a1b",
        "HARBOR_ASSETS_CATALOG_URL": "postgresql+psycopg://harbor:0a1b@harbor-assets-postgres:5432/harbor_assets",
    }
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
    for name, _, container in containers(overlay):
        of = both["egress" if name.startswith("harbor-assets-egress") else "database"]
        assert secret_names(container["envFrom"]) == of, name
        assert not any("secretKeyRef" in v.get("valueFrom", {}) for v in container.get("env", ())), name
    instance = yaml.safe_load((DEPLOY / "base" / "instance" / "dagster.yaml").read_text())
    workers = instance["run_launcher"]["config"]["run_k8s_config"]["container_config"]["env_from"]
    assert secret_names(workers) == [*both["database"], *both["egress"]]


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
    for name in ("test", "dev"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "profiles.yaml").write_bytes((DEPLOY / "profiles" / name / "profiles.yaml").read_bytes())
    test = FolderProfiles(tmp_path / "test").get(None)
    assert (test.name, test.max_cpus, test.max_memory_mb) == ("harbor-standard", 4, 8192)
    assert (test.requests.cpu, test.requests.memory) == ("50m", "64Mi")
    dev = FolderProfiles(tmp_path / "dev").get("harbor-standard")
    assert (dev.requests.cpu, dev.requests.memory) == (None, None)


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
    assert head("worker")[-1].endswith("base.txt")
