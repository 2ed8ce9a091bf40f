"""What the reaper takes, and what it leaves; the cluster is played."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from harbor_assets.cluster.reaper import Removed, Why, reap, remove_run
from harbor_assets.domain.errors import Refused, ServiceUnavailable
from harbor_assets.domain.pods import kept
from tests.fakes.cluster import MemoryCluster

ENDED, GOES_ON = "run-0000000000000001", "run-0000000000000002"
SANDBOX = {"app.kubernetes.io/component": "sandbox"}


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


def add_job(cluster: MemoryCluster, name: str, run_id: str, **labels: str) -> None:
    marks = {"harbor/run-id": run_id, **labels}
    cluster.create_job(SimpleNamespace(metadata=SimpleNamespace(name=name, labels=marks)))


def ended(found: Collection[str]) -> Mapping[str, Why]:
    return {ENDED: Why.ENDED} if ENDED in found else {}


def look(cluster: MemoryCluster, *, seconds: float = 120, dry_run: bool = False) -> dict[str, tuple[Why, Removed]]:
    """As it would be so many seconds after everything was made."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    reaped = reap(cluster, ended, dry_run=dry_run, now=at)  # type: ignore[arg-type]
    assert not reaped.failed
    return dict(reaped.runs)


def everything_of(cluster: MemoryCluster, run_id: str) -> None:
    marks = {"harbor/run-id": run_id}
    add_job(cluster, f"{run_id}-task-0", run_id)
    cluster.add_pod(f"{run_id}-worker", marks, job=f"{run_id}-task-0")
    cluster.add_pod(f"{run_id}-loose", marks)
    for kind in ("secrets", "configmaps", "volumes"):
        cluster.unread.setdefault(kind, {})[f"{run_id}-{kind}"] = marks


def test_everything_of_an_ended_run_goes_and_is_counted_and_nothing_of_another(cluster: MemoryCluster) -> None:
    everything_of(cluster, ENDED)
    everything_of(cluster, GOES_ON)
    cluster.unread["secrets"]["foreign"] = {}
    assert look(cluster) == {ENDED: (Why.ENDED, Removed(jobs=1, pods=1, secrets=1, configmaps=1, volumes=1, left=3))}
    cluster.end_pods()
    assert look(cluster) == {}
    assert set(cluster.jobs) == {f"{GOES_ON}-task-0"}
    assert set(cluster.pods) == {f"{GOES_ON}-worker", f"{GOES_ON}-loose"}
    assert [set(names) for names in cluster.unread.values()] == [
        {f"{GOES_ON}-secrets", "foreign"},
        {f"{GOES_ON}-configmaps"},
        {f"{GOES_ON}-volumes"},
    ]


@pytest.mark.parametrize("kind", ["secrets", "configmaps", "volumes"])
def test_what_is_the_last_of_a_run_is_found_by_itself(cluster: MemoryCluster, kind: str) -> None:
    cluster.unread[kind] = {"last": {"harbor/run-id": ENDED}}
    ((_, removed),) = look(cluster).values()
    assert (removed.told, getattr(removed, kind)) == (1, 1)
    assert look(cluster) == {}


def test_a_dry_run_counts_the_same_and_deletes_nothing(cluster: MemoryCluster) -> None:
    everything_of(cluster, ENDED)
    before = look(cluster, dry_run=True)
    assert not [call for call in cluster.calls if call.startswith("delete")]
    assert look(cluster) == before


def test_what_is_not_a_minute_old_is_left_alone(cluster: MemoryCluster) -> None:
    everything_of(cluster, ENDED)
    assert look(cluster, seconds=50) == {}


def test_what_settles_a_run_is_left_to_its_own_end(cluster: MemoryCluster) -> None:
    add_job(cluster, "settles", ENDED, **{"harbor/role": "settle"})
    assert look(cluster) == {}


