"""How long the service's pages take: an experiment of many evaluations, a run of many trials, a long leaderboard.

    uv run python tests/bench/bench_web.py [EVALUATIONS [TRIALS [LINES]]]

Of each page: seconds until the service has answered (median and worst of 20, over HTTP on this machine), its size, the
part of that which reading the same from the catalog or store takes alone, and seconds until a browser shows it.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx

from harbor_assets.domain.evaluation_lists import EVALUATION_FIELDS, IN_MEMORY_MAX
from harbor_assets.domain.experiments import DataType, EvaluationInput, EvaluatorResult, ExperimentInput, Session
from harbor_assets.domain.filters import Operator, condition
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.traces import Span, SpanKind
from harbor_assets.interfaces.api.app import create_app
from tests.chromium import CHROMIUM, browser
from tests.interfaces.backends import World
from tests.interfaces.served import served
from tests.web.scenes import begin, end_trial, finish, ranked_world, settle, submit

EVALUATIONS, TRIALS, LINES = [int(word) for word in sys.argv[1:]] + [1000, 1000, 100][len(sys.argv) - 1 :]
CASES, ASKED, OPENED = 5, 20, 3  # test cases of an evaluation; times a page is asked for; times it is opened


def fill_experiment(w: World) -> None:
    held = w.catalog.create_experiment("default", ExperimentInput(name="many"))
    for number in range(EVALUATIONS):
        name = f"evaluation-{number:05d}"
        w.catalog.create_evaluation("default", EvaluationInput(name=name, experiment_ids=[held.id], dataset_name="d"))
        for case in range(CASES):
            session = Session(
                session_id=f"{name}-{case}", evaluation=name, test_case_name=f"case-{case}",
                agent_name=f"a{number % 7}", model_name=f"m{number % 11}", started_at=datetime.now(UTC),
                latency_ms=1000.0 + number, prompt_tokens=100, completion_tokens=10,
                cost_usd=0.001 * (1 + number * 37 % 101),
            )  # fmt: skip
            value = float((number * 31 + case * 17) % 100) / 100
            result = EvaluatorResult(
                session_id=session.session_id, span_id="s", name="reward", data_type=DataType.NUMERIC, value=value
            )
            w.catalog.put_session("default", session, [Span(span_id="s", kind=SpanKind.AGENT)], [result])


def fill_run(w: World) -> str:
    run = submit(w, w.publish(*(f"task-{n:05d}" for n in range(TRIALS)), taskset="large"))
    begin(w, run)
    for index in range(TRIALS):
        end_trial(w, run, index, Reason.SANDBOX_LOST if index % 10 == 9 else float(index % 3 == 0), files={})
    finish(w, run)
    return run.id


def fill_board(w: World, folder: Path) -> None:
    ref = w.publish(*(f"small-{n}" for n in range(10)), taskset="small")
    for number in range(LINES):
        rewards = [float((number * 7 + task * 3) % 10 < 5) for task in range(10)]
        settle(w, folder, submit(w, ref), *rewards, minute=number, files={})


def timed(act: Callable[[], object], times: int = ASKED) -> list[float]:
    took: list[float] = []
    for _ in range(times):
        began = time.monotonic()
        act()
        took.append(time.monotonic() - began)
    return sorted(took)


def main() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, ranked_world(Path(name)) as w:
        folder = Path(name)
        fill_experiment(w)
        fill_board(w, folder)  # before the large run, which has no bundle to rank
        run_id = fill_run(w)
        run = w.catalog.get_run(run_id)
        held = w.catalog.get_experiment("default", "many")
        where = condition("experiment_id", "", Operator.EQ, held.id, fields=EVALUATION_FIELDS, workspace="default")
        sort = "-evaluators.reward.mean"
        rankings = w.rankings
        assert rankings is not None
        pages: list[tuple[str, str, str, Callable[[], object]]] = [
            (
                f"{EVALUATIONS} evaluations, sorted by reward",
                f"/experiments/default/many?sort={sort}",
                "Evaluations",
                lambda: w.catalog.list_evaluations("default", page_size=IN_MEMORY_MAX, sort=sort, where=where),
            ),
            (
                f"run of {TRIALS} trials",
                f"/runs/{run_id}",
                "What became of",
                lambda: w.evaluations.picture(w.catalog.get_run(run_id)).account(),
            ),
            (
                f"trial of that run, of {len(run.plan.tasks)}",
                f"/runs/{run_id}/tasks/5/trials/1",
                "What it rests on",
                lambda: w.evaluations.results.trial(w.catalog.get_run(run_id), 5, 1),
            ),
            (
                f"leaderboard of {LINES} runs",
                "/leaderboard?taskset=small",
                "Leaderboard",
                lambda: rankings.leaderboard("default", taskset="small"),
            ),
        ]
        print(f"{os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}")
        with served(create_app(w.backend)) as base, httpx.Client(base_url=base, timeout=120) as client:
            for title, path, words, read in pages:
                size = len(client.get(path).raise_for_status().content)
                took, alone = timed(lambda path=path: client.get(path)), timed(read)
                shown = ""
                if CHROMIUM is not None:
                    with browser(folder / f"profile-{len(title)}", "--window-size=1400,1000") as page:
                        opened = [page.opened(base + path, words) for _ in range(OPENED)]
                        shown = f"; shown after {statistics.median(opened):.2f} s"
                print(
                    f"{title}: {statistics.median(took):.3f} s (worst {took[-1]:.3f}), {size / 1e3:.0f} kB; "
                    f"reading alone {statistics.median(alone):.3f} s{shown} (load {os.getloadavg()[0]:.0f})"
                )


if __name__ == "__main__":
    main()
