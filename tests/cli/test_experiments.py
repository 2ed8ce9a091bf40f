"""`experiments` and `evaluations`: what they make, show, ask and refuse."""

import json

import pytest

from harbor_assets.domain.experiments import EvaluationInput, EvaluatorResult, Session
from harbor_assets.domain.traces import Span
from tests.cli.conftest import Cli
from tests.interfaces.backends import NOW, World

REWARD = "harbor_reward.reward"


@pytest.fixture
def filled(cli: Cli, w: World) -> str:
    """An experiment with two evaluations, the better one also dearer; its id."""
    made = cli("experiments", "create", "harbor-runs", "--json").json["id"]
    for name, rewards, cost in (("codex-run-1", (1.0, 1.0), 0.25), ("oracle-run-1", (1.0, None), None)):
        w.catalog.create_evaluation(
            "default", EvaluationInput(name=name, experiment_ids=[made], dataset_name="suite", dataset_version="3f9a")
        )
        for number, reward in enumerate(rewards):
            timed = {"latency_ms": 65_000} if reward is not None else {"error_type": "AgentTimeoutError"}
            session = Session.model_validate(
                {
                    "session_id": f"{name}:t{number}__1",
                    "evaluation": name,
                    "test_case_name": f"org/t{number}",
                    "agent_name": name.partition("-")[0],
                    "started_at": NOW,
                    "cost_usd": cost,
                    **timed,
                }
            )
            result = {"session_id": session.session_id, "span_id": "agent", "name": REWARD, "data_type": "NUMERIC"}
            results = [] if reward is None else [EvaluatorResult.model_validate(result | {"value": reward})]
            w.catalog.put_session("default", session, [Span(span_id="agent")], results)
    return made


def test_an_experiment_is_made_once_or_is_there(cli: Cli):
    made = cli("experiments", "create", "harbor-runs", "--description", "nightly")
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith("Created experiment default/harbor-runs\n")
    assert "harbor-assets runs submit --experiment harbor-runs" in made.out
    again = cli("experiments", "create", "harbor-runs")
    assert (again.code, again.out) == (2, "")
    assert "--exist-ok" in again.err
    there = cli("experiments", "create", "harbor-runs", "--exist-ok", "--json")
    assert (there.code, there.json["created"], there.json["description"]) == (0, False, "nightly")
    listed = cli("experiments", "list").out
    assert listed.splitlines()[1].split()[:2] == ["harbor-runs", "0"]
    bad = cli("experiments", "create", "a/b/c")
    assert bad.code == 2
    worse = cli("experiments", "create", "x", "--default-sort", "cost_usd.avg")
    assert worse.code == 2
    assert "default_sort" in worse.err


def test_an_experiment_shows_its_evaluations_with_figures_and_what_they_are_over(cli: Cli, filled: str):
    shown = cli("experiments", "show", "harbor-runs", "--sort", f"-evaluators.{REWARD}.mean")
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("NAME"))
    best, other = lines[header + 1 : header + 3]
    assert lines[header].split()[:6] == ["NAME", "AGENT", "MODEL", "REWARD", "CASES", "SESSIONS"]
    assert best.split()[:6] == ["codex-run-1", "codex", "-", "1.0000", "2/2", "2"]
    assert "$0.2500" in best
    assert "1 min 05 s" in best
    assert other.split()[:6] == ["oracle-run-1", "oracle", "-", "0.5000", "1/2", "2"]
    assert "$" not in other  # nobody reported a cost
    assert "+" not in best
    assert "1 min 05 s+" in other  # of one case only
    assert lines[header].split()[6:9] == ["COST/CASE", "TIME/CASE", "TOKENS/CASE"]
    assert lines[header + 3].startswith("Here a case without a result counts as 0 in an evaluator's mean; ")
    assert "'harbor-assets runs results RUN_ID'" in lines[header + 3]
    whole = cli("experiments", "show", "harbor-runs", "--json").json
    assert (whole["id"], whole["evaluation_count"]) == (filled, 2)
    assert [one["name"] for one in whole["evaluations"]["data"]] == ["oracle-run-1", "codex-run-1"]  # newest first
    assert whole["evaluations"]["data"][0]["aggregate_scores"][REWARD]["count"] == 1
    one = cli("experiments", "show", "harbor-runs", "--page-size", "1")
    assert "1 of 2 evaluations" in one.err
    wrong = cli("experiments", "show", "harbor-runs", "--sort", "cost")
    assert (wrong.code, wrong.out) == (2, "")


