"""The environment in, one typed object out."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import nearest
from harbor_assets.settings import home
from harbor_assets.settings.masking import mask_url
from harbor_assets.settings.parsing import BadValue
from harbor_assets.settings.variables import (
    INFRA_RETRIES,
    MAX_CONCURRENT,
    PARTITIONS_KEPT,
    PREFIX,
    QUEUE_TIMEOUT_SECONDS,
    REAP_SECONDS,
    SETTLE_SECONDS,
    VARIABLES,
    Variable,
)

WEBHOOK_URL = PREFIX + "WEBHOOK_URL"
TEST_PREFIX = PREFIX + "TEST_"  # belongs to the test suite, so it is not a misspelled setting
_QUOTED_MAX = 200  # of a bad value: enough to recognise it by


class Setting(NamedTuple):
    """One line of `harbor-assets config`. Passwords in `value` are masked."""

    name: str
    value: str
    source: Literal["default", "environment"]
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All that can be set. `home` and folder or SQLite URLs are absolute, so that a worker elsewhere means the same."""

    home: Path
    workspace: str
    owner: str
    catalog_url: str
    artifacts_url: str
    leaderboard: Path
    run_timeout_seconds: int
    n_concurrent: int
    cancel_poll_seconds: float
    watch_poll_seconds: float
    debug: bool
    executor: Literal["local", "kubernetes"] = "local"
    namespace: str = "harbor-assets"
    worker_image: str = ""
    worker_pods: str = ""
    max_concurrent: int = MAX_CONCURRENT
    infra_retries: int = INFRA_RETRIES
    partitions_kept: int = PARTITIONS_KEPT
    queue_timeout_seconds: int = QUEUE_TIMEOUT_SECONDS
    settle_seconds: float = SETTLE_SECONDS
    reap_seconds: float = REAP_SECONDS
    profiles: Path = Path("/etc/harbor-assets/profiles")
    benchmarks: Path = Path("/etc/harbor-assets/benchmarks")
    buildkit: str = ""
    registry: str = ""
    insecure_registries: str = ""
    registry_mirrors: str = ""
    mirror_images: bool = False
    trial_variables: str = ""
    docker_config: str = ""
    access: str = ""
    webhook_url: str = field(default="", repr=False)
    webhook_format: Literal["generic", "slack"] = "generic"
    webhook_events: str = "ended,failed,regressed"
    webhook_timeout_seconds: float = 10.0
    token: str = field(default="", repr=False)
    context: str = ""
    allow_remote: bool = False
    from_environment: frozenset[str] = frozenset()  # names of the variables that were set
    unknown: tuple[str, ...] = ()  # variables with our prefix that no setting reads: misspelled, most likely

    @classmethod
    def load(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Read `environ` (the process's own if None). Raises `Refused` with every unusable value at once."""
        env = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        problems: list[Problem] = []
        given: set[str] = set()
        for variable in VARIABLES:
            text = env.get(variable.name, "")
            if not text:
                values[variable.field] = variable.default(values)
                continue
            given.add(variable.name)
            try:
                values[variable.field] = variable.parse(text)
            except BadValue as bad:
                shown = "what it holds" if variable.secret else repr(mask_url(text)[:_QUOTED_MAX])
                problems.append(Problem(variable.name, f"{shown} {bad}"))
                values[variable.field] = variable.default(values)
        if problems:
            raise Refused("Settings in the environment cannot be used:", problems)
        known = {variable.name for variable in VARIABLES}
        unknown = sorted(
            name for name in env if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX) and name not in known
        )
        return cls(**values, from_environment=frozenset(given), unknown=tuple(unknown))

    def describe(self) -> list[Setting]:
        """Every setting with its value, where it comes from and what it is for; passwords masked."""
        return [
            Setting(
                variable.name,
                self._shown(variable),
                "environment" if variable.name in self.from_environment else "default",
                variable.help,
            )
            for variable in VARIABLES
        ]

    def _shown(self, variable: Variable) -> str:
        value = str(getattr(self, variable.field))
        return "***" if variable.secret and value else mask_url(value)

    def as_environ(self) -> dict[str, str]:
        """The variables that make another process load exactly these settings (holds passwords: never print it)."""
        return {variable.name: str(getattr(self, variable.field)) for variable in VARIABLES if not variable.secret}

    def for_child(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of another program of ours: `environ` with these settings, without what is for us alone."""
        ours = {variable.name for variable in VARIABLES if variable.secret}
        return {name: text for name, text in environ.items() if name not in ours} | self.as_environ()

    def for_worker(self, environ: Mapping[str, str]) -> dict[str, str]:
        """As `for_child`, with what a run's worker needs beside; it takes that out of its environment at its start, as
        trials may be given variables by name."""
        webhook = {WEBHOOK_URL: self.webhook_url} if self.webhook_url else {}
        return self.for_child(environ) | webhook

    def warnings(self) -> list[str]:
        """One sentence for each variable that looks like a setting and is none."""
        known = [variable.name for variable in VARIABLES]
        sentences: list[str] = []
        for name in self.unknown:
            close = nearest(name, known, 1)
            hint = f"did you mean {close[0]}?" if close else "`harbor-assets config` lists all settings"
            sentences.append(f"{name} is set, but there is no such setting; {hint}")
        return sentences

    @property
    def locks(self) -> Path:
        return self.home / "locks"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @property
    def cache(self) -> Path:
        return self.home / "cache"

    @property
    def work(self) -> Path:
        """Scratch space of runs under way."""
        return self.home / "work"

    @property
    def sandboxes(self) -> Path:
        return self.home / "sandboxes"

    @property
    def dagster(self) -> Path:
        """The DAGSTER_HOME."""
        return self.home / "dagster"

    def prepare_home(self) -> Path:
        """Make the home folder and its rooms if they are missing, and return it. Raises as `home.prepare`."""
        rooms = (self.locks, self.logs, self.cache, self.work, self.sandboxes, self.dagster)
        home.prepare(self.home, rooms)
        return self.home


assert {variable.field for variable in VARIABLES} | {"from_environment", "unknown"} == {
    f.name for f in fields(Settings)
}
