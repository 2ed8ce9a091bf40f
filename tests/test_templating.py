import time

import pytest

from harbor_assets.domain.errors import Refused
from harbor_assets.templating import RENDERED_MAX, SandboxedTemplates

TEMPLATES = SandboxedTemplates()
VALUES = {"item": {"expected": " Paris ", "n": 3, "list": [1, {"a": "b"}], "items": "mine"}, "long": "x" * 500_000}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{item.expected | trim | lower}}!", "paris!"),
        ("{{ item['expected'][1:3] }}", "Pa"),
        ("{{item.items}}", "mine"),
        ("{{item.list[1].a}} {{item.list | length}}", "b 2"),
        ("{% if item.n > 2 %}big{% else %}small{% endif %}", "big"),
        ("{{item.nope.deeper | default('none')}}", "none"),
        ("{{ item.list | tojson }}", '[1, {"a": "b"}]'),
        ("no template at all <&>\n", "no template at all <&>\n"),
    ],
)
def test_values_and_filters(template, text):
    assert TEMPLATES.render(template, VALUES) == text


@pytest.mark.parametrize(
    "template", ["{{item.nope}}", "{{nope}}", "{{item.list[9]}}", "{{item.n / 0}}", "{{item + 1}}"]
)
def test_what_is_not_there_fails_and_is_not_empty(template):
    with pytest.raises(Refused, match="cannot be rendered"):
        TEMPLATES.render(template, VALUES)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ item.list.append }}",
        "{{ item.__init__.__globals__ }}",
        "{{ item.expected.format }}",
        "{{ ''['__class__'] }}",
    ],
)
def test_nothing_of_python_can_be_reached(template):
    with pytest.raises(Refused):
        TEMPLATES.render(template, VALUES)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 1000000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ long.upper() }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% set x = long %}",
        "{% include 'x' %}",
        "{{ 'x' | center(1000000000) }}",
        "{{ 1 | tojson(indent=1000000000) }}",
        "{{ long | replace('x', long) }}",
        "{{ long | replace('', long) }}",
        "{{ long | list | join(long) }}",
        "{{ long ~ long ~ long }}",
        "{{ " + "(" * 2000 + "1" + ")" * 2000 + " }}",
        "{{ " + "+".join(["1"] * 500) + " }}",
        "{{ x" * 10_000,
        "{{ x",
    ],
    ids=range(18),
)
def test_what_would_run_or_grow_without_end_is_refused_at_once(template):
    begun = time.monotonic()
    with pytest.raises(Refused) as refused:
        TEMPLATES.render(template, VALUES)
    assert len(str(refused.value)) < 1000
    assert time.monotonic() - begun < 5  # a minute's work would take a minute


def test_a_text_at_the_limit_is_taken():
    assert len(TEMPLATES.render("{{ long ~ long }}", {"long": "x" * (RENDERED_MAX // 2)})) == RENDERED_MAX