def test_sandboxes_whose_job_is_over_or_gone_go_while_the_run_goes_on(cluster: MemoryCluster) -> None:
    for name in ("lives", "failed", "gone", "old"):
        add_job(cluster, name, GOES_ON)
        cluster.add_pod(f"of-{name}", {**SANDBOX, "harbor/run-id": GOES_ON}, job=name)
    cluster.add_pod("worker-of-failed", {"harbor/run-id": GOES_ON}, job="failed")  # its words are still read
    cluster.add_pod("of-nobody", {**SANDBOX, "harbor/run-id": GOES_ON})
    for name in ("failed", "old"):
        cluster.jobs[name]["status"] = {"conditions": [{"type": "Failed", "status": "True"}]}
    del cluster.jobs["gone"]
    cluster.pods["of-old"]["metadata"]["deletionTimestamp"] = "now"
    assert look(cluster, seconds=50) == {}
    assert look(cluster) == {GOES_ON: (Why.ORPHANED, Removed(pods=2, left=2))}
    cluster.end_pods()
    assert set(cluster.pods) == {"of-lives", "worker-of-failed", "of-nobody"}


def test_one_runs_trouble_is_not_anothers(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    everything_of(cluster, ENDED)
    everything_of(cluster, GOES_ON)
    delete = cluster.delete_job

    def refuses(name: str) -> bool:
        if name.startswith(ENDED):
            raise ServiceUnavailable("too many requests")
        return delete(name)

    monkeypatch.setattr(cluster, "delete_job", refuses)
    at = datetime.now(UTC) + timedelta(minutes=2)
    reaped = reap(cluster, lambda found: dict.fromkeys(found, Why.UNKNOWN), now=at)  # type: ignore[arg-type]
    assert list(reaped.runs) == [GOES_ON]
    assert reaped.failed == {ENDED: "too many requests"}
    assert reaped.lines()[0].startswith("1 runs: deleted 1 Jobs, 1 pods, 1 Secrets, 1 ConfigMaps, 1 volume claims")
    assert reaped.lines()[-1] == f"{ENDED}: left for the next look: too many requests"


def test_rights_that_end_at_pods_are_no_failure(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: Any, **__: Any) -> Any:
        raise Refused("secrets is forbidden")

    everything_of(cluster, ENDED)
    monkeypatch.setattr(cluster, "delete_all", refuses)
    assert look(cluster) == {ENDED: (Why.ENDED, Removed(jobs=1, pods=1, left=3))}


def test_a_sandbox_that_is_kept_holds_nothing_up_and_goes_when_its_time_is_over(cluster: MemoryCluster) -> None:
    until = (datetime.now(UTC) + timedelta(seconds=600)).isoformat(timespec="seconds")
    for run_id in (ENDED, GOES_ON):
        cluster.add_pod(f"{run_id}-kept", {"harbor/run-id": run_id, **SANDBOX})
        cluster.pods[f"{run_id}-kept"]["metadata"]["annotations"] = {"harbor/keep-until": until}
    assert look(cluster) == {}
    add_job(cluster, f"{ENDED}-task-0", ENDED)
    assert remove_run(cluster, ENDED).left == 1  # type: ignore[arg-type] - the Job alone
    assert remove_run(cluster, ENDED) == Removed()  # type: ignore[arg-type]
    assert look(cluster, seconds=700) == {
        ENDED: (Why.ENDED, Removed(pods=1, left=1)),
        GOES_ON: (Why.ORPHANED, Removed(pods=1, left=1)),
    }
    cluster.end_pods()
    assert cluster.pods == {}


@pytest.mark.parametrize("until", ["", "soon", "2026-01-01", None])
def test_what_does_not_say_until_when_is_not_kept(until: Any) -> None:
    assert not kept({"metadata": {"annotations": {"harbor/keep-until": until}}}, datetime.now(UTC))
    assert not kept({"metadata": {"annotations": None}}, datetime.now(UTC))
