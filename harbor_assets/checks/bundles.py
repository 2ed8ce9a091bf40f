"""Checks of a merged bundle. Settling a run reports their results; in the UI they can be run again, for chosen runs or
the newest bundle."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from harbor_assets.engine.inspection import COMPLETE, COVERAGE, DIGESTS, DOUBLES, FINITE, RANGE, Finding
from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.events.bundles import check_event
from harbor_assets.partitions import RUNS, quietly

_DESCRIPTIONS = {
    COMPLETE: "Every file of the bundle is there, with a row and the evidence of every planned trial.",
    DOUBLES: "No trial stands in a file of the bundle twice, and none that was not planned.",
    FINITE: "Every score is a finite number, and exactly the scored trials have a reward.",
    RANGE: "Every reward lies from 0 to 1. A warning if not: a task may count otherwise, but its suite should know.",
    DIGESTS: "The bundle says what the catalog's outcome rows say; tasks and archives are those that were planned.",
    COVERAGE: "As many planned trials were scored as the run asks for (--min-coverage). Where it asks for nothing, a "
    "trial that was not scored is a warning: the mean is then right, but rests on less.",
}


def _check(name: str) -> dg.AssetChecksDefinition:
    def look(context: dg.AssetCheckExecutionContext, engine: dg.ResourceParam[RunEngine]) -> dg.AssetCheckResult:
        execution = context.op_execution_context
        if execution.has_partition_key:
            run_id, kind = execution.partition_key, dg.AssetCheckResult
        else:  # the page's *Execute* asks for none
            run_id, kind = _newest(execution.instance), _OfNoPartition
        (finding,) = engine.inspect(run_id, [name])
        return _result(run_id, finding, kind)

    with quietly():
        return dg.asset_check(asset="merged_bundle", name=name, description=_DESCRIPTIONS[name], partitions_def=RUNS)(
            look
        )


def _newest(instance: dg.DagsterInstance) -> str:
    event = instance.get_latest_materialization_event(dg.AssetKey("merged_bundle"))
    key = event.asset_materialization.partition if event and event.asset_materialization else None
    if key is None:
        raise dg.Failure("No run has been settled, so there is no bundle to check yet", allow_retries=False)
    return key


class _OfNoPartition(dg.AssetCheckResult):
    """Dagster would look up which materialisation it tells of by the step's partition, and fail without one."""

    def to_asset_check_evaluation(self, step_context: Any) -> dg.AssetCheckEvaluation:
        """See Dagster."""
        (key,) = step_context.job_def.asset_layer.get_assets_def_for_node(step_context.node_handle).check_keys
        return dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=self.passed,
            severity=self.severity,
            description=self.description,
            metadata=self.metadata,
        )


def _result(run_id: str, finding: Finding, kind: type[dg.AssetCheckResult]) -> dg.AssetCheckResult:
    event = check_event(run_id, finding)
    return kind(passed=event.passed, severity=event.severity, description=event.description, metadata=event.metadata)


bundle_checks: Sequence[dg.AssetChecksDefinition] = [_check(name) for name in _DESCRIPTIONS]
