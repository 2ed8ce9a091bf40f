"""One trial looked at: its row, the folders of its tries, and pieces of their files."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from harbor_assets.domain.errors import NotFound
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.plans import PlannedTask, trial_id
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.views import BundleFile
from harbor_assets.engine.ports import Artifacts

EXCERPT_BYTES = 32 * 1024  # of a file, its end: what went wrong stands there
FILES_MAX = 1000  # of one folder that are named


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The end of a text file: `size` bytes are in it, `left_out` of them before `text`."""

    path: str
    text: str
    size: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Folder:
    """What a try left: `path` is relative to the bundle, files are relative to it. `more`: files that are not named."""

    number: int
    path: str
    files: Sequence[BundleFile]
    more: int = 0


class TrialEvidence:
    """Trial (task, k) of a run. `row`: its outcome, None while it has none."""

    def __init__(self, run: Run, task: PlannedTask, k: int, row: TrialOutcome | None, artifacts: Artifacts) -> None:
        self.run, self.task, self.k, self.row = run, task, k, row
        self._artifacts = artifacts

    @property
    def trial_id(self) -> str:
        return trial_id(self.task, self.k)

    def folders(self) -> Iterator[Folder]:
        """The folder of every try that left one, the earliest first."""
        if self.row is None:
            return
        kept = [(number, one.leftovers) for number, one in enumerate(self.row.tries, start=1)]
        last = len(kept) or 1
        paths = [(number, path) for number, path in kept[:-1] if path and path != self.row.evidence]
        for number, path in [*paths, (last, self.row.evidence)]:
            if path:
                yield self._folder(number, path)

    def excerpt(self, path: str, most: int = EXCERPT_BYTES) -> Excerpt | None:
        """The end of a file of the trial's folder (`path` is relative to it); None if it is not there."""
        if self.row is None or self.row.evidence is None:
            return None
        whole = f"{self.row.evidence}/{path}"
        with suppress(NotFound), self._artifacts.open(self._key(whole)) as file:
            size = self._artifacts.size(self._key(whole))
            left_out = max(0, size - most)
            file.seek(left_out)
            return Excerpt(whole, file.read(most).decode("utf-8", "replace"), size, left_out)
        return None

    def _folder(self, number: int, path: str) -> Folder:
        found = [BundleFile(path=name, size=size) for name, size in self._artifacts.list(self._key(path))]
        return Folder(number, path, found[:FILES_MAX], max(0, len(found) - FILES_MAX))

    def _key(self, path: str) -> str:
        return f"{bundle_key(self.run.id)}/{path}"
