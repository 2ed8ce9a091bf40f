"""On which nodes a run's sandboxes may lie: what a request asks for within what its profile leaves open. Pure.

Rules of Kubernetes: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/ and
https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harbor_assets.domain.profiles import SandboxProfile
from harbor_assets.domain.tasks import Body

PLACEMENTS_MAX = 20  # of each kind
_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"(?=[^/]{1,253}/)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*/"
LABEL_KEY = re.compile(rf"({_PREFIX})?{_NAME}")
LABEL_VALUE = re.compile(rf"({_NAME})?")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
LabelKey = Annotated[str, Field(max_length=317)]
LabelValue = Annotated[str, Field(max_length=63)]


class Toleration(Body):
    """A taint that sandboxes put up with, in the words of a pod. Without `effect`: all of them."""

    key: LabelKey
    operator: Literal["Equal", "Exists"] = "Equal"
    value: LabelValue = ""
    effect: Effect | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not LABEL_KEY.fullmatch(self.key):
            raise ValueError(f"key '{self.key[:80]}' is no label's key; write as dedicated or example.org/dedicated")
        if not LABEL_VALUE.fullmatch(self.value):
            raise ValueError(f"value '{self.value}' is no label's value: letters, digits, - _ . within")
        if self.operator == "Exists" and self.value:
            raise ValueError("with the operator Exists there is no value; take it out, or write Equal")
        return self

    def as_pod(self) -> dict[str, str]:
        """As a pod's specification has it."""
        value = {"value": self.value} if self.operator == "Equal" else {}
        effect = {"effect": self.effect} if self.effect else {}
        return {"key": self.key, "operator": self.operator, **value, **effect}


def read_toleration(text: str) -> Toleration:
    """`KEY`, `KEY=VALUE`, each with `:EFFECT` behind it or without. Raises ValueError."""
    taint, colon, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    if colon and effect not in EFFECTS:
        raise ValueError(f"'{effect}' is no effect; write {', '.join(EFFECTS)}")
    document = {"key": key, "operator": "Equal" if equals else "Exists", "value": value, "effect": effect or None}
    return Toleration.model_validate(document)


def label_problem(key: str, value: str) -> str | None:
    """Why this is no label of a node; None if it can be one. Reads on from its name."""
    if not LABEL_KEY.fullmatch(key):
        return "is no label's key; write as pool or example.org/pool"
    if not LABEL_VALUE.fullmatch(value):
        return f"= '{value}' is no label's value: at most 63 letters and digits, - _ . within"
    return None


def placement_problems(
    node_selector: Mapping[str, str], tolerations: Sequence[Toleration], profile: SandboxProfile
) -> Iterator[tuple[str, str]]:
    """(field, why) for everything that the profile does not leave to a request."""
    for key, value in node_selector.items():
        fixed = profile.node_selector.get(key, value)
        if key not in profile.node_selector_keys:
            yield "node_selector", f"{key}: {_not_open(profile, 'node_selector_keys', profile.node_selector_keys)}"
        elif fixed != value:
            yield "node_selector", f"{key}={value}: sandbox profile '{profile.name}' itself says {key}={fixed}"
    for toleration in tolerations:
        if toleration.key not in profile.toleration_keys:
            why = _not_open(profile, "toleration_keys", profile.toleration_keys)
            yield "tolerations", f"{toleration.key}: {why}"


def _not_open(profile: SandboxProfile, field: str, keys: Sequence[str]) -> str:
    open_ones = f"those open are {', '.join(keys)}" if keys else "none is open"
    return f"is not among {field} of sandbox profile '{profile.name}' ({open_ones}); take it out, or use another"


def placed(
    profile: SandboxProfile, node_selector: Mapping[str, str], tolerations: Sequence[Toleration]
) -> SandboxProfile:
    """The profile of the run: the admin's, narrowed to these nodes and with these tolerations beside its own."""
    if not node_selector and not tolerations:
        return profile
    more = tuple(toleration.as_pod() for toleration in tolerations)
    return profile.model_copy(
        update={
            "node_selector": {**profile.node_selector, **node_selector},
            "tolerations": (*profile.tolerations, *(one for one in more if one not in profile.tolerations)),
        }
    )
