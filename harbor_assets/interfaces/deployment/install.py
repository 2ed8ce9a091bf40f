"""`cluster install` and `cluster uninstall`."""

import base64
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harbor_assets.artifacts.drivers import driver_of
from harbor_assets.domain.errors import Problem, Refused, ServiceUnavailable
from harbor_assets.interfaces.deployment import manifests, source
from harbor_assets.interfaces.deployment.given import access_file, check_given
from harbor_assets.interfaces.deployment.kubectl import Kubectl, build, check_builder, lines
from harbor_assets.interfaces.deployment.manifests import MINE, OURS, PART_OF, Install, Object, adapt, check_name
from harbor_assets.interfaces.deployment.waiting import POLL_SECONDS, Say, rolled_out, wait

OVERLAYS = ("test", "dev", "production", "ack")
WHOLE = ("test", "dev")  # those that bring all they need; the others want things of their admin's
ANSWER_SECONDS = 60.0  # from ready to answering at a node's port: the proxies of the nodes have to hear of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line said. `buildkit` and `registry`: where images are built and kept, if they are built.

    `access`: an access file for the service; None: as it is. `manifests`: a changed copy of ours, in place of them.
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
    manifests: Path | None = None
    timeout_seconds: float = 900


def install(options: Options, say: Say) -> str:
    """Install or upgrade; returns the service's URL, which answers from here.

    Raises `Refused` with what is wrong, `ServiceUnavailable` if something did not become ready in time.
    """
    folder = overlay_folder(options.overlay, options.manifests)
    access = access_file(options.access)
    kubectl = Kubectl(options.context)
    nodes = kubectl.first_contact()
    _check_namespace(kubectl, options.namespace)
    given = read_objects(kubectl("kustomize", str(folder)))
    guarded = access is not None or kubectl.get("secret", manifests.ACCESS, "-n", options.namespace) is not None
    copy = "fill in a copy (harbor-assets cluster manifests DIR) and name it with --manifests DIR"
    hint = f"fill in {folder / 'kustomization.yaml'}" if options.manifests else copy
    check_given(kubectl, options.namespace, given, guarded=guarded, hint=hint)
    before = _installed_images(kubectl, options.namespace)
    service, worker = _images(
        options, driver_of(manifests.environment(given).get("HARBOR_ASSETS_ARTIFACTS_URL", "")), say
    )
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
        guarded=guarded,
        nodes=sorted(set(addresses(nodes))),
    )
    objects = adapt(given, decided)
    say(f"Applying {len(objects)} objects to namespace {options.namespace}")
    for line in lines(kubectl("apply", "-f", "-", stdin=_as_json(objects))):
        if not line.endswith(" unchanged"):
            say(f"  {line}")
    try:
        wait(kubectl, options.namespace, options.timeout_seconds, say)
    except ServiceUnavailable as error:
        if before in (None, (service, worker)):
            raise
        back = f"--service-image {before[0]} --worker-image {before[1]}"
        raise ServiceUnavailable(
            f"{error}\nTo go back to what ran before, install with the harbor-assets of before: {back}"
        ) from error
    return _url(kubectl, options.namespace, nodes, say)


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


def overlay_folder(name: str, copy: Path | None = None) -> Path:
    """The folder of an overlay, in a copy of the manifests if there is one. Raises `Refused` for an unknown one."""
    if name not in OVERLAYS:
        raise Refused(f"There is no overlay '{name}'; write --overlay {' or '.join(OVERLAYS)}")
    folder = (copy or source.deploy_folder()) / "overlays" / name
    if not (folder / "kustomization.yaml").is_file():
        raise Refused(
            f"There is no {folder / 'kustomization.yaml'}; make a copy of the manifests with: "
            "harbor-assets cluster manifests DIR"
        )
    return folder


def _installed_images(kubectl: Kubectl, namespace: str) -> tuple[str, str] | None:
    """(service, worker) of what is installed and runs; None if nothing does: nobody goes back to a failed install."""
    service = kubectl.get("deployment", OURS, "-n", namespace)
    env = kubectl.get("configmap", manifests.ENV, "-n", namespace)
    worker = (env or {}).get("data", {}).get("HARBOR_ASSETS_WORKER_IMAGE")
    if service is None or worker is None or not rolled_out(service):
        return None
    return service["spec"]["template"]["spec"]["containers"][0]["image"], worker


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
    check_name(name)
    found = kubectl.get("namespace", name)
    if found is None:
        return
    if found["metadata"].get("labels", {}).get(PART_OF) != OURS:
        raise Refused(
            f"The namespace {name} is there and not ours (no label {MINE}); choose another with --namespace, or give "
            f"it to us, with all that is in it: kubectl label namespace {name} {MINE}"
        )
    if found["status"]["phase"] == "Terminating":
        raise Refused(f"The namespace {name} is being deleted; repeat when it is gone")


def _images(options: Options, driver: str | None, say: Say) -> tuple[str, str]:
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
            tag = source.write_context(name, context, [driver] if driver else [])[:12]
            image = f"{options.registry}/harbor-assets-{name}:{tag}"
            say(f"Building {image}")
            begin = time.monotonic()
            build(
                context, image, buildkit=options.buildkit, insecure=options.insecure_registry,
                log=Path(scratch, f"{name}.log"),
            )  # fmt: skip
            say(f"  pushed after {time.monotonic() - begin:.0f} s")
            made.append(image)
    return made[1], made[0]


def _settings(options: Options) -> dict[str, str]:
    """Where the deployment itself builds the images of tasks."""
    if options.overlay not in WHOLE or not (options.buildkit and options.registry):
        return {}  # where tasks' images are built is then said by the manifests, and may be another place
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


def _url(kubectl: Kubectl, namespace: str, nodes: Iterable[Object], say: Say) -> str:
    """The service's URL at a node that is reached from here, or inside the cluster where the Service opens no port.
    Raises `ServiceUnavailable` if none is reached."""
    import httpx

    service = kubectl.get("service", OURS, "-n", namespace) or {}
    forward = f"kubectl -n {namespace} port-forward service/{OURS} 8000:8000, at http://127.0.0.1:8000"
    port = next((p["nodePort"] for p in service.get("spec", {}).get("ports", ()) if p.get("nodePort")), None)
    if port is None:
        say(f"The Service opens no port to the outside; put an ingress before it, or reach it with: {forward}")
        return f"http://{OURS}.{namespace}:8000"
    urls = [f"http://{f'[{host}]' if ':' in host else host}:{port}" for host in addresses(nodes)]
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
        f"harbor-assets runs, but no node's port answers from here ({', '.join(urls)}). Reach it with: {forward}"
    )


def _as_json(objects: list[Object]) -> str:
    import json

    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
