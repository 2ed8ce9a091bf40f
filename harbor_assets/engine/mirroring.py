"""Copies of images that tasks name, in the registry of what is built here: what a run needs then has one place that can
go away, and nodes need no way to any other."""

import tempfile
from pathlib import Path

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.images import DOCKERFILE, image_tag
from harbor_assets.engine.ports import BuildFailed, BuildOrder, ImageBuilder, ImageRegistry

COPY_SECONDS = 1800.0  # an image of 20 GB at 100 Mbit/s


class ImageMirror:
    """Copies by the builder, which speaks to both registries with their credentials. `prefix` as of `ImageBuilds`."""

    def __init__(self, registry: ImageRegistry, builder: ImageBuilder, prefix: str) -> None:
        self._registry, self._builder, self._prefix = registry, builder, prefix

    def copy(self, ref: str) -> str:
        """The copy of an image `repository@sha256:...`, pinned. One that is there is not made again: its tag says of
        which digest it is.

        Raises `BuildFailed` if it cannot be made, `ServiceUnavailable` if builder or registry do not answer.
        """
        name = ref.partition("@")[0].rpartition("/")[2]
        tag = image_tag(self._prefix, f"mirror-{name}", digest_of({"ref": ref, "version": 1}))
        try:
            return self._registry.resolve(tag)
        except NotFound:
            pass
        with tempfile.TemporaryDirectory(prefix="harbor-assets-mirror-") as scratch:
            (Path(scratch) / DOCKERFILE).write_text(f"FROM {ref}\n")
            try:
                return self._builder.build(BuildOrder(Path(scratch), tag, COPY_SECONDS), self._builder.log())
            except BuildFailed as error:
                raise BuildFailed(f"{ref} cannot be copied to {tag}: {error}") from error
