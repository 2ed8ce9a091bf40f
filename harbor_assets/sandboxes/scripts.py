"""Shell that is run inside a sandbox, whatever kind of container that is."""

import shlex
from collections.abc import Mapping
from importlib import resources

INLINE_MAX = 100_000  # bytes of a command given as an argument; the kernel takes 128 KiB
FOLDER = "/.sandbox"  # our scripts, and what belongs to commands


def script(command: str, *, cwd: str | None, env: Mapping[str, str]) -> bytes:
    """What is run in the sandbox for a command. Values travel on stdin: arguments are in audit logs and `ps`."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in env.items() if name.isidentifier()]
    if cwd:
        lines.append(f"cd {shlex.quote(cwd)} || exit 1")
    if len(command.encode()) <= INLINE_MAX:
        lines.append(f'exec "$(command -v bash || command -v sh)" -c {shlex.quote(command)}')
    else:
        lines.append(command)
    return ("\n".join(lines) + "\n").encode()


def end() -> bytes:
    """The script that ends everything a command started; argv: the command's id."""
    return (resources.files(__package__) / "inside" / "end.sh").read_bytes()
