"""Links between pages of the Dagster UI."""

from urllib.parse import urlencode

import dagster as dg

from harbor_assets.domain.lineage import asset_page


def partition_link(asset: str, key: str) -> dg.UrlMetadataValue:
    """The page of one partition of an asset. Relative, since nobody here knows where the UI is served."""
    return dg.MetadataValue.url(asset_page(asset, key))


def runs_link(run_id: str) -> dg.UrlMetadataValue:
    """The Dagster runs of one evaluation run."""
    return dg.MetadataValue.url(f"/runs?{urlencode({'q[0]': f'tag:harbor/run_id={run_id}'})}")
