"""Refusing a Dagster run that somebody made by hand, before it is made.

Dagster resolves a run's configuration before it stores the run. Resolving a value of this type fails with a sentence,
so the page that asked shows it, and neither a run nor planned partitions are left: those would turn partitions red
whose results are good.
"""

from typing import Any, Never

import dagster as dg
from dagster._config.config_type import ConfigScalar, ConfigScalarKind
from dagster._config.errors import PostProcessingError

FIELD = "submitted_run"
BY_HAND = (
    "Trial results are made by submitting a run. In the UI: job submit_evaluation. At the terminal: harbor-assets runs "
    "submit --taskset REF --agent AGENT, with --tasks INDEX,INDEX for some of its tasks. The results of an ended run "
    "never change, so its partitions cannot be materialised again, and a Dagster run of it cannot be re-executed."
)


class _SubmittedRun(ConfigScalar):
    """The run's id, as whoever submits writes it; nothing is refused."""

    def __init__(self) -> None:
        super().__init__(
            key="SubmittedRun", given_name="SubmittedRun", scalar_kind=ConfigScalarKind.STRING, description=BY_HAND
        )

    def post_process(self, value: Any) -> str:
        if not value:
            raise PostProcessingError(BY_HAND)
        return str(value)


class _NoRun(_SubmittedRun):
    """Nothing is accepted: where runs are submitted in another way altogether."""

    def __init__(self) -> None:
        super().__init__()
        self.key = self.given_name = "NoRun"

    def post_process(self, value: Any) -> Never:
        raise PostProcessingError(BY_HAND)


def _schema(kind: ConfigScalar) -> dict[str, dg.Field]:
    return {FIELD: dg.Field(kind, is_required=False, default_value="", description=BY_HAND)}


ONLY_SUBMITTED = _schema(_SubmittedRun())
NEVER_BY_DAGSTER = _schema(_NoRun())
