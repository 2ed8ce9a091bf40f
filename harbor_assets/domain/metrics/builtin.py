"""The metrics that are known here: their definitions, the outputs they give, and how those that need no model compute.

Names and defaults are those of the SDK that existing clients define metrics with. A definition is kept as it was sent;
members that a metric does not know mean nothing to it.
"""

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, TypeAdapter, model_validator

from harbor_assets.domain.metrics import overlap
from harbor_assets.domain.metrics.checks import NumberOperation, StringOperation, check_numbers, check_strings

TEMPLATE_MAX = 16 * 1024  # characters: a prompt with a rubric has a few thousand
PATTERN_MAX = 1024
CONTINUOUS = "ContinuousScore"

Template = Annotated[str, Field(max_length=TEMPLATE_MAX)]

type Text = Callable[[str | None, str], str]
"""(template, name of the field it stands in) -> the text for one trial; without a template, what the agent answered."""


class Definition(BaseModel):
    """One metric. Its `type` names its kind."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    description: str | None = Field(default=None, max_length=10_000)

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The names of its outputs; each is a `ContinuousScore`."""

    @property
    @abstractmethod
    def templates(self) -> Mapping[str, str]:
        """Its templates by the field they stand in."""


class Computed(Definition):
    """A metric that needs nothing but the texts."""

    @abstractmethod
    def compute(self, text: Text) -> Mapping[str, float]:
        """A value for each output. NaN: it has none. Raises what `text` raises."""


class Compared(Computed):
    """A metric of a candidate, by default the agent's text, and a reference."""

    reference: Template
    candidate: Template | None = None

    @property
    def templates(self) -> Mapping[str, str]:
        given = {"reference": self.reference, "candidate": self.candidate}
        return {name: template for name, template in given.items() if template is not None}

    def _texts(self, text: Text) -> tuple[str, str]:
        return text(self.reference, "reference"), text(self.candidate or None, "candidate")


class ExactMatch(Compared):
    """1.0 where both are equal, whatever their case, punctuation, articles and blanks."""

    type: Literal["exact-match"] = "exact-match"

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("exact-match",)

    def compute(self, text: Text) -> Mapping[str, float]:
        """See `Computed`."""
        return {"exact-match": overlap.exact_match(*self._texts(text))}


class F1(Compared):
    """How many words both share, 0 to 1."""

    type: Literal["f1"] = "f1"

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("f1",)

    def compute(self, text: Text) -> Mapping[str, float]:
        """See `Computed`."""
        return {"f1": overlap.f1(*self._texts(text))}


class Rouge(Compared):
    """ROUGE-1, -2, -3 and -L, 0 to 1."""

    type: Literal["rouge"] = "rouge"

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("rouge_1_score", "rouge_2_score", "rouge_3_score", "rouge_L_score")

    def compute(self, text: Text) -> Mapping[str, float]:
        """See `Computed`."""
        reference, candidate = self._texts(text)
        by_n = {f"rouge_{n}_score": overlap.rouge_n(reference, candidate, n) for n in (1, 2, 3)}
        return {**by_n, "rouge_L_score": overlap.rouge_l(reference, candidate)}


class Bleu(Computed):
    """BLEU of each answer, 0 to 100."""

    type: Literal["bleu"] = "bleu"
    references: list[Template] = Field(min_length=1, max_length=16)
    candidate: Template | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("sentence",)

    @property
    def templates(self) -> Mapping[str, str]:
        named = {f"references[{at}]": template for at, template in enumerate(self.references)}
        return named if self.candidate is None else {**named, "candidate": self.candidate}

    def compute(self, text: Text) -> Mapping[str, float]:
        """See `Computed`."""
        references = [text(template, f"references[{at}]") for at, template in enumerate(self.references)]
        return {"sentence": overlap.sentence_bleu(references, text(self.candidate or None, "candidate"))}


class _TwoSided(Computed):
    left_template: Template
    right_template: Template

    @property
    def templates(self) -> Mapping[str, str]:
        return {"left_template": self.left_template, "right_template": self.right_template}

    def _sides(self, text: Text) -> tuple[str, str]:
        return text(self.left_template, "left_template"), text(self.right_template, "right_template")


