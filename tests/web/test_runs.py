"""The pages of runs and trials, asked for as a browser does."""

import json
from urllib.parse import unquote

import pytest

from harbor_assets.domain.outcomes import Measurements, Reason, TrialError, Try
from harbor_assets.domain.plans import trial_id
from harbor_assets.domain.waiting import RunWaits, WaitReason, wait
from harbor_assets.engine.account import evidence_path
from harbor_assets.engine.trial_evidence import EXCERPT_BYTES
from tests.interfaces.backends import World
from tests.web.browser import HOSTILE, Document
from tests.web.conftest import Visitor
from tests.web.scenes import FILES, START, TRAJECTORY, begin, end_trial, ended_run, finish, submit


def rows(page: Document, table: int = 0) -> list[list[str]]:
    found = page.all("table")[table].all("tbody")[0].all("tr")
    return [[cell.text for cell in (*row.children,) if not isinstance(cell, str)] for row in found]


def test_the_first_page_tells_how_to_begin_and_then_shows_runs(visitor: Visitor, w: World):
    assert "harbor-assets runs submit" in visitor.see("/").text
    run = ended_run(w, 1.0, 0.5, Reason.SANDBOX_LOST)
    page = visitor.see("/")
    assert f"/runs/{run.id}" in page.links()
    assert rows(page)[0][:6] == [run.id, "completed", "default/suite", "oracle", "3 of 3", "2"]


