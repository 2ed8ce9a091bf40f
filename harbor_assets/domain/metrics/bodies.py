"""Stored metrics: what is sent, what is kept, what is answered. The shapes and digests are the API's contract.

A payload is data. One that was pickled is kept and given back to nobody but who may read it; nothing here loads it.
"""

import base64
import binascii
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from harbor_assets.domain.credentials import keys_in, looks_like_key
from harbor_assets.domain.digests import canonical_json, digest_of
from harbor_assets.domain.metrics.builtin import CONTINUOUS, definition
from harbor_assets.domain.validation import sentence

BLOB_MAX = 4 * 1024 * 1024  # bytes of a pickled payload: a class with its closure has a few kilobytes
INLINE_MAX = 1024 * 1024  # bytes of an inline payload as canonical JSON
OUTPUTS_MAX = 1000
DERIVED = "derived."  # how names of metrics begin that came inside a task
_DERIVED_DIGITS = 55  # of the digest: with the prefix 63 characters, what existing readers allow for a name

Name = Annotated[str, Field(min_length=1, max_length=255)]


class Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OutputSpec(Strict):
    """One output of a metric. `required` is written only when it is False."""

    name: Name
    description: str | None = None
    value_json_schema: dict[str, JsonValue]
    required: bool = Field(default=True, exclude_if=lambda value: value is True)

    @property
    def value_schema(self) -> str:
        """What a bundle calls the schema: the name of a value class."""
        return _value_class(self.value_json_schema)


def continuous(name: str, description: str | None = None) -> OutputSpec:
    """The output of a number."""
    return OutputSpec(name=name, description=description, value_json_schema={"title": CONTINUOUS, "type": "number"})


def _value_class(schema: dict[str, JsonValue]) -> str:
    title = schema.get("title")
    if isinstance(title, str) and title:
        return title
    by_type = {"number": CONTINUOUS, "integer": "DiscreteScore", "boolean": "BooleanValue", "string": "Label"}
    return by_type.get(str(schema.get("type")), "Object")


class InlineMetric(BaseModel):
    """A metric's own definition, kept with every member it came with."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Name


class InlinePayload(Strict):
    """A definition as JSON. A digest that is sent is ignored: it follows from the content."""

    kind: Literal["inline"] = "inline"
    metric: InlineMetric
    digest: str | None = None

    @model_validator(mode="after")
    def _known_ones_are_whole(self) -> Self:
        if len(canonical_json(self.definition)) > INLINE_MAX:
            raise ValueError(f"the metric has more than {INLINE_MAX} bytes as JSON")
        try:
            definition(self.definition)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            at = ".".join(str(part) for part in first["loc"][1:])
            raise ValueError(f"the metric's {at} {sentence(first, shown=False)}" if at else sentence(first)) from None
        return self

    @property
    def definition(self) -> dict[str, Any]:
        return self.metric.model_dump(mode="json")

    def own_digest(self) -> str:
        """SHA-256 of the definition's canonical JSON."""
        return digest_of(self.definition)


def _base64(text: str) -> str:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the blob is not base64") from None
    if not data:
        raise ValueError("the blob is empty")
    return text


class PickledPayload(Strict):
    """A metric that its author pickled. Kept as it is, never loaded."""

    kind: Literal["cloudpickle"]
    python_version: str = Field(min_length=1, max_length=64)
    cloudpickle_version: str = Field(min_length=1, max_length=64)
    pickle_protocol: int = Field(ge=0, le=255)
    blob: Annotated[str, Field(max_length=BLOB_MAX * 4 // 3 + 4), AfterValidator(_base64)]
    digest: str = Field(min_length=1, max_length=255)

    def own_digest(self) -> str:
        """The digest as its author says: only who loads the blob can hold it to something."""
        return self.digest


Payload = Annotated[InlinePayload | PickledPayload, Field(discriminator="kind")]


class MetricMetadata(BaseModel):
    """What its author says of a metric; further members are kept."""

    model_config = ConfigDict(frozen=True, extra="allow")

    description: str | None = Field(default=None, max_length=10_000)
    labels: dict[str, JsonValue] | None = None


class MetricInline(Strict):
    """The body that creates a metric, and the form in which one stands inside a task."""

    bundle_kind: Literal["metric-bundle"] = "metric-bundle"
    bundle_format_version: Literal["v1"] = "v1"
    metric_type: Name
    metadata: MetricMetadata = MetricMetadata()
    outputs: list[OutputSpec] = Field(min_length=1, max_length=OUTPUTS_MAX)
    secrets: dict[Name, Name] = {}
    payload: Payload

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        names = [output.name for output in self.outputs]
        if len(set(names)) < len(names):
            raise ValueError("two outputs have one name")
        for variable, name in self.secrets.items():
            if looks_like_key(name):
                raise ValueError(f"secrets.{variable} looks like a key; store it as a secret and write its name")
        if not isinstance(self.payload, InlinePayload):
            return self
        for at in keys_in(self.payload.definition, "payload.metric"):
            raise ValueError(f"{at} looks like a key; store it as a secret and write its name")
        if self.payload.metric.type != self.metric_type:
            raise ValueError(f"metric_type is '{self.metric_type}', the payload's type '{self.payload.metric.type}'")
        known = definition(self.payload.definition)
        if known is not None and set(names) != set(known.outputs):
            raise ValueError(
                f"a metric of type '{known.type}' gives {', '.join(known.outputs)}, not {', '.join(names)}"
            )
        return self

    def kept(self) -> dict[str, Any]:
        """What is stored: all of it, an inline payload with the digest of its own content."""
        body = self.model_dump(mode="json")
        body["payload"]["digest"] = self.payload.own_digest()
        return body

    @property
    def derived_name(self) -> str:
        """The name under which it is stored when it comes inside a task: the same for equal metrics."""
        return DERIVED + digest_of(self.kept())[:_DERIVED_DIGITS]


def bundled(metric: dict[str, Any]) -> MetricInline:
    """A bare definition of a known type as the body that creates it. Raises `ValueError` for another type."""
    known = definition(metric)
    if known is None:
        raise ValueError(f"'{metric.get('type')}' is no type of metric that is known here")
    return MetricInline(
        metric_type=known.type,
        metadata=MetricMetadata(description=known.description),
        outputs=[continuous(name) for name in known.outputs],
        payload=InlinePayload(metric=InlineMetric.model_validate(metric)),
    )


class Metric(Strict):
    """A stored metric as it is answered: everything but its payload. Metrics never change."""

    id: str
    name: str
    workspace: str
    project: str | None = None
    metric_type: str
    description: str | None = None
    labels: dict[str, JsonValue] | None = None
    outputs: list[OutputSpec]
    secrets: dict[str, str] = {}
    payload_kind: Literal["inline", "cloudpickle"]
    payload_digest: str
    bundle_ref: str
    derived: bool = False
    created_at: datetime
    updated_at: datetime
