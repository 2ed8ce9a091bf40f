"""What calls of the REST API take, client and server on one machine, and how many writers at once it bears.

    uv run python tests/bench/bench_catalog.py [TASKS] [CALLS]

`harbor-assets serve` on a fresh home with SQLite, or on the empty database that HARBOR_ASSETS_CATALOG_URL names; one
client over a kept connection. Beside each median: that of the reference service with 1,000 tasks, as it was measured,
and how many times faster this is. Tasks above 1,000 are copies made in the database (SQLite only).
"""

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.interfaces.served import free_port

TASKS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
CALLS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
FIRST = min(TASKS, 1000)
WRITERS, EACH = 50, 20
BASE = "/apis/evals/v2/workspaces/default"
REFERENCE = {  # milliseconds, medians with 1,000 tasks
    "create": 110.0,
    "get": 53.0,
    "list 100": 312.0,
    "list 1,000": 2300.0,
    "list 100, filtered and sorted": 659.0,
    "replace": 322.0,
    "taskset of 1,000 members": 44_000.0,
}


def body(n: int, words: str = "Answer the question") -> dict[str, Any]:
    """A task of the usual size."""
    return {
        "spec": {
            "kind": "evaluator",
            "intent": f"{words} {n}",
            "inputs": {"instruction": f"What is the capital of country {n}?"},
            "reference": {"expected": f"City {n}"},
        },
        "metadata": [{"key": "suite", "value": f"suite-{n % 10}"}, {"key": "number", "value": n}],
    }


@contextmanager
def service(home: Path) -> Iterator[httpx.Client]:
    """A server of its own process, and a client with a kept connection."""
    port = free_port()
    words = [sys.executable, "-m", "harbor_assets", "serve", "--port", str(port)]
    with subprocess.Popen(words, env={**os.environ, "HARBOR_ASSETS_HOME": str(home)}, stderr=subprocess.DEVNULL) as run:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as http:
                while True:
                    try:
                        http.get("/healthz")
                        break
                    except httpx.TransportError:
                        time.sleep(0.1)
                yield http
        finally:
            run.terminate()


def timed(name: str, calls: int, call: Callable[[int], httpx.Response]) -> None:
    """Print the median of a call."""
    call(-1)  # the first pays for connections and caches
    taken: list[float] = []
    for n in range(calls):
        begin = time.perf_counter()
        answer = call(n)
        taken.append(time.perf_counter() - begin)
        assert answer.is_success, answer.text[:300]
    middle, theirs = statistics.median(taken) * 1000, REFERENCE[name]
    spread = f"{min(taken) * 1000:.1f} to {max(taken) * 1000:.1f}"
    print(f"{name:<32} {middle:9.1f} ms ({spread})   reference {theirs:8.0f} ms   {theirs / middle:6.1f} times faster")


def multiply(home: Path, copies: int) -> None:
    """Copy every task so many times, with names and ids of their own."""
    with sqlite3.connect(home / "catalog.db") as database:
        database.execute(
            "CREATE TEMP TABLE n AS "
            "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < ?) SELECT i FROM c",
            (copies,),
        )
        for table, key in (("tasks", "id"), ("task_revisions", "record_id"), ("task_facts", "record_id")):
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            said = [f"{c} || '-' || n.i" if c in (key, "name") else c for c in columns]
            database.execute(f"INSERT INTO {table} SELECT {', '.join(said)} FROM {table}, n")
    database.close()


def writers(http: httpx.Client) -> None:
    """Many clients that write at once, each names of its own and one that all share."""
    statuses: list[int] = []

    def write(writer: int) -> None:
        with httpx.Client(base_url=http.base_url, timeout=300, trust_env=False) as client:
            for n in range(EACH):
                name = "shared" if n % 5 == 0 else f"w{writer}-{n}"
                statuses.append(client.put(f"{BASE}/tasks/{name}", json=body(writer * 1000 + n)).status_code)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - begin
    wrong = [status for status in statuses if status not in (200, 201)]
    print(f"{WRITERS} writers at once: {len(statuses) / taken:.0f} requests a second, {len(wrong)} errors")


def main() -> None:
    print(f"{TASKS} tasks, {os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        with service(home) as http:
            for n in range(FIRST):
                http.post(f"{BASE}/tasks/t{n:04}", json=body(n)).raise_for_status()
        if TASKS > FIRST:
            multiply(home, TASKS // FIRST - 1)
        with service(home) as http:
            names = [f"t{n:04}" for n in range(FIRST)]
            asked = '{"metadata.suite": "suite-3", "kind": "evaluator"}'
            timed("create", CALLS, lambda n: http.post(f"{BASE}/tasks/new{n}", json=body(n)))
            timed("get", CALLS, lambda n: http.get(f"{BASE}/tasks/{names[n]}"))
            timed("list 100", CALLS, lambda n: http.get(f"{BASE}/tasks?page_size=100"))
            timed("list 1,000", CALLS, lambda n: http.get(f"{BASE}/tasks?page_size=1000"))
            timed("list 100, filtered and sorted", CALLS,
                  lambda n: http.get(f"{BASE}/tasks", params={"filter": asked, "sort": "-name"}))  # fmt: skip
            timed("replace", CALLS, lambda n: http.put(f"{BASE}/tasks/{names[n]}", json=body(n, "Something else")))
            suite = {"tasks": names}
            timed(
                "taskset of 1,000 members", max(3, CALLS // 4), lambda n: http.post(f"{BASE}/tasksets/s{n}", json=suite)
            )
            writers(http)


if __name__ == "__main__":
    main()
