"""Requests that mean no good, sent to a real server: the answer says no in a clear body, and nothing is half there."""

import json
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from sqlalchemy import make_url

from harbor_assets.interfaces.api import app as app_module
from harbor_assets.interfaces.api.app import create_app
from harbor_assets.interfaces.api.limits import BODY_MAX, BodyLimit
from tests.databases import DATABASES, POSTGRES, fresh
from tests.interfaces.backends import World, world
from tests.interfaces.served import connect, free_port, served

BASE = "/apis/evals/v2/workspaces/default"
FILES = "/apis/files/v2/workspaces/default/filesets"
TASK = {"spec": {"kind": "evaluator", "intent": "x"}}


@pytest.fixture
def http(w: World) -> Iterator[httpx.Client]:
    with served(create_app(w.backend)) as base, connect(base) as client:
        yield client


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A service that refuses everything it is sent here, so one is enough."""
    with (
        world(tmp_path_factory.mktemp("empty")) as w,
        served(create_app(w.backend)) as base,
        connect(base) as client,
    ):
        yield client
        assert list(w.artifacts.list("filesets")) == []
        assert w.catalog.list_tasks("default").total == 0


def said(answer: httpx.Response) -> str:
    """The body's `detail`, which every refusal has."""
    detail = answer.json()["detail"]
    return detail if isinstance(detail, str) else json.dumps(detail)


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_that_is_too_large_is_413_whatever_it_announces(empty: httpx.Client, announced: bool):
    def pieces() -> Iterator[bytes]:
        for _ in range(BODY_MAX // 65536 + 1):
            yield b" " * 65536

    length = {"Content-Length": str(BODY_MAX + 65536)} if announced else {}
    try:
        answer = empty.put(f"{BASE}/tasks/t", content=pieces(), headers={"Content-Type": "application/json", **length})
    except (httpx.WriteError, httpx.ReadError):
        pytest.skip("the service hung up before the client had read its answer, as it may")
    assert (answer.status_code, "above 16777216 bytes" in said(answer)) == (413, True)


@pytest.mark.parametrize("depth", [300, 2_000, 200_000])
@pytest.mark.parametrize("place", ["metadata", "inputs", "reference", "metrics"])
def test_a_body_that_is_too_deep_is_refused(empty: httpx.Client, depth: int, place: str):
    deep = "[" * depth + "]" * depth
    inside = {
        "metadata": f'{{"spec":{{"kind":"evaluator","intent":"x"}},"metadata":[{{"key":"a","value":{deep}}}]}}',
        "inputs": f'{{"spec":{{"kind":"evaluator","intent":"x","inputs":{{"a":{deep}}}}}}}',
        "reference": f'{{"spec":{{"kind":"evaluator","intent":"x","reference":{{"a":{deep}}}}}}}',
        "metrics": f'{{"spec":{{"kind":"evaluator","intent":"x","metrics":[{{"a":{deep}}}]}}}}',
    }
    answer = empty.put(f"{BASE}/tasks/t", content=inside[place], headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert said(answer)
    assert len(answer.content) < 20_000


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{'spec'", 422, "is not JSON: Expecting property name"),
        (b'{"spec": NaN}', 422, "is not JSON: NaN is not a JSON number"),
        (b"[" * 200_000, 400, "nested too deeply"),
        (b'{"spec": "\xff"}', 400, "cannot be read as JSON: 'utf-8' codec"),
        (b'{"spec": ' + b"9" * 5_000 + b"}", 400, "cannot be read as JSON: Exceeds the limit"),
    ],
    ids=["broken", "nan", "deep", "bytes", "number"],
)
def test_a_body_that_is_not_json_is_told_why(empty: httpx.Client, body: bytes, status: int, says: str):
    answer = empty.put(f"{BASE}/tasks/t", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, says in said(answer)) == (status, True)


@pytest.mark.parametrize("part", [{"tags": ["a"] * 1_001}, {"metadata": [{"key": "a", "value": 1}] * 10_001}])
@pytest.mark.parametrize(
    "body", [(f"{BASE}/tasks/t", TASK), (f"{BASE}/tasksets/s", {"tasks": []})], ids=["task", "set"]
)
def test_what_would_hold_up_other_writers_is_refused(empty: httpx.Client, body: Any, part: dict[str, Any]):
    answer = empty.put(body[0], json={**body[1], **part})
    assert (answer.status_code, " entries" in said(answer)) == (422, True)


def test_a_thousand_problems_are_told_in_a_hundred(empty: httpx.Client):
    answer = empty.put(f"{BASE}/tasks/t", json={**TASK, "metadata": [1] * 10_000})
    assert answer.status_code == 422
    detail = answer.json()["detail"]
    assert (len(detail), "9900 more" in detail[-1]["msg"]) == (101, True)


@contextmanager
def slow_server(w: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """One that waits for two seconds where others wait for a minute."""
    monkeypatch.setattr(app_module, "BodyLimit", lambda app: BodyLimit(app, seconds=2.0, silence=2.0))
    with served(create_app(w.backend)) as base:
        where = urlsplit(base)
        assert where.hostname
        assert where.port
        yield where.hostname, where.port


@pytest.mark.parametrize(
    ("path", "says"),
    [(f"{BASE}/tasks/t", "body did not arrive"), (f"{FILES}/f/-/a/b", "No more of the file arrived")],
)
def test_a_body_that_does_not_come_on_is_408(w: World, monkeypatch: pytest.MonkeyPatch, path: str, says: str):
    with slow_server(w, monkeypatch) as where, socket.create_connection(where, timeout=30) as connection:
        head = f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        connection.sendall(head.encode() + b'{"spec":')
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert says.encode() in answer
    assert list(w.artifacts.list("filesets")) == []
    assert w.catalog.list_tasks("default").items == []


def test_an_upload_that_takes_its_time_but_goes_on_is_stored(w: World, monkeypatch: pytest.MonkeyPatch):
    def pieces() -> Iterator[bytes]:
        for _ in range(10):
            time.sleep(0.3)
            yield b"x" * 5

    with slow_server(w, monkeypatch) as (host, port):
        answer = httpx.put(f"http://{host}:{port}{FILES}/f/-/a/b", content=pieces())
    assert (answer.status_code, answer.json()["size"]) == (200, 50)


# --- filters and names ------------------------------------------------------------------------------------------------

EXPLOSIVE = {
    "parentheses": "(" * 3000 + 'name:"x"' + ")" * 3000,
    "negations": "-" * 3000 + 'name:"x"',
    "not": '{"$not":' * 2000 + '{"name":"x"}' + "}" * 2000,
    "and": '{"$and":[' * 900 + '{"name":"x"}' + "]}" * 900,
    "conditions": " OR ".join(['name:"x"'] * 1000),
    "values": json.dumps({"name": {"$in": ["x"] * 3000}}),
    "brackets": "[" * 10_000,
    "backslashes": 'name~"' + "\\" * 10_001 + '"',
    "a number": "created_at>" + "9" * 10_000,
}


@pytest.mark.parametrize("text", EXPLOSIVE.values(), ids=EXPLOSIVE)
@pytest.mark.parametrize("noun", ["tasks", "tasksets", "metrics"])
def test_a_filter_built_to_explode_is_400_at_once(empty: httpx.Client, noun: str, text: str):
    begin = time.monotonic()
    answer = empty.get(f"{BASE}/{noun}?filter={quote(text)}")
    assert answer.status_code == 400
    assert said(answer)
    assert time.monotonic() - begin < 10


NAMES = """%00 a%00b a%2Fb %2e%2e a%5Cb a%0Ab a%0Db a%20b a%23b a%3Fb a%25b a%3Cb%3E %ED%A0%80 %FF %F0%9F%92%A9
%E2%80%AE %EF%BB%BFa""".split()


@pytest.mark.parametrize("name", [*NAMES, "a" * 256])
def test_a_name_with_a_meaning_elsewhere_is_none(empty: httpx.Client, name: str):
    for answer in (
        empty.put(f"{BASE}/tasks/{name}", json=TASK),
        empty.put(f"{FILES}/{name}/-/a/b", content=b"x"),
        empty.put(f"{BASE.replace('default', name)}/tasks/t", json=TASK),
        empty.put(f"{BASE}/tasks/t/tags/{name}?revision=latest"),
        empty.get(f"{BASE}/tasks/{name}"),
        empty.delete(f"{BASE}/tasks/{name}"),
    ):
        assert 400 <= answer.status_code < 500, answer.request.url
        assert said(answer)


def test_names_that_look_alike_are_two(http: httpx.Client):
    alike = ["paypal", "pаypal", "Paypal", "ｐaypal", "file", "ﬁle", "é", "E"]
    for name in alike:
        assert (
            http.put(f"{BASE}/tasks/{quote(name)}", json={"spec": {"kind": "evaluator", "intent": name}}).status_code
            == 201
        )
    for name in alike:
        assert http.get(f"{BASE}/tasks/{quote(name)}").json()["spec"]["intent"] == name


# --- many at once -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [True, False], ids=["the same", "each its own"])
def test_fifty_writers_of_one_name_lose_and_double_nothing(http: httpx.Client, w: World, same: bool):
    def write(n: int) -> httpx.Response:
        return http.put(f"{BASE}/tasks/t", json={"spec": {"kind": "evaluator", "intent": "x" if same else f"x{n}"}})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(write, range(50)))
    statuses = Counter(answer.status_code for answer in answers)
    assert statuses == ({201: 1, 200: 49} if same else {201: 50})
    revisions = w.catalog.task_revisions("default", "t", page_size=100).items
    assert [r.revision for r in revisions] == list(range(len(revisions), 0, -1))
    assert len(revisions) == len({r.content_hash for r in revisions}) == (1 if same else 50)


def test_fifty_creators_of_one_name_are_one_and_forty_nine_conflicts(http: httpx.Client):
    metric = {
        "metric_type": "exact-match",
        "metadata": {},
        "outputs": [{"name": "exact-match", "value_json_schema": {"type": "boolean"}}],
        "payload": {"kind": "inline", "metric": {"type": "exact-match", "reference": "{{item.a}}", "candidate": "b"}},
    }
    with ThreadPoolExecutor(50) as pool:

        def statuses(method: str, path: str, body: Any) -> Counter[int]:
            paths = [f"{BASE}/{path}".format(n=n) for n in range(50)]
            return Counter(pool.map(lambda at: http.request(method, at, json=body).status_code, paths))

        for path, body in (("tasks/x", TASK), ("metrics/x", metric), ("tasksets/x", {"tasks": []})):
            assert statuses("POST", path, body) == {201: 1, 409: 49}, path
        inline = {"spec": {"kind": "evaluator", "intent": "x", "metrics": [metric]}}
        assert statuses("PUT", "tasks/i{n}", inline) == {201: 50}
    assert http.get(f"{BASE}/metrics?include_derived=true").json()["pagination"]["total_results"] == 2


# --- what is killed, and what comes back ------------------------------------------------------------------------------

SERVER = textwrap.dedent(
    """
    import sys, uvicorn
    from pathlib import Path
    from harbor_assets.artifacts import open_artifacts
    from harbor_assets.interfaces.api.app import create_app
    from tests.interfaces.backends import World
    from dataclasses import replace
    folder, url, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    w = World(folder, url)
    backend = replace(w.backend, artifacts=open_artifacts(str(folder / "artifacts")), scratch=folder)
    uvicorn.run(create_app(backend), host="127.0.0.1", port=port, log_level="error")
    """
)


@contextmanager
def process(folder: Path, url: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process of its own, ready."""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", SERVER, str(folder), url, str(port)], cwd=root) as running:
        try:
            until = time.monotonic() + 90
            while True:
                try:
                    httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
                    break
                except httpx.TransportError:
                    assert running.poll() is None
                    assert time.monotonic() < until
                    time.sleep(0.1)
            yield running
        finally:
            running.kill()


@pytest.mark.parametrize("kind", DATABASES)
def test_killed_in_the_middle_of_an_upload_and_of_revisions_nothing_is_half_there(kind: str, tmp_path: Path):
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    with fresh(kind, tmp_path) as url:
        with process(tmp_path, url, port) as running, ExitStack() as stack:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            head = f"PUT {FILES}/f/-/a/b HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n"
            connection.sendall(head.encode() + b"x" * 5_000_000)
            answered: list[int] = []

            def write(first: int) -> None:
                with connect(base) as client:
                    for n in range(first, 100_000, 4):
                        body = {"spec": {"kind": "evaluator", "intent": f"x{n}"}, "tags": [f"t{n}"]}
                        try:
                            answered.append(client.put(f"{BASE}/tasks/t", json=body).status_code)
                        except httpx.TransportError:
                            return

            threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            until = time.monotonic() + 60
            while len(answered) < 40 and time.monotonic() < until:
                time.sleep(0.01)
            running.send_signal(signal.SIGKILL)
            for thread in threads:
                thread.join(30)
        assert set(answered) == {201}
        with process(tmp_path, url, port), httpx.Client(base_url=base) as http:
            assert http.head(f"{FILES}/f/-/a/b").status_code == 404
            page = http.get(f"{BASE}/tasks/t/revisions?page_size=1000")
            ordinals = [row["revision"] for row in page.json()["data"]]
            assert ordinals == list(range(len(ordinals), 0, -1))
            assert len(ordinals) >= len(answered), "what was answered is there"
            for row in page.json()["data"][:20]:  # each is read and verified against its digest
                assert http.get(f"{BASE}/tasks/t/revisions/{row['content_hash']}").status_code == 200
            assert http.put(f"{BASE}/tasks/t", json=TASK).status_code in (200, 201)
            assert http.put(f"{FILES}/f/-/a/b", content=b"whole").json()["size"] == 5


class Cable:
    """A TCP connection to Postgres that can be cut."""

    def __init__(self, host: str, port: int) -> None:
        self._to = (host, port)
        self._cut = False
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            if self._cut:
                near.close()
                continue
            far = socket.create_connection(self._to)
            self._open += [near, far]
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(a, b), daemon=True).start()

    def _pump(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while data := a.recv(65536):
                b.sendall(data)
        except OSError:
            pass
        finally:
            for end in (a, b):
                end.close()

    def cut(self) -> None:
        self._cut = True
        for end in self._open:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                end.close()
        self._open.clear()

    def mend(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._listening.close()


@pytest.mark.skipif(POSTGRES is None, reason="needs Postgres: .ci/postgres COMMAND")
def test_a_database_that_is_gone_is_503_and_works_again_when_it_is_back(tmp_path: Path):
    with fresh("postgres", tmp_path) as url:
        at = make_url(url)
        assert at.host
        cable = Cable(at.host, at.port or 5432)
        through = at.set(host="127.0.0.1", port=cable.port).render_as_string(hide_password=False)
        try:
            with (
                world(tmp_path, through) as w,
                served(create_app(w.backend)) as base,
                httpx.Client(base_url=base) as http,
            ):
                assert http.put(f"{BASE}/tasks/t", json=TASK).status_code == 201
                cable.cut()
                for answer in (
                    http.get(f"{BASE}/tasks/t"),
                    http.get(f"{BASE}/tasks"),
                    http.put(f"{BASE}/tasks/u", json=TASK),
                    http.delete(f"{BASE}/tasks/t"),
                    http.get("/readyz"),
                ):
                    body: dict[str, Any] = answer.json()
                    assert (answer.status_code, body["error"]) == (503, "ServiceUnavailable"), body
                    assert "try again" in body["detail"].lower()
                    assert str(at.password) not in answer.text
                    assert "SELECT" not in answer.text
                    assert str(cable.port) not in answer.text
                    assert "127.0.0.1" not in answer.text
                assert http.get("/healthz").status_code == 200
                cable.mend()
                assert http.get(f"{BASE}/tasks").json()["pagination"]["total_results"] == 1
                assert http.put(f"{BASE}/tasks/u", json=TASK).status_code == 201
        finally:
            cable.close()
