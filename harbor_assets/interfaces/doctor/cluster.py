"""Checks of a cluster, and of the installation in it if there is one. Asked through kubectl, as an install is."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.interfaces.deployment import source
from harbor_assets.interfaces.deployment.kubectl import Kubectl
from harbor_assets.interfaces.deployment.manifests import ENV, MINE, OURS, Object
from harbor_assets.interfaces.deployment.waiting import rolled_out, trouble_of
from harbor_assets.interfaces.doctor.findings import Finding, fail, guarded, ok, warn
from harbor_assets.interfaces.doctor.probe import Probe, Targets

MIN_VERSION = (1, 30)  # the first whose exec can end stdin alone
_POD_IMAGE = "python:3.12-slim"  # what our own images begin from; of an installation its own is taken
# Volumes that one node mounts at a time, by their provisioner.
_ONE_NODE = ("ebs.csi.aws.com", "pd.csi.storage.gke.io", "disk.csi.azure.com", "diskplugin.csi.alibabacloud.com")


class Right(NamedTuple):
    """One verb on one resource, as Kubernetes asks about it."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


# What an install makes and changes, in the namespace.
_INSTALLS = [
    Right(group, resource, verb)
    for group, resources in {
        "": ("services", "configmaps", "secrets", "serviceaccounts", "persistentvolumeclaims"),
        "apps": ("deployments",),
        "networking.k8s.io": ("networkpolicies",),
        "rbac.authorization.k8s.io": ("roles", "rolebindings"),
    }.items()
    for resource in resources
    for verb in ("create", "patch")
]
_PROBES = [
    Right("batch", "jobs", "create"),
    Right("", "pods", "create"),
    Right("networking.k8s.io", "networkpolicies", "create"),
]
ACCOUNTS = ("harbor-assets-service", "harbor-assets-run-worker", "harbor-assets-trial-worker")


