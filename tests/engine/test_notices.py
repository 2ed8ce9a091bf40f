"""Who is told what of ended runs: with a real catalog, and a real HTTP server that fails first."""

import json
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.domain.notices import Event, Format, regression
from harbor_assets.domain.outcomes import Reason
from harbor_assets.domain.phases import ResultState, RunPhase
from harbor_assets.domain.requests import RunRequest
from harbor_assets.engine.notice_ports import Undelivered
from harbor_assets.engine.notices import OVERLAP, PAUSE_SECONDS, TRIES_MAX, Notices, Told
from harbor_assets.settings.parsing import WEBHOOK_EVENTS
from harbor_assets.webhook import Webhook
from tests.interfaces.backends import NOW, World, outcome, world

SECRET = "hook-s3cr3t"


class Hook:
    """A webhook: `answers` are its next ones, then it takes everything."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.got: list[tuple[dict[str, str], dict[str, Any]]] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = hook.answers.pop(0) if hook.answers else 200
                if status == 200:
                    hook.got.append((dict(self.headers), json.loads(body)))
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"http://127.0.0.1:{hook.server.server_port}/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/{SECRET}"

    @property
    def ids(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.got]


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def w(tmp_path: Path) -> Iterator[World]:
    with world(tmp_path) as made:
        made.publish(*(f"t{number:02}" for number in range(12)))
        yield made


class Clock:
    now = NOW

    def __call__(self) -> datetime:
        return self.now


def notices(w: World, hook: Hook, clock: Clock | None = None, form: Format = "generic", **more: Any) -> Notices:
    return Notices(
        runs=w.catalog,
        ended=w.catalog,
        mentions=w.catalog,
        keys=w.catalog,
        messenger=Webhook(hook.url, form, timeout=2),
        **{"events": list(Event), "clock": clock or Clock(), "sleep": lambda seconds: None, **more},
    )


def run(w: World, *endings: float | Reason, agent: str = "oracle", key: str | None = None) -> str:
    asked = {"spec": {"tasks": {"taskset": "suite"}, "target": {"source": {"name": agent}}}}
    run_id = w.evaluations.submit("default", RunRequest.model_validate(asked), idempotency_key=key).run.id
    if endings:
        w.end(run_id, *endings)
    return run_id


GOOD, BAD, LOST = (1.0,) * 12, (0.0,) * 12, (Reason.WORKER_LOST,) * 12


def test_the_settings_name_the_events_that_there_are() -> None:
    assert list(WEBHOOK_EVENTS) == list(Event)


def test_what_has_ended_is_told_once_after_failures_with_pauses(w: World, hook: Hook) -> None:
    clock = Clock()
    told = Told.read(None, NOW)
    telling = notices(w, hook, clock)
    run_id = run(w, *GOOD, key="benchmark/nightly/2026-11-28")
    run(w)  # goes on
    hook.answers = [500, 302]
    told, lines = telling.follow(told)
    assert lines == [f"{run_id}/ended: try 1 failed, the next in 5 s: the webhook answered 500"]
    assert telling.follow(told)[1] == []  # not due
    clock.now += timedelta(seconds=PAUSE_SECONDS)
    told, lines = telling.follow(Told.read(told.model_dump_json(), NOW))
    assert "try 2 failed, the next in 10 s: the webhook answered 302" in lines[0]
    clock.now += timedelta(seconds=10)
    told, lines = telling.follow(told)
    assert lines == [f"{run_id}/ended: sent"]
    assert telling.follow(told)[1] == []
    ((headers, body),) = hook.got
    assert (headers["Idempotency-Key"], headers["X-Harbor-Assets-Event"]) == (body["id"], "ended")
    assert (body["event"], body["phase"], body["day"]) == ("ended", "completed", "2026-11-28")
    assert (body["figures"]["mean"], body["figures"]["cost_usd"]) == (1.0, None)
    assert body["text"] == (
        f"{run_id} (nightly, 2026-11-28) completed: oracle on default/suite, mean 1.0000, scored 12 of 12 trials"
    )


def test_a_lost_cursor_tells_again_under_the_same_id_and_nothing_of_before(w: World, hook: Hook) -> None:
    run(w, *GOOD)
    telling = notices(w, hook)
    told = Told.read("no cursor", NOW)
    telling.follow(told)
    telling.follow(told)
    assert len(hook.ids) == 2
    assert len(set(hook.ids)) == 1
    assert telling.follow(Told.read(None, NOW + timedelta(seconds=1)))[1] == []


def test_an_end_that_is_written_late_and_one_after_a_long_silence_are_told(w: World, hook: Hook) -> None:
    clock = Clock()
    clock.now = NOW - timedelta(hours=1)
    telling = notices(w, hook, clock)
    told = Told.read(None, clock.now)
    clock.now = NOW + timedelta(hours=3)
    told, _ = telling.follow(told)
    late = run(w, *GOOD)  # ended at NOW; the look after that has been already
    told, _ = telling.follow(told)
    assert hook.ids == [f"{late}/ended"]
    clock.now = NOW + 5 * OVERLAP
    told, _ = telling.follow(told)
    assert told.runs == {}  # nothing is kept that no look finds
    assert len(hook.ids) == 1


def test_it_is_given_up_some_day(w: World, hook: Hook) -> None:
    clock = Clock()
    telling, told = notices(w, hook, clock), Told.read(None, NOW)
    run_id = run(w, *GOOD)
    hook.answers = [503] * 100
    said: list[str] = []
    for _ in range(2 * TRIES_MAX):
        told, lines = telling.follow(told)
        said += lines
        clock.now += timedelta(minutes=10)
    assert said[-1] == f"{run_id}/ended: given up after {TRIES_MAX} tries: the webhook answered 503"
    assert len(said) == TRIES_MAX


def test_a_worse_run_is_told_as_such_and_a_failed_one_too(w: World, hook: Hook) -> None:
    first = run(w, *GOOD)
    run(w, *BAD, agent="nop")  # another agent's is no measure
    third = run(w, *BAD)
    failed = run(w, *LOST)
    telling = notices(w, hook)
    assert [notice.event for notice in telling.of(first)] == [Event.ENDED]
    ended, worse = telling.of(third)
    assert worse.regression
    assert (worse.regression.against, worse.regression.difference) == (first, -1.0)
    assert f"{third} is worse than {first}: oracle on default/suite, mean 0.0000 after 1.0000" in worse.text()
    assert [notice.event for notice in telling.of(failed)] == [Event.FAILED]
    assert [n.event for n in notices(w, hook, events=[Event.REGRESSED]).of(third)] == [Event.REGRESSED]
    assert telling.tell(third) == []
    assert hook.ids == [ended.id, worse.id]
    assert hook.got[1][1]["regression"]["low"] < 0


def test_a_difference_that_chance_explains_is_no_regression(w: World) -> None:
    before, after = run(w, *GOOD), run(w, *GOOD[1:], 0.0)
    assert regression(w.catalog.outcomes(before), w.catalog.outcomes(after), before) is None
    assert regression(w.catalog.outcomes(before), w.catalog.outcomes(before), before) is None
    five, fewer = run(w, *GOOD), run(w, *[0.0] * 5, *GOOD[5:])
    found = regression(w.catalog.outcomes(five), w.catalog.outcomes(fewer), five)
    assert found is None, "p = 0.0625, though the interval lies below zero"
    assert regression([], w.catalog.outcomes(before), before) is None


def test_a_worker_tries_a_few_times_and_says_what_was_not_delivered(w: World, hook: Hook) -> None:
    run_id = run(w, *GOOD)
    hook.answers = [500] * 2
    assert notices(w, hook).tell(run_id) == []
    assert hook.ids == [f"{run_id}/ended"]
    hook.answers = [500] * 4
    (line,) = notices(w, hook).tell(run_id)
    assert line == f"{run_id}/ended was not delivered after 4 tries: the webhook answered 500"


def test_the_address_is_in_no_error(
    w: World, hook: Hook, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    notice = notices(w, hook).of(run(w, *GOOD))[0]
    Webhook(hook.url, "generic", timeout=2).send(notice)
    for url in (f"http://127.0.0.1:1/{SECRET}", f"http://no such host/{SECRET}", f"nothing://{SECRET}"):
        with pytest.raises(Undelivered) as error:
            Webhook(url, "generic", timeout=1).send(notice)
        assert SECRET not in str(error.value)
        assert error.value.__cause__ is None
    assert SECRET not in caplog.text


def test_slack_reads_no_command_and_no_name_escapes(w: World, hook: Hook) -> None:
    row_notice = notices(w, hook).of(run(w, *GOOD))[0]
    hostile = row_notice.model_copy(update={"agent": "<!channel> & <https://evil.example|click>\n*x*"})
    body = hostile.body("slack")
    assert "<" not in body["text"]
    assert "&lt;!channel&gt; &amp; &lt;https" in body["text"]
    assert "\n" not in body["text"]
    assert body["mrkdwn"] is False
    assert hostile.body("generic")["agent"] == hostile.agent
    Webhook(hook.url, "slack", timeout=2).send(hostile)
    assert hook.got[0][1] == body


def test_no_text_of_a_task_is_sent(w: World, hook: Hook) -> None:
    run_id = run(w)
    plan = w.catalog.get_run(run_id).plan
    for task in plan.tasks:
        row = outcome(run_id, task, Reason.WORKER_LOST).model_copy(update={"message": "<b>hush</b>"})
        w.catalog.add_outcome(row)
    w.catalog.finish(run_id, RunPhase.FAILED, ResultState.NONE, at=NOW, error="hush: <script>")
    (notice,) = notices(w, hook).of(run_id)
    assert notice.event is Event.FAILED
    assert "hush" not in json.dumps([notice.body("generic"), notice.body("slack")])
