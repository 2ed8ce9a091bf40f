"""What a page of an experiment costs: 1,000 evaluations of SESSIONS trials each.

    uv run python tests/bench/bench_experiments.py [EVALUATIONS] [SESSIONS] [CALLS]

`harbor-assets serve` on a fresh home with SQLite; one client over a kept connection. The rows are written into the
database as the catalog would write them. Cold: no figures are kept, all are computed from the sessions; warm: as they
are from then on, and after one evaluation has changed.
"""

import json
import sqlite3
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from harbor_assets.catalog import open_catalog
from harbor_assets.domain.experiments import EvaluationInput, EvaluatorResult, ExperimentInput, Session
from harbor_assets.domain.traces import Span, SpanKind
from tests.bench.bench_catalog import service

EVALUATIONS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
SESSIONS = int(sys.argv[2]) if len(sys.argv) > 2 else 100
CALLS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
BASE = "/apis/intake/v2/workspaces/default"
NOW = datetime(2026, 11, 30, tzinfo=UTC)
SCORE = "evaluators.harbor_reward.reward.mean"


def trial(evaluation: str, number: int) -> tuple[Session, list[Span], list[EvaluatorResult]]:
    """A session with a trace of 30 steps and two results."""
    key = f"{evaluation}:t{number}__1"
    spans = [Span(span_id="agent", kind=SpanKind.AGENT, started_at=NOW)] + [
        Span(span_id=f"agent/{n}", parent_span_id="agent", kind=SpanKind.MODEL, output="word " * 100) for n in range(30)
    ]
    results = [
        EvaluatorResult.model_validate(
            {"session_id": key, "span_id": "agent", "name": f"harbor_reward.{name}", "data_type": "NUMERIC", "value": n}
        )
        for n, name in ((number % 2, "reward"), (1, "format_ok"))
    ]
    session = Session(
        session_id=key,
        evaluation=evaluation,
        test_case_name=f"org/t{number}",
        agent_name="codex",
        started_at=NOW,
        latency_ms=1000.0 * number,
        prompt_tokens=1000,
        completion_tokens=100,
        cost_usd=0.25,
    )
    return session, spans, results


def fill(home: Path) -> str:
    """The experiment's id. The trials of one evaluation are put by the catalog, those of the others copied."""
    catalog = open_catalog(f"sqlite:///{home / 'catalog.db'}")
    with catalog:
        experiment = catalog.create_experiment("default", ExperimentInput(name="bench")).id
        for n in range(EVALUATIONS):
            body = EvaluationInput(name=f"run-{n}", experiment_ids=[experiment], dataset_name="suite")
            catalog.create_evaluation("default", body)
        begin = time.perf_counter()
        for n in range(SESSIONS):
            catalog.put_session("default", *trial("run-0", n))
        each = (time.perf_counter() - begin) / SESSIONS
        print(f"{'a trial is put, with 31 spans and 2 results':<58} {each * 1000:9.1f} ms")
    with sqlite3.connect(home / "catalog.db") as database:
        ids = [row[0] for row in database.execute("SELECT id FROM evaluations WHERE name != 'run-0'")]
        copy(database, "sessions", ids, {"id": "id || ?", "session_id": "session_id || ?", "evaluation_id": "?"})
        copy(database, "evaluator_results", ids, {"id": "id || ?", "session": "session || ?"})
    return experiment


def copy(database: sqlite3.Connection, table: str, ids: list[str], changed: dict[str, str]) -> None:
    """The rows of `run-0` for every other evaluation; `?` is its id."""
    database.execute(f"CREATE TEMP TABLE first AS SELECT * FROM {table}")
    names = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    values = ", ".join(changed.get(name, name) for name in names)
    for key in ids:
        given = [key if changed[name] == "?" else key[-8:] for name in names if name in changed]
        database.execute(f"INSERT INTO {table} SELECT {values} FROM first", given)
    database.execute("DROP TABLE first")


def timed(name: str, http: httpx.Client, path: str, **params: Any) -> None:
    """Print the best and the worst of a call, and the size of its answer."""
    taken: list[float] = []
    size = 0
    for _ in range(CALLS):
        begin = time.perf_counter()
        answer = http.get(f"{BASE}/{path}", params=params)
        taken.append((time.perf_counter() - begin) * 1000)
        assert answer.status_code == 200, answer.text
        size = len(answer.content)
    print(f"{name:<58} {min(taken):9.1f} ms ({max(taken):.1f} at worst), {size / 1000:,.0f} kB")


def main() -> None:
    """Fill, then ask."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        experiment = fill(home)
        print(f"{EVALUATIONS} evaluations of {SESSIONS} sessions, {EVALUATIONS * SESSIONS * 2:,} results")
        with service(home) as http:
            within = json.dumps({"experiment_id": experiment})
            begin = time.perf_counter()
            first = http.get(f"{BASE}/evaluations", params={"filter": within, "page_size": 1000})
            assert first.status_code == 200, first.text
            print(f"{'a page of 1,000, nothing kept':<58} {(time.perf_counter() - begin) * 1000:9.1f} ms")
            timed("a page of 1,000", http, "evaluations", filter=within, page_size=1000)
            timed("a page of 100", http, "evaluations", filter=within)
            timed("a page of 100 by mean reward", http, "evaluations", filter=within, sort=f"-{SCORE}")
            half = json.dumps({"experiment_id": experiment, SCORE: {"$gte": 0.5}})
            timed("a page of 100 with a mean reward of at least 0.5", http, "evaluations", filter=half)
            for n in range(10):
                body = {"session_id": "run-0:t0__1", "span_id": "agent", "data_type": "NUMERIC", "value": 0.5}
                answer = http.post(f"{BASE}/evaluator-results", json=body | {"name": f"late-{n}"})
                assert answer.status_code == 201, answer.text
            timed("a page of 100 by mean reward, one changed", http, "evaluations", filter=within, sort=f"-{SCORE}")
            timed("the experiments", http, "experiments")
            timed("an evaluation", http, "evaluations/run-0")
            timed("a page of 100 sessions", http, "evaluations/run-0/sessions")
            timed("a trace of 31 spans", http, "sessions/run-0:t0__1/spans")


if __name__ == "__main__":
    main()
