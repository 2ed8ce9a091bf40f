"""A namespace of a cluster in memory, as far as `ClusterClient` shows it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from harbor_assets.domain.errors import Conflict, NotFound

Object = dict[str, Any]

_ENDED = ("Succeeded", "Failed")


class MemoryCluster:
    """Jobs and pods as dicts a test may change. Pods end only when `end_pods` says so; `fail` is raised by every call.

    Deleting a Job takes it away at once, as background propagation does, and marks its pods.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Object] = {}
        self.pods: dict[str, Object] = {}
        self.events: list[Object] = []
        self.fail: Exception | None = None
        self.refuse: dict[str, Exception] = {}
        self.calls: list[str] = []
        self.unread: dict[str, dict[str, dict[str, str]]] = {}  # kind -> name -> labels

    def add_pod(self, name: str, labels: dict[str, str], job: str | None = None, status: Object | None = None) -> None:
        owners = [{"kind": "Job", "uid": self.jobs[job]["metadata"]["uid"]}] if job else []
        self.pods[name] = {"metadata": _meta(name, labels) | {"ownerReferences": owners}, "status": status or {}}

    def end_pods(self) -> None:
        self.pods = {name: pod for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]}

    def list(self, kind: str, selector: str, *, cached: bool = False, unfinished: bool = False) -> Sequence[Object]:
        self._call(f"list {kind}")
        items = self.jobs if kind == "jobs" else self.pods
        return [
            item
            for item in items.values()
            if _fits(selector, item["metadata"]["labels"])
            and not (unfinished and (item["status"].get("succeeded") or item["status"].get("phase") in _ENDED))
        ]

    def warnings(self, uid: str | None = None) -> Sequence[Object]:
        self._call("list events")
        return [
            e for e in self.events if (e["type"] == "Warning" if uid is None else e["involvedObject"]["uid"] == uid)
        ]

    def job(self, name: str) -> Object:
        self._call(f"get {name}")
        if name not in self.jobs:
            raise NotFound(f'jobs.batch "{name}" not found')
        return self.jobs[name]

    def create_job(self, body: Any) -> Object:
        name, labels = body.metadata.name, dict(body.metadata.labels)
        self._call(f"create {name}")
        if name in self.refuse:
            raise self.refuse[name]
        if name in self.jobs:
            raise Conflict(f'jobs.batch "{name}" already exists')
        self.jobs[name] = {"metadata": _meta(name, labels), "status": {}}
        return self.jobs[name]

    def delete_job(self, name: str) -> bool:
        self._call(f"delete {name}")
        job = self.jobs.pop(name, None)
        for pod in self.pods.values():
            if job and any(o["uid"] == job["metadata"]["uid"] for o in pod["metadata"]["ownerReferences"]):
                pod["metadata"]["deletionTimestamp"] = "now"
        return job is not None

    def delete_pod(self, name: str) -> bool:
        self._call(f"delete pod {name}")
        if name in self.pods:
            self.pods[name]["metadata"]["deletionTimestamp"] = "now"
        return name in self.pods

    def delete_all(self, kind: str, selector: str, *, dry_run: bool = False) -> Sequence[Object]:
        self._call(f"{'look for' if dry_run else 'delete'} {kind}")
        there = self.unread.get(kind, {})
        found = [name for name, labels in there.items() if _fits(selector, labels)]
        answer = [_meta(name, there[name]) for name in found]
        if not dry_run:
            for name in found:
                del there[name]
        return answer

    def _call(self, what: str) -> None:
        if self.fail:
            raise self.fail
        self.calls.append(what)


def _fits(selector: str, labels: dict[str, str]) -> bool:
    unwanted = [part.partition("!=") for part in selector.split(",") if "!=" in part]
    wanted = [part.partition("=") for part in selector.split(",") if "!=" not in part]
    return all(k in labels and (not eq or labels[k] == v) for k, eq, v in wanted) and all(
        labels.get(k) != v for k, _, v in unwanted
    )


def _meta(name: str, labels: dict[str, str]) -> Object:
    made = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"name": name, "labels": labels, "uid": f"uid-{name}", "creationTimestamp": made}