@dataclass
class ClusterDoctor:
    """Looks at the cluster of a kubeconfig; `namespace` is where an installation is, or is to be."""

    kubectl: Kubectl
    namespace: str
    image: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)  # what an installation would be told, if there is none

    def look(self) -> Iterator[Finding]:
        """Every check in turn. Ends after the first if no cluster answers."""
        try:
            reached = self._version()
        except HarborAssetsError as error:
            yield fail("cluster", str(error).replace("\n", " "), "Set KUBECONFIG to a cluster's kubeconfig")
            return
        yield reached
        for check, look in {
            "your rights": self._own_rights,
            "accounts": self._accounts,
            "installation": self._installation,
            "storage": self._storage,
            "dns for sandboxes": self._dns_pods,
            "probe": self._probe,
        }.items():
            yield from guarded(check, look)

    def _version(self) -> Finding:
        version = json.loads(self.kubectl("version", "-o", "json"))["serverVersion"]
        number = tuple(int("".join(filter(str.isdigit, version[part])) or 0) for part in ("major", "minor"))
        said = f"Kubernetes {version['gitVersion']}"
        wanted = ".".join(map(str, MIN_VERSION))
        if number < MIN_VERSION:
            return fail("cluster", f"{said} is older than {wanted}", f"Upgrade it to {wanted} or later")
        return ok("cluster", said)

    @cached_property
    def _env(self) -> Mapping[str, str]:
        """The settings of the installation; those given where there is none."""
        found = self.kubectl.get("configmap", ENV, "-n", self.namespace)
        return self.settings if found is None else found["data"]

    @cached_property
    def _deployments(self) -> Sequence[Object]:
        return self.kubectl.items("deployments", "-n", self.namespace, "-l", MINE)

    @cached_property
    def _namespace_is_there(self) -> bool:
        return self.kubectl.get("namespace", self.namespace) is not None

    def _own_rights(self) -> Iterator[Finding]:
        wanted = [*_INSTALLS, *_PROBES]
        if not self._namespace_is_there:
            wanted.append(Right("", "namespaces", "create"))
        missing = self._refused(wanted, None)
        if not missing:
            yield ok("your rights", f"you may install into {self.namespace}, and probe")
        elif self._deployments:
            yield warn("your rights", f"you may not {_listed(missing)} in {self.namespace}", "An upgrade needs them")
        else:
            yield fail(
                "your rights",
                f"you may not {_listed(missing)} in {self.namespace}",
                "Let an admin of the cluster grant them, or take another context with --kube-context",
            )

    def _accounts(self) -> Iterator[Finding]:
        if not self._deployments:
            yield ok("accounts", f"nothing is installed in {self.namespace} yet")
            return
        roles = granted_rights()
        for account in ACCOUNTS:
            missing = self._refused(roles[account], account)
            if missing:
                yield fail(
                    account,
                    f"may not {_listed(missing)}",
                    "Install again, which sets its Role; a policy of the cluster may forbid it as well",
                )
            else:
                yield ok(account, f"has its {len(roles[account])} rights")
        [may] = self._answers([Right("", "pods", "create")], "default")
        if may:
            yield warn(
                "default",
                f"the account 'default' of {self.namespace} may make pods, and our egress proxy runs under it",
                "Take that right away: nothing here needs it",
            )

    def _installation(self) -> Iterator[Finding]:
        if not self._deployments:
            return
        late = sorted(item["metadata"]["name"] for item in self._deployments if not rolled_out(item))
        if not late:
            yield ok("installation", f"all {len(self._deployments)} programs run")
            return
        pods = self.kubectl.items("pods", "-n", self.namespace, "-l", f"{MINE},!harbor/run-id")
        why = "; ".join(trouble_of(pods)) or "no pod says why"
        look = f"kubectl -n {self.namespace} get pods,events"
        yield fail("installation", f"not ready: {', '.join(late)}: {why}", f"Look with: {look}")

    def _storage(self) -> Iterator[Finding]:
        claims = self.kubectl.items("persistentvolumeclaims", "-n", self.namespace, "-l", f"{MINE},!harbor/run-id")
        for claim in claims:
            name, phase = claim["metadata"]["name"], claim["status"]["phase"]
            if phase == "Bound":
                modes = ", ".join(claim["status"].get("accessModes", ()))
                yield ok("storage", f"{name} is bound ({modes}, {claim['spec'].get('storageClassName') or 'no class'})")
            else:
                look = f"kubectl -n {self.namespace} describe persistentvolumeclaim {name}"
                wants = ", ".join(claim["spec"]["accessModes"])
                yield fail("storage", f"{name} is {phase} and wants {wants}", f"See why with: {look}")
        if claims:
            return
        classes = self.kubectl.items("storageclasses")
        if not classes:
            yield fail("storage", "there is no storage class", "Install a provisioner that gives ReadWriteMany volumes")
            return
        default = next((item for item in classes if _is_default(item)), None)
        names = ", ".join(item["metadata"]["name"] for item in classes)
        if default is None:
            yield warn("storage", f"no storage class is the default ({names})", "Name one in your overlay")
        elif default["provisioner"] in _ONE_NODE:
            yield warn(
                "storage",
                f"the default class {default['metadata']['name']} mounts a volume on one node at a time",
                f"Name a class that gives ReadWriteMany in your overlay for the shared volume (there are: {names})",
            )
        else:
            name = default["metadata"]["name"]
            yield ok("storage", f"default class {name}; first use shows whether it gives ReadWriteMany")

    def _dns_pods(self) -> Iterator[Finding]:
        if self.kubectl.items("pods", "-n", "kube-system", "-l", "k8s-app=kube-dns"):
            yield ok("dns for sandboxes", "the policies of sandboxes fit the cluster's DNS")
        else:
            yield fail(
                "dns for sandboxes",
                "no pod in kube-system is labelled k8s-app=kube-dns, the only ones sandboxes may ask for names",
                "Change the policy harbor-assets-sandbox-public in your overlay to where your DNS runs",
            )

    def _probe(self) -> Iterator[Finding]:
        env = self._env
        targets = Targets(
            registry=env.get("HARBOR_ASSETS_REGISTRY", ""),
            insecure=env.get("HARBOR_ASSETS_INSECURE_REGISTRIES", "").split(","),
            buildkit=env.get("HARBOR_ASSETS_BUILDKIT", ""),
            database=f"{env['DAGSTER_PG_HOST']}:{env['DAGSTER_PG_PORT']}" if self._deployments else "",
        )
        ours = next((item for item in self._deployments if item["metadata"]["name"] == OURS), None)
        pod: Object = ours["spec"]["template"]["spec"] if ours else {}
        image = self.image or (pod["containers"][0]["image"] if pod else _POD_IMAGE)
        place = {key: pod[key] for key in ("imagePullSecrets", "nodeSelector", "tolerations") if key in pod}
        where = self.namespace if self._namespace_is_there else "default"
        yield from Probe(self.kubectl, where, image, place, targets).look()

    def _refused(self, rights: Sequence[Right], account: str | None) -> list[Right]:
        answers = self._answers(rights, account)
        return [right for right, allowed in zip(rights, answers, strict=True) if not allowed]

    def _answers(self, rights: Iterable[Right], account: str | None) -> list[bool]:
        """Whether `account` of the namespace (None: who asks) has each right, asked all at once."""
        kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
        who = {"user": f"system:serviceaccount:{self.namespace}:{account}"} if account else {}
        asked = [
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": kind,
                "spec": {**who, "resourceAttributes": {**_attributes(right), "namespace": self.namespace}},
            }
            for right in rights
        ]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": asked})
        answers = _documents(self.kubectl("create", "-f", "-", "-o", "json", stdin=text))
        return [item["status"]["allowed"] for item in answers]


def granted_rights() -> dict[str, list[Right]]:
    """What our Roles grant, by the account of the same name."""
    import yaml

    text = (source.deploy_folder() / "base" / "rbac.yaml").read_text(encoding="utf-8")
    return {
        item["metadata"]["name"]: [
            Right(group, resource, verb)
            for rule in item["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        ]
        for item in yaml.safe_load_all(text)
        if item and item["kind"] == "Role"
    }


def _attributes(right: Right) -> dict[str, str]:
    resource, _, inner = right.resource.partition("/")
    return {"group": right.group, "resource": resource, "verb": right.verb, **({"subresource": inner} if inner else {})}


def _documents(text: str) -> Iterator[Any]:
    """The JSON documents that stand one after the other in a text, or in one list."""
    decoder, at = json.JSONDecoder(), 0
    while text[at:].strip():
        at += len(text[at:]) - len(text[at:].lstrip())
        found, at = decoder.raw_decode(text, at)
        yield from found["items"] if found.get("kind") == "List" else [found]


def _is_default(item: Object) -> bool:
    return item["metadata"].get("annotations", {}).get("storageclass.kubernetes.io/is-default-class") == "true"


def _listed(rights: Sequence[Right]) -> str:
    return ", ".join(map(str, rights))
