"""What a sandbox was and what became of it, as a JSON file beside the trial's other evidence."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LISTED_MAX = 20  # names of one kind in a record


class Record:
    """One file. A second sandbox of the same role (each step of a task may have its own verifier) adds to it: the
    earlier one's account moves to `earlier`, its counters stay in the sum."""

    def __init__(self, path: Path, session: str) -> None:
        self.path = path
        self._facts: dict[str, Any] = {"session": session, "notes": [], "network": []}
        self._counters: dict[str, int] = {"oom_kills": 0, "foreign_oom_kills": 0, "output_dropped_bytes": 0}
        self._earlier: list[dict[str, Any]] | None = None

    def set(self, **facts: Any) -> None:
        """Facts as they are now; those that are counters replace the count so far."""
        for name, value in facts.items():
            if name in self._counters:
                self._counters[name] = value
            else:
                self._facts[name] = value

    def count(self, **more: int) -> None:
        """Add to counters."""
        for name, value in more.items():
            self._counters[name] = self._counters.get(name, 0) + value

    def note(self, *sentences: str) -> None:
        """Remarks, each once."""
        for sentence in sentences:
            if sentence not in self._facts["notes"]:
                self._facts["notes"].append(sentence)

    def add_network(self, policy: str, how: str) -> None:
        """A network mode the sandbox was put into, and how it was made."""
        entry = {"policy": policy, "how": how}
        if self._facts["network"][-1:] != [entry]:
            self._facts["network"].append(entry)

    def add_missing_user(self, name: str) -> None:
        """A user that a command wanted to be and that the sandbox does not have."""
        self._add("missing_users", name)

    def add_not_downloaded(self, entries: Iterable[str]) -> None:
        """Files that were not fetched, as `<path>: <reason>`: the first of them, the count is a counter."""
        for entry in entries:
            self._add("not_downloaded", entry)

    def _add(self, name: str, entry: str) -> None:
        found = self._facts.setdefault(name, [])
        if entry not in found and len(found) < LISTED_MAX:
            found.append(entry)

    def write(self) -> None:
        """Write the file: the old or the new, never a half. Raises OSError."""
        if self._earlier is None:
            self._earlier = self._read_earlier()
        facts = {**self._facts, **self._counters}
        if self._earlier:
            facts["earlier"] = self._earlier
            for name in self._counters:
                facts[name] += sum(record.get(name, 0) for record in self._earlier)
        new = self.path.with_name(f".{self.path.name}.new")
        new.write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        new.replace(self.path)

    def _read_earlier(self) -> list[dict[str, Any]]:
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        if not isinstance(found, dict) or found.get("session") == self._facts["session"]:
            return []
        earlier = found.pop("earlier", [])
        for record in earlier:  # the file's counters are sums: take back what belongs to the others
            for name in self._counters:
                found[name] = found.get(name, 0) - record.get(name, 0)
        return [*earlier, found]
