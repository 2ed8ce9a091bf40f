"""`tasks`, `tasksets` and `metrics`: what they store, show, ask and refuse."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.interfaces.backends import World
from tests.suites.make import make_task

TASK = """\
spec:
  kind: evaluator
  intent: Name the capital of {country}.
  inputs:
    instruction: What is the capital of {country}?
  reference: {{expected: {city}}}
  metrics: [match]
metadata: [{{key: suite, value: geography}}]
"""


@pytest.fixture(autouse=True)
def _match(w: World) -> None:
    from harbor_assets.domain.metrics.bodies import bundled

    w.catalog.add_metric("default", "match", bundled({"type": "exact-match", "reference": "{{item.expected}}"}))


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give


def yaml(folder: Path, country: str = "France", city: str = "Paris") -> Path:
    file = folder / f"{country}.yaml"
    file.write_text(TASK.format(country=country, city=city))
    return file


def stored(cli: Cli, folder: Path, *names: str) -> list[str]:
    """Tasks of these names; their references."""
    made = [cli("tasks", "create", name, "--file", yaml(folder, name), "--json").json for name in names]
    return [task["ref"] for task in made]


def test_a_task_is_stored_shown_changed_and_tagged(cli: Cli, tmp_path: Path, stdin: Callable[[str], None]):
    said = cli("tasks", "create", "france", "--file", yaml(tmp_path))
    assert said.code == 0, said.err
    assert said.out.startswith("Published task default/france#")
    assert said.out.endswith(" (revision 1)\n")
    shown = cli("tasks", "show", "france").out
    for words in ('Metadata:    suite="geography"', "Metrics:     default/match", "What is the capital of France?"):
        assert words in shown
    body = cli("tasks", "show", "france", "--body").out
    stdin(body)
    assert cli("tasks", "replace", "france", "--file", "-").out.startswith("Unchanged task default/france#")
    stdin(body.replace("What is", "Name"))
    said = cli("tasks", "replace", "default/france", "--file", "-", "--json")
    assert (said.json["published"], said.json["revision"]) == (True, 2)
    listed = cli("tasks", "revisions", "france", "--json").json["data"]
    assert [one["tags"] for one in listed] == [["latest"], []]
    first = f"france#{listed[1]['content_hash']}"
    assert cli("tasks", "tag", first, "stable").out == "default/france#stable is revision 1\n"
    assert cli("tasks", "show", "france#stable", "--json").json["revision"] == 1
    assert cli("tasks", "tag", "france", "stable", "--json").json["tags"] == {"latest": 2, "stable": 2}
    assert "stable" in cli("tasks", "revisions", "france").out.splitlines()[1]
    for words in (("show", "frnace"), ("revisions", "frnace"), ("tag", "frnace", "x"), ("delete", "frnace", "--yes")):
        said = cli("tasks", *words)
        assert (said.code, said.err.endswith("did you mean france?\n")) == (2, True), said.err
    assert "did you mean" not in cli("tasks", "show", "france#frnace").err


def test_lists_are_filtered_sorted_and_counted(cli: Cli, tmp_path: Path):
    stored(cli, tmp_path, "a", "b", "c")
    said = cli("tasks", "list", "--page-size", "2", "--sort", "-name")
    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [["c", "evaluator"], ["b", "evaluator"]]
    assert said.err == "2 of 3 tasks; page 1 of 2, --page shows the others\n"
    said = cli("tasks", "list", "--filter", 'metadata["suite"]:"geography" AND intent~"OF B."', "--json")
    assert [one["name"] for one in said.json["data"]] == ["b"]
    assert said.json["pagination"]["total_results"] == 1
    assert [one["name"] for one in cli("tasks", "list", "--filter", '{"name": "c"}', "--json").json["data"]] == ["c"]
    assert cli("tasks", "list", "--filter", 'name:"x"').err == (
        "There are no tasks that the filter fits in the workspace 'default'\n"
    )
    assert "after the last one, 1, of 3 tasks" in cli("tasks", "list", "--page", "9").err
    said = cli("tasks", "list", "--filter", 'colour:"blue"')
    assert (said.code, "'colour' is no field of this list; there are created_at" in said.err) == (2, True)
    assert cli("tasks", "list", "--sort", "size").code == 2
    assert "no tasksets in the workspace 'other'" in cli("tasksets", "list", "--workspace", "other").err


def test_a_taskset_of_stored_tasks(cli: Cli, tmp_path: Path, stdin: Callable[[str], None]):
    refs = stored(cli, tmp_path, "a", "b")
    stdin("description: Two of them\ntasks: [a, default/b]\n")
    said = cli("tasksets", "create", "pair", "--file", "-", "--json")
    assert said.json["tasks"] == refs
    shown = cli("tasksets", "show", "pair").out
    assert "Description: Two of them" in shown
    assert f"2 tasks\n  {refs[0]}\n  {refs[1]}\n" in shown
    assert cli("tasksets", "list").out.splitlines()[1].split()[:3] == ["pair", "2", "1"]
    stdin(cli("tasksets", "show", "pair", "--body").out)
    assert cli("tasksets", "replace", "pair", "--file", "-").out.startswith("Unchanged taskset default/pair#")
    stdin("tasks: [a, nope, a]")
    said = cli("tasksets", "replace", "pair", "--file", "-")
    assert (said.code, "nope: no such task" in said.err) == (2, True)
    assert cli("tasksets", "delete", "pair", "--yes", "--json").json == {"deleted": "default/pair"}
    assert cli("tasks", "list", "--json").json["pagination"]["total_results"] == 2


def test_a_suite_is_published_with_the_label_of_its_dataset(cli: Cli, tmp_path: Path):
    make_task(tmp_path / "suite", "one", native_id="org/one")
    said = cli("tasksets", "create", "--harbor-dir", tmp_path / "suite", "--json")
    assert said.code == 0, said.err
    name, _, digest = said.json["intake_dataset"].partition("@")
    assert said.json["taskset_ref"] == f"default/{name}#{digest}"
    assert "Native id:   org/one" in cli("tasks", "show", "suite-one").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create",), "--harbor-dir DIR for a suite"),
        (("create", "name"), "needs both, NAME and --file"),
        (("create", "--file", "x.yaml"), "needs both, NAME and --file"),
        (("create", "name", "--file", "x", "--harbor-dir", "."), "--harbor-dir: only for a suite's folder"),
        (("create", "name", "--file", "x", "--tasks", "0", "--strict"), "--tasks, --strict: only for a suite's folder"),
        (("create", "--harbor-dir", ".", "--project", "p"), "--project is only for --file"),
    ],
)
def test_the_two_ways_to_make_a_taskset_are_not_mixed(cli: Cli, words: tuple[str, ...], says: str):
    said = cli("tasksets", *words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("[1]", "must be an object with members"),
        ("{", "is not JSON"),
        ("a: [", "is not YAML"),
        ("a: 1\na: 2", "the key 'a' stands twice"),
        ('{"spec": {"kind": "evaluator", "intent": 3, "more": 1}, "x": 1}', "  spec.intent: must be text; it is 3\n"),
        ('{"spec": {"kind": "evaluator", "intent": 3, "more": 1}, "x": 1}', "  spec.more: is no field"),
        ('{"spec": {"kind": "evaluator", "intent": 3, "more": 1}, "x": 1}', "  x: is no field"),
    ],
)
def test_bad_bodies_are_named_and_nothing_is_asked(
    cli: Cli, w: World, stdin: Callable[[str], None], text: str, says: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(w, "backend", None)
    stdin(text)
    said = cli("tasks", "create", "t", "--file", "-")
    assert (said.code, said.out) == (2, "")
    assert "The task on stdin" in said.err
    assert says in said.err


def test_a_file_is_read_by_its_name(cli: Cli, tmp_path: Path):
    file = tmp_path / "task.json"
    file.write_text(TASK)
    said = cli("tasks", "create", "t", "--file", file)
    assert (said.code, "YAML ends in .yaml or .yml" in said.err) == (2, True)
    assert "cannot be read: No such file" in cli("tasks", "create", "t", "--file", tmp_path / "none.json").err


def test_a_taken_name_is_told_with_what_to_do(cli: Cli, tmp_path: Path):
    stored(cli, tmp_path, "a")
    said = cli("tasks", "create", "a", "--file", yaml(tmp_path, "Peru"))
    assert said.code == 2
    assert "already exists. To publish new content of it: harbor-assets tasks replace default/a --file FILE" in said.err


def test_deleting_asks_and_says_what_goes(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stored(cli, tmp_path, "a")
    said = cli("tasks", "delete", "a")
    assert (said.code, "harbor-assets tasks delete default/a --yes" in said.err) == (2, True)

    asked: list[str] = []

    def answer(reply: bool) -> None:
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text) or reply)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    answer(False)
    assert cli("tasks", "delete", "a").code == 2
    assert cli("metrics", "delete", "match").code == 2
    assert cli("tasks", "show", "a").code == 0
    answer(True)
    assert cli("tasks", "delete", "a").out == "Deleted task default/a\n"
    assert asked == [
        "Delete the task default/a with its 1 revision?",
        "Delete the metric default/match, which 1 task of its workspace name?",
        "Delete the task default/a with its 1 revision?",
    ]
    assert cli("tasks", "delete", "a", "--yes").code == 2
    assert cli("metrics", "delete", "mtach", "--yes").err.endswith("did you mean match?\n")
    said = cli("tasks", "delete", "a#latest", "--yes")
    assert "names one revision, and this is about all of them; write default/a" in said.err


def test_metrics(cli: Cli, stdin: Callable[[str], None]):
    stdin(json.dumps({"type": "f1", "reference": "{{item.expected}}", "description": "Shared words"}))
    assert cli("metrics", "create", "overlap", "--file", "-").out == "Created metric default/overlap (f1)\n"
    assert [one["name"] for one in cli("metrics", "list", "--json").json["data"]] == ["match", "overlap"]
    assert cli("metrics", "list", "--filter", 'metric_type:"f1"').out.splitlines()[1].split()[:3] == [
        "overlap",
        "f1",
        "f1",
    ]
    shown = cli("metrics", "show", "default/overlap").out
    assert "Type:        f1\nOutputs:     f1\nPayload:     inline, SHA-256 " in shown
    assert "payload" not in cli("metrics", "show", "overlap", "--json").json
    stdin('{"type": "number-check", "operation": "equals"}')
    said = cli("metrics", "create", "broken", "--file", "-")
    assert (said.code, "left_template: is missing" in said.err) == (2, True)
    assert cli("metrics", "delete", "overlap", "--yes").out == "Deleted metric default/overlap\n"
    assert cli("metrics", "show", "overlap").code == 2


def test_what_others_wrote_does_nothing_to_a_terminal(cli: Cli, stdin: Callable[[str], None]):
    evil = "\x1b[2Jevil\nline"
    body: dict[str, Any] = {"spec": {"kind": "evaluator", "intent": evil, "inputs": {"instruction": evil}}}
    stdin(json.dumps({**body, "metadata": [{"key": evil, "value": evil}]}))
    assert cli("tasks", "create", "t", "--file", "-").code == 0
    for said in (cli("tasks", "show", "t"), cli("tasks", "list"), cli("tasks", "show", "t", "--json")):
        assert said.code == 0
        assert "\x1b" not in said.out
    assert len(cli("tasks", "list").out.splitlines()) == 2
