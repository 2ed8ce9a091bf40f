"""Which partitions are retired, and that their history stays."""

from contextlib import nullcontext

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.events import retention
from harbor_assets.events.retention import retire, surplus
from harbor_assets.partitions import run_of, run_task_key

RUN_SIZES = st.lists(st.integers(1, 5), max_size=8)


def keys_of(sizes: list[int]) -> list[str]:
    return [run_task_key(f"run-{run}", index) for run, size in enumerate(sizes) for index in range(size)]


@given(sizes=RUN_SIZES, keep=st.integers(1, 20), active=st.sets(st.integers(0, 7)))
def test_whole_runs_go_oldest_first_and_no_more_than_needed(sizes: list[int], keep: int, active: set[int]):
    keys = keys_of(sizes)
    running = {f"run-{run}" for run in active}
    over = surplus(keys, keep, running)
    gone, kept = {run_of(key) for key in over}, [key for key in keys if key not in over]
    assert gone.isdisjoint({run_of(key) for key in kept})
    assert gone.isdisjoint(running)
    assert not keys or run_of(keys[-1]) not in gone
    assert over == [key for key in keys if run_of(key) in gone]
    if len(kept) > keep:  # then nothing more may go
        assert {run_of(key) for key in kept} <= {*running, run_of(keys[-1])}
    if gone:  # the last one that went had to
        last = [key for key in over if run_of(key) == run_of(over[-1])]
        assert len(kept) + len(last) > keep


def test_keys_go_and_the_events_stay():
    with dg.DagsterInstance.ephemeral() as instance:
        keys = keys_of([3, 3, 3])
        instance.add_dynamic_partitions("run_task", keys)
        instance.add_dynamic_partitions("run", ["run-0", "run-1", "run-2"])
        instance.report_runless_asset_event(dg.AssetMaterialization("trial_results", partition=keys[0]))
        retired = retire(instance, keep=3, active={"run-1"}, lock=nullcontext)
        assert (retired.keys, retired.runs, retired.left) == (3, 1, 0)
        assert instance.get_dynamic_partitions("run_task") == keys[3:]
        assert instance.get_dynamic_partitions("run") == ["run-0", "run-1", "run-2"]
        assert instance.get_materialized_partitions(dg.AssetKey("trial_results")) == {keys[0]}
        assert str(retired) == "3 partitions of 1 old runs retired"


def test_more_keys_than_one_transaction_takes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    with dg.DagsterInstance.ephemeral() as instance:
        keys = keys_of([3, 4, 1])
        instance.add_dynamic_partitions("run_task", keys)
        instance.add_dynamic_partitions("run", keys)  # a set is nobody else's, also where keys are the same
        retired = retire(instance, keep=5, active={"run-0"}, lock=nullcontext)
        assert (retired.keys, retired.runs, retired.left) == (8, 1, 0)
        assert instance.get_dynamic_partitions("run_task") == instance.get_dynamic_partitions("run")
        assert instance.get_dynamic_partitions("run_task") == [*keys[:3], keys[-1]]


def test_what_does_not_fit_into_one_call_is_said_and_goes_next_time():
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("run_task", keys_of([3, 3]))
        assert retire(instance, keep=3, active=(), lock=nullcontext, seconds=0).left == 3
        assert retire(instance, keep=3, active=(), lock=nullcontext).left == 0
