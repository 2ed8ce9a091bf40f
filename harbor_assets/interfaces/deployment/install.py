"""`cluster install` and `cluster uninstall`."""

import base64
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_assets.domain.errors import Problem, Refused, ServiceUnavailable
from harbor_assets.interfaces.deployment import manifests, source
from harbor_assets.interfaces.deployment.kubectl import Kubectl, build, check_builder, lines
from harbor_assets.interfaces.deployment.manifests import OURS, PART_OF, Install, Object, adapt

OVERLAYS = ("test", "dev")
POLL_SECONDS = 2.0
ANSWER_SECONDS = 60.0  # from ready to answering at a node's port: the proxies of the nodes have to hear of it
MINE = f"{PART_OF}={OURS}"

type Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said. `buildkit` and `registry`: where images are built and kept, if they are built.

    `access`: an access file for the service; None: as it is.
    """

    overlay: str
    namespace: str = manifests.NAMESPACE
    context: str | None = None
    service_image: str | None = None
    worker_image: str | None = None
    buildkit: str | None = None
    registry: str | None = None
    insecure_registry: bool = False
    access: Path | None = None
    timeout_seconds: float = 900


def install(options: Options, say: Say) -> str:
    """Install or upgrade; returns the service's URL, which answers from here.

    Raises `Refused` with what is wrong, `ServiceUnavailable` if something did not become ready in time.
    """
    folder = overlay_folder(options.overlay)
    access = _access_file(options.access)
    kubectl = Kubectl(options.context)
    nodes = kubectl.first_contact()
    _check_namespace(kubectl, options.namespace)
    service, worker = _images(options, say)
    password = _kept(kubectl, options.namespace, manifests.DATABASE, manifests.PASSWORD_KEY)
    egress = _kept(kubectl, options.namespace, manifests.EGRESS, manifests.EGRESS_KEY)
    decided = Install(
        service_image=service,
        worker_image=worker,
        password=password,
        egress_secret=egress,
        namespace=options.namespace,
        settings=_settings(options),
        access=access,
        guarded=access is not None or kubectl.get("secret", manifests.ACCESS, "-n", options.namespace) is not None,
        nodes=sorted(set(addresses(nodes))),
    )
    objects = adapt(read_objects(kubectl("kustomize", str(folder))), decided)
    say(f"Applying {len(objects)} objects to namespace {options.namespace}")
    for line in lines(kubectl("apply", "-f", "-", stdin=_as_json(objects))):
        if not line.endswith(" unchanged"):
            say(f"  {line}")
    _wait(kubectl, options, say)
    return _url(kubectl, options.namespace, nodes)


def uninstall(options: Options, say: Say) -> None:
    """Remove everything that an install made, the namespace included, and wait until it is gone."""
    overlay_folder(options.overlay)
    kubectl = Kubectl(options.context)
    kubectl.first_contact()
    found = kubectl.get("namespace", options.namespace)
    if found is not None:
        if found["metadata"].get("labels", {}).get(PART_OF) != OURS:
            raise Refused(f"The namespace {options.namespace} has no label {MINE}: it is not ours, and stays")
        say(f"Deleting namespace {options.namespace} with everything in it")
        kubectl("delete", "namespace", options.namespace, f"--timeout={options.timeout_seconds:.0f}s")
        _tell_volumes(kubectl, options, say)
        say(f"Nothing is left of {options.namespace}")
    else:
        say(f"There is no namespace {options.namespace}: there was nothing to remove in it")
    others = kubectl.items("namespaces", "-l", MINE)
    if others:  # what is not in a namespace may be another installation's
        names = ", ".join(item["metadata"]["name"] for item in others)
        say(f"Other installations are there ({names}); objects outside of namespaces stay")
        return
    kinds = lines(kubectl("api-resources", "--namespaced=false", "--verbs=list,delete", "-o", "name"))
    for name in lines(kubectl("get", ",".join(kinds), "-l", MINE, "--ignore-not-found", "-o", "name")):
        kubectl("delete", name, "--ignore-not-found")
        say(f"Deleted {name}")
    say("Nothing of harbor-assets is in the cluster")


def _tell_volumes(kubectl: Kubectl, options: Options, say: Say) -> None:
    """Wait until the namespace's volumes are gone too. Those that their class keeps are named: what lies in them is
    their admin's, who said `Retain`."""
    until = time.monotonic() + options.timeout_seconds
    while True:
        found = [
            item
            for item in kubectl.items("persistentvolumes")
            if item["spec"].get("claimRef", {}).get("namespace") == options.namespace
        ]
        kept = [v["metadata"]["name"] for v in found if v["spec"].get("persistentVolumeReclaimPolicy") == "Retain"]
        if len(kept) == len(found):
            break
        if time.monotonic() > until:
            names = ", ".join(item["metadata"]["name"] for item in found)
            raise ServiceUnavailable(
                f"After {options.timeout_seconds:.0f} s volumes are still there: {names}. Look with: "
                "kubectl describe persistentvolumes; repeat the command to wait on"
            )
        time.sleep(POLL_SECONDS)
    if kept:
        say(
            f"Kept with what was written, by their reclaim policy Retain: volumes {', '.join(sorted(kept))}. "
            f"To give them up: kubectl delete persistentvolumes {' '.join(sorted(kept))}"
        )


