"""A question before a suite is published for a run: could these tasks run as asked? Nothing is stored for it."""

from typing import Annotated

from pydantic import Field, JsonValue

from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.requests import Execution, RequestFile, TaskSelection
from harbor_assets.domain.tasks import Body


class CandidateTask(Body):
    """A task as its source has it. `config` is task.toml as JSON; `files` those of `TOLD_FILES` that it has."""

    name: str
    config: dict[str, JsonValue] = {}
    files: Annotated[list[str], Field(max_length=100)] = []


class RunCheck(RequestFile):
    """The body of `POST .../agent-evaluate/runs:check`: the request as it will be submitted, and the tasks.

    `stored`: tasks that are stored already; of them only `without_solution` is told, submit judges them itself.
    """

    execution: Execution = Execution()
    tasks: list[CandidateTask] = []
    stored: TaskSelection | None = None


class RunChecked(Frozen):
    """The answer where nothing is wrong. `without_solution`: tasks that the agent `oracle` cannot solve. Of stored
    ones those that were found within a few seconds: it is a hint, and looking may mean to unpack."""

    without_solution: tuple[str, ...] = ()