class StringCheck(_TwoSided):
    """1.0 where the operation holds between two texts, as they stand."""

    type: Literal["string-check"] = "string-check"
    operation: StringOperation

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("string-check",)

    def compute(self, text: Text) -> Mapping[str, float]:
        """See `Computed`."""
        return {"string-check": check_strings(self.operation, *self._sides(text))}


class NumberCheck(_TwoSided):
    """1.0 where the operation holds between the last numbers of two texts; no value where one has none."""

    type: Literal["number-check"] = "number-check"
    operation: NumberOperation
    epsilon: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _tolerance(self) -> Self:
        if (self.operation == "absolute difference") != (self.epsilon is not None):
            raise ValueError("epsilon belongs to the operation 'absolute difference', which needs it, and to no other")
        return self

    @property
    def outputs(self) -> tuple[str, ...]:
        return ("number-check",)

    def compute(self, text: Text) -> Mapping[str, float]:
        """See `Computed`."""
        return {"number-check": check_numbers(self.operation, *self._sides(text), self.epsilon)}


class JsonParser(BaseModel):
    type: Literal["json"] = "json"
    json_path: str = Field(min_length=1, max_length=PATTERN_MAX)


class RegexParser(BaseModel):
    type: Literal["regex"] = "regex"
    pattern: str = Field(min_length=1, max_length=PATTERN_MAX)
    method: Literal["search", "match"] = "match"

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            re.compile(self.pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"pattern is no regular expression: {error}") from None
        return self


class _JudgeScore(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9_]+$", max_length=255)
    description: str | None = None
    parser: Annotated[JsonParser | RegexParser, Field(discriminator="type")] | None = None


class RubricLevel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    label: str = Field(min_length=1)
    description: str | None = None
    value: float = Field(allow_inf_nan=False)


class RubricScore(_JudgeScore):
    """A score by named levels."""

    rubric: list[RubricLevel] = Field(min_length=2, max_length=100)

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        labels = [level.label for level in self.rubric]
        if len(set(labels)) < len(labels):
            raise ValueError("two levels of the rubric have one label")
        return self


class RangeScore(_JudgeScore):
    """A score between two numbers."""

    minimum: float = Field(allow_inf_nan=False)
    maximum: float = Field(allow_inf_nan=False)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.minimum >= self.maximum:
            raise ValueError(f"minimum {self.minimum:g} must be below maximum {self.maximum:g}")
        return self


def _score_kind(value: object) -> str:
    return "rubric" if isinstance(value, RubricScore) or (isinstance(value, dict) and "rubric" in value) else "range"


JudgeScore = Annotated[
    Annotated[RubricScore, Tag("rubric")] | Annotated[RangeScore, Tag("range")], Discriminator(_score_kind)
]


class LlmJudge(Definition):
    """Scores that a language model gives. It is stored and checked; nothing here asks a model."""

    type: Literal["llm-judge"] = "llm-judge"
    model: str | dict[str, JsonValue]
    scores: list[JudgeScore] = Field(min_length=1, max_length=100)
    prompt_template: Template | dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _one_score_a_name(self) -> Self:
        if len(set(self.outputs)) < len(self.outputs):
            raise ValueError("two scores have one name")
        return self

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(score.name for score in self.scores)

    @property
    def templates(self) -> Mapping[str, str]:
        found: dict[str, str] = {}
        if self.prompt_template is not None:
            _collect(self.prompt_template, "prompt_template", found)
        return found


def _collect(value: JsonValue, at: str, found: dict[str, str]) -> None:
    if isinstance(value, str):
        found[at] = value
    elif isinstance(value, dict):
        for key, member in value.items():
            _collect(member, f"{at}.{key}", found)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _collect(item, f"{at}[{index}]", found)


Known = ExactMatch | F1 | Rouge | Bleu | StringCheck | NumberCheck | LlmJudge
KNOWN_TYPES = ("exact-match", "f1", "rouge", "bleu", "string-check", "number-check", "llm-judge")
_ADAPTER: TypeAdapter[Known] = TypeAdapter(Annotated[Known, Field(discriminator="type")])


def definition(payload: Mapping[str, JsonValue]) -> Known | None:
    """The definition an inline payload is, None if its type is not known here. Raises pydantic's `ValidationError`."""
    if payload.get("type") not in KNOWN_TYPES:
        return None
    return _ADAPTER.validate_python(dict(payload))
