"""The event of the leaderboard: written at the end of each run, or made afresh."""

from typing import Any

import dagster as dg

from harbor_assets.domain.text import visible
from harbor_assets.engine.ranking import Ranked

REASONS_SHOWN = 50  # of runs that are missing; `harbor-assets leaderboard` names them all
REASON_MAX = 500  # characters of one


def leaderboard_metadata(ranked: Ranked) -> dict[str, Any]:
    """What stands beside the materialisation: how many runs are on it, and which are not, and why."""
    metadata: dict[str, Any] = {
        "dagster/row_count": ranked.runs,
        "written": ranked.written,
        "show": "harbor-assets leaderboard",
    }
    if ranked.failed:
        reasons = {run or "all": visible(why[:REASON_MAX]) for run, why in ranked.failed[:REASONS_SHOWN]}
        metadata |= {"not_written": len(ranked.failed), "reasons": dg.MetadataValue.json(reasons)}
    return metadata


def leaderboard_event(ranked: Ranked | None) -> dg.AssetMaterialization | None:
    """The leaderboard after a run was settled; None if nothing was written to it."""
    if ranked is None or not ranked.written:
        return None
    return dg.AssetMaterialization("leaderboard", metadata=leaderboard_metadata(ranked))
