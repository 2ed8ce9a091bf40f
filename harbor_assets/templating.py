"""Templates of strangers (`{{item.expected | trim}}`) rendered without running anything of theirs.

Jinja2's sandbox keeps a template from reaching Python's insides; it bounds neither time nor memory. So only what cannot
loop or multiply is let through: expressions, `if`, and filters from a list; no loops, calls, assignments, `*`, `**`
or `%`. What remains costs about as much as the texts are long.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from inspect import isgenerator
from typing import Any

from jinja2 import StrictUndefined, TemplateError, TemplateSyntaxError, Undefined, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import htmlsafe_json_dumps
from pydantic import JsonValue

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.metrics.builtin import TEMPLATE_MAX
from harbor_assets.domain.text import quoted

RENDERED_MAX = 1024 * 1024  # characters of a rendered text, and of what a filter makes; BLEU of as much takes seconds
NODES_MAX = 200  # of a template's tree: a check has about ten
_QUOTED_MAX = 80

# What may stand in a template, by Jinja2's own names.
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If),
    *(nodes.Name, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Const, nodes.List, nodes.Tuple),
    *(nodes.Filter, nodes.Test, nodes.CondExpr, nodes.Compare, nodes.Operand, nodes.Concat),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Div, nodes.FloorDiv, nodes.Neg, nodes.Pos),
    nodes.Keyword,
)
_FILTERS = frozenset(
    "abs capitalize count d default first float int join last length list lower max min replace reverse round sort "
    "string sum title tojson trim unique upper".split()
)
_TESTS = frozenset("defined undefined none string number integer float boolean true false in eq ne lt le gt ge".split())


class _Environment(ImmutableSandboxedEnvironment):
    """Data are plain JSON: a name after a point is a member of an object, and nothing else is."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            return obj  # still undefined, and told as such when it is used
        try:
            if isinstance(obj, dict) and isinstance(argument, str):
                return obj[argument]
            if isinstance(obj, list | tuple | str) and isinstance(argument, int | slice):
                return obj[argument]
        except LookupError:
            pass
        return self.undefined(obj=obj, name=str(argument))


class SandboxedTemplates:
    """Checks and renders templates. Safe to share between threads."""

    def check(self, template: str) -> None:
        """See `Templates`."""
        _compiled(template)

    def render(self, template: str, values: Mapping[str, JsonValue]) -> str:
        """See `Templates`."""
        try:
            return "".join(_held(_compiled(template).generate(values)))
        except _TooLong:
            raise Refused(
                f"{_shown(template)} makes a text of more than {RENDERED_MAX} characters, the most that is scored"
            ) from None
        except (
            TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            raise Refused(f"{_shown(template)} cannot be rendered: {quoted(str(error))[1:-1]}") from None


class _TooLong(Exception):
    pass


def _held(pieces: Iterable[str]) -> Iterator[str]:
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > RENDERED_MAX:
            raise _TooLong
        yield piece


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, with what it makes held to the limit."""

    def bounded(*arguments: Any, **named: Any) -> Any:
        made = function(*arguments, **named)
        if isgenerator(made):
            made = list(made)
        if isinstance(made, str) and len(made) > RENDERED_MAX:
            raise _TooLong
        return made

    bounded.__dict__.update(
        getattr(function, "__dict__", {})
    )  # Jinja2 marks there which filters want the environment, too
    return bounded


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    """As Jinja2's, but what it would make is counted before it is made."""
    text, old, new = str(text), str(old), str(new)
    times = min(text.count(old), len(text) + 1 if count is None else max(count, 0))
    if len(text) + times * (len(new) - len(old)) > RENDERED_MAX:
        raise _TooLong
    return text.replace(old, new, times)


def _join(items: Any, separator: str = "") -> str:
    """As Jinja2's, of the items as text; counted before it is made."""
    texts, separator = [str(item) for item in items], str(separator)
    if sum(map(len, texts)) + len(separator) * len(texts) > RENDERED_MAX:
        raise _TooLong
    return separator.join(texts)


def _tojson(value: Any) -> str:
    """As Jinja2's without `indent`, which could ask for any width."""
    return str(htmlsafe_json_dumps(value))


def _made() -> _Environment:
    environment = _Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True, cache_size=0)
    known = {**environment.filters, "replace": _replace, "join": _join, "tojson": _tojson}
    environment.filters = {name: _bounded(known[name]) for name in _FILTERS}
    environment.tests = {name: test for name, test in environment.tests.items() if name in _TESTS}
    environment.globals = {}
    return environment


_ENVIRONMENT = _made()


@lru_cache(maxsize=256)  # each metric's templates are rendered for every trial
def _compiled(template: str) -> Any:
    if len(template) > TEMPLATE_MAX:
        raise Refused(f"A template has {len(template)} characters; at most {TEMPLATE_MAX} are taken")
    try:
        tree = _ENVIRONMENT.parse(template)
    except TemplateSyntaxError as error:
        raise Refused(f"{_shown(template)} is no template: {quoted(str(error.message))[1:-1]}") from None
    except RecursionError:
        raise Refused(f"{_shown(template)} is nested too deeply") from None
    for found, node in enumerate(_walk(tree), 1):
        if not isinstance(node, _ALLOWED):
            raise Refused(
                f"{_shown(template)} holds {_WORDS.get(type(node), type(node).__name__.lower())}; templates are "
                f"expressions, `if` and the filters {', '.join(sorted(_FILTERS))}"
            )
        if found > NODES_MAX:
            raise Refused(f"{_shown(template)} has more than {NODES_MAX} parts; split the metric")
    try:
        return _ENVIRONMENT.from_string(tree)
    except TemplateError as error:  # an unknown filter or test
        raise Refused(f"{_shown(template)} is no template: {quoted(str(error.message))[1:-1]}") from None


def _walk(tree: nodes.Node) -> Iterator[nodes.Node]:
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.iter_child_nodes())


_WORDS = {
    nodes.For: "a loop",
    nodes.Call: "a call (write a filter: `item.name | upper`)",
    nodes.Assign: "an assignment",
    nodes.Mul: "a multiplication",
    nodes.Pow: "a power",
    nodes.Mod: "a `%`",
}


def _shown(template: str) -> str:
    return f"The template {quoted(template, _QUOTED_MAX)}"
