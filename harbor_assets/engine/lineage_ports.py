"""What lineage needs from outside beside the other ports, as a Protocol."""

from typing import Protocol

from harbor_assets.domain.runs import Run
from harbor_assets.engine.ports import Page


class MentionCatalog(Protocol):
    """Runs by what their plans name."""

    def runs_mentioning(self, workspace: str, text: str, *, limit: int) -> Page[Run]:
        """Runs of the workspace with `text` in their plan, newest first, at most `limit`; `total` counts all of them.

        Reads every plan of the workspace: for a person's question, not for every second. Plans that cannot be read are
        left out, and named as `unreadable`.
        """
        ...
