"""Submitting twice: after a service was killed in the middle, and by two clients at the same moment."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harbor_assets.domain.errors import IdempotencyConflict
from harbor_assets.domain.requests import Execution, RunRequest, SandboxRequest, Spec, TaskSelection
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.sdk import http
from harbor_assets.interfaces.sdk.evaluator import Evaluator
from tests.cli.conftest import Cli
from tests.interfaces.backends import World
from tests.interfaces.served import free_port, served

# A service that dies when the run is stored and its worker is to be started: before any answer.
DYING = """
import os, sys
from pathlib import Path
import uvicorn
from harbor_assets.interfaces.api.app import create_app
from tests.interfaces.backends import World
w = World(Path(sys.argv[1]))
w.executions.on_start = lambda run_id: os.kill(os.getpid(), 9)
uvicorn.run(create_app(w.backend), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
"""


def ask(taskset: str, cpus: float | None = None) -> RunRequest:
    execution = Execution(sandbox=SandboxRequest(cpus=cpus))
    return RunRequest(spec=Spec(tasks=TaskSelection(taskset=taskset)), execution=execution)


def test_a_service_killed_in_mid_submit_then_the_printed_key_gives_exactly_one_run(
    w: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    import re
    import time

    import httpx

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(http, "RETRY_PAUSES", (0.05,))
    ref, port = w.publish("a"), free_port()
    url = f"http://127.0.0.1:{port}"
    root = Path(__file__).parents[2]
    dying = subprocess.Popen([sys.executable, "-c", DYING, str(tmp_path), str(port)], cwd=root)
    try:
        until = time.monotonic() + 60
        while True:
            try:
                httpx.get(f"{url}/healthz", trust_env=False)
                break
            except httpx.TransportError:
                assert time.monotonic() < until
                time.sleep(0.05)
        cli = Cli(monkeypatch, capsys)
        said = cli("runs", "submit", "--taskset", ref, "--base-url", url)
        assert said.code == 1
        assert dying.wait(20) == -9
    finally:
        dying.kill()
        dying.wait()
    assert "Whether the run was accepted is not known" in said.err
    key = re.search(r"--idempotency-key (\S+)", said.err)
    assert key
    (before,) = w.catalog.list_runs().items
    with served(create_app(w.backend), port):
        again = cli("runs", "submit", "--taskset", ref, "--base-url", url, "--idempotency-key", key[1])
        assert again.code == 0
        assert f"Run {before.id} was accepted before with this key and request" in again.out
        changed = cli("runs", "submit", "--taskset", ref, "--base-url", url, "--idempotency-key", key[1], "-k", "2")
    assert changed.code == 9
    assert "changed: spec.target.n_attempts" in changed.err
    assert w.catalog.list_runs().total == 1


def test_two_submits_with_one_key_at_the_same_moment_are_one_run(w: World):
    ref = w.publish("a")
    answers: list[tuple[str, bool]] = []
    together = threading.Barrier(4)

    def submit() -> None:
        together.wait()
        done = w.evaluations.submit("default", ask(ref), idempotency_key="k")
        answers.append((done.run.id, done.created))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({run for run, _ in answers}) == 1
    assert sorted(created for _, created in answers) == [False, False, False, True]
    assert len(w.executions.started) == 1


def test_a_changed_request_is_refused_with_what_changed_over_the_wire(w: World):
    ref = w.publish("a")
    with served(create_app(w.backend)) as url, Evaluator(url) as evaluator:
        evaluator.runs.submit_request(ask(ref), idempotency_key="k")
        with pytest.raises(IdempotencyConflict, match=r"changed: execution\.sandbox\.cpus"):
            evaluator.runs.submit_request(ask(ref, cpus=2), idempotency_key="k")