def test_the_list_of_runs_by_pages_and_by_what_is_asked(visitor: Visitor, w: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harbor_assets.interfaces.web.home.RUNS_PAGE", 2)
    done = ended_run(w, 1.0, 1.0, 1.0)
    others = [submit(w, done.plan.taskset_ref).id for _ in range(4)]
    page = visitor.see("/runs")
    assert [row[0] for row in rows(page)] == others[:1:-1]
    assert "1 to 2 of 5" in page.text
    assert [row[0] for row in rows(visitor.see("/runs?page=3"))] == [done.id]
    assert [row[0] for row in rows(visitor.see("/runs?active=1&page=2"))] == others[1::-1]
    following = next(link for link in visitor.see("/runs?active=1").links() if "page=2" in link)
    assert "active=1" in following
    for page_number in ("0", "-1", "x", "99999999999999999999", "²"):
        visitor.see(f"/runs?page={page_number}")


def test_an_ended_run_shows_the_figures_of_its_own_account(visitor: Visitor, w: World):
    run = ended_run(w, 1.0, 0.5, Reason.SANDBOX_LOST)
    page = visitor.see(f"/runs/{run.id}")
    account = w.evaluations.picture(run).account().policies
    tiles = [element.text for element in page.all("p") if element.get("class").startswith("figure")]
    assert tiles == [f"{account.scored_only.mean:.4f}", f"{account.missing_as_zero.mean:.4f}"] == ["0.7500", "0.5000"]
    assert "2 of 3 planned trials, 2 of 3 tasks have a reward" in page.text
    assert "infrastructure failed" in page.text
    table = rows(page, 1)
    assert [row[1].split()[0] for row in table] == ["alpha", "beta", "gamma"]
    assert "sandbox lost: as the test wanted" in table[2][4]
    assert {f"/runs/{run.id}/tasks/{i}/trials/1" for i in range(3)} <= set(page.links())
    assert {f"/runs/{run.id}/files/report.html", f"/runs/{run.id}/files/", f"/runs/{run.id}/log"} <= set(page.links())
    assert "data-live" not in page.html


def test_a_run_that_goes_on_tells_how_far_it_is_and_why_it_waits(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha", "beta", "gamma"))
    w.waits.said = RunWaits(run=wait(WaitReason.QUEUED, "two runs are before it"))
    page = visitor.see(f"/runs/{run.id}")
    assert "0 of 3 trials ended" in page.text
    assert "The run waits (queued): two runs are before it" in page.text
    begin(w, run)
    end_trial(w, run, 0, 1.0)
    w.catalog.add_try(run.id, 1, 1, START, "x")
    w.waits.said = RunWaits(tasks={2: wait(WaitReason.SCHEDULING, "0/3 nodes: <b>Insufficient memory</b>")})
    page = visitor.see(f"/runs/{run.id}")
    (live,) = [element for element in page.all("div") if element.get("id") == "live"]
    assert live.get("data-live") == "3"
    assert "1 of 3 trials ended" in live.text
    assert "1 of 1 ended trials, 1 of 1 tasks have a reward" in live.text
    table = rows(page)
    assert [row[2] for row in table] == ["succeeded", "at work", "waits"]
    assert table[2][4] == "scheduling: 0/3 nodes: <b>Insufficient memory</b>"
    w.catalog.request_cancel(run.id, START)
    assert "it was asked to stop" in visitor.see(f"/runs/{run.id}").text


def test_tasks_are_found_by_name_and_state(visitor: Visitor, w: World, monkeypatch: pytest.MonkeyPatch):
    run = ended_run(w, 1.0, Reason.SANDBOX_LOST, Reason.SANDBOX_LOST)

    def names(query: str) -> list[str]:
        page = visitor.see(f"/runs/{run.id}?{query}")
        return [row[1].split()[0] for row in rows(page, 1)] if len(page.all("table")) > 1 else []

    assert names("state=infra_failed") == ["beta", "gamma"]
    assert names("state=infra_failed&q=ORG/b") == ["beta"]
    assert names("q=%3Cscript%3E") == []
    monkeypatch.setattr("harbor_assets.interfaces.web.runs.TASKS_PAGE", 2)
    assert names("page=2") == ["gamma"]
    assert names("page=7") == []


def test_several_trials_of_a_task_are_marks_that_lead_to_each(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha"), n_attempts=3)
    begin(w, run)
    end_trial(w, run, 0, 1.0, 1)
    end_trial(w, run, 0, Reason.REWARD_MISSING, 2)
    page = visitor.see(f"/runs/{run.id}")
    assert rows(page)[0][3] == "trial 1 reward 1 trial 2 verifier failed 2 of 3 ended"
    assert f"/runs/{run.id}/tasks/0/trials/2" in page.links()
    assert "Trial 3" in visitor.see(f"/runs/{run.id}/tasks/0/trials/2").text
    assert "Not ended yet" in visitor.see(f"/runs/{run.id}/tasks/0/trials/3").text
    visitor.see(f"/runs/{run.id}/tasks/0/trials/4", 404)


def test_a_trial_with_all_that_it_left(visitor: Visitor, w: World):
    run = ended_run(w, 1.0, 0.5, 1.0)
    page = visitor.see(f"/runs/{run.id}/tasks/1/trials/1")
    text = page.text
    for said in (
        "0.5000", "graded", "4,240", "115", "$0.0146", "41.5 s",  # reward, reason, usage, the try
        "3 steps as terminus-2 1.2 told them with a-model (ATIF-v1.7)", "I look at the test first.", "pytest -q",
        "1 failed in 0.02s", "1,830 tokens in (900 cached) 64 out $0.0065", "An import error, perhaps.",
        "3 passed", "starting the sandbox",
        run.plan.task(1).ref, run.plan.taskset_ref, run.plan.task(1).files_hash, run.plan.task(1).trial_key,
        f"trial_results[{run.id}|00001]",
    ):  # fmt: skip
        assert said in text, said
    assert "none" not in [element.text for element in page.all("p")]
    folder = evidence_path(run.id, run.plan.task(1), 1)
    assert f"/runs/{run.id}/files/{folder}/artifacts/page.html" in page.links()
    assert {f"/runs/{run.id}/tasks/0/trials/1", f"/runs/{run.id}/tasks/2/trials/1"} <= set(page.links())


def test_every_try_is_told_with_its_own_folder(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha"))
    begin(w, run)
    task = run.plan.task(0)
    first = evidence_path(run.id, task, 1, 1)
    lost = Try(start=START, error=TrialError(type="WorkerLost", message="the node went away"))
    again = Try(start=START, end=START, cost=0.5, leftovers=first, reason=Reason.SANDBOX_LOST, reward=0.0)
    last = Try(start=START, end=START, leftovers=evidence_path(run.id, task, 1))
    end_trial(w, run, 0, 1.0, tries=(lost, again, last))
    w.put_bundle(run.id, {f"{first}/trial.log": b"first\n"})
    page = visitor.see(f"/runs/{run.id}/tasks/0/trials/1")
    table = rows(page)
    assert [row[0] for row in table] == ["1", "2", "3"]
    again_told = "sandbox lost, tried again; its reward 0.0000 does not count"
    assert [row[5] for row in table] == ["lost the node went away", again_told, "graded"]
    assert table[0][2] == "nobody saw it"
    assert table[1][4] == "$0.5000"
    assert f"/runs/{run.id}/files/{first}/trial.log" in page.links()


def test_unknown_usage_stays_unknown(visitor: Visitor, w: World):

    run = submit(w, w.publish("alpha"))
    end_trial(w, run, 0, 1.0, measurements=Measurements(), files={}, tries=())
    page = visitor.see(f"/runs/{run.id}/tasks/0/trials/1")
    (usage,) = [element for element in page.all("dl") if element.get("class") == "small"]
    assert [cell.text for cell in usage.all("dd")] == ["–"] * 5
    assert "It was never executed." in page.text


def test_a_long_log_is_cut_and_says_so(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha"))
    end_trial(
        w, run, 0, 1.0, files={"verifier/test-stdout.txt": b"first line\n" + b"x" * EXCERPT_BYTES + b"\nlast line"}
    )
    page = visitor.see(f"/runs/{run.id}/tasks/0/trials/1")
    assert "last line" in page.text
    assert "first line" not in page.text
    assert "The last 32.8 kB; 21 bytes before them are left out." in page.text


@pytest.mark.parametrize(
    "trajectory",
    [
        b"",
        b"{",
        b"[]",
        b'{"schema_version": "ATIF-v1.7"}',
        b'{"schema_version": "ATIF-v1.7", "steps": {}}',
        b"[" * 9999,
    ],
)
def test_what_is_no_trajectory_does_no_harm(visitor: Visitor, w: World, trajectory: bytes):
    run = submit(w, w.publish("alpha"))
    end_trial(w, run, 0, 1.0, files={"agent/trajectory.json": trajectory})
    page = visitor.see(f"/runs/{run.id}/tasks/0/trials/1")
    assert "agent/trajectory.json could not be read: " in page.text


def test_a_dash_beside_steps_that_know_does_not_say_that_nobody_said(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha", "beta"))
    end_trial(w, run, 0, 1.0, measurements=Measurements())  # as a row of before has it
    end_trial(w, run, 1, 1.0, measurements=Measurements(), files={})
    pages = [visitor.see(f"/runs/{run.id}/tasks/{index}/trials/1").text for index in (0, 1)]
    assert ["nobody said" in text for text in pages] == [False, True]
    assert "its steps below say more" in pages[0]


def test_steps_by_pages(visitor: Visitor, w: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("harbor_assets.interfaces.web.steps.STEPS_PAGE", 2)
    steps = [{"step_id": n, "source": "agent", "message": f"message {n}."} for n in range(1, 6)]
    run = submit(w, w.publish("alpha"))
    end_trial(w, run, 0, 1.0, files={"agent/trajectory.json": json.dumps(dict(TRAJECTORY, steps=steps)).encode()})
    at = f"/runs/{run.id}/tasks/0/trials/1"
    page = visitor.see(at)
    assert "message 2." in page.text
    assert "message 3." not in page.text
    assert f"{at}?step=3#h-trace" in page.links()
    page = visitor.see(f"{at}?step=5")
    assert "message 5." in page.text
    assert "message 4." not in page.text
    for step in ("0", "-3", "x", "99999", "9" * 50):
        visitor.see(f"{at}?step={step}")


# --- files and logs ---------------------------------------------------------------------------------------------------


def test_files_of_tasks_and_agents_are_downloads_that_nothing_runs(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha"))
    end_trial(w, run, 0, 1.0)
    folder = evidence_path(run.id, run.plan.task(0), 1)
    answer = visitor.ask(f"/runs/{run.id}/files/{folder}/artifacts/page.html")  # though the run goes on
    assert answer.content == FILES["artifacts/page.html"]
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith('attachment; filename="page.html"')
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_bundle_by_folders(visitor: Visitor, w: World):
    run = ended_run(w, 1.0, 1.0, 1.0)
    page = visitor.see(f"/runs/{run.id}/files/")
    assert [row[0] for row in rows(page)] == ["evidence/", "outcomes.json", "report.html", "summary.json"]
    page = visitor.see(f"/runs/{run.id}/files/evidence/harbor/")
    assert [row[0] for row in rows(page)][1:] == [f"{run.id}-task-{i}/" for i in range(3)]
    report = visitor.ask(f"/runs/{run.id}/files/report.html")
    assert report.headers["content-type"] == "text/html; charset=utf-8"
    assert "content-disposition" not in report.headers
    assert visitor.ask(f"/runs/{run.id}/files/summary.json").headers["content-type"] == "application/json"
    visitor.see(f"/runs/{run.id}/files/nothing/", 404)


@pytest.mark.parametrize(
    "path", ["../run.json", "evidence/../../x", "evidence//x", "evidence/%00", "evidence/none", "nothing.json", "a/./b"]
)
def test_paths_that_are_no_files_are_not_found(visitor: Visitor, w: World, path: str):
    run = ended_run(w, 1.0, 1.0, 1.0)
    assert visitor.ask(f"/runs/{run.id}/files/{path.replace('..', '%2e%2e')}").status_code == 404


def test_a_bundle_that_is_not_made_yet_is_said_to_be(visitor: Visitor, w: World):
    run = submit(w, w.publish("alpha"))
    page = visitor.see(f"/runs/{run.id}/files/", 409)
    assert "its results are ready when it has ended" in page.text


def test_logs(visitor: Visitor, w: World):
    run = ended_run(w, 1.0, 1.0, 1.0)
    assert f"log of {run.id} None" in visitor.see(f"/runs/{run.id}/log").text
    assert f"log of {run.id} 1" in visitor.see(f"/runs/{run.id}/log?task=1").text
    visitor.see(f"/runs/{run.id}/log?task=9", 404)
    visitor.see(f"/runs/{run.id}/log?task=x", 404)
    visitor.see(f"/runs/{run.id}/log?offset=99999")


# --- strangers' texts -------------------------------------------------------------------------------------------------


def test_hostile_texts_do_nothing(visitor: Visitor, w: World):
    hostile = HOSTILE
    run = submit(w, w.publish("alpha"))
    trajectory = {
        "schema_version": f"ATIF-v{hostile}",
        "agent": {"name": hostile, "version": hostile, "model_name": hostile},
        "steps": [
            {
                "source": hostile,
                "message": [{"type": "text", "text": hostile}, {"type": hostile}, 7],
                "reasoning_content": hostile,
                "model_name": hostile + "2",
                "tool_calls": [{"function_name": hostile, "arguments": {hostile: hostile}}, None],
                "observation": {"results": [{"content": hostile}, "x"]},
                "metrics": {"prompt_tokens": -1, "completion_tokens": True, "cost_usd": float("inf")},
            },
            "no step",
        ],
    }
    name = "".join(c for c in hostile if c not in "/\x1b\u202e") + ".txt"
    files = {
        "agent/trajectory.json": json.dumps(trajectory).encode(),
        f"artifacts/{name}": b"x",
        "exception.txt": hostile.encode() + b"\xff\x00",
        "trial.log": hostile.encode(),
    }
    error = TrialError(type=hostile, message=hostile, traceback=hostile)
    more = {"rewards": {"reward": 1.0, hostile: 2.0}, "reward_rejections": {hostile: hostile}, "flags": (hostile,)}
    end_trial(w, run, 0, 1.0, files=files, error=error, details={hostile: hostile}, **more)
    finish(w, run)
    for path in ("/", "/runs", f"/runs/{run.id}", f"/runs/{run.id}/tasks/0/trials/1", f"/runs/{run.id}/files/"):
        page = visitor.see(path)
        assert "<script>alert" not in page.html
        assert "\u202e" not in page.html
        assert "\x1b" not in page.html
        assert not page.all("img")
    page = visitor.see(f"/runs/{run.id}/tasks/0/trials/1")
    assert "{{ 7*7 }}" in page.text  # told as it is, and computed by nobody
    (link,) = [link for link in page.links() if "artifacts/" in link]
    assert visitor.ask(link).content == b"x"
    assert unquote(link).endswith(name)
    query = {"q": hostile, "state": hostile}
    assert "<script>alert" not in visitor.ask(f"/runs/{run.id}", params=query).text
    assert "<script>alert" not in visitor.ask("/", params={"workspace": hostile}).text
    assert trial_id(run.plan.task(0), 1) in link


# --- what is not there, and links ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/nothing", "/runs/", "/runs/run-0000000000000000", "/runs/x/y", "/docs", "/%00"])
def test_unknown_pages_help_on(visitor: Visitor, path: str):
    page = visitor.see(path, 404)
    assert {"/", "/runs"} <= set(page.links())


def test_the_api_still_answers_its_own_paths_in_json(visitor: Visitor):
    for path, status in (("/apis/nothing", 404), ("/apis", 404), ("/healthz", 200)):
        answer = visitor.ask(path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    assert visitor.ask("/apis/evals/v2/workspaces/default/tasks", "PATCH").status_code == 405
    assert visitor.ask("/", "POST").status_code == 405


def test_style_and_script_are_kept_by_browsers_under_their_version(visitor: Visitor):
    page = visitor.see("/")
    addresses = [page.one("script").get("src"), *(link.get("href") for link in page.all("link"))]
    assert sorted(address.rpartition(".")[2] for address in addresses) == ["css", "js", "svg"]
    for address in addresses:
        answer = visitor.ask(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "://" not in answer.text.replace("http://www.w3.org/2000/svg", "")  # the name of SVG, asked of nobody
    assert visitor.ask("/static/000000000000.css").status_code == 404


def test_links_lead_into_dagster_where_its_address_is_known(visitor: Visitor, w: World):
    run = ended_run(w, 1.0, 1.0, 1.0)
    visitor.dagster = "http://localhost:3000"
    assert (
        f"http://localhost:3000/runs?q%5B0%5D=tag%3Aharbor%2Frun_id%3D{run.id}"
        in visitor.see(f"/runs/{run.id}").links()
    )
    links = visitor.see(f"/runs/{run.id}/tasks/2/trials/1").links()
    assert f"http://localhost:3000/assets/trial_results?view=partitions&partition={run.id}%7C00002" in links


def test_below_a_path_of_a_proxy_all_links_stay_below_it(w: World):
    visitor = Visitor(w)
    run = ended_run(w, 1.0, 1.0, 1.0)
    visitor.app.root_path = "/harbor"
    answer = visitor.ask(f"/runs/{run.id}")
    page = Document(answer.text)
    outside = [link for link in page.links() if not link.startswith(("/harbor/", "#"))]
    assert outside == []


def test_a_run_whose_service_fails_is_a_page_too(visitor: Visitor, w: World, monkeypatch: pytest.MonkeyPatch):
    run = ended_run(w, 1.0, 1.0, 1.0)

    def broken(*_: object) -> None:
        raise RuntimeError("/etc/secret")

    monkeypatch.setattr(type(w.evaluations), "picture", broken)
    page = visitor.see(f"/runs/{run.id}", 500)
    assert "secret" not in page.html
    assert "RuntimeError" in page.text
