"""The pages of tasks, tasksets and marks."""

from datetime import UTC, datetime

from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.tasks import EvaluatorTask, TaskInput, TaskInputs
from tests.interfaces.backends import World, task_input
from tests.web.browser import HOSTILE
from tests.web.conftest import Known, Visitor
from tests.web.scenes import ended_run
from tests.web.test_runs import rows

AT = datetime(2026, 11, 29, tzinfo=UTC)


def mark(w: World, subject: str, verdict: Verdict, why: str, *runs: str) -> None:
    w.catalog.put_mark(
        Mark(workspace="default", subject=subject, verdict=verdict, who="ann", why=why, at=AT, runs=runs)
    )


def test_lists_say_how_to_begin_and_then_what_there_is(visitor: Visitor, w: World):
    for kind in ("tasks", "tasksets"):
        assert "harbor-assets tasksets create" in visitor.see(f"/{kind}").text
    w.publish("alpha", "beta", taskset="suite")
    assert sorted(row[0] for row in rows(visitor.see("/tasks"))) == ["alpha", "beta"]
    assert [row[0] for row in rows(visitor.see("/tasks?q=LPH"))] == ["alpha"]
    assert "No such task" in visitor.see("/tasks?q=nothing").text
    assert rows(visitor.see("/tasksets"))[0][:3] == ["suite", "", "2"]
    assert "/tasksets/default/suite" in visitor.see("/tasksets").links()


def test_lists_by_pages(visitor: Visitor, w: World, monkeypatch):
    monkeypatch.setattr("harbor_assets.interfaces.web.records.RECORDS_PAGE", 2)
    w.publish("a", "b", "c")
    assert len(rows(visitor.see("/tasks"))) == 2
    assert len(rows(visitor.see("/tasks?page=2"))) == 1


def test_a_task_with_its_revisions_and_what_is_known_of_each(visitor: Visitor, w: World):
    w.publish("alpha")
    first = w.catalog.get_task("default", "alpha").ref
    w.catalog.put_task("default", "alpha", task_input("org/alpha2"))
    second = w.catalog.get_task("default", "alpha")
    mark(w, first, Verdict.FLAKY, "oracle passed 2 of 3", "run-0123456789abcdef")
    page = visitor.see("/tasks/default/alpha")
    assert "revision 2" in page.text
    assert "org/alpha2" in page.text
    assert "Do it." in page.text
    assert "oracle passed 2 of 3" not in page.text  # that is of the other revision
    table = rows(page)
    assert [row[0] for row in table] == ["2", "1"]
    assert table[0][1] == f"{second.digest[:12]} (this one)"
    assert table[1][4] == "flaky"
    address = f"/tasks/default/alpha?revision={first.partition('#')[2]}"
    assert address in page.links()
    old = visitor.see(address)
    assert "oracle passed 2 of 3" in old.text
    assert "flaky: its oracle passes only sometimes." in old.text.lower()
    assert "/runs/run-0123456789abcdef" in old.links()
    visitor.see("/tasks/default/alpha?revision=nothing", 404)
    visitor.see("/tasks/default/beta", 404)


def test_a_task_without_an_archive(visitor: Visitor, w: World):
    spec = EvaluatorTask(intent="Name the capital", inputs=TaskInputs(instruction="Which is it?"))
    w.catalog.put_task("default", "capital", TaskInput(spec=spec))
    text = visitor.see("/tasks/default/capital").text
    assert "Name the capital" in text
    assert "Which is it?" in text


def test_a_taskset_with_its_members_by_index(visitor: Visitor, w: World, monkeypatch):
    w.publish("alpha", "beta", "gamma")
    beta = w.catalog.get_task("default", "beta").ref
    mark(w, beta, Verdict.BAD, "its tests reach a server that is gone")
    page = visitor.see("/tasksets/default/suite")
    table = rows(page)
    assert [row[:2] for row in table] == [["0", "default/alpha"], ["1", "default/beta"], ["2", "default/gamma"]]
    assert table[1][3] == "bad"
    assert f"/tasks/default/beta?revision={beta.partition('#')[2]}" in page.links()
    monkeypatch.setattr("harbor_assets.interfaces.web.records.MEMBERS_PAGE", 2)
    assert rows(visitor.see("/tasksets/default/suite?page=2"))[0][:2] == ["2", "default/gamma"]
    visitor.see("/tasksets/default/suite?page=9")


def test_marks_are_seen_where_a_revision_is_used(visitor: Visitor, w: World):
    run = ended_run(w, 1.0, 1.0, 1.0)
    mark(w, run.plan.task(1).ref, Verdict.NOP_PASSES, "nop passed 3 of 3", run.id)
    mark(w, run.id, Verdict.BAD, "run with the wrong key")
    page = visitor.see(f"/runs/{run.id}")
    assert "run with the wrong key" in page.text
    assert "nop passes" in rows(page, 1)[1][1]
    trial = visitor.see(f"/runs/{run.id}/tasks/1/trials/1")
    assert "nop passed 3 of 3" in trial.text
    assert "run with the wrong key" in trial.text
    assert f"/tasks/default/beta?revision={run.plan.task(1).ref.partition('#')[2]}" in trial.links()
    assert "nop passed" not in visitor.see(f"/runs/{run.id}/tasks/0/trials/1").text


def test_hostile_texts_of_records_do_nothing(visitor: Visitor, w: World):
    w.catalog.put_task("default", "alpha", task_input(HOSTILE, more=HOSTILE))
    mark(w, w.catalog.get_task("default", "alpha").ref, Verdict.BAD, HOSTILE)
    for path in ("/tasks", "/tasks/default/alpha"):
        page = visitor.see(path)
        assert "<script>alert" not in page.html
        assert "\u202e" not in page.html
        assert not page.all("img")


def test_records_of_a_workspace_need_its_reader(w: World):
    w.publish("alpha")
    known = Known()
    for path in (
        "/tasks/default/alpha",
        "/tasksets/default/suite",
        "/tasks?workspace=default",
        "/tasks/default/absent",
    ):
        assert Visitor(w, known, "reader").ask(path).status_code == (404 if "absent" in path else 200)
        page = Visitor(w, known, "elsewhere").see(path, 403)
        assert "does not have the role reader in workspace 'default'" in page.text
