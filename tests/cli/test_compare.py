"""`runs compare` and the gates of --fail-if, on the command line, here and through a service."""

from harbor_assets.interfaces.api.app import create_app
from tests.cli.conftest import Cli
from tests.cli.test_runs import submit
from tests.interfaces.backends import World
from tests.interfaces.served import served


def ended(w: World, *rewards: float, taskset: str = "suite") -> str:
    run_id = submit(w, *"abcdef"[: len(rewards)])
    w.end(run_id, *rewards)
    w.merge(run_id)
    return run_id


def test_a_run_is_held_against_another(cli: Cli, w: World):
    first, second = ended(w, 1.0, 0.0, 1.0), ended(w, 0.0, 1.0, 1.0)
    said = cli("runs", "compare", first, second)
    assert (said.code, said.err) == (0, "")
    assert "Second less first: +0.0000" in said.out
    assert "TRIALS TOOK is the sum of all trials' times" in said.out
    assert "p (mcnemar, exact, over the tasks that only one passed) says whether it may be chance" in said.out
    assert "Better 1, worse 1, equal 1; regressions 1" in said.out
    assert [line.split()[0] for line in said.out.splitlines()[-2:]] == ["a", "b"]
    found = cli("runs", "compare", first, second, "--json").json
    assert (found["comparable"], found["wins"], found["regressions"]) == (True, 1, 1)
    assert [task["verdict"] for task in found["tasks"]] == ["loss", "win", "tie"]


def test_a_condition_that_holds_is_exit_code_7(cli: Cli, w: World):
    first, second = ended(w, 1.0, 0.0), ended(w, 0.0, 1.0)
    fails = cli("runs", "compare", first, second, "--fail-if", "regressions>0, mean<0.5")
    assert (fails.code, "Fails: regressions>0: it is 1" in fails.err, "mean<0.5" in fails.err) == (7, True, False)
    assert cli("runs", "compare", first, second, "--fail-if", "mean<0.5", "--fail-if", "coverage<1").code == 0
    assert cli("runs", "compare", first, second, "--fail-if", "mean<").code == 2
    assert cli("runs", "results", first, "--fail-if", "mean<0.6").code == 7
    assert cli("runs", "results", first, "--fail-if", "mean<0.5", "--json").json["outcomes"]["planned"] == 2
    unknown = cli("runs", "results", first, "--fail-if", "cost_usd>10")
    assert (unknown.code, "it is not known" in unknown.err) == (7, True)
    assert "did you mean mean" in cli("runs", "results", first, "--fail-if", "men<0.5").err


def test_what_is_said_of_either_stands_on_stderr_and_moves_no_gate(cli: Cli, w: World):
    first, second = ended(w, 1.0, 0.0), ended(w, 0.0, 1.0)
    assert cli("runs", "compare", first, second, "--json").json["second"]["stale"] is False
    w.marking.mark_bad("default", second, "a wrong model")
    said = cli("runs", "compare", first, second, "--fail-if", "mean<0.5")
    assert said.code == 0
    assert f"Warning: {second} is marked bad: a wrong model (me, " in said.err
    assert f"Stale: {second}. No figure changes by it, and --fail-if looks at them as they are" in said.err
    assert "0.5000 (stale)" in said.out
    ref = w.marking.mark_bad("default", "a", "its tests are wrong").subject
    said = cli("runs", "compare", first, second, "--json")
    assert [said.json[side]["stale"] for side in ("first", "second")] == [True, True]
    assert [mark["subject"] for mark in said.json["first"]["marks"]] == [ref]
    assert said.err.count("its tests are wrong") == 1
    assert cli("runs", "compare", first, second, "--fail-if", "regressions>0").code == 7


def test_runs_that_are_not_comparable_are_no_gate(cli: Cli, w: World):
    first, second = ended(w, 1.0, 0.0), ended(w, 1.0)
    said = cli("runs", "compare", first, second)
    assert said.code == 0
    assert "Not comparable: taskset: default/suite#" in said.err
    refused = cli("runs", "compare", first, second, "--fail-if", "losses>0")
    assert (refused.code, "not comparable" in refused.err) == (2, True)
    assert cli("runs", "compare", first, second, "--fail-if", "losses>0", "--anyway").code == 0


def test_what_cannot_be_compared_is_refused(cli: Cli, w: World):
    first = ended(w, 1.0)
    assert cli("runs", "compare", first, first).code == 2
    assert cli("runs", "compare", first, "run-0000000000000000").code == 2
    going_on = submit(w, "a")
    assert "has ended" in cli("runs", "compare", first, going_on).err


def test_a_service_answers_the_same(cli: Cli, w: World):
    first, second = ended(w, 1.0, 0.0), ended(w, 0.0, 0.0)
    with served(create_app(w.backend)) as url:
        words = ("runs", "compare", first, second, "--fail-if", "difference<0")
        assert cli(*words, "--base-url", url).out == cli(*words).out
        assert cli(*words, "--base-url", url).code == 7
