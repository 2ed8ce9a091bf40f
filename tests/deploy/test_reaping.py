"""`cluster reap`: what an admin asks and sees. kubectl and the cluster are played."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from harbor_assets.cluster.reaper import Reaped, Removed, Why
from harbor_assets.domain.errors import Broken
from harbor_assets.interfaces.cli.cluster import app
from harbor_assets.interfaces.deployment.reaping import reap

RUN = "run-0123456789abcdef"
FOUND = Reaped({RUN: (Why.UNKNOWN, Removed(jobs=2, pods=1, secrets=1, left=4))}, {}, dry_run=True)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that prints what the file it returns holds, and writes down its words."""
    program = tmp_path / "kubectl"
    answer = tmp_path / "answer"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        f"open({str(tmp_path / 'words')!r}, 'w').write(json.dumps(sys.argv[1:]))\nprint(open({str(answer)!r}).read())\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return answer


def played(monkeypatch: pytest.MonkeyPatch, reaped: Reaped) -> list[bool]:
    """Makes this process one of the deployment's pods; whether it was asked for a dry run each time."""
    asked: list[bool] = []

    def look(*, dry_run: bool) -> Reaped:
        asked.append(dry_run)
        return reaped

    monkeypatch.setenv("HARBOR_ASSETS_EXECUTOR", "kubernetes")
    services = SimpleNamespace(upkeep=SimpleNamespace(reap=look))
    monkeypatch.setattr("harbor_assets.wiring.wire", lambda settings: services)
    return asked


def invoke(*words: str) -> Any:
    return CliRunner().invoke(app, ["reap", *words])


def test_in_a_pod_it_looks_itself_and_elsewhere_it_asks_the_deployment(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as pod:
        asked = played(pod, FOUND)
        done = invoke("--dry-run", "--json")
        assert asked == [True]
    document = json.loads(done.stdout)
    assert document["total"] == {
        "jobs": 2, "pods": 1, "secrets": 1, "configmaps": 0, "volumes": 0, "left": 4, "told": 4,
    }  # fmt: skip
    assert [(row["run"], row["why"]) for row in document["runs"]] == [(RUN, "the catalog knows no such run")]
    kubectl.write_text(done.stdout)
    assert reap("evals", "lab", dry_run=True) == document
    words = json.loads((kubectl.parent / "words").read_text())
    assert words[:5] == ["--context", "lab", "-n", "evals", "exec"]
    assert words[-5:] == ["harbor-assets", "cluster", "reap", "--json", "--dry-run"]
    shown = invoke("--dry-run", "--namespace", "evals").stdout.splitlines()
    assert shown[0].split() == ["RUN", "JOBS", "PODS", "SECRETS", "CONFIGMAPS", "VOLUMES", "WHY"]
    assert shown[1].split()[:6] == [RUN, "2", "1", "1", "0", "0"]
    assert shown[2] == "To delete: 4 objects of 1 run; 4 Jobs and pods were there"
    kubectl.write_text("Defaulted container")
    with pytest.raises(Broken, match="no JSON"):
        reap("evals", None, dry_run=False)


def test_what_could_not_be_deleted_is_told_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = played(monkeypatch, Reaped({}, {RUN: "too many requests"}))
    done = invoke()
    assert (asked, done.exit_code) == ([False], 1)
    assert f"{RUN} is left for the next look: too many requests" in done.stdout
    assert "Deleted: 0 objects of 0 runs" in done.stdout
