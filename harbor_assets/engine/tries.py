"""Records of tries that ended and were followed by another, kept in the store until the trial has its row.

A worker that is lost later takes nothing of them along: what a try cost and why it ended is in the account.
"""

from harbor_assets.domain.outcomes import Try
from harbor_assets.engine.ports import Artifacts


def keep_try(artifacts: Artifacts, run_id: str, trial: str, number: int, ended: Try) -> None:
    """Keep the record of try `number`, from 1, of the trial with that id."""
    artifacts.put_bytes(f"{_key(run_id, trial)}/{number}.json", ended.model_dump_json().encode())


def kept_try(artifacts: Artifacts, run_id: str, trial: str, number: int) -> Try | None:
    """The record of a try; None if it has not ended by itself."""
    key = f"{_key(run_id, trial)}/{number}.json"
    if not artifacts.exists(key):
        return None
    with artifacts.open(key) as file:
        return Try.model_validate_json(file.read())


def forget_tries(artifacts: Artifacts, run_id: str, trial: str) -> None:
    """Remove the records of a trial. Idempotent."""
    artifacts.remove(_key(run_id, trial))


def _key(run_id: str, trial: str) -> str:
    return f"runs/{run_id}/tries/{trial}"
