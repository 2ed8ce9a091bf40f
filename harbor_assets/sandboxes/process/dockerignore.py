"""The patterns of a .dockerignore and of a COPY's wildcards, with this room's error for one that cannot be read."""

import re
from collections.abc import Iterable
from typing import Self

from harbor_assets.domain import ignores
from harbor_assets.sandboxes.process.dockerfile import DockerfileUnsupported


class Ignore(ignores.Ignore):
    """See `domain.ignores`. Raises `DockerfileUnsupported` for a pattern that cannot be read."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> Self:
        """From patterns one by one, `!` before an exception."""
        try:
            return super().of(lines)
        except ignores.BadPattern as error:
            raise DockerfileUnsupported(str(error)) from None


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """See `domain.ignores`. Raises `DockerfileUnsupported`, beginning with `where`."""
    try:
        return ignores.compile_pattern(pattern, where)
    except ignores.BadPattern as error:
        raise DockerfileUnsupported(str(error)) from None
