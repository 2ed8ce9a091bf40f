"""Marking runs and tasks bad: who said what, and where it shows."""

import pytest

from harbor_assets.domain.experiments import Session
from harbor_assets.domain.marks import Mark, Verdict
from tests.cli.conftest import Cli
from tests.interfaces.backends import NOW, World


@pytest.fixture
def run_id(w: World) -> str:
    w.publish("one", "two")
    return submit(w)


def submit(w: World) -> str:
    from harbor_assets.domain.requests import RunRequest

    request = RunRequest.model_validate({"spec": {"tasks": {"taskset": "suite"}}})
    return w.evaluations.submit("default", request).run.id


def test_a_bad_task_makes_every_run_of_it_stale_and_unmarking_takes_it_back(w: World, cli: Cli, run_id: str) -> None:
    w.end(run_id, 1.0, 0.0)
    w.merge(run_id)
    said = cli("tasks", "mark-bad", "one", "--why", "its verifier\naccepts an empty file")
    assert said.code == 0, said.err
    ref = w.catalog.get_task("default", "one").ref
    assert f"{ref} is marked bad by me: its verifier accepts an empty file" in said.out
    told = f"Warning: {ref[:-52]} is marked bad: its verifier accepts an empty file (me, 2026-11-29)"
    for verb in ("status", "results"):
        out = cli("runs", verb, run_id).out
        assert told in out
        assert "completed, results ready (stale)" in out
    assert "ready (stale)" in cli("runs", "list").out
    (listed,) = cli("runs", "list", "--json").json["data"]
    assert listed["stale"]
    assert [(mark["subject"], mark["who"]) for mark in listed["marks"]] == [(ref, "me")]
    w.publish("one", "two", "three", taskset="suite")  # another revision of the taskset, the same of the task
    assert w.evaluations.get("default", submit(w)).stale
    assert ref in cli("marks").out
    assert cli("marks", "--json").json["data"][0]["why"] == "its verifier accepts an empty file"
    assert cli("tasks", "unmark", ref).code == 0
    assert "stale" not in cli("runs", "status", run_id).out
    assert not w.evaluations.get("default", run_id).stale


def test_a_bad_run_is_stale_and_no_other(w: World, cli: Cli, run_id: str) -> None:
    other = submit(w)
    said = cli("runs", "mark-bad", run_id, "--why", "a wrong model answered", "--json")
    assert said.json["subject"] == run_id
    assert [w.evaluations.get("default", each).stale for each in (run_id, other)] == [True, False]
    assert cli("runs", "unmark", run_id).code == 0
    assert cli("runs", "unmark", run_id).code == 2


def test_what_cannot_be_marked_is_refused(w: World, cli: Cli, run_id: str) -> None:
    assert "says why" in cli("runs", "mark-bad", run_id, "--why", " ").err
    assert cli("runs", "mark-bad", "run-0000000000000000", "--why", "x").code == 2
    assert cli("tasks", "mark-bad", "nothing", "--why", "x").code == 2
    assert cli("tasks", "mark-bad", "one", "--why", "x" * 2001).code == 2
    assert w.marking.list("default").total == 0


def test_what_verifying_found_is_told_and_makes_nothing_stale(w: World, cli: Cli, run_id: str) -> None:
    ref = w.catalog.get_task("default", "two").ref
    mark = Mark(workspace="default", subject=ref, verdict=Verdict.FLAKY, who="me", why="3 of 5", at=NOW, runs=(run_id,))
    w.catalog.put_mark(mark)
    assert "is marked flaky: 3 of 5 (me, 2026-11-29)" in cli("runs", "status", run_id).out
    assert not w.evaluations.get("default", run_id).stale
    assert list(w.staleness.of_run_ids("default", [run_id])) == [run_id]
    assert list(w.staleness.of_tasks("default", [ref, "default/one#" + "0" * 64])) == [ref]
    assert cli("marks").out.count("\n") == 1  # those of persons
    assert cli("marks", "--all").out.count("\n") == 2


def test_an_experiment_says_which_of_its_evaluations_are_stale(w: World, cli: Cli) -> None:
    w.publish("one", "two")
    assert cli("experiments", "create", "board").code == 0
    said = cli("runs", "submit", "--taskset", "suite", "--experiment", "board", "--json")
    assert said.code == 0, said.err
    run_id = said.json["run"]["id"]
    w.end(run_id, 1.0, 1.0)
    assert "stale" not in cli("experiments", "show", "board").out
    ref = w.marking.mark_bad("default", "one", "no good").subject
    out = cli("experiments", "show", "board").out
    assert f"{run_id} (stale)" in out
    assert "is marked bad: no good (me, " in out
    (told,) = cli("experiments", "show", "board", "--json").json["touched"]
    assert (told["run_id"], told["stale"], told["marks"][0]["subject"]) == (run_id, True, ref)
    evaluation = cli("experiments", "show", "board", "--json").json["evaluations"]["data"][0]["name"]
    assert "is marked bad: no good" in cli("evaluations", "show", evaluation).out
    assert w.staleness.touched("elsewhere", [run_id]) == []
    (listed,) = cli("evaluations", "list", "--json").json["data"]
    assert (listed["stale"], [mark["subject"] for mark in listed["marks"]]) == (True, [ref])
    out = cli("evaluations", "list").out
    assert "(stale)" in out
    assert "is marked bad: no good (me, " in out
    shown = Session(session_id="s", evaluation=evaluation, started_at=NOW, test_case_name="t", cost_usd=0.5)
    w.catalog.put_session("default", shown)
    assert "cost_usd (stale)" in cli("evaluations", "show", evaluation).out
    w.marking.withdraw("default", ref)
    (listed,) = cli("evaluations", "list", "--json").json["data"]
    assert (listed["stale"], listed["marks"]) == (False, [])


@pytest.mark.parametrize("verb", ["mark-bad", "unmark"])
def test_a_run_is_no_task_and_a_task_no_run(w: World, cli: Cli, run_id: str, verb: str) -> None:
    why = ("--why", "no good") if verb == "mark-bad" else ()
    for noun, subject, right in (("runs", "one", "tasks"), ("runs", "nope", "tasks"), ("tasks", run_id, "runs")):
        said = cli(noun, verb, subject, *why)
        assert said.code == 2
        assert f"harbor-assets {right} {verb} {subject}" in said.err
    assert w.marking.list("default").total == 0


def test_a_second_word_says_what_it_replaces_and_all_shows_it(w: World, cli: Cli, run_id: str) -> None:
    assert "replaces" not in cli("runs", "mark-bad", run_id, "--why", "a wrong model").out
    said = cli("runs", "mark-bad", run_id, "--why", "a wrong key")
    assert "It replaces what me said at 2026-" in said.out
    assert ": a wrong model" in said.out
    assert "a wrong model" not in cli("marks").out
    out = cli("marks", "--all").out
    assert [line.split()[1] for line in out.splitlines()[1:]] == ["bad", "(replaced)"]
    assert "a wrong model" in out
    (mark,) = cli("marks", "--json").json["data"]
    assert (mark["why"], [one["why"] for one in mark["earlier"]]) == ("a wrong key", ["a wrong model"])
