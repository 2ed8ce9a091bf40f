"""Why a run, or a task of it, is not at work yet: one reason from a closed list, and one line for a person. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.text import visible

MESSAGE_MAX = 400  # characters: a registry's answer can be a page of HTML


class WaitReason(StrEnum):
    """What is waited for."""

    PAUSED = "paused"  # infrastructure failed again and again; one trial at a time tries whether it still does
    QUEUED = "queued"  # the run's worker is not started yet
    POOL_FULL = "pool_full"  # as many of the run's tasks are at work as may be at once
    QUOTA = "quota"  # the namespace's quota leaves no room for the pod
    POLICY = "policy"  # the cluster refuses to make the pod
    SCHEDULING = "scheduling"  # no node takes the pod
    IMAGE_PULL = "image_pull"
    CANNOT_START = "cannot_start"  # the container cannot be made
    STARTING = "starting"  # nothing is wrong yet
    LOST = "lost"  # the worker is gone; what is left to do is run again, or accounted for at the run's end
    UNREACHABLE = "unreachable"  # the cluster does not answer: nothing is known


class Wait(Frozen):
    """One reason and one line about it, with the cluster's own words. They are untrusted, and escaped."""

    reason: WaitReason
    message: str


@dataclass(frozen=True, slots=True)
class RunWaits:
    """What a run as a whole waits for, and its tasks by index. Who is at work, or has ended, is not in it."""

    run: Wait | None = None
    tasks: Mapping[int, Wait] = field(default_factory=dict)


def wait(reason: WaitReason, message: str) -> Wait:
    """A wait whose message is one line, escaped and cut."""
    text = visible(" ".join(message.split()))
    return Wait(reason=reason, message=text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]}…")
