"""What must work before anything else does: help, version, usage errors, and how little that imports."""

import json
import re
import subprocess
import sys
from typing import Any

import pytest
import typer

from harbor_assets.domain import errors
from harbor_assets.domain.phases import ExitCode
from harbor_assets.interfaces.cli import edge
from harbor_assets.interfaces.cli.main import app

HEAVY = ("fastapi", "starlette", "sqlalchemy", "harbor", "dagster", "httpx", "duckdb", "kubernetes", "pydantic", "rich")

COMMANDS = [
    (),
    ("quickstart",),
    ("config",),
    ("ui",),
    ("serve",),
    ("context",),
    ("cluster",),
    *(("cluster", verb) for verb in ("install", "uninstall", "migrate", "context", "manifests", "reap")),
    *(("context", verb) for verb in ("add", "use", "list", "show", "remove")),
    ("tasks",),
    *(("tasks", verb) for verb in ("list", "show", "create", "replace", "revisions", "tag", "delete")),
    ("metrics",),
    *(("metrics", verb) for verb in ("list", "show", "create", "delete")),
    ("experiments",),
    *(("experiments", verb) for verb in ("create", "list", "show", "delete")),
    ("evaluations",),
    *(("evaluations", verb) for verb in ("list", "show", "pin", "unpin", "delete")),
    ("tasksets",),
    *(("tasksets", verb) for verb in ("list", "show", "replace", "revisions", "tag", "delete")),
    ("tasksets", "create"),
    ("tasksets", "build-images"),
    ("tasksets", "verify"),
    ("doctor",),
    ("evaluate",),
    ("access",),
    ("access", "new"),
    ("access", "list"),
    ("leaderboard",),
    ("leaderboard", "rebuild"),
    ("leaderboard", "export"),
    ("sql",),
    ("runs", "compare"),
    ("marks",),
    ("lineage",),
    *((noun, verb) for noun in ("tasks", "runs") for verb in ("mark-bad", "unmark")),
    ("runs",),
    ("runs", "rerun"),
    ("runs", "regrade"),
    ("runs", "resume"),
    ("runs", "publish"),
    *(
        ("runs", verb)
        for verb in ("submit", "status", "results", "download", "list", "tasks", "cancel", "logs", "trace")
    ),
]

GROUPS = (
    (),
    ("runs",),
    ("tasks",),
    ("metrics",),
    ("experiments",),
    ("evaluations",),
    ("tasksets",),
    ("context",),
    ("cluster",),
    ("leaderboard",),
    ("access",),
)


def every_command(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    below = getattr(command, "commands", {})
    return [path, *(found for name, sub in below.items() for found in every_command(sub, (*path, name)))]


def test_the_list_of_commands_is_this_one():
    assert sorted(every_command(typer.main.get_command(app))) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_says_what_it_is_for_and_shows_an_example(bare: Any, command: tuple[str, ...]):
    said = bare(*command, "--help")
    assert (said.code, said.err) == (0, "")
    example = re.search(r"Examples:\n((?:    harbor-assets .*\n?)+)", said.out)
    assert example, said.out
    words = " ".join(command)
    assert words in example[1]
    options = set(re.findall(r" (--[a-z-]+)", example[1]))
    assert options <= {option for option in options if command in GROUPS or option in said.out}


def test_help_imports_nothing_heavy():
    script = (
        "import sys, json, atexit\n"
        "atexit.register(lambda: print(json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
        "from harbor_assets.interfaces.cli.main import main\n"
        "sys.argv = ['harbor-assets', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    modules = {name.split(".")[0] for name in json.loads(done.stderr)}
    assert "typer" in modules
    assert modules.isdisjoint(HEAVY)


def test_version_names_what_decides_results(bare: Any):
    said = bare("--version")
    assert said.code == 0
    assert re.fullmatch(r"harbor-assets \S+ \(harbor \S+, dagster \S+, Python \S+\)\n", said.out)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("runs", "sumbit"), "Did you mean 'submit'?"),
        (("runs", "status"), "RUN_ID"),
        (("tasksets", "build-images"), "REF"),
        (("tasksets", "create"), "--harbor-dir"),
        (("runs", "submit", "--n-concurrent", "0"), "--n-concurrent"),
        (("runs", "submit", "--cpus", "many"), "--cpus"),
        (("runs", "tasks", "run-1", "--phase", "done"), "succeeded"),
        (("--frobnicate",), "--frobnicate"),
    ],
)
def test_wrong_usage_is_2_on_stderr(bare: Any, words: tuple[str, ...], says: str):
    said = bare(*words)
    assert (said.code, said.out) == (2, "")
    assert says in said.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Refused("x"), 2),
        (errors.NotFound("x"), 2),
        (errors.Conflict("x"), 2),
        (errors.HomeUnusable("x"), 2),
        (errors.NotReady("x"), 2),
        (errors.IdempotencyConflict("x"), 9),
        (errors.StorageFull("x"), 1),
        (errors.ServiceUnavailable("x"), 1),
        (errors.Broken("x"), 1),
    ],
)
def test_every_error_has_its_exit_code(error: errors.HarborAssetsError, code: int):
    assert edge.exit_code(error) == code


def test_exit_codes_are_those_of_the_domain():
    assert (edge._FAULT, edge.REFUSED, edge._IDEMPOTENCY_CONFLICT, edge.INTERRUPTED) == (
        ExitCode.FAULT,
        ExitCode.REFUSED,
        ExitCode.IDEMPOTENCY_CONFLICT,
        ExitCode.INTERRUPTED,
    )
