"""Remarks on a trial that change no outcome: the closed list, and the sentence that goes with each.

A reward can be valid and yet not say what it seems to: a solution that died, tests that ran against a full disk. Who
checks a suite wants to see that beside the score.
"""

from enum import StrEnum

from harbor_assets.domain.outcomes import Frozen


class Flag(StrEnum):
    """What may be remarked of a trial. `solution_exit_N`, with the exit code for N, belongs to the list as well."""

    REWARD_BELOW_0 = "reward_below_0"
    REWARD_ABOVE_1 = "reward_above_1"
    SOLUTION_MISSING = "solution_missing"
    MEMORY_LIMIT_HIT = "memory_limit_hit"
    MACHINE_OUT_OF_MEMORY = "machine_out_of_memory"
    DISK_LIMIT_HIT = "disk_limit_hit"
    USER_MISSING = "user_missing"
    COLLECT_HOOK_FAILED = "collect_hook_failed"
    STEPS_NOT_RUN = "steps_not_run"
    OUTPUT_CUT = "output_cut"
    FILES_NOT_KEPT = "files_not_kept"
    VERIFIER_AGAIN = "verifier_again"
    REGRADED = "regraded"


SOLUTION_EXIT = "solution_exit_"


class Remark(Frozen):
    """A flag and the sentence that explains it: what was seen, in the words of this trial."""

    flag: str
    sentence: str


def solution_exit(code: int, step: str | None = None) -> Remark:
    """The reference solution's script (of `step`) ended with `code`, which is not 0; above 128 a signal killed it."""
    whose = f"the solution of step '{step}'" if step else "solve.sh"
    killed = f" (killed by signal {code - 128})" if 128 < code < 160 else ""
    return Remark(flag=f"{SOLUTION_EXIT}{code}", sentence=f"{whose} ended with exit code {code}{killed}")


def flags_of(*remarks: Remark | Flag) -> tuple[str, ...]:
    """The flags, each once, in order."""
    return tuple(dict.fromkeys(str(r.flag if isinstance(r, Remark) else r) for r in remarks))
