"""What can go wrong with a sandbox that is nobody's result.

::

    SandboxStartError            the sandbox never was ready; nothing of the task ran
    ├── SandboxImagePullError    its image cannot be pulled, or its name is none
    └── SandboxUnschedulable     no node could ever hold it, or none became free before the deadline
    SandboxLost                  it was ready and is gone: deleted, its node lost, or ended for an unknown reason
    ├── SandboxEvicted           the cluster took it away: a drain, or a node short of something
    │   ├── SandboxPreempted     for a pod of higher priority, or its node had no room for it after all
    │   └── SandboxNodeLost      its node is gone or does not answer
    ├── SandboxDeadline          it outlived its longest lifetime
    ├── SandboxOutOfMemory       the memory limit ended the whole sandbox, not only a process in it
    └── SandboxDiskFull          it wrote more than its storage limit
    ControlPlaneError            apiserver or engine did not answer for longer than we wait; nothing is known

Harbor and `domain/endings.py` tell errors by the names of their classes: the names are a contract.
"""


class SandboxStartError(Exception):
    """The sandbox never was ready. Nothing of the task has run in it; a new sandbox may be tried."""


class SandboxImagePullError(SandboxStartError):
    """The image cannot be pulled. The message holds what the registry or the node said."""


class SandboxUnschedulable(SandboxStartError):
    """No node can hold the sandbox even if it were empty, or none became free before the deadline."""


class SandboxLost(Exception):
    """The sandbox was ready and is gone. What ran in it, and its files, are gone too; its exit codes mean nothing."""


class SandboxEvicted(SandboxLost):
    """The cluster took the sandbox away for reasons of its own."""


class SandboxPreempted(SandboxEvicted):
    """The sandbox had to make room for a pod of higher priority, or its node had no room for it after all."""


class SandboxNodeLost(SandboxEvicted):
    """The sandbox's node is gone, was shut down, or does not answer."""


class SandboxDeadline(SandboxLost):
    """The sandbox outlived the longest lifetime that its profile or its run allows."""


class SandboxOutOfMemory(SandboxLost):
    """The kernel ended the whole sandbox at its memory limit. The task used more than it asked for."""


class SandboxDiskFull(SandboxLost):
    """The sandbox wrote more than its storage limit and was evicted for it."""


class ControlPlaneError(Exception):
    """The apiserver did not answer for longer than we wait. Nothing is known of the sandbox or of its commands."""


class TransferFailed(RuntimeError):
    """Files could not be moved; the message says which and why."""


class UnknownUser(Exception):
    """The image has no such user, or no way to become one. Raised for a command; the sandbox is as it was."""
