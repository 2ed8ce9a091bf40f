import base64
import hashlib
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.outcomes import Outcome, Reason, Try
from harbor_assets.domain.phases import RunPhase
from harbor_assets.domain.plans import SandboxChoice, SkippedTask
from harbor_assets.engine.merge import BundleContent
from harbor_assets.engine.report import Report, distribution, report_row, task_rows
from harbor_assets.report import HtmlReport
from harbor_assets.report.formats import href, seconds
from tests.fakes.accounts import START, make_bundle, make_plan, make_row

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[31m&amp;{{ 7*7 }}"
VOID = {"meta", "input", "br", "rect", "line", "img", "link"}


class Page(HTMLParser):
    """The page's elements and texts, read as a browser would."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.texts.append(data)

    def all(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attrs for name, attrs in self.elements if name == tag)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def draw(content: BundleContent | Report) -> str:
    report = content if isinstance(content, Report) else content.report
    return b"".join(HtmlReport().render(report)).decode()


def rows_of(html: str) -> list[str]:
    return re.findall(r'<tr class="\w+" id=.*?</tr>', html, flags=re.DOTALL)


@pytest.fixture
def html() -> str:
    plan = make_plan(["alpha", "beta"], n_attempts=2, skipped=(SkippedTask(name="bad", file="task.toml", reason="x"),))
    rows = [
        make_row(plan, 0, 1, 1.0),
        make_row(plan, 0, 2, 0.0),
        make_row(plan, 1, 1, 0.123456, flags=("reward_above_1",)),
        make_row(plan, 1, 2, Reason.SANDBOX_LOST, message="the sandbox is gone"),
    ]
    return draw(make_bundle(plan, rows))


def test_other_rewards_of_a_trial_are_shown_by_name():
    plan = make_plan(["alpha"])
    rows = [make_row(plan, 0, 1, 1.0, rewards={"reward": 1.0, "<b>speed": 3.5}, flags=("solution_exit_9",))]
    (row,) = rows_of(draw(make_bundle(plan, rows)))
    assert "&lt;b&gt;speed 3.5000" in row
    assert "solution exit 9" in row


def test_the_figures_stand_with_their_coverage(html: str):
    text = Page(html).text
    assert "run-0123456789abcdef" in text
    mean = re.search(
        r"scored trials only 0.3745 95 % interval (0.\d{4}) to (\d.\d{4}); 3 of 4 trials, 2 of 2 tasks have", text
    )
    assert mean
    assert float(mean[1]) < 0.3745 < float(mean[2])
    assert re.search(r"missing as zero 0.2809 95 % interval 0.\d{4} to \d.\d{4}; over all 4 planned trials", text)
    assert "k scored only missing as not passed 1 0.2500 0.2500 2 1.0000 0.5000" in text
    assert "scored 3 verifier failed 0 infrastructure failed 1" in text
    assert "not started 0" in text
    assert "1 skipped task" in text
    assert "The image of each task is replaced by this machine." in text
    assert "0.26.0" in text
    assert "2026-01-02 03:04:05 UTC" in text


def test_a_trial_without_a_reward_never_looks_like_a_zero(html: str):
    passed, zero, _, lost = rows_of(html)
    assert ">1.0000<" in passed
    assert ">0.0000<" in zero
    assert 'data-reward="0.0"' in zero
    assert "no reward" in lost
    assert "data-reward" not in lost
    assert "0.0000" not in lost
    assert "sandbox lost" in lost
    assert "the sandbox is gone" in lost


def test_every_trial_has_its_row_and_its_evidence(html: str):
    links = [attrs["href"] for attrs in Page(html).all("a")]
    folder = "evidence/harbor/run-0123456789abcdef-task-0/hello-alpha__00000-1"
    for path in ("verifier/test-stdout.txt", "trial.log", "result.json", "agent/oracle.txt", ""):
        assert f"{folder}/{path}" in links
    assert len(rows_of(html)) == 4


def test_the_attempts_of_a_task_stand_together_and_lead_to_their_trials(html: str):
    section = html[html.index('<section id="tasks"') : html.index('<section id="trials"')]
    alpha, beta = re.findall(r"<tr data-passes.*?</tr>", section, flags=re.DOTALL)
    assert 'data-mean="0.5"' in alpha
    assert "1 of 2" in alpha
    assert "infrastructure failed" in beta
    ids = {attrs["id"] for attrs in Page(html).all("tr") if attrs.get("id")}
    assert {f"#{trial}" for trial in ids} == {attrs["href"] for attrs in Page(section).all("a")}
    assert len(ids) == 4


def test_a_run_with_one_attempt_a_task_has_no_section_of_attempts():
    plan = make_plan(["alpha"])
    assert '<section id="tasks"' not in draw(make_bundle(plan, [make_row(plan, 0)]))


def test_the_page_needs_nothing_from_outside(html: str):
    page = Page(html)
    assert page.open == []
    names = {tag for tag, _ in page.elements}
    assert not names & {"link", "img", "iframe", "object", "embed", "form", "base", "video", "audio"}
    for tag, attrs in page.elements:
        assert "style" not in attrs
        assert "src" not in attrs
        assert not any(name.startswith("on") for name in attrs), tag
        if "href" in attrs:
            assert ":" not in (attrs["href"] or "")
            assert not (attrs["href"] or "").startswith("/")
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_the_policy_allows_the_texts_it_carries_and_nothing_else(html: str):
    (policy,) = (a["content"] for a in Page(html).all("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for tag in ("script", "style"):
        texts = re.findall(f"<{tag}>(.*?)</{tag}>", html, flags=re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
        assert f"{tag}-src {' '.join(f"'sha256-{digest}'" for digest in digests)}" in policy
    assert "unsafe" not in policy


def hostile_report(text: str, path: str) -> Report:
    plan = make_plan(["alpha"], n_attempts=2, skipped=(SkippedTask(name=text, file=text, reason=text),))
    task = plan.tasks[0].model_copy(update={"name": text, "native_task_id": text + "x"})
    plan = plan.model_copy(
        update={
            "tasks": (task,),
            "owner": text,
            "workspace": text,
            "taskset_ref": text,
            "reward_key": text,
            "sandbox": SandboxChoice(kind="process", why=text or "x", notes=(text,)),
        }
    )
    row = make_row(plan, 0, 1, Reason.REWARD_NOT_A_NUMBER, message=text, flags=(text,), evidence=path)
    twice = make_plan(["a"], n_attempts=2)
    summary = make_bundle(twice, [make_row(twice, 0, 1), make_row(twice, 0, 2)]).outcomes
    drawn = report_row(row, [("trial.log", 1), ("steps/x:y/verifier/reward.txt", 1)])
    return Report(
        plan=plan,
        phase=RunPhase.COMPLETED,
        started_at=START,
        finished_at=START,
        summary=summary,
        bars=distribution([row]),
        rows=[drawn],
        tasks=list(task_rows([row])),
    )


def test_nothing_of_a_stranger_becomes_part_of_the_page():
    html = draw(hostile_report(HOSTILE, "evidence/javascript:alert(1)//\u202ex/\"onclick='y"))
    page = Page(html)
    assert sum(1 for tag, _ in page.elements if tag == "script") == 2
    assert not any(tag == "img" for tag, _ in page.elements)
    assert all(not name.startswith("on") for _, attrs in page.elements for name in attrs)
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "<script>alert(1)</script><img src=x onerror=alert(1)>\\u202e\\x1b[31m&amp;{{ 7*7 }}" in page.text
    links = [attrs["href"] or "" for attrs in page.all("a")]
    assert "evidence/javascript%3Aalert%281%29//%E2%80%AEx/%22onclick%3D%27y/trial.log" in links


@settings(max_examples=30)
@given(st.text(st.characters(), max_size=60), st.text(st.characters(), max_size=40))
def test_any_text_is_drawn_and_changes_no_element(text: str, path: str):
    plain = [tag for tag, _ in Page(draw(hostile_report("plain", "evidence/x"))).elements]
    drawn = [tag for tag, _ in Page(draw(hostile_report(text, f"evidence/{path}"))).elements]
    optional = {"a", "details", "summary", "p", "small", "span"}
    assert [tag for tag in drawn if tag not in optional] == [tag for tag in plain if tag not in optional]


@pytest.mark.parametrize(
    ("path", "link"),
    [
        ("evidence/a b/c#d?e", "evidence/a%20b/c%23d%3Fe"),
        ("evidence/é\udcff", "evidence/%C3%A9%FF"),
        ("javascript:alert(1)", "javascript%3Aalert%281%29"),
        ("//host/x", ""),
        ("/etc/passwd", ""),
        ("evidence/../../x", ""),
    ],
)
def test_links_are_relative_and_encoded(path: str, link: str):
    assert href(path) == link


@given(st.text(max_size=30))
def test_a_link_never_has_a_scheme_or_leaves_the_bundle(path: str):
    link = href(path)
    assert ":" not in link
    assert not link.startswith("/")
    assert ".." not in unquote(link).split("/")
    assert link == "" or unquote(link) == path


def test_a_long_message_unfolds_and_a_short_one_stands():
    plan = make_plan(["alpha", "beta"])
    rows = [
        make_row(plan, 0, 1, Reason.VERIFIER_ERROR, message="first line\nsecond line " + "x" * 500),
        make_row(plan, 1, 1, Reason.VERIFIER_ERROR, message="short"),
    ]
    long, short = rows_of(draw(make_bundle(plan, rows)))
    assert "<summary>first line…</summary>" in long
    assert "\nsecond line xxx" in long
    assert "<details>" not in short


def test_lost_tries_are_counted_and_linked():
    plan = make_plan(["alpha"])
    row = make_row(plan, 0)
    lost = Try(start=START, leftovers=f"{row.evidence}.try-1")
    (drawn,) = rows_of(draw(make_bundle(plan, [row.model_copy(update={"tries": (lost, *row.tries)})])))
    assert "2 tries: worker lost" in drawn
    assert f'href="{row.evidence}.try-1/"' in drawn


def test_a_run_without_any_reward_shows_dashes_not_numbers():
    plan = make_plan(["alpha"])
    html = draw(make_bundle(plan, [make_row(plan, 0, 1, Reason.NEVER_STARTED)], started_at=None))
    text = Page(html).text
    assert "Mean reward, scored trials only – 0 of 1 trials" in text
    assert "Started never" in text
    assert "no reward: 1" in html


def test_the_distribution_keeps_missing_and_outside_apart():
    plan = make_plan([f"t{i}" for i in range(7)])
    ends: list[Any] = [0.0, 0.05, 0.95, 1.0, -0.5, 1.5, Reason.SANDBOX_LOST]
    bars = distribution(make_row(plan, i, 1, end) for i, end in enumerate(ends))
    found = {bar.label: (bar.count, bar.kind) for bar in bars if bar.count}
    assert found == {
        "below 0": (1, "outside"),
        "0.0–0.1": (2, "reward"),
        "0.9–1.0": (2, "reward"),
        "above 1": (1, "outside"),
        "no reward": (1, "none"),
    }


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "–"),
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 00 s"),
        (125.4, "2 min 05 s"),
        (11040, "3 h 04 min"),
    ],
)
def test_durations_are_for_people(value: float | None, said: str):
    assert seconds(value) == said


def test_a_large_report_comes_in_pieces_and_reads_its_rows_as_it_goes():
    plan = make_plan(["alpha"])
    row = make_row(plan, 0)
    read = 0

    def rows() -> Iterator[Any]:
        nonlocal read
        for _ in range(2000):
            read += 1
            yield report_row(row, [])

    report = Report(
        plan=plan, phase=RunPhase.COMPLETED, started_at=None, finished_at=None,
        summary=make_bundle(plan, [row]).outcomes, bars=[], rows=rows(), tasks=(),
    )  # fmt: skip
    pieces = HtmlReport().render(report)
    next(pieces)
    assert 0 < read < 2000
    assert max(map(len, pieces)) < 200_000
    assert read == 2000


def test_what_warned_of_a_task_when_the_run_was_submitted_stands_above_its_figures():
    mark = Mark(workspace="ws", subject=f"ws/alpha#{'a' * 64}", verdict=Verdict.BAD, who="ann", why=HOSTILE, at=START)
    plan = make_plan(["alpha"], marks=(mark,))
    page = Page(draw(make_bundle(plan, [make_row(plan, 0, 1, 1.0)])))
    assert "1 mark warns of tasks in this run" in page.text
    assert "bad ws/alpha#aaaaaaaaaaaa" in page.text
    assert not any(page.all("img"))
    without = make_plan(["alpha"])
    assert "mark warns" not in draw(make_bundle(without, [make_row(without, 0, 1, 1.0)]))


def test_every_outcome_has_its_words_and_its_colour():
    from harbor_assets.report.formats import OUTCOME_WORDS, asset

    assert set(OUTCOME_WORDS) == set(Outcome)
    for outcome in Outcome:
        assert f".{outcome.value} {{ --of:" in asset("house.css")
