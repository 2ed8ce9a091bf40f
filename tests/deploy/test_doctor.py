"""What doctor says, and that nothing of its probe stays; with a kubectl of the test, and on a real cluster."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.interfaces.doctor import inside
from harbor_assets.interfaces.doctor.cluster import ClusterDoctor, Right, granted_rights
from harbor_assets.interfaces.doctor.findings import Finding
from harbor_assets.interfaces.doctor.pods import LABEL, client_pod, policies, server_job
from harbor_assets.interfaces.doctor.probe import Probe, Targets, network, surroundings

if TYPE_CHECKING:
    from tests.cluster.harness.deployment import Deployment

type Object = dict[str, Any]
LAST = {"server": {"dns": ""}, "client": {"open": True, "ingress": False, "egress": False}}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if not request.node.get_closest_marker("req_k8s"):
        monkeypatch.setattr("harbor_assets.interfaces.doctor.probe.START_SECONDS", 5.0)


class Kubectl:
    """A cluster as a test writes it down: lists by kind, rights that nobody has, and what pods end with."""

    def __init__(self, lists: Mapping[str, Sequence[Object]] | None = None, **said: Any) -> None:
        self.lists, self.said = dict(lists or {}), said
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        self.calls.append(words)
        if words[0] == "version":
            if "version" not in self.said:
                raise ServiceUnavailable("The cluster does not answer")
            major, minor = self.said["version"].split(".")
            return json.dumps({"serverVersion": {"gitVersion": f"v{major}.{minor}.0", "major": major, "minor": minor}})
        if words[0] == "delete":
            return ""
        body = json.loads(stdin or "")
        if body["kind"] == "List":  # one document after the other, as kubectl prints them
            return "\n".join(json.dumps(self._answer(item)) for item in body["items"])
        return json.dumps({**body, "metadata": {**body["metadata"], "uid": "u-1"}})

    def _answer(self, review: Object) -> Object:
        asked = review["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, [asked["resource"], asked.get("subresource")]))
        who = review["spec"].get("user", "me").rpartition(":")[2]
        refused = self.said.get("refused", {}).get(who, [])
        allowed = who != "default" and f"{asked['verb']} {resource}" not in refused
        return {"kind": review["kind"], "status": {"allowed": allowed}}

    def get(self, kind: str, name: str, *words: str) -> Object | None:
        return self.said.get(f"{kind}_{name}")

    def items(self, kind: str, *words: str) -> list[Object]:
        self.calls.append(("items", kind, *words))
        selector = words[words.index("-l") + 1] if "-l" in words else ""
        if kind == "pods" and LABEL in selector:
            role = selector.rpartition("=")[2]
            if isinstance(stop := self.said.get("stop"), BaseException):
                raise stop
            return [self._pod(role)]
        return list(self.lists.get(kind, ()))

    def _pod(self, role: str) -> Object:
        looks = sum(call[:2] == ("items", "pods") and call[-1].endswith(f"-role={role}") for call in self.calls)
        message = json.dumps(self.said.get("last", LAST)[role])
        ended: Object = {"containerStatuses": [{"name": "probe", "state": {"terminated": {"message": message}}}]}
        running = role == "server" and looks == 1
        return {
            "metadata": {"name": role},
            "status": {"phase": "Running", "podIP": "10.0.0.9"} if running else {"phase": "Succeeded", **ended},
        }


def findings(kubectl: Kubectl, **settings: str) -> list[Finding]:
    doctor = ClusterDoctor(kubectl, "evals", None, {"DAGSTER_PG_HOST": "", "DAGSTER_PG_PORT": "", **settings})  # type: ignore[arg-type]
    return list(doctor.look())


def by_check(kubectl: Kubectl, **settings: str) -> dict[str, Finding]:
    return {finding.check: finding for finding in findings(kubectl, **settings)}


CLASS = {
    "metadata": {"name": "fast", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "nfs.example",
}
DNS_POD = {"metadata": {"name": "coredns"}, "status": {}}
FRESH = {"storageclasses": [CLASS], "pods": [DNS_POD]}


def test_a_cluster_that_does_not_answer_is_the_only_thing_said():
    [only] = findings(Kubectl())
    assert (only.check, only.status) == ("cluster", "fail")
    assert "KUBECONFIG" in only.fix


def test_a_cluster_that_is_ready_for_an_install():
    found = by_check(Kubectl(FRESH, version="1.34"))
    assert {check: finding.status for check, finding in found.items() if finding.status == "fail"} == {}
    assert found["network policies"].status == "ok"
    assert found["dns"].status == "ok"
    assert found["buildkit"].status == found["registry"].status == "warn"  # of an install that has none
    assert "nothing is installed in evals" in found["accounts"].said


def test_what_stands_in_the_way_is_named_with_what_to_do():
    kubectl = Kubectl({"pods": []}, version="1.29", refused={"me": ["create deployments"]})
    found = by_check(kubectl)
    failed = {check for check, finding in found.items() if finding.status == "fail"}
    assert failed == {"cluster", "your rights", "storage", "dns for sandboxes"}
    assert "create deployments" in found["your rights"].said
    assert all(found[check].fix for check in failed)


def deployment(available: int) -> Object:
    return {
        "metadata": {"name": "harbor-assets", "generation": 1},
        "spec": {"replicas": 1, "template": {"spec": {"containers": [{"image": "r/service:1"}], "tolerations": [{}]}}},
        "status": {
            "observedGeneration": 1,
            "updatedReplicas": 1,
            "replicas": 1,
            "availableReplicas": available,
        },
    }


ENV = {"data": {"DAGSTER_PG_HOST": "db.example", "DAGSTER_PG_PORT": "5432", "HARBOR_ASSETS_REGISTRY": "r.example/x"}}


def test_an_installation_is_looked_at_with_its_accounts_volumes_and_settings():
    claim = {
        "metadata": {"name": "harbor-assets-artifacts"},
        "spec": {"accessModes": ["ReadWriteMany"]},
        "status": {"phase": "Pending"},
    }
    kubectl = Kubectl(
        {"deployments": [deployment(0)], "persistentvolumeclaims": [claim], "pods": [DNS_POD]},
        version="1.34",
        refused={"harbor-assets-trial-worker": ["create pods/exec"]},
        last={**LAST, "server": {"dns": "", "database": "timed out", "registry": ""}},
        **{"configmap_harbor-assets-env": ENV, "namespace_evals": {}},
    )
    found = by_check(kubectl)
    assert found["harbor-assets-service"].status == found["harbor-assets-run-worker"].status == "ok"
    assert "create pods/exec" in found["harbor-assets-trial-worker"].said
    assert "not ready: harbor-assets" in found["installation"].said
    assert "is Pending and wants ReadWriteMany" in found["storage"].said
    assert found["registry"].status == "ok"
    assert found["database"].said == "pods do not reach db.example:5432: timed out"


def test_rights_asked_about_are_those_of_the_roles():
    rights = granted_rights()
    assert Right("", "pods/exec", "create") in rights["harbor-assets-trial-worker"]
    assert Right("batch", "jobs", "create") in rights["harbor-assets-run-worker"]


def test_a_check_that_cannot_be_made_ends_no_other():
    class Shut(Kubectl):
        def items(self, kind: str, *words: str) -> list[Object]:
            if kind == "storageclasses":
                raise Refused("storageclasses is forbidden")
            return super().items(kind, *words)

    found = by_check(Shut(FRESH, version="1.34"))
    assert (found["storage"].status, "forbidden" in found["storage"].said) == ("warn", True)
    assert found["network policies"].status == "ok"


@pytest.mark.parametrize(
    ("seen", "status", "word"),
    [
        ({"open": True, "ingress": False, "egress": False}, "ok", "enforced"),
        ({"open": True, "ingress": True, "egress": True}, "fail", "ingress and egress"),
        ({"open": True, "ingress": False, "egress": True}, "fail", "for egress"),
        ({"open": False, "ingress": False, "egress": False}, "fail", "does not reach another"),
    ],
)
def test_policies_are_enforced_only_if_each_holds_and_all_else_goes_on(seen: dict[str, bool], status: str, word: str):
    found = network(seen)
    assert (found.status, word in found.said) == (status, True)


def test_what_pods_do_not_reach_is_a_failure_and_what_is_not_set_a_warning():
    targets = Targets(registry="r.example/x", buildkit="unix:///run/b.sock")
    found = {f.check: f.status for f in surroundings({"dns": "no", "registry": "refused"}, targets)}
    assert found == {"dns": "fail", "registry": "fail", "buildkit": "warn"}


def test_everything_of_a_probe_belongs_to_a_job_that_ends_by_itself():
    job = server_job("m", "i", {"tolerations": []}, {})
    assert job["spec"]["ttlSecondsAfterFinished"] <= 60
    assert job["spec"]["activeDeadlineSeconds"] <= 300
    owner = {"kind": "Job", "name": job["metadata"]["name"], "uid": "u"}
    rest = [client_pod("m", "i", {}, owner, "10.0.0.1"), *policies("m", owner)]
    assert all(item["metadata"]["ownerReferences"] == [owner] for item in rest)
    assert all(item["metadata"]["labels"][LABEL] == "m" for item in (job, *rest))
    for spec in (job["spec"]["template"]["spec"], rest[0]["spec"]):
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["automountServiceAccountToken"] is False
        compile(spec["containers"][0]["command"][2], "inside.py", "exec")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), ServiceUnavailable("away"), RuntimeError("ours")])
def test_what_was_made_is_deleted_however_it_ends(stop: BaseException):
    kubectl = Kubectl(stop=stop)
    probe = Probe(kubectl, "evals", "i", {}, Targets())  # type: ignore[arg-type]
    with pytest.raises(type(stop)):
        list(probe.look())
    last = kubectl.calls[-1]
    assert last[:2] == ("delete", "jobs,pods,networkpolicies")
    assert last[last.index("-l") + 1].startswith(f"{LABEL}=")


def test_an_image_that_cannot_be_pulled_is_not_waited_for():
    class Stuck(Kubectl):
        def _pod(self, role: str) -> Object:
            waiting = {"reason": "ImagePullBackOff", "message": "not found"}
            return {
                "metadata": {"name": role},
                "status": {"phase": "Pending", "containerStatuses": [{"name": "probe", "state": {"waiting": waiting}}]},
            }

    with pytest.raises(ServiceUnavailable, match=r"ImagePullBackOff not found.*--image"):
        list(Probe(Stuck(), "evals", "i", {}, Targets()).look())  # type: ignore[arg-type]


def test_what_runs_in_the_pods_tells_open_ports_from_shut_ones(monkeypatch: pytest.MonkeyPatch):
    ports = []
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    for name, port in zip(("OPEN", "NO_INGRESS", "NO_EGRESS"), ports, strict=True):
        monkeypatch.setattr(inside, name, port)
    monkeypatch.setattr(inside, "PATIENCE_SECONDS", 0.0)
    assert inside.ask({"server": "127.0.0.1"}) == {"open": False, "ingress": False, "egress": False}
    asked = {"dns": "localhost", "reach": {"buildkit": ["127.0.0.1", 1]}, "answer": {"registry": "http://127.0.0.1:1"}}
    found: dict[str, str] = {}
    server = threading.Thread(target=lambda: found.update(inside.serve(asked)), daemon=True)
    server.start()
    until = time.monotonic() + 30
    while not all(inside.ask({"server": "127.0.0.1"}).values()):  # it says goodbye, which ends the server
        assert time.monotonic() < until
    server.join(30)
    assert found["dns"] == ""
    assert "refused" in found["buildkit"]
    assert "refused" in found["registry"]


FAKE = """
import json, pathlib, sys, time
words, folder = sys.argv[1:], pathlib.Path(__file__).parent
with (folder / "calls").open("a") as file:
    file.write(" ".join(words) + "\\n")
