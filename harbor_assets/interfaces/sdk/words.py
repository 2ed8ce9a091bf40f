"""Small words of the API's SDK that its users write: references, and a model as the target of an evaluation."""

from typing import NewType

from pydantic import BaseModel, ConfigDict

from harbor_assets.domain.agent_eval import Target

MetricRef = NewType("MetricRef", str)
TaskRef = NewType("TaskRef", str)
TasksetRef = NewType("TasksetRef", str)


class Model(BaseModel):
    """A model behind an endpoint; what else it needs is kept. Keys are named as secrets, never written here."""

    model_config = ConfigDict(frozen=True, extra="allow")

    url: str
    name: str


def ModelTarget(model: Model) -> Target:
    """An evaluation's target: a model that is to be called. It is stored and resolved; nothing here calls it."""
    return Target.model_validate({"kind": "model", "model": model.model_dump(mode="json")})
