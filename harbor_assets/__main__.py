"""`harbor-assets` and `python -m harbor_assets`: the command line."""

import signal
from typing import NoReturn

# Ctrl-C before the command line is there ends the process, as it does any other: Python would print a traceback.
_HELD = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _HELD:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> NoReturn:
    """Run the command line and exit."""
    from harbor_assets.interfaces.cli.main import main as run

    if _HELD:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
