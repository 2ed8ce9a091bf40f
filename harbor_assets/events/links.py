"""Links between pages of the Dagster UI."""

from urllib.parse import quote, urlencode

import dagster as dg


def partition_link(asset: str, key: str) -> dg.UrlMetadataValue:
    """The page of one partition of an asset. Relative, since nobody here knows where the UI is served."""
    return dg.MetadataValue.url(f"/assets/{quote(asset)}?{urlencode({'view': 'partitions', 'partition': key})}")


def runs_link(run_id: str) -> dg.UrlMetadataValue:
    """The Dagster runs of one evaluation run."""
    return dg.MetadataValue.url(f"/runs?{urlencode({'q[0]': f'tag:harbor/run_id={run_id}'})}")
