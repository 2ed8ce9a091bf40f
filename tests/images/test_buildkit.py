from pathlib import Path

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
