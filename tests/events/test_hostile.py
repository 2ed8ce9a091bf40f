"""Texts of strangers in what Dagster is told: no link, image, tag or table of theirs, and no secret of ours."""

import json
import re
from typing import Any

import dagster as dg
import pytest
from dagster_shared.serdes import serialize_value
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.plans import AgentSpec, RunPlan
from harbor_assets.events.bundles import bundle_metadata
from harbor_assets.events.markdown import plain, row
from harbor_assets.events.trials import task_result_event
from tests.fakes.accounts import make_plan, make_row

SECRET = "sk-1234567890abcdef"
HOSTILE = [
    "[click](javascript:alert(1))",
    "![x](https://evil.invalid/x.png)",
    "<img src=x onerror=alert(1)><script>alert(1)</script>",
    "a | b | c\n| --- | --- |",
    "`code` ``` fence",
    "\n\n# Heading\n\n- item\n1. one",
    "https://evil.invalid www.evil.invalid <https://evil.invalid> a@evil.invalid",
    "&lt;b&gt; &#60;b&#62;",
    "\x1b[2J\u202etxt.exe",
    "**bold** _it_ ~~no~~ $x$ [^1] :smile:",
]
MARKDOWN = MarkdownIt("gfm-like", {"html": True, "linkify": False})
MADE = re.compile(r"<(a|img|script|code|pre|strong|em|s|h[1-6]|ul|ol|li|blockquote|hr|br)\b")


@pytest.mark.parametrize("text", HOSTILE)
def test_what_would_be_markup_is_shown_as_it_is_written(text: str):
    html = MARKDOWN.render(f"before {plain(text)} after")
    assert not MADE.search(html), html
    assert html.count("<p>") == 1


@given(st.text(alphabet="[]()<>!`*_~|#-+.:/&;\\\n\"'= aA1@w", max_size=60))
def test_no_mix_of_signs_makes_markup_or_another_cell(text: str):
    html = MARKDOWN.render("\n".join([row("a", "b"), row("---", "---"), row(plain(text), "last")]))
    assert not MADE.search(html), html
    assert html.count("<td>") == 2
    assert "<td>last</td>" in html


def hostile_plan(name: str) -> RunPlan:
    (task,) = make_plan(["a"]).tasks  # references have a grammar that lets nothing of this through
    tasks = (task.model_copy(update={"name": name, "native_task_id": name}),)
    return make_plan([], tasks=tasks, agent=AgentSpec(name=name, kwargs={"api_key": SECRET}), owner=name)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_bundles_summary_has_only_our_own_markup(text: str):
    ours = _summary("plain")
    theirs = _summary(text)
    count = lambda html: [len(re.findall(f"<{tag}", html)) for tag in "h3 p table tr td li strong a img script".split()]  # noqa: E731
    assert count(MARKDOWN.render(theirs)) == count(MARKDOWN.render(ours)), theirs


def _summary(text: str) -> str:
    return str(_metadata(text)["summary"].value)


def _metadata(text: str) -> dict[str, Any]:
    plan = hostile_plan(text)
    rows = [make_row(plan, 0, 1, Reason.SANDBOX_LOST, message=text)]
    return bundle_metadata(plan, rows, phase=RunPhase.FAILED, state=ResultState.NONE, place=str)


@pytest.mark.parametrize("text", HOSTILE)
def test_every_other_text_is_no_markdown_and_no_address(text: str):
    plan = hostile_plan(text)
    event = task_result_event(plan.run_id, plan.task(0), [make_row(plan, 0, 1, Reason.SANDBOX_LOST, message=text)], str)
    for name, value in {**event.metadata, **dg.AssetMaterialization("x", metadata=_metadata(text)).metadata}.items():
        if isinstance(value, dg.MarkdownMetadataValue):
            assert name == "summary"
        if isinstance(value, dg.UrlMetadataValue):
            assert value.value.startswith("/"), "a page of this UI"
        if isinstance(value, dg.TextMetadataValue) and name == "message":
            assert "\x1b" not in value.value


def test_arguments_of_agents_are_nowhere():
    plan = hostile_plan("nop")
    rows = [make_row(plan, 0, 1, 1.0)]
    event = task_result_event(plan.run_id, plan.task(0), rows, str)
    metadata = bundle_metadata(plan, rows, phase=RunPhase.COMPLETED, state=ResultState.READY, place=str)
    bundle = dg.AssetMaterialization("merged_bundle", metadata=metadata)
    assert SECRET not in serialize_value(event)
    assert SECRET not in serialize_value(bundle)
    assert SECRET in json.dumps(plan.model_dump(mode="json")), "the test would prove nothing"
