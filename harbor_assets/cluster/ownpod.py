"""What a task's worker finds out about itself when it is told to stop: a signal says nothing, its own pod does."""

import logging
import os

from harbor_assets.cluster import diagnosis
from harbor_assets.cluster.client import ClusterClient
from harbor_assets.cluster.manifests import own_pod
from harbor_assets.domain.errors import HarborAssetsError

log = logging.getLogger(__name__)

_TIMEOUT = (2.0, 5.0)  # seconds: the pod has some tens of them left, and an upload to do


def why_stopped(namespace: str) -> str | None:
    """A sentence that `diagnosis.lost` reads back; None outside of a task's Job."""
    name = own_pod(os.environ)
    if name is None:
        return None
    try:
        return diagnosis.stopped(ClusterClient(namespace, timeout=_TIMEOUT).pod(name))
    except HarborAssetsError as error:
        log.warning("this worker is stopped and cannot find out why: %s", error)
        return diagnosis.stopped(None)