def overlay_folder(name: str) -> Path:
    """The folder of an overlay. Raises `Refused` for an unknown one."""
    if name not in OVERLAYS:
        raise Refused(f"There is no overlay '{name}'; write --overlay {' or '.join(OVERLAYS)}")
    return source.deploy_folder() / "overlays" / name


def read_objects(text: str) -> list[Object]:
    """The objects of a YAML stream."""
    import yaml

    return [item for item in yaml.safe_load_all(text) if item]


def addresses(nodes: Iterable[Object]) -> Iterator[str]:
    """The IP addresses of nodes, inner and outer."""
    for node in nodes:
        for address in node.get("status", {}).get("addresses", ()):
            if address["type"] in ("InternalIP", "ExternalIP"):
                yield address["address"]


def _check_namespace(kubectl: Kubectl, name: str) -> None:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", name):
        raise Refused(f"{name!r} is no name of a namespace: at most 63 of a-z, 0-9 and -, which is not at its ends")
    found = kubectl.get("namespace", name)
    if found is None:
        return
    if found["metadata"].get("labels", {}).get(PART_OF) != OURS:
        raise Refused(f"The namespace {name} is there and not ours (no label {MINE}); choose another with --namespace")
    if found["status"]["phase"] == "Terminating":
        raise Refused(f"The namespace {name} is being deleted; repeat when it is gone")


def _images(options: Options, say: Say) -> tuple[str, str]:
    """The two images: those given, or built and pushed now under a tag of their content."""
    if options.service_image and options.worker_image:
        return options.service_image, options.worker_image
    if not (options.buildkit and options.registry):
        raise Refused(
            "There are no images to install:",
            [
                Problem("--service-image, --worker-image", "name both if they are in a registry already"),
                Problem("--buildkit, --registry", "name both to build them (the test overlay takes TEST_BUILDKIT and "
                        "TEST_REGISTRY from the environment)"),
            ],
        )  # fmt: skip
    check_builder(options.buildkit)
    made: list[str] = []
    with tempfile.TemporaryDirectory(prefix="harbor-assets-build-") as scratch:
        for name in ("worker", "service"):
            context = Path(scratch, name)
            image = f"{options.registry}/harbor-assets-{name}:{source.write_context(name, context)[:12]}"
            say(f"Building {image}")
            begin = time.monotonic()
            build(
                context, image, buildkit=options.buildkit, insecure=options.insecure_registry,
                log=Path(scratch, f"{name}.log"),
            )  # fmt: skip
            say(f"  pushed after {time.monotonic() - begin:.0f} s")
            made.append(image)
    return made[1], made[0]


def _access_file(path: Path | None) -> str | None:
    """The text of an access file that a pod can use. Raises `Refused`."""
    if path is None:
        return None
    from harbor_assets.access import read_access

    if local := [issuer.jwks for issuer in read_access(path).issuers if "://" not in issuer.jwks]:
        raise Refused(f"The access file {path} takes keys from {local[0]}, which no pod has; write the URL of the keys")
    return path.read_text(encoding="utf-8")