if words[0] == "version":
    print(json.dumps({"serverVersion": {"gitVersion": "v1.34.0", "major": "1", "minor": "34"}}))
elif words[0] == "create":
    body = json.load(sys.stdin)
    for item in body.get("items", [body]):
        item["status"] = {"allowed": True}
        item["metadata"] = {**item.get("metadata", {}), "uid": "u"}
        print(json.dumps(item))
elif "doctor" in " ".join(words) and words[0] == "get":
    (folder / "begun").touch()
    time.sleep(60)
elif words[0] == "get" and words[1] not in ("configmap", "namespace"):
    print(json.dumps({"items": []}))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_interrupted_it_cleans_up_and_says_so(tmp_path: Path, number: signal.Signals):
    path = tmp_path / "kubectl"
    path.write_text(f"#!{sys.executable}\n{FAKE}")
    path.chmod(0o755)
    words = [sys.executable, "-m", "harbor_assets", "doctor", "--namespace", "evals"]
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        until = time.monotonic() + 60
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < until
            assert program.poll() is None
            time.sleep(0.1)
        program.send_signal(number)
        out, err = program.communicate(timeout=60)
    assert program.returncode == 130, out + err
    assert "Traceback" not in err
    assert (tmp_path / "calls").read_text().splitlines()[-1].startswith("delete jobs,pods,networkpolicies -n default")


