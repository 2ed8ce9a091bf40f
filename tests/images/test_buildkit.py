from pathlib import Path

import grpc
import pytest

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.engine.ports import BuildFailed, BuildOrder
from harbor_assets.images.buildkit import BuildKit
from harbor_assets.images.registry import Registries


def test_images_whose_registry_has_a_mirror_are_taken_from_there(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "ARG TAG=3.12\nFROM python:${TAG} AS base\nFROM ghcr.io/a/b:1\nFROM base\nFROM $UNKNOWN\nFROM scratch\n"
    )
    kit = BuildKit("tcp://x:1", Registries(mirrors={"docker.io": "mirror.test:5000"}))
    assert kit.mirrored(tmp_path) == {"context:python:3.12": "docker-image://mirror.test:5000/library/python:3.12"}
    assert BuildKit("tcp://x:1", Registries()).mirrored(tmp_path) == {}
    assert kit.mirrored(tmp_path / "nowhere") == {}


class Broke(grpc.RpcError, grpc.Call):  # type: ignore[misc]
    """A call that the other side reset."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "Stream removed (RST_STREAM)"


@pytest.mark.parametrize(("late", "meant"), [(True, BuildFailed), (False, ServiceUnavailable)])
def test_a_call_reset_at_its_deadline_is_a_build_that_took_too_long(tmp_path: Path, late: bool, meant: type[Exception]):
    Broke.__abstractmethods__ = frozenset()
    kit = BuildKit("tcp://x:1", Registries())
    assert isinstance(kit._meaning(Broke(), BuildOrder(tmp_path, "x:1", 2), late=late), meant)  # type: ignore[abstract]
