"""Waiting until what was applied runs."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.interfaces.deployment.kubectl import Kubectl
from harbor_assets.interfaces.deployment.manifests import MINE, Object

POLL_SECONDS = 2.0

type Say = Callable[[str], None]


def wait(kubectl: Kubectl, namespace: str, seconds: float, say: Say) -> None:
    """Wait until every Deployment runs what was applied, telling each as it becomes ready. Raises
    `ServiceUnavailable` with what keeps the others from it."""
    until = time.monotonic() + seconds
    ready: set[str] = set()
    told = ""
    while True:
        found = kubectl.items("deployments", "-n", namespace, "-l", MINE)
        for item in found:
            name = item["metadata"]["name"]
            if rolled_out(item) and name not in ready:
                ready.add(name)
                say(f"{len(ready)}/{len(found)} {name} is ready")
        if len(ready) == len(found):
            return
        trouble = list(trouble_of(kubectl.items("pods", "-n", namespace, "-l", MINE)))
        if (now := "; ".join(trouble)) != told and (told := now):
            say(f"  {now}")
        if time.monotonic() > until:
            late = ", ".join(sorted(item["metadata"]["name"] for item in found if not rolled_out(item)))
            raise ServiceUnavailable(
                f"Not ready after {seconds:.0f} s: {late}. {told or 'No pod says why'}. Look with: "
                f"kubectl -n {namespace} get pods,events. What was applied stays; repeat the command to wait on"
            )
        time.sleep(POLL_SECONDS)


def rolled_out(item: Object) -> bool:
    """Whether a Deployment runs what was applied, and nothing else."""
    wanted, status = item["spec"].get("replicas", 1), item.get("status", {})
    return (
        status.get("observedGeneration", 0) >= item["metadata"]["generation"]
        and status.get("updatedReplicas", 0) == wanted
        and status.get("replicas", 0) == wanted
        and status.get("availableReplicas", 0) == wanted
    )


def trouble_of(pods: Iterable[Object]) -> Iterator[str]:
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