def _settings(options: Options) -> dict[str, str]:
    """Where the deployment itself builds the images of tasks."""
    if not (options.buildkit and options.registry):
        return {}
    found = {
        "HARBOR_ASSETS_BUILDKIT": options.buildkit,
        "HARBOR_ASSETS_REGISTRY": f"{options.registry}/harbor-assets-tasks",
    }
    if options.insecure_registry:
        found["HARBOR_ASSETS_INSECURE_REGISTRIES"] = options.registry.partition("/")[0]
    if options.overlay == "test":  # a test cluster's registry answers for the names of Docker Hub
        found["HARBOR_ASSETS_REGISTRY_MIRRORS"] = f"docker.io={options.registry.partition('/')[0]}"
    return found


def _kept(kubectl: Kubectl, namespace: str, name: str, key: str) -> str:
    """The secret that is in use, else a new one: an upgrade must not lock itself out of its database."""
    for candidate in (f"{name}{manifests.GENERATED}", name):  # the second, if the overlay was applied by hand before
        found = kubectl.get("secret", candidate, "-n", namespace)
        if found is not None and key in found.get("data", {}):
            return base64.b64decode(found["data"][key]).decode()
    return secrets.token_hex(24)


def _wait(kubectl: Kubectl, options: Options, say: Say) -> None:
    """Wait until every Deployment runs what was applied, telling each as it becomes ready."""
    until = time.monotonic() + options.timeout_seconds
    ready: set[str] = set()
    told = ""
    while True:
        found = kubectl.items("deployments", "-n", options.namespace, "-l", MINE)
        for item in found:
            name = item["metadata"]["name"]
            if _rolled_out(item) and name not in ready:
                ready.add(name)
                say(f"{len(ready)}/{len(found)} {name} is ready")
        if len(ready) == len(found):
            return
        trouble = list(_trouble(kubectl.items("pods", "-n", options.namespace, "-l", MINE)))
        if (now := "; ".join(trouble)) != told and (told := now):
            say(f"  {now}")
        if time.monotonic() > until:
            late = ", ".join(sorted(item["metadata"]["name"] for item in found if not _rolled_out(item)))
            raise ServiceUnavailable(
                f"Not ready after {options.timeout_seconds:.0f} s: {late}. {told or 'No pod says why'}. Look with: "
                f"kubectl -n {options.namespace} get pods,events. What was applied stays; repeat the command to wait on"
            )
        time.sleep(POLL_SECONDS)


def _rolled_out(item: Object) -> bool:
    wanted, status = item["spec"].get("replicas", 1), item.get("status", {})
    return (
        status.get("observedGeneration", 0) >= item["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
    )


def _trouble(pods: Iterable[Object]) -> Iterator[str]:
    """What keeps pods from running, in their own words."""
    for pod in pods:
        status, name = pod.get("status", {}), pod["metadata"]["name"]
        for condition in status.get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                yield f"{name}: {condition.get('message', condition.get('reason', 'not scheduled'))}"
        for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            waiting: dict[str, Any] = container.get("state", {}).get("waiting", {})
            if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
                yield f"{name}/{container['name']}: {waiting['reason']} {waiting.get('message', '')}".strip()


def _url(kubectl: Kubectl, namespace: str, nodes: Iterable[Object]) -> str:
    """The service's URL at a node that is reached from here. Raises `ServiceUnavailable` if none is."""
    import httpx

    service = kubectl.get("service", OURS, "-n", namespace) or {}
    port = next((p["nodePort"] for p in service.get("spec", {}).get("ports", ()) if p.get("nodePort")), None)
    urls = [f"http://{f'[{host}]' if ':' in host else host}:{port}" for host in addresses(nodes)] if port else []
    until = time.monotonic() + ANSWER_SECONDS
    with httpx.Client(trust_env=False, timeout=5) as client:
        while urls:
            for url in urls:
                try:
                    if client.get(f"{url}/healthz").json().get("plugin") == "evals":
                        return url
                except (httpx.TransportError, ValueError):
                    pass
            if time.monotonic() > until:
                break
            time.sleep(POLL_SECONDS)
    raise ServiceUnavailable(
        f"harbor-assets runs, but no node's port answers from here ({', '.join(urls) or 'the Service has none'}). "
        f"Reach it with: kubectl -n {namespace} port-forward service/{OURS} 8000:8000, at http://127.0.0.1:8000"
    )


def _as_json(objects: list[Object]) -> str:
    import json

    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
