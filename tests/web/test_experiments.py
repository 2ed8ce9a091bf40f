"""The pages of experiments, evaluations and sessions."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from harbor_assets.domain.experiments import (
    DataType,
    EvaluationInput,
    EvaluatorResult,
    ExperimentInput,
    Pareto,
    Session,
)
from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.traces import Span, SpanKind
from tests.interfaces.backends import World
from tests.web.browser import HOSTILE
from tests.web.conftest import Known, Visitor
from tests.web.test_runs import rows

AT = datetime(2026, 11, 29, tzinfo=UTC)
RUN = "run-0123456789abcdef"


def evaluation(
    w: World,
    name: str,
    scores: Sequence[float | None],
    cost: float | None = None,
    *,
    experiment: str = "weekly",
    **more: str,
) -> None:
    """An evaluation of a test case for each score; None: that one has no result."""
    held = w.catalog.get_experiment("default", experiment)
    body = EvaluationInput(name=name, experiment_ids=[held.id], dataset_name="suite", metadata={"run_id": RUN}, **more)
    w.catalog.create_evaluation("default", body, created_by="ann")
    for index, score in enumerate(scores):
        session = Session(
            session_id=f"{RUN}:{name}-{index}", evaluation=name, test_case_name=f"case-{index}", agent_name=name,
            model_name="a-model", started_at=AT, latency_ms=1500.0, cost_usd=cost, prompt_tokens=100,
            completion_tokens=7, metadata={"run_id": RUN, "task_index": str(index), "attempt": "1"},
        )  # fmt: skip
        result = EvaluatorResult(
            session_id=session.session_id,
            span_id="root",
            name="harbor.reward",
            data_type=DataType.NUMERIC,
            value=score or 0.0,
        )
        spans = [
            Span(span_id="root", kind=SpanKind.AGENT),
            Span(span_id="m", kind=SpanKind.TOOL, name="bash", input="ls"),
        ]
        w.catalog.put_session("default", session, spans, [] if score is None else [result])


@pytest.fixture
def weekly(w: World) -> World:
    w.catalog.create_experiment("default", ExperimentInput(name="weekly", description="Every week."), created_by="ann")
    evaluation(w, "cheap", [1.0, 0.0], 0.01)
    evaluation(w, "dear", [1.0, 1.0], 0.50)
    evaluation(w, "beaten", [1.0, 0.0], 0.30)
    evaluation(w, "unknown", [1.0, None])
    return w


def names(visitor: Visitor, query: str) -> list[str]:
    page = visitor.see(f"/experiments/default/weekly?{query}")
    (table,) = [at for at, each in enumerate(page.all("table")) if "pinned ones stand first" in each.text]
    return [row[0].split()[0] for row in rows(page, table)]


def test_the_first_page_lists_the_experiments(visitor: Visitor, w: World):
    for path in ("/", "/experiments"):
        assert "harbor-assets experiments create" in visitor.see(path).text
    w.catalog.create_experiment("default", ExperimentInput(name="weekly", description="Every week."), created_by="ann")
    for path in ("/", "/experiments"):
        page = visitor.see(path)
        assert rows(page)[0][:4] == ["weekly", "Every week.", "0", "ann"]
        assert "/experiments/default/weekly" in page.links()
    assert "--experiment weekly" in visitor.see("/experiments/default/weekly").text


def test_an_experiment_shows_the_catalogs_own_figures(visitor: Visitor, weekly: World):
    page = visitor.see("/experiments/default/weekly?sort=name")
    table = next(each for each in page.all("table") if "pinned ones stand first" in each.text)
    found = {row[0].split()[0]: row for row in rows(page, page.all("table").index(table))}
    held = weekly.catalog.get_evaluation("default", "unknown")
    assert found["unknown"][5] == f"{held.aggregate_scores['harbor.reward'].mean:.4f} 1 of 2" == "0.5000 1 of 2"
    assert found["unknown"][6] == "–"
    assert found["dear"][5:10] == ["1.0000 2 of 2", "$1.00", "214", "1.5 s", "2"]
    assert f"/runs/{RUN}" in page.links()
    assert page.all("th")[[th.text for th in page.all("th")].index("Evaluation ↑")].get("aria-sort") == "ascending"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("sort=name", ["beaten", "cheap", "dear", "unknown"]),
        ("sort=-cost_usd.sum", ["dear", "beaten", "cheap", "unknown"]),
        ("sort=cost_usd.sum", ["cheap", "beaten", "dear", "unknown"]),
        ("sort=-evaluators.harbor.reward.mean&q=EA", ["dear", "beaten", "cheap"]),
        ("sort=name&agent=dear", ["dear"]),
        ("sort=name&q=ea&agent=cheap&model=a-model&dataset=suite", ["cheap"]),
    ],
)
def test_evaluations_are_sorted_and_chosen_by_the_address(
    visitor: Visitor, weekly: World, query: str, expected: list[str]
):
    assert names(visitor, query) == expected


def test_pinned_ones_stand_first_and_pages_keep_the_order(
    visitor: Visitor, weekly: World, monkeypatch: pytest.MonkeyPatch
):
    weekly.catalog.pin_evaluation("default", "unknown", True)
    monkeypatch.setattr("harbor_assets.interfaces.web.experiments.EVALUATIONS_PAGE", 3)
    assert names(visitor, "sort=name") == ["unknown", "beaten", "cheap"]
    assert names(visitor, "sort=name&page=2") == ["dear"]
    links = visitor.see("/experiments/default/weekly?sort=name&q=e").links()
    assert "/experiments/default/weekly?sort=name&q=e&page=2" in links or not any("page=2" in link for link in links)
    assert "No evaluation matches" in visitor.see("/experiments/default/weekly?q=nothing").text
    page = visitor.see("/experiments/default/weekly?sort=cost", 400)
    assert "/experiments/default/weekly" in page.links()
    assert "cannot be sorted by" in page.text


def test_the_plot_is_told_in_words_and_leads_to_each(visitor: Visitor, weekly: World):
    page = visitor.see("/experiments/default/weekly")
    drawing = page.one("svg")
    assert drawing.get("aria-label") == (
        "harbor.reward, mean against cost in US dollars, mean. 3 points. None is better in both figures than: "
        "cheap with 0.5 at 0.01; dear with 1 at 0.5"
    )
    assert len(drawing.all("circle")) == 3
    assert [row[0] for row in rows(page)] == ["cheap", "dear"]
    assert "/evaluations/default/dear" in page.links()


def test_an_experiment_says_itself_what_is_plotted(visitor: Visitor, w: World):
    for name, pareto in (
        ("own", Pareto(x_metric="latency_ms.mean", y_metric="evaluators.harbor.reward.p90")),
        ("odd", Pareto(x_metric="nothing", y_metric="name")),
    ):
        w.catalog.create_experiment("default", ExperimentInput(name=name, pareto=pareto))
        evaluation(w, f"of-{name}", [1.0], 0.1, experiment=name)
    told = visitor.see("/experiments/default/own").one("svg").get("aria-label")
    assert told.startswith("harbor.reward, p90 against time in ms, mean")
    assert not visitor.see("/experiments/default/odd").all("svg")


def test_an_evaluation_with_its_sessions_that_lead_to_trials(visitor: Visitor, weekly: World):
    page = visitor.see("/evaluations/default/dear")
    assert rows(page)[0][:2] == ["harbor.reward", "1.0000"]
    sessions = rows(page, 1)
    assert [row[0] for row in sessions] == ["case-0", "case-1"]
    assert sessions[0][2] == "harbor.reward 1.0000"
    assert sessions[0][4:] == ["107", "$0.5000", "1.5 s"]
    assert {f"/runs/{RUN}", f"/runs/{RUN}/tasks/1/trials/1", f"/sessions/default/{RUN}%3Adear-1"} <= set(page.links())
    page = visitor.see(f"/sessions/default/{RUN}:dear-1")
    assert "tool bash" in page.text
    assert f"/runs/{RUN}/tasks/1/trials/1" in page.links()
    for path in ("/experiments/default/x", "/evaluations/default/x", "/sessions/default/x"):
        visitor.see(path, 404)


def test_evaluations_of_marked_runs_say_so(visitor: Visitor, weekly: World):
    said = Mark(workspace="default", subject=RUN, verdict=Verdict.BAD, who="ann", why="the wrong key", at=AT)
    weekly.catalog.put_mark(said)
    page = visitor.see("/experiments/default/weekly")
    assert f"bad {RUN} : the wrong key (ann," in page.text
    assert " stale" in " ".join(next(row for row in rows(page, 1) if row[0].startswith("cheap")))
    for path in ("/evaluations/default/cheap", f"/sessions/default/{RUN}:cheap-1"):
        text = visitor.see(path).text
        assert "the wrong key (ann," in text
        assert " stale" in text


def test_metadata_that_names_no_run_of_ours_leads_nowhere(visitor: Visitor, w: World):
    w.catalog.create_experiment("default", ExperimentInput(name="weekly"))
    held = w.catalog.get_experiment("default", "weekly")
    body = EvaluationInput(name="e", experiment_ids=[held.id], dataset_name="d", metadata={"run_id": "//evil.example"})
    w.catalog.create_evaluation("default", body)
    session = Session(
        session_id="s", evaluation="e", started_at=AT, metadata={"run_id": RUN, "task_index": "²", "attempt": ""}
    )
    w.catalog.put_session("default", session)
    links = visitor.see("/evaluations/default/e").links()
    assert not [link for link in links if "evil" in link or "/trials/" in link]


def test_hostile_texts_of_experiments_do_nothing(visitor: Visitor, w: World):
    plain = HOSTILE.replace("\u202e", "").replace("\x1b", "")  # labels hold printable characters only
    w.catalog.create_experiment(
        "default", ExperimentInput(name="weekly", description=HOSTILE, summary=HOSTILE, metadata={"k": HOSTILE})
    )
    held = w.catalog.get_experiment("default", "weekly")
    body = EvaluationInput(
        name="e", experiment_ids=[held.id], dataset_name=plain, dataset_version=plain,
        source_link="javascript:alert(1)", description=HOSTILE, status=plain, root_cause=HOSTILE,
        metadata={"k": HOSTILE},
    )  # fmt: skip
    w.catalog.create_evaluation("default", body, created_by=HOSTILE)
    session = Session(
        session_id="s", evaluation="e", test_case_name=plain, agent_name=plain, model_name=plain, started_at=AT,
        cost_usd=1.0, error_type=plain, error_message=HOSTILE, final_message=HOSTILE, metadata={"k": HOSTILE},
    )  # fmt: skip
    numbers = EvaluatorResult(
        session_id="s", span_id="r", name=plain, data_type=DataType.NUMERIC, value=1.0, comment=HOSTILE
    )
    words = EvaluatorResult(session_id="s", span_id="r", name="w", data_type=DataType.TEXT, string_value=HOSTILE)
    span = Span(span_id="r", name=HOSTILE, input=HOSTILE, output=HOSTILE, model_name=HOSTILE)
    w.catalog.put_session("default", session, [span], [numbers, words])
    for path in ("/", "/experiments", "/experiments/default/weekly", "/evaluations/default/e", "/sessions/default/s"):
        page = visitor.see(path)
        assert "<script>alert" not in page.html
        assert "\u202e" not in page.html
        assert "\x1b" not in page.html
        assert not page.all("img")
        assert "javascript:alert(1)" not in page.links()


def test_experiments_of_a_workspace_need_its_reader(weekly: World):
    known = Known()
    for path in ("/experiments/default/weekly", "/evaluations/default/dear", f"/sessions/default/{RUN}:dear-0"):
        assert Visitor(weekly, known, "reader").ask(path).status_code == 200
        assert "does not have the role" in Visitor(weekly, known, "elsewhere").see(path, 403).text
    assert "weekly" not in Visitor(weekly, known, "elsewhere").see("/").text
