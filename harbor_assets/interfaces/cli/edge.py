"""Where errors become exit codes, and interruptions and closed pipes become what a shell expects."""

import os
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import typer

from harbor_assets.domain.errors import HarborAssetsError, IdempotencyConflict, NotReady, Refused
from harbor_assets.interfaces.cli.output import PipeClosed, note, one_line

DEBUG = "HARBOR_ASSETS_DEBUG"

# Kept equal to domain/phases.py by a test: importing that builds pydantic models, which `--help` cannot afford.
_FAULT, REFUSED, _IDEMPOTENCY_CONFLICT, INTERRUPTED = 1, 2, 9, 130
_VALUE_MAX = 80  # characters of a value in a usage error
_BROKEN_PIPE = 141  # what a shell shows for a program that SIGPIPE ended
_USAGE: type[Exception] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)  # else private


def run(app: typer.Typer) -> NoReturn:
    """Run the command line and exit. Nothing but a debug setting prints a traceback."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a C locale must not turn a name into an error
    code = _run(app)
    unwritable = code == _BROKEN_PIPE
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code, unwritable = _BROKEN_PIPE, True
    except OSError as error:
        note(f"Cannot write the output: {error.strerror}")
        code, unwritable = _FAULT, True
    if unwritable:  # the interpreter flushes once more at its end, and would complain then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _open_closed_streams() -> None:
    """A stream that the shell closed (`>&-`) is nobody's: what goes there is dropped, as with /dev/null."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 for as long as the process lives
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115


def _run(app: typer.Typer) -> int:
    try:
        code = typer.main.get_command(app).main(prog_name="harbor-assets", standalone_mode=False)
    except PipeClosed:
        return _BROKEN_PIPE
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except HarborAssetsError as error:
        if _debugging():
            _traceback()
        note(str(error))
        return exit_code(error)
    except Exception as error:  # noqa: BLE001 the last handler there is
        if isinstance(error, _USAGE):
            usage: Any = error
            _name_value(usage)
            usage.show()
            return usage.exit_code
        if _debugging():
            _traceback()
        note(f"Unexpected {type(error).__name__}: {one_line(str(error))}\n{DEBUG}=1 shows where; please report it.")
        return _FAULT
    return code if isinstance(code, int) else 0


def _name_value(usage: Any) -> None:
    """Typer says what is wrong with a value, and not which that is."""
    errors: Any = getattr(usage.__cause__, "errors", None)
    found: Any = errors() if callable(errors) else ()
    if found and isinstance(value := found[0].get("input"), str):
        usage.message = f"{usage.message}; it is '{one_line(value)[:_VALUE_MAX]}'"


def exit_code(error: HarborAssetsError) -> int:
    """What a command that ends with this error says to the shell (design of exit codes: domain/phases.py)."""
    if isinstance(error, IdempotencyConflict):
        return _IDEMPOTENCY_CONFLICT
    return REFUSED if isinstance(error, Refused | NotReady) else _FAULT


def _debugging() -> bool:
    from harbor_assets.settings.parsing import BadValue, switch

    try:
        return switch(os.environ.get(DEBUG) or "0")
    except BadValue:  # refused where settings are read; here it is not the point
        return False


def _traceback() -> None:
    import traceback

    traceback.print_exc()
