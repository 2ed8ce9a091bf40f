"""Which sandbox `auto` takes, and what a named one that is not there is told."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from harbor_assets.domain.errors import NotFound, Refused
from harbor_assets.domain.images import base_images
from harbor_assets.domain.plans import ImageConfig
from harbor_assets.images.progress import BuildLog
from harbor_assets.sandboxes.choice import LocalSandboxes
from harbor_assets.sandboxes.engines import images
from harbor_assets.sandboxes.engines.cli import Engine


class Registry:
    """Has every image but those named `gone`."""

    def resolve(self, image: str) -> str:
        if image.startswith("gone"):
            raise NotFound("it is not here")
        return f"{image}@sha256:1"

    def exists(self, ref: str) -> bool:
        return True

    def config(self, ref: str) -> ImageConfig:
        return ImageConfig()


def program(folder: Path, *, code: int, says: str) -> str:
    """An engine's command that answers `info` so."""
    path = folder / f"engine-{code}"
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


def chooser(home: Path, engines: Sequence[Engine], *bases: str) -> LocalSandboxes:
    return LocalSandboxes(
        home, engines=engines, registries=lambda engine: Registry(), base_images=lambda tasks: list(bases)
    )


def test_auto_takes_an_engine_that_answers_and_has_the_images(tmp_path: Path):
    dead = Engine("docker", program(tmp_path, code=1, says=""))
    live = Engine("podman", program(tmp_path, code=0, says="{}"))
    chosen = chooser(tmp_path, [dead, live], "debian").choose("auto", lambda: ())
    assert (chosen.kind, chosen.why) == ("podman", "auto: podman answers and has every image the tasks begin from")


@pytest.mark.req_root
def test_auto_falls_back_to_process_and_says_why(tmp_path: Path):
    live = Engine("podman", program(tmp_path, code=0, says="{}"))
    chosen = chooser(tmp_path, [Engine("docker", "/nowhere/docker"), live], "debian", "gone:1").choose(
        "auto", lambda: ()
    )
    assert chosen.kind == "process"
    assert "docker is not installed; podman cannot get gone:1: it is not here" in chosen.why


def test_a_named_engine_that_is_not_there_is_refused_with_the_next_step(tmp_path: Path):
    with pytest.raises(Refused) as refused:
        chooser(tmp_path, [Engine("docker", "/nowhere/docker")]).choose("docker", lambda: ())
    assert "is not installed here; install docker, or take process" in str(refused.value)


def test_a_registry_that_says_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    silent = tmp_path / "podman"
    silent.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "  image) echo no such image >&2; exit 1 ;;\n"
        f"  pull) echo $2 >>{tmp_path}/pulls; echo Trying to pull $2...; exec sleep 60 ;;\n"
        "esac\n"
    )
    silent.chmod(0o755)
    monkeypatch.setattr(images, "ANSWER_SECONDS", 0.5)
    engine = Engine("podman", str(silent))
    registry = images.EngineImages(engine, home=tmp_path, context_key=str, log=BuildLog)
    local = LocalSandboxes(
        tmp_path, engines=[engine], registries=lambda engine: registry, base_images=lambda tasks: ["debian"]
    )
    began = time.monotonic()
    why = [local._lack(engine, ()) for _ in range(2)]
    assert why == ["podman cannot get debian: it is not here, and its registry did not answer within 0.5 s"] * 2
    assert time.monotonic() - began < 30
    assert (tmp_path / "pulls").read_text() == "debian\n"  # a command asks twice, and pulls once


def test_a_long_pull_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    slow = tmp_path / "podman"
    slow.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        f"  image) [ -e {tmp_path}/there ] || {{ echo no such image >&2; exit 1; }}\n"
        """    echo '[{"Id": "sha256:1"}]' ;;\n"""
        f"  pull) echo Trying to pull $2...; echo Copying blob 1; sleep 2; touch {tmp_path}/there ;;\n"
        "esac\n"
    )
    slow.chmod(0o755)
    monkeypatch.setattr(images, "TOLD_SECONDS", 0.5)
    registry = images.EngineImages(Engine("podman", str(slow)), home=tmp_path, context_key=str, log=BuildLog)
    with caplog.at_level(logging.INFO, logger="harbor_assets.sandboxes.engines"):
        assert registry.resolve("debian") == "debian@sha256:1"
    assert caplog.records[0].getMessage() == "podman pulls debian, for 1 s now: Copying blob 1"
    assert 1 <= len(caplog.records) <= 3


def test_a_docker_whose_daemon_is_away_does_not_answer(tmp_path: Path):
    away = program(tmp_path, code=0, says='{"ServerErrors":["Cannot connect to the Docker daemon"]}')
    assert Engine("docker", away).absence() == (
        "docker does not answer: Cannot connect to the Docker daemon; start it, or take process"
    )


@pytest.mark.parametrize(
    ("dockerfile", "found"),
    [
        ("FROM debian:12\nRUN x", ("debian:12",)),
        ("ARG V=3.12\nFROM python:${V} AS build\nFROM build\nFROM scratch\n", ("python:3.12",)),
        ("from --platform=linux/amd64 \\\n  gcc\nFROM gcc", ("gcc",)),
        ("FROM $UNSET", ("$UNSET",)),
        ("# FROM x", ()),
    ],
)
def test_base_images(dockerfile: str, found: tuple[str, ...]):
    assert base_images(dockerfile) == found
