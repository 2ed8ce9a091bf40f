import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.interfaces.cli import edge
from harbor_assets.interfaces.cli.main import app
from tests.interfaces.backends import World, world


@pytest.fixture(autouse=True)
def _own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or changes the contexts of whoever runs it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def w(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A world that commands get in place of the wired services."""
    with world(tmp_path) as made:
        monkeypatch.setattr("harbor_assets.wiring.wire", lambda settings: made)
        monkeypatch.setenv("HARBOR_ASSETS_WATCH_POLL_SECONDS", "0.01")
        monkeypatch.setenv("HARBOR_ASSETS_OWNER", "me")
        yield made


@dataclass(frozen=True)
class Said:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """The command line in this process, all of it but the interpreter's start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: str | Path) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["harbor-assets", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            edge.run(app)
        out, err = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)


@pytest.fixture
def cli(w: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Without a world: what must work, or fail well, on its own."""
    return Cli(monkeypatch, capsys)
