"""The leaderboard: the last thing that comes of a run."""

import dagster as dg

from harbor_assets.assets.suites import OWNERS
from harbor_assets.domain.errors import HarborAssetsError
from harbor_assets.engine.ranking import Rankings
from harbor_assets.events.leaderboard import leaderboard_metadata


@dg.asset(
    deps=[dg.AssetKey("merged_bundle")],
    description="Ended runs with their means and what these are over. Written whenever a run is settled; materialising "
    "it makes it afresh from the bundles.",
    group_name="runs",
    kinds={"duckdb"},
    owners=OWNERS,
    pool="duckdb_writer",
)
def leaderboard(rankings: dg.ResourceParam[Rankings]) -> dg.MaterializeResult:
    """Make the leaderboard afresh."""
    try:
        done = rankings.rebuild()
    except HarborAssetsError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    return dg.MaterializeResult(metadata=leaderboard_metadata(done))
