"""Removing what a run left in the cluster: by its label, whoever made it."""

import logging
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from harbor_assets.cluster.client import ClusterClient
from harbor_assets.cluster.manifests import RUN_LABEL, of_run
from harbor_assets.domain.errors import Refused

log = logging.getLogger(__name__)

MIN_AGE_SECONDS = 60.0  # an object this young may be of a run that the catalog was not asked about yet


@dataclass(frozen=True, slots=True)
class Removed:
    """How many were told to go, and how many Jobs and pods are still there: call again until `left` is 0."""

    jobs: int = 0
    pods: int = 0
    secrets: int = 0
    configmaps: int = 0
    left: int = 0

    def __str__(self) -> str:
        told = f"{self.jobs} Jobs, {self.pods} pods, {self.secrets} Secrets, {self.configmaps} ConfigMaps"
        return f"deleted {told}; {self.left} still there"


def remove_run(client: ClusterClient, run_id: str) -> Removed:
    """Delete everything of a run. Idempotent, and returns at once: pods end in their own time.

    Jobs go first, so that none makes another pod; their pods follow in the background, with the time to stop a trial.
    """
    selector = of_run(run_id)
    jobs = [job["metadata"] for job in client.list("jobs", selector)]
    told = sum(client.delete_job(job["name"]) for job in jobs if not job.get("deletionTimestamp"))
    owned = {job["uid"] for job in jobs}
    pods = [pod["metadata"] for pod in client.list("pods", selector)]
    loose = [
        pod["name"]
        for pod in pods
        if not pod.get("deletionTimestamp")
        and not owned.intersection(owner["uid"] for owner in pod.get("ownerReferences") or ())
    ]
    return Removed(
        jobs=told,
        pods=sum(client.delete_pod(name) for name in loose),
        secrets=_collection(client, "secrets", selector),
        configmaps=_collection(client, "configmaps", selector),
        left=len(jobs) + len(pods),
    )


def _collection(client: ClusterClient, kind: str, selector: str) -> int:
    try:
        return client.delete_all("secrets" if kind == "secrets" else "configmaps", selector)
    except Refused as refused:  # a deployment whose rights end at pods has made none either
        log.warning("%s of %s cannot be deleted: %s", kind, selector, refused)
        return 0


def find_runs(client: ClusterClient, now: datetime | None = None) -> dict[str, int]:
    """run id -> number of its Jobs and pods that are at least a minute old."""
    now = now or datetime.now(UTC)
    found: Counter[str] = Counter()
    for kind in ("jobs", "pods"):
        for item in client.list(kind, RUN_LABEL, cached=True):
            meta = item["metadata"]
            if (now - datetime.fromisoformat(meta["creationTimestamp"])).total_seconds() >= MIN_AGE_SECONDS:
                found[meta["labels"][RUN_LABEL]] += 1
    return dict(found)


def reap(client: ClusterClient, ended: Callable[[Collection[str]], Collection[str]]) -> dict[str, Removed]:
    """Remove what runs left that `ended` names among those found: by run id, what was removed."""
    found = find_runs(client)
    return {run_id: remove_run(client, run_id) for run_id in sorted(ended(found))} if found else {}
