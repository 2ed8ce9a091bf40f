"""What is wrong with a document, in sentences of ours: pydantic's own are written for programmers."""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from harbor_assets.domain.errors import Problem
from harbor_assets.domain.names import nearest

_QUOTED_MAX = 80  # characters of a bad value: enough to recognise it by
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object with members",
    "model_type": "an object with members",
    "model_attributes_type": "an object with members",
    "datetime_type": "a time as 2026-01-31T12:00:00Z",
    "datetime_parsing": "a time as 2026-01-31T12:00:00Z",
}
_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "at most"),
}


def problems_of(error: ValidationError, model: type[BaseModel], *, quiet: Iterable[str] = ()) -> list[Problem]:
    """Every problem with its path in the document. `quiet`: paths below which values may be secret, so not shown."""
    hidden = tuple(quiet)
    found: list[Problem] = []
    for detail in error.errors(include_url=False):
        path = ".".join(map(str, detail["loc"]))
        shown = not any(path == at or path.startswith(f"{at}.") for at in hidden)
        found.append(Problem(path, _unknown(detail, model) or sentence(detail, shown=shown)))
    return found


def sentence(detail: ErrorDetails, *, shown: bool = True) -> str:
    """What one value must be, and what it is if it may be `shown`; reads on from the name of the field."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return "is no field that is known here"
    was = f"; it is {_quoted(detail['input'])}" if shown else ""
    if kind == "json_invalid":
        return f"is not JSON: {context['error']}"
    if kind in ("value_error", "assertion_error"):
        return f"{context.get('error', detail['msg'])}{was}"
    if kind in _LIMITS:
        name, word = _LIMITS[kind]
        limit = context[name]
        if detail["input"] != detail["input"]:
            return "must be a finite number; it is nan"
        return f"must be {word} {f'{limit:g}' if isinstance(limit, float) else limit}{was}"
    if kind == "literal_error":
        return f"must be {context['expected']}{was}"
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}{was}"
    if kind == "string_too_short":
        return "must not be empty" if context["min_length"] == 1 else f"needs {context['min_length']} characters{was}"
    if kind == "string_too_long":
        return f"has more than {context['max_length']} characters"
    if kind == "too_long":
        return f"has more than {context['max_length']} entries"
    if kind == "too_short":
        return f"needs at least {context['min_length']} entries"
    if kind in _KINDS:
        return f"must be {_KINDS[kind]}{was}"
    text = detail["msg"]
    return f"{text[:1].lower()}{text[1:]}{was}"


def _unknown(detail: ErrorDetails, model: type[BaseModel]) -> str | None:
    if detail["type"] != "extra_forbidden":
        return None
    known = list(_fields(model, detail["loc"][:-1]))
    name = str(detail["loc"][-1])
    if elsewhere := next(_places(model, name), None):
        return f"is no field here; did you mean {elsewhere}?"
    close = nearest(name, known, 1)
    hint = f"did you mean {close[0]}?" if close else f"known here: {', '.join(known)}"
    return f"is no field; {hint}" if known else "is no field that is known here"


def _places(model: type[BaseModel], name: str, at: str = "") -> Iterator[str]:
    """The paths at which a document of this model has a field of that name."""
    for field_name, field in model.model_fields.items():
        path = f"{at}.{field_name}" if at else field_name
        if field_name == name:
            yield path
        if inner := _model_in(field.annotation):
            yield from _places(inner, name, path)


def _fields(model: type[BaseModel], path: Sequence[int | str]) -> Iterable[str]:
    for step in path:
        field = model.model_fields.get(str(step))
        inner = None if field is None else _model_in(field.annotation)
        if inner is None:
            return ()
        model = inner
    return model.model_fields


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return next((found for part in get_args(annotation) if (found := _model_in(part))), None)
    return None


def _quoted(value: Any) -> str:
    if isinstance(value, Mapping):
        return "an object with members"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]}…"
