"""Removing what a run left in the cluster: by its label, whoever made it."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum

from harbor_assets.cluster.client import KEPT_UNREAD, ClusterClient, Kind, Object
from harbor_assets.cluster.diagnosis import job_is_over
from harbor_assets.cluster.manifests import COMPONENT_LABEL, RUN_LABEL, SANDBOX, of_run, of_runs
from harbor_assets.domain.errors import HarborAssetsError, Refused
from harbor_assets.domain.pods import KEEP_UNTIL, kept

log = logging.getLogger(__name__)

MIN_AGE_SECONDS = 60.0  # an object this young may be of a run that the catalog was not asked about yet
_KINDS: tuple[Kind, ...] = ("jobs", "pods", *KEPT_UNREAD)
_NAMES: Mapping[Kind, str] = {
    "jobs": "Jobs",
    "pods": "pods",
    "secrets": "Secrets",
    "configmaps": "ConfigMaps",
    "volumes": "volume claims",
}


class Why(StrEnum):
    """Why something of a run has no business in the cluster any more."""

    ENDED = "the run has ended"
    UNKNOWN = "the catalog knows no such run"
    ORPHANED = "their Job is over"  # sandboxes of a worker that was killed, of a run that goes on


@dataclass(frozen=True, slots=True)
class Removed:
    """How many were told to go, and how many Jobs and pods are still there: call again until `left` is 0."""

    jobs: int = 0
    pods: int = 0
    secrets: int = 0
    configmaps: int = 0
    volumes: int = 0
    left: int = 0

    @property
    def told(self) -> int:
        """How many objects of all kinds were told to go."""
        return sum(getattr(self, kind) for kind in _KINDS)

    def __str__(self) -> str:
        told = ", ".join(f"{getattr(self, kind)} {name}" for kind, name in _NAMES.items())
        return f"deleted {told}; {self.left} still there"


@dataclass(frozen=True, slots=True)
class Reaped:
    """What one look of the reaper found and told to go, by run id. With `dry_run`, what it would have told to go."""

    runs: Mapping[str, tuple[Why, Removed]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)  # run id -> why the next look has to do it
    dry_run: bool = False

    @property
    def total(self) -> Removed:
        """The sums over all runs."""
        each = [removed for _, removed in self.runs.values()]
        return Removed(*(sum(getattr(one, name.name) for one in each) for name in fields(Removed)))

    def lines(self) -> list[str]:
        """The counts of all runs first, then a line for each run; nothing if nothing was found."""
        found = [f"{run_id}: {removed} ({why})" for run_id, (why, removed) in self.runs.items()]
        failed = [f"{run_id}: left for the next look: {said}" for run_id, said in self.failed.items()]
        return [f"{len(self.runs)} runs: {self.total}", *found, *failed] if found or failed else []


def remove_run(client: ClusterClient, run_id: str, *, dry_run: bool = False, now: datetime | None = None) -> Removed:
    """Delete everything of a run. Idempotent, and returns at once: pods end in their own time.

    Jobs go first, so that none makes another pod; their pods follow in the background, with the time to stop a trial.
    A sandbox that is kept to be looked at stays until its time is over, and counts as nothing left.
    """
    selector = of_run(run_id)
    jobs = [job["metadata"] for job in client.list("jobs", selector)]
    living = [job["name"] for job in jobs if not job.get("deletionTimestamp")]
    told = len(living) if dry_run else sum(client.delete_job(name) for name in living)
    owned = {job["uid"] for job in jobs}
    at = now or datetime.now(UTC)
    pods = [pod["metadata"] for pod in client.list("pods", selector) if not kept(pod, at)]
    loose = [
        pod["name"]
        for pod in pods
        if not pod.get("deletionTimestamp")
        and not owned.intersection(owner["uid"] for owner in pod.get("ownerReferences") or ())
    ]
    return Removed(
        jobs=told,
        pods=len(loose) if dry_run else sum(client.delete_pod(name) for name in loose),
        **{kind: len(_unread(client, kind, selector, dry_run=dry_run)) for kind in KEPT_UNREAD},
        left=len(jobs) + len(pods),
    )


def _unread(client: ClusterClient, kind: Kind, selector: str, *, dry_run: bool) -> Sequence[Object]:
    try:
        return client.delete_all(kind, selector, dry_run=dry_run)
    except Refused as refused:  # a deployment whose rights end at pods has made none either
        log.warning("%s of %s cannot be deleted: %s", _NAMES[kind], selector, refused)
        return ()


def reap(
    client: ClusterClient,
    ended: Callable[[Collection[str]], Mapping[str, Why]],
    *,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Reaped:
    """Remove what runs left that `ended` names among those found, and of the others the sandboxes whose Job is over.

    Of what is not a minute old nothing is looked at. One run's trouble is not another's. Raises `ServiceUnavailable`
    if the API server does not answer to begin with.
    """
    now = now or datetime.now(UTC)
    jobs, pods = (client.list(kind, of_runs(), cached=True) for kind in ("jobs", "pods"))
    pods = [pod for pod in pods if not kept(pod, now)]
    unread = [{"metadata": meta} for kind in KEPT_UNREAD for meta in _unread(client, kind, of_runs(), dry_run=True)]
    found = {item["metadata"]["labels"][RUN_LABEL] for item in _old([*jobs, *pods, *unread], now)}
    over = ended(found) if found else {}
    orphans: dict[str, list[str]] = {}
    for run_id, name in _orphans(jobs, _old(pods, now)):
        if run_id not in over:
            orphans.setdefault(run_id, []).append(name)
    gone: dict[str, tuple[Why, Removed]] = {}
    failed: dict[str, str] = {}
    for run_id in sorted({*over, *orphans}):
        try:
            if run_id in over:
                gone[run_id] = over[run_id], remove_run(client, run_id, dry_run=dry_run, now=now)
            else:
                names = orphans[run_id]
                told = len(names) if dry_run else sum(client.delete_pod(name) for name in names)
                gone[run_id] = Why.ORPHANED, Removed(pods=told, left=len(names))
        except HarborAssetsError as error:
            log.warning("%s is left for the next look: %s", run_id, error)
            failed[run_id] = str(error)
    return Reaped(gone, failed, dry_run)


def _old(items: Iterable[Object], now: datetime) -> list[Object]:
    def age(item: Object) -> float:
        return (now - datetime.fromisoformat(item["metadata"]["creationTimestamp"])).total_seconds()

    return [item for item in items if age(item) >= MIN_AGE_SECONDS]


def _orphans(jobs: Iterable[Object], pods: Iterable[Object]) -> Iterable[tuple[str, str]]:
    """(run id, pod) of sandboxes that belong to a Job that is gone or over, and of those whose time to be looked at is
    over. A worker that ends removes its own; one that was killed would leave its sandbox, and what it holds of the
    node, until the whole run has ended."""
    living = {job["metadata"]["uid"] for job in jobs if not job_is_over(job)}
    for pod in pods:
        meta = pod["metadata"]
        owners = {owner["uid"] for owner in meta.get("ownerReferences") or () if owner.get("kind") == "Job"}
        sandbox = meta["labels"].get(COMPONENT_LABEL) == SANDBOX
        kept_until_now = KEEP_UNTIL in (meta.get("annotations") or {})  # and belongs to no Job any more
        orphaned = owners and not owners & living
        if sandbox and (orphaned or kept_until_now) and not meta.get("deletionTimestamp"):
            yield meta["labels"][RUN_LABEL], meta["name"]
