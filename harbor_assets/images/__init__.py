"""Images: what they are built from, the builder, and the registries they lie in."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbor_assets.images.registry import Registries


def registries_of(insecure: str, mirrors: str, docker_config: str | None) -> "Registries":
    """From settings: hosts by commas, `registry=mirror` pairs by commas, and the path of a docker config.json."""
    from harbor_assets.images.registry import Registries

    pairs = (pair.partition("=") for pair in mirrors.split(",") if pair)
    return Registries(
        insecure=frozenset(filter(None, insecure.split(","))),
        mirrors={registry: mirror for registry, _, mirror in pairs},
        docker_config=Path(docker_config) if docker_config else None,
    )
