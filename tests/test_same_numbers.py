"""One run of twenty trials whose figures were worked by hand, and every place that shows them.

Five tasks, four attempts each; numbers are rewards, words are trials without one:

=====  =============  =============  ============  ============
task   k = 1          2              3             4
=====  =============  =============  ============  ============
a      1              1              1             1
b      1              0              1             0
c      0.5            0              sandbox lost  1
d      no reward      0              agent setup   worker lost
e      cancelled      deadline       never began   evicted
=====  =============  =============  ============  ============

**Counts.** Scored 4 + 4 + 3 + 1 = 12, infrastructure 3 (c3, d4, e4), and one each of the five others; together 20. Of
the tasks, four have a reward.

**Scored only.** The rewards sum to 4 + 2 + 1.5 + 0 = 7.5, so the mean is 7.5/12 = 0.625. Passes are rewards of 1: of
a 4 of 4 trials, of b 2 of 4, of c 1 of 3, of d 0 of 1. With the unbiased estimator 1 - C(n-c, k)/C(n, k):

- pass@1: (1 + 1/2 + 1/3 + 0)/4 = 11/24
- pass@2: a 1, b 1 - 1/6 = 5/6, c 1 - 1/3 = 2/3, d none, since 1 < 2: (1 + 5/6 + 2/3)/3 = 5/6
- pass@3: a, b and c 1: 1. pass@4: a and b 1: 1

The standard error is clustered by task. Sums less 0.625 a trial: a 1.5, b -0.5, c -0.375, d -0.625; their squares sum
to 3.03125; sqrt(4/3 * 3.03125)/12 = 0.167533. Student's quantile with 3 degrees is 3.182446, so 0.625 -+ 0.533163:
0.091837 to 1, where it is cut.

**Missing as zero.** The mean is 7.5/20 = 0.375. All tasks have four trials, with 4, 2, 1, 0, 0 passes:

- pass@1: (1 + 1/2 + 1/4)/5 = 0.35. pass@2: (1 + 5/6 + (1 - 3/6))/5 = 7/15
- pass@3: (1 + 1 + (1 - 1/4))/5 = 0.55. pass@4: (1 + 1 + 1)/5 = 0.6

Sums less 0.375 a trial: 2.5, 0.5, 0, -1.5, -1.5; squares 11; sqrt(5/4 * 11)/20 = 0.185405; with 4 degrees 2.776445,
so 0.375 -+ 0.514767: 0, where it is cut, to 0.889767.

**Money.** Every scored trial cost 0.25 dollars: 3 together. Of the others nobody knows, which is not 0.

**A side reward.** `speed` was given by a1 (2) and b1 (4) alone: its mean is 3, over two trials.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import pytest
from fastapi.testclient import TestClient

from harbor_assets.domain.bundle import Summary
from harbor_assets.domain.outcomes import Outcome, Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.policies import OutcomeSummary, Policy
from harbor_assets.events.bundles import bundle_metadata
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.backend import Backend
from harbor_assets.sdk import read_bundle
from harbor_assets.wiring import Services
from tests.cli.conftest import Cli
from tests.fakes.accounts import RUN_ID
from tests.fakes.matrix import MATRIX, twenty_trials

COUNTS = {
    "scored": 12,
    "verifier_failed": 1,
    "infra_failed": 3,
    "agent_setup_failed": 1,
    "cancelled": 1,
    "expired": 1,
    "not_started": 1,
}
COVERAGE = {"trials": 12, "tasks": 4, "of_trials": 20, "of_tasks": 5}
SCORED_ONLY = {"mean": 0.625, "1": Fraction(11, 24), "2": Fraction(5, 6), "3": 1, "4": 1}
MISSING_AS_ZERO = {"mean": 0.375, "1": 0.35, "2": Fraction(7, 15), "3": 0.55, "4": 0.6}
FOUR = re.compile(r"\d\.\d{4}\b")


@dataclass(frozen=True)
class Ended:
    """The run, settled by the real services of a home of its own."""

    services: Services
    cli: Cli

    def bundle(self, name: str) -> bytes:
        with self.services.evaluations.results.open_bundle_file("default", RUN_ID, name) as file:
            return file.read()

    def json(self, *words: str) -> Any:
        said = self.cli(*words, "--json")
        assert said.code == 0, said.err
        return said.json


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Ended]:
    with twenty_trials(tmp_path, monkeypatch) as services:
        services.engine.finish(RUN_ID, services.engine.settle(RUN_ID))
        yield Ended(services, Cli(monkeypatch, capsys))


def as_worked(account: OutcomeSummary) -> None:
    assert account.planned == 20
    assert {str(outcome): n for outcome, n in account.counts.items()} == COUNTS
    for policy, worked in (
        (account.policies.scored_only, SCORED_ONLY),
        (account.policies.missing_as_zero, MISSING_AS_ZERO),
    ):
        assert policy.coverage.model_dump() == COVERAGE
        assert policy.mean == worked["mean"]
        assert policy.pass_at_k == {k: pytest.approx(float(worked[k]), abs=1e-15) for k in "1234"}
    within(account.policies.scored_only, 0.091837, 1.0)
    within(account.policies.missing_as_zero, 0.0, 0.889767)


def within(policy: Policy, low: float, high: float) -> None:
    found = policy.mean_interval
    assert found
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    assert found.method == "student_clustered"


def test_the_account_is_as_worked_by_hand(ended: Ended):
    as_worked(OutcomeSummary.model_validate_json(ended.bundle("outcomes.json")))


def test_the_bundle_of_the_format_says_the_same(ended: Ended):
    summary = Summary.model_validate_json(ended.bundle("summary.json"))
    assert (summary.task_count, summary.trial_count, summary.error_count) == (5, 20, 8)
    reward, speed = (summary.aggregate(f"harbor_reward.{name}") for name in ("reward", "speed"))
    assert reward
    assert (reward.mean, reward.count, reward.nan_count) == (0.625, 12, 8)
    assert speed
    assert (speed.mean, speed.count) == (3.0, 2)
    for k in "1234":  # in the format a trial without a reward was tried and not passed
        found = summary.aggregate(f"harbor_reward.reward.pass@{k}")
        assert found
        assert found.mean == pytest.approx(float(MISSING_AS_ZERO[k]), abs=1e-15)


def test_every_row_is_there_once_with_its_outcome_and_reason(ended: Ended):
    rows = [json.loads(line) for line in ended.bundle("outcomes.jsonl").splitlines()]
    worked = [end for attempts in MATRIX.values() for end in attempts]
    assert [row["reward"] if row["outcome"] == "scored" else row["reason"] for row in rows] == worked
    tried = [json.loads(line) for line in ended.bundle("trials.jsonl").splitlines()]
    assert [line["metadata"]["reward"] for line in tried] == [None if isinstance(e, Reason) else e for e in worked]
    assert [line["error"]["type"] for line in tried if line["status"] == "failed"] == [
        e.value for e in worked if isinstance(e, Reason)
    ]


def test_the_command_line_says_the_same(ended: Ended):
    as_worked(OutcomeSummary.model_validate(ended.json("runs", "results", RUN_ID)["outcomes"]))
    lines = ended.cli("runs", "results", RUN_ID).out.splitlines()
    cells = [re.split(r"  +", line) for line in lines if line.startswith(("mean,", "pass@"))]
    shown = {name: " ".join(values) for name, *values in cells}
    assert shown.keys() == {
        f"{figure}, {policy}"
        for figure in ("mean", "pass@1", "pass@2", "pass@3", "pass@4")
        for policy in ("scored only", "missing as zero")
    }
    for policy, worked in (("scored only", SCORED_ONLY), ("missing as zero", MISSING_AS_ZERO)):
        for name, value in worked.items():
            line = shown[f"{name if name == 'mean' else f'pass@{name}'}, {policy}"]
            assert FOUR.findall(line)[0] == f"{float(value):.4f}"
            assert "12 of 20 trials, 4 of 5 tasks" in line
    assert "0.0918 to 1.0000" in shown["mean, scored only"]
    status = ended.json("runs", "status", RUN_ID)
    assert status["run"]["counts"] == COUNTS
    listed = ended.json("runs", "list")["data"][0]
    assert (listed["counts"], listed["n_trials"]) == (COUNTS, 20)
    tasks = {
        task["task"]: [t["reward"] for t in task["outcomes"]] for task in ended.json("runs", "tasks", RUN_ID)["data"]
    }
    assert tasks == {
        f"hello-{name}": [None if isinstance(end, Reason) else end for end in attempts]
        for name, attempts in MATRIX.items()
    }
    board = ended.cli("leaderboard")
    assert "0.6250" in board.out


def test_rest_and_the_leaderboard_say_the_same(ended: Ended):
    with TestClient(create_app(Backend.of(ended.services))) as client:
        runs = "/apis/evals/v2/workspaces/default/agent-evaluate/runs"
        status = client.get(f"{runs}/{RUN_ID}").json()
        assert status["run"]["counts"] == COUNTS
        as_worked(OutcomeSummary.model_validate(client.get(f"{runs}/{RUN_ID}/bundle/outcomes.json").json()))
    (line,) = ended.services.rankings.leaderboard("default").runs
    assert (line.mean, line.mean_missing_as_zero) == (0.625, 0.375)
    assert line.pass_at_k == {k: pytest.approx(float(SCORED_ONLY[k]), abs=1e-15) for k in "1234"}
    assert line.coverage.model_dump() == COVERAGE


def test_the_rows_of_the_database_give_the_same(ended: Ended):
    with duckdb.connect(str(ended.services.leaderboard.file_of("default")), read_only=True) as store:
        counted = store.execute("SELECT outcome, count(*) FROM trials GROUP BY outcome").fetchall()
        assert dict(counted) == COUNTS
        found = store.execute("SELECT avg(reward), sum(coalesce(reward, 0)) / count(*), sum(cost_usd) FROM trials")
        assert found.fetchall() == [(0.625, 0.375, 3.0)]


def test_the_report_shows_the_same(ended: Ended):
    text = " ".join(shown(ended.bundle("report.html").decode()).split())
    assert "12 of 20" in text
    for figure in (0.625, 0.375, *(float(SCORED_ONLY[k]) for k in "1234")):
        assert f"{figure:.4f}" in text
    for outcome, n in COUNTS.items():
        words = outcome.replace("_", " ").replace("infra ", "infrastructure ")
        assert re.search(rf"{words}\W+{n}\b|\b{n}\W+{words}", text), outcome


def shown(page: str) -> str:
    """A page's text without scripts and styles."""

    class Text(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[str] = []
            self.hidden = 0

        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.hidden += tag in ("script", "style")

        def handle_endtag(self, tag: str) -> None:
            self.hidden -= tag in ("script", "style")

        def handle_data(self, data: str) -> None:
            if not self.hidden:
                self.kept.append(data)

    text = Text()
    text.feed(page)
    return " ".join(text.kept)


def test_dagster_is_told_the_same(ended: Ended):
    run = ended.services.catalog.get_run(RUN_ID)
    rows = ended.services.catalog.outcomes(RUN_ID)
    told = bundle_metadata(run.plan, rows, phase=RunPhase.CANCELLED, state=ResultState.READY, place=lambda path: path)
    assert (told["mean"].value, told["mean_missing_as_zero"].value) == (0.625, 0.375)
    assert (told["trials_scored"], told["trials_planned"], told["tasks_scored"], told["tasks"]) == (12, 20, 4, 5)
    assert {name: told[f"outcome_{name}"] for name in COUNTS} == COUNTS


def test_every_check_of_it_passes_but_that_not_all_was_scored(ended: Ended):
    found = {finding.name: finding for finding in ended.services.engine.inspect(RUN_ID)}
    wrong = {name: finding.text for name, finding in found.items() if not finding.passed}
    assert wrong.keys() <= {"coverage", "digests_match"}
    assert found["coverage"].warning
    assert "scored 12 of 20 trials, 4 of 5 tasks" in found["coverage"].text


def test_it_reads_in_python_as_downloaded(ended: Ended, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert ended.cli("runs", "download", RUN_ID).code == 0
    found = read_bundle(tmp_path / RUN_ID / "agent-eval-results")
    assert found.outcome_summary
    as_worked(found.outcome_summary)
    assert sum(row.outcome is Outcome.SCORED for row in found.outcomes) == 12