def test_where_evaluators_cover_different_cases_each_mean_says_its_own(cli: Cli, w: World, filled: str):
    session = "codex-run-1:t0__1"
    result = {"session_id": session, "span_id": "agent", "name": "mine.style", "data_type": "NUMERIC", "value": 0.5}
    w.catalog.put_evaluator_result("default", EvaluatorResult.model_validate(result))
    header, best, other, *_ = cli("evaluations", "list", "--sort", "name").out.splitlines()
    assert header.split()[3:6] == ["REWARD", "STYLE", "CASES"]
    assert best.split()[3:8] == ["1.0000", "(2/2)", "0.2500", "(1/2)", "2"]
    assert other.split()[3:7] == ["0.5000", "(1/2)", "-", "2"]


def test_an_empty_experiment_says_how_to_fill_it(cli: Cli):
    cli("experiments", "create", "harbor-runs")
    shown = cli("experiments", "show", "harbor-runs")
    assert shown.code == 0
    assert "runs submit --experiment harbor-runs" in shown.err
    missing = cli("experiments", "show", "harbor-run")
    assert missing.code == 2
    assert "did you mean harbor-runs?" in missing.err


def test_evaluations_are_listed_shown_and_pinned(cli: Cli, filled: str):
    rows = cli("evaluations", "list", "--experiment", "harbor-runs", "--sort", "name").out.splitlines()
    assert [row.split()[0] for row in rows[1:3]] == ["codex-run-1", "oracle-run-1"]
    few = cli("evaluations", "list", "--filter", f"evaluators.{REWARD}.mean>=0.9", "--json").json
    assert [one["name"] for one in few["data"]] == ["codex-run-1"]
    pinned = cli("evaluations", "pin", "oracle-run-1")
    assert pinned.out == "Pinned evaluation default/oracle-run-1\n"
    rows = cli("evaluations", "list", "--sort", "name").out.splitlines()
    assert rows[1].startswith("oracle-run-1 (pinned)")
    assert cli("evaluations", "unpin", "oracle-run-1", "--json").json["pinned_at"] is None
    shown = cli("evaluations", "show", "oracle-run-1")
    assert shown.code == 0, shown.err
    assert "Dataset:     suite@3f9a" in shown.out
    assert "Sessions:    2 of 2 test cases" in shown.out
    assert "AgentTimeoutError" in shown.out
    figure = next(line for line in shown.out.splitlines() if line.startswith(REWARD))
    assert figure.split() == [REWARD, "0.5000", "0.5000", "1.0000", "0.0000", "1.0000", "1/2", "-"]
    sessions = json.loads(cli("evaluations", "show", "codex-run-1", "--json").out)["sessions"]
    assert [one["evaluator_scores"] for one in sessions["data"]] == [{REWARD: 1.0}, {REWARD: 1.0}]
    nothing = cli("evaluations", "list", "--filter", 'name:"x"')
    assert "There are no evaluations that the filter fits" in nothing.err


def test_what_is_deleted_is_asked_for_first(cli: Cli, filled: str):
    asked = cli("experiments", "delete", "harbor-runs")
    assert asked.code == 2
    assert "experiments delete default/harbor-runs --yes" in asked.err
    gone = cli("evaluations", "delete", "codex-run-1", "--yes")
    assert gone.out == "Deleted evaluation default/codex-run-1\n"
    assert cli("evaluations", "delete", "codex-run-1", "--yes").code == 2
    assert cli("experiments", "delete", "harbor-runs", "--yes", "--json").json == {"deleted": "default/harbor-runs"}
    assert cli("evaluations", "list", "--json").json["data"] == []
    assert cli("experiments", "list", "--json").json["data"] == []


def test_a_run_that_goes_on_in_an_experiment_is_named_before_it_is_deleted(cli: Cli, w: World):
    cli("experiments", "create", "nightly")
    submit = ("runs", "submit", "--taskset", w.publish("a"), "--agent", "nop", "--experiment", "nightly", "--json")
    run_id = cli(*submit).json["run"]["id"]
    assert f"Evaluation: nop-{run_id} in Experiment nightly" in cli("runs", "status", run_id).out
    gone = cli("experiments", "delete", "nightly", "--yes", "--json")
    assert (gone.code, gone.json) == (0, {"deleted": "default/nightly"})
    assert f"1 run goes on: {run_id}" in gone.err
    assert "harbor-assets experiments create default/nightly" in gone.err
    assert f"harbor-assets runs publish {run_id}" in gone.err


def test_an_experiment_in_which_nothing_goes_on_is_deleted_without_a_warning(cli: Cli):
    cli("experiments", "create", "nightly")
    assert cli("experiments", "delete", "nightly", "--yes").err == ""
