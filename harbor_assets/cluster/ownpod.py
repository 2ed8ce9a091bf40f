"""What a task's worker finds out about itself when it is told to stop: a signal says nothing, its own pod does."""

import logging
import os

from harbor_assets.cluster import diagnosis
from harbor_assets.cluster.client import ClusterClient
from harbor_assets.cluster.manifests import JOB_NAME_VARIABLE
from harbor_assets.domain.errors import HarborAssetsError

log = logging.getLogger(__name__)

_TIMEOUT = (2.0, 5.0)  # seconds: the pod has some tens of them left, and an upload to do
_POD_NAME = "HOSTNAME"  # the kubelet gives every container its pod's name


def why_stopped(namespace: str) -> str | None:
    """A sentence that `diagnosis.lost` reads back; None outside of a task's Job."""
    name = os.environ.get(_POD_NAME)
    if not name or not os.environ.get(JOB_NAME_VARIABLE):
        return None
    try:
        return diagnosis.stopped(ClusterClient(namespace, timeout=_TIMEOUT).pod(name))
    except HarborAssetsError as error:
        log.warning("this worker is stopped and cannot find out why: %s", error)
        return diagnosis.stopped(None)