def cli(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harbor_assets", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environ})


def test_wrong_usage_is_2():
    assert cli("--namespace", "a", "--base-url", "http://x").returncode == 2
    assert cli("--image", "a").returncode == 2
    assert cli("--namespace", "Not_One").returncode == 2


def test_without_kubectl_it_says_so(tmp_path: Path):
    done = cli("--namespace", "a", PATH=str(tmp_path))
    assert (done.returncode, done.stdout.startswith("fail  kubectl: ")) == (1, True)


def test_this_machine_is_looked_at_where_nothing_else_is_named(tmp_path: Path):
    home = tmp_path / "home"
    done = cli("--json", HARBOR_ASSETS_HOME=str(home))
    said = json.loads(done.stdout)
    assert said["ok"] is (done.returncode == 0)
    assert {"disk", "home", "sandbox process"} <= {check["check"] for check in said["checks"]}
    assert all(check.keys() == {"check", "status", "said", "fix"} for check in said["checks"])
    assert not home.exists()


def test_a_home_of_a_newer_version_fails(tmp_path: Path):
    from harbor_assets.catalog.store import Catalog

    url = f"sqlite:///{tmp_path / 'catalog.db'}"
    with Catalog.open(url) as catalog:
        catalog.list_runs()
        catalog._database.write(lambda c: c.exec_driver_sql("UPDATE alembic_version SET version_num = 'later'"))
    done = cli(HARBOR_ASSETS_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "fail  home: " in done.stdout
    assert "newer harbor-assets" in done.stdout


def test_a_service_that_does_not_answer_fails():
    done = cli("--base-url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout.startswith("fail  service: ")) == (1, True)


@pytest.mark.req_k8s
def test_a_real_installation_is_well_and_nothing_of_the_probe_is_left(deployed: "Deployment"):
    done = cli("--namespace", deployed.namespace, "--json")
    found = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 0, found
    for check in ("cluster", "harbor-assets-service", "network policies", "dns", "registry", "buildkit", "database"):
        assert found[check]["status"] == "ok", found[check]
    assert deployed.kubectl("get", "jobs,pods,networkpolicies", "-l", LABEL, "-o", "name") == ""
    served = cli("--base-url", deployed.url)
    assert served.returncode == 0, served.stdout
    assert "fail" not in served.stdout
