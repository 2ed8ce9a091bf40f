"""A node that runs nothing and says that it does: for more pods at once than a real one holds.

Only pods that ask for its resource `example.org/fake` come to it: it has no CPU to give. They run as soon as they are
placed, and end when they are told to. Everything a kubelet asks of the API server for them is done here, and counted.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx

RESOURCE = "example.org/fake"
TAINT = {"key": "example.org/fake", "value": "true", "effect": "NoSchedule"}
_BEAT_SECONDS = 10.0  # a node that is silent for 40 s is given up
_LOOK_SECONDS = 0.5
_MERGE = {"content-type": "application/merge-patch+json"}


def now() -> str:
    """As Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class FakeNode:
    """`api`: the API server's address without a password, as `kubectl proxy` gives it. `running`: names of pods."""

    def __init__(self, api: str, name: str = "fake-node", pods: int = 1000) -> None:
        self.name, self.pods = name, pods
        self.running: dict[str, float] = {}  # pod -> since when
        self.requests = 0
        self._done: set[str] = set()
        self._stop = threading.Event()
        self._http = httpx.Client(base_url=api, timeout=30)
        self._thread = threading.Thread(target=self._work, daemon=True)

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> httpx.Response:
        """One request of this node's."""
        self.requests += 1
        headers = _MERGE if method == "PATCH" else {}
        return self._http.request(method, path, json=body, headers=headers, **more)

    def __enter__(self) -> "FakeNode":
        meta = {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}}
        made = self.ask("POST", "/api/v1/nodes", {"metadata": meta, "spec": {"taints": [TAINT]}})
        assert made.status_code in (201, 409), made.text
        self._beat()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self.ask("DELETE", f"/api/v1/nodes/{self.name}")
        self._http.close()

    def finish(self, pods: Iterator[str] | list[str]) -> None:
        """These have come to a good end."""
        self._done.update(pods)

    def _work(self) -> None:
        beat = time.monotonic()
        while not self._stop.wait(_LOOK_SECONDS):
            with contextlib.suppress(httpx.TransportError):
                if time.monotonic() - beat > _BEAT_SECONDS:
                    beat = time.monotonic()
                    self._beat()
                self._look()

    def _beat(self) -> None:
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}"
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 40, "renewTime": now()}
        if self.ask("PATCH", lease, {"spec": spec}).status_code == 404:
            self.ask("POST", lease.rpartition("/")[0], {"metadata": {"name": self.name}, "spec": spec})
        room = {"pods": str(self.pods), RESOURCE: str(self.pods), "cpu": "0", "memory": "0"}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now(),
            "lastTransitionTime": now(),
        }
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self.ask("PATCH", f"/api/v1/nodes/{self.name}/status", {"status": status}).raise_for_status()

    def _look(self) -> None:
        listed = self.ask("GET", "/api/v1/pods", params={"fieldSelector": f"spec.nodeName={self.name}"}).json()["items"]
        for pod in listed:
            name, phase = pod["metadata"]["name"], pod["status"].get("phase")
            path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{name}"
            if pod["metadata"].get("deletionTimestamp"):
                self.ask("DELETE", path, {"gracePeriodSeconds": 0})
            elif phase == "Pending":
                self.ask(
                    "PATCH", f"{path}/status", {"status": _status(pod, "Running", {"running": {"startedAt": now()}})}
                )
                self.running.setdefault(name, time.monotonic())
            elif phase == "Running" and name in self._done:
                ended = {"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}
                self.ask("PATCH", f"{path}/status", {"status": _status(pod, "Succeeded", {"terminated": ended})})
        there = {pod["metadata"]["name"] for pod in listed}
        self.running = {name: since for name, since in self.running.items() if name in there and name not in self._done}


def _status(pod: dict[str, Any], phase: str, state: dict[str, Any]) -> dict[str, Any]:
    runs = phase == "Running"
    containers = [
        {"name": each["name"], "image": each["image"], "imageID": "", "ready": runs, "restartCount": 0, "state": state}
        for each in pod["spec"]["containers"]
    ]
    conditions = [
        {"type": kind, "status": str(runs), "lastTransitionTime": now()} for kind in ("Ready", "ContainersReady")
    ]
    return {"phase": phase, "startTime": now(), "containerStatuses": containers, "conditions": conditions}
