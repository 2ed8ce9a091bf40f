"""Checks of a merged bundle. Settling a run reports their results; in the UI they can be run again, run by run."""

from collections.abc import Sequence

import dagster as dg

from harbor_assets.engine.inspection import COMPLETE, COVERAGE, DIGESTS, FINITE, Finding
from harbor_assets.engine.lifecycle import RunEngine
from harbor_assets.events.bundles import check_event
from harbor_assets.partitions import RUNS, quietly

_DESCRIPTIONS = {
    COMPLETE: "Every file of the bundle is there, with a row and the evidence of every planned trial.",
    FINITE: "Every score is a finite number, and exactly the scored trials have a reward.",
    DIGESTS: "The bundle says what the catalog's outcome rows say; tasks and archives are those that were planned.",
    COVERAGE: "Every planned trial was scored. A warning if not: the mean is then right, but rests on less.",
}


def _check(name: str) -> dg.AssetChecksDefinition:
    def look(context: dg.AssetCheckExecutionContext, engine: dg.ResourceParam[RunEngine]) -> dg.AssetCheckResult:
        run_id = context.op_execution_context.partition_key
        (finding,) = engine.inspect(run_id, [name])
        return _result(run_id, finding)

    with quietly():
        return dg.asset_check(asset="merged_bundle", name=name, description=_DESCRIPTIONS[name], partitions_def=RUNS)(
            look
        )


def _result(run_id: str, finding: Finding) -> dg.AssetCheckResult:
    event = check_event(run_id, finding)
    return dg.AssetCheckResult(
        passed=event.passed, severity=event.severity, description=event.description, metadata=event.metadata
    )


bundle_checks: Sequence[dg.AssetChecksDefinition] = [_check(name) for name in _DESCRIPTIONS]
