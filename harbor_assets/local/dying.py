"""For the tests that kill a worker: the moments at which one kills itself if it is asked to."""

import os

FAULT_VARIABLE = "HARBOR_ASSETS_TEST_DIE"
MOMENTS = ("started", "keys_added", "run_created", "row_written", "step_ended", "merged", "settled")


def die(execution: int, moment: str) -> None:
    """Kill ourselves at that moment of the first execution, if a test asks for it."""
    if execution == 1 and os.environ.get(FAULT_VARIABLE) == moment:
        os.kill(os.getpid(), 9)
