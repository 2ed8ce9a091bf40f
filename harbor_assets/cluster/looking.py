"""Looking at one Job: its state, with its events asked for only where they can say more than its pods do."""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime

from harbor_assets.cluster.client import ClusterClient, Object
from harbor_assets.cluster.diagnosis import JobState, job_state
from harbor_assets.domain.errors import Refused

log = logging.getLogger(__name__)


def look_at(client: ClusterClient, job: Object, pods: Sequence[Object]) -> JobState:
    """The state of a Job with these pods. Each question about events makes the API server read all it has of them, so
    only a Job that is out of the ordinary is worth one. Raises `ServiceUnavailable`."""
    now = datetime.now(UTC)
    state = job_state(job, pods, now)
    if not state.unclear or state.failed or state.succeeded:
        return state
    try:
        events = [event for thing in (job, *pods) for event in client.warnings(thing["metadata"]["uid"])]
    except Refused as refused:
        log.warning("events cannot be read: %s", refused)
        events = []
    return job_state(job, pods, now, events)
