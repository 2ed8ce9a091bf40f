"""What the state of a sandbox's pod is called among our errors."""

from collections.abc import Mapping

from harbor_assets.domain.pods import Finding, Reason
from harbor_assets.sandboxes import errors

ERRORS: Mapping[Reason, type[Exception]] = {
    "image_pull": errors.SandboxImagePullError,
    "image_name": errors.SandboxImagePullError,
    "unschedulable": errors.SandboxUnschedulable,
    "too_large": errors.SandboxUnschedulable,
    "bad_spec": errors.SandboxStartError,
    "out_of_memory": errors.SandboxOutOfMemory,
    "disk_full": errors.SandboxDiskFull,
    "evicted": errors.SandboxEvicted,
    "preempted": errors.SandboxPreempted,
    "node_lost": errors.SandboxNodeLost,
    "deadline": errors.SandboxDeadline,
}


def error_of(found: Finding, *, was_ready: bool, role: str = "agent") -> Exception:
    """The error that says it. A sandbox that never was ready and has no class of its own is a start error. One that is
    not the agent's says whose it is."""
    kind = ERRORS.get(found.reason, errors.SandboxLost if was_ready else errors.SandboxStartError)
    return kind(str(found) if role == "agent" else f"{found} (the {role}'s sandbox)")
