"""Publishing a run to an Experiment: what a request says of it, and what of that is frozen in the run's plan.

The words are those of the API: an Experiment is the container of a leaderboard, an Evaluation is one run in it, a
session is one trial of that run.
"""

from typing import Annotated, Self

from pydantic import Field, model_validator

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.names import NAME_MAX
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.tasks import Body
from harbor_assets.domain.text import quoted

LABEL_MAX = 255  # characters of a dataset's name, and of its version
AGENT_VERSION_UNKNOWN = "unknown"

ExperimentName = Annotated[str, Field(min_length=1, max_length=NAME_MAX, pattern=r"^[\w\-.]+$")]
Label = Annotated[str, Field(min_length=1, max_length=LABEL_MAX)]


class Intake(Body):
    """Where a run's trials appear: in an Evaluation that the submit makes in `experiment`, or in one that is there
    already, by its name (`evaluation_id`). Exactly one of the two.

    `dataset_name`, `dataset_version`: the dataset that a new Evaluation is labelled with; by default the taskset's name
    and digest. `required`: that a trial could not be published is an error of the run, not only a line in its log.
    """

    experiment: ExperimentName | None = None
    evaluation_id: ExperimentName | None = None
    dataset_name: Label | None = None
    dataset_version: Label | None = None
    agent_name: Label | None = None
    agent_version: Label = AGENT_VERSION_UNKNOWN
    required: bool = True

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.experiment is None) == (self.evaluation_id is None):
            raise ValueError("exactly one of `experiment` and `evaluation_id` must be given")
        if self.evaluation_id is not None and self.dataset_name is not None:
            raise ValueError("`dataset_name` is only for a new Evaluation; the one of `evaluation_id` has its own")
        if self.dataset_version is not None and self.dataset_name is None:
            raise ValueError("`dataset_version` needs `dataset_name`")
        for label in (self.dataset_name, self.dataset_version, self.agent_name, self.agent_version):
            if label is not None and (why := label_problem(label)):
                raise ValueError(f"{quoted(label)} {why}")
        return self


class PublicationRequest(Body):
    """The member `publication` of a request."""

    intake: Intake


class Publication(Frozen):
    """Where the run of a plan is published. `experiment` and `evaluation` are names in the run's workspace."""

    experiment: str
    evaluation: str
    dataset: str
    dataset_version: str
    agent_name: str
    agent_version: str = AGENT_VERSION_UNKNOWN
    required: bool = True
    new: bool = True  # the submit makes the Evaluation; else it was there

    def labels(self) -> dict[str, str]:
        """What a bundle's `metadata.json` says of it."""
        return {
            "experiment": self.experiment,
            "evaluation": self.evaluation,
            "dataset": self.dataset,
            "dataset_version": self.dataset_version,
        }


class RunPublished(Frozen):
    """What publishing an ended run once more did. `published`: of its `trials` those that were missing, or were not as
    they are now; `skipped`: results that no evaluator can have; `failed`: trials, each with the error."""

    run_id: str
    experiment: str
    evaluation: str
    trials: int
    published: int
    results: int
    skipped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


def label_problem(label: str) -> str | None:
    """Why a text cannot be a label, or None."""
    if label != label.strip():
        return "begins or ends with a space"
    return None if label.isprintable() else "holds characters that cannot be printed"


def read_dataset(text: str) -> tuple[str, str | None]:
    """Name and version of `NAME[@VERSION]`; the version is everything after the last @: a digest, a tag or a commit.

    Raises `Refused` for an empty name or version.
    """
    name, at, version = text.rpartition("@")
    if not at:
        name, version = text, ""
    if not name or (at and not version):
        raise Refused(f"{quoted(text)} is no NAME or NAME@VERSION; write as datacurve/deep-swe@sha256:3f9a…")
    for part in (name, version):
        if len(part) > LABEL_MAX:
            raise Refused(f"{quoted(part)} has more than {LABEL_MAX} characters")
        if why := label_problem(part):
            raise Refused(f"{quoted(part)} {why}")
    return name, version or None


def evaluation_name(agent: str, run_id: str) -> str:
    """The Evaluation of a run, as a leaderboard shows it."""
    return f"{agent}-{run_id}"[-NAME_MAX:]
