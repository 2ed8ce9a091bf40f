"""What can go wrong with a sandbox. The classes' names are what a trial's account is sorted by."""


class SandboxLost(Exception):
    """The sandbox died under a command, or was asked for something after it had ended."""


class SandboxStartError(Exception):
    """The sandbox could not be made as asked; the message says what the machine refused."""


class SandboxDiskFull(Exception):
    """The disk that holds the sandbox is full: the machine's, not the task's own limit."""
