"""The environment in, one typed object out. Every variable is named `HARBOR_ASSETS_*`; an empty one counts as unset."""

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from harbor_assets.domain.errors import NO_SPACE, HomeUnusable, Problem, Refused, StorageFull
from harbor_assets.domain.names import name_problem, nearest

PREFIX = "HARBOR_ASSETS_"
TEST_PREFIX = PREFIX + "TEST_"  # belongs to the test suite, so it is not a misspelled setting

# Kept equal to domain/plans.py by a test: importing that builds pydantic models, which `--help` cannot afford.
_RUN_TIMEOUT_SECONDS = 24 * 3600
_RUN_TIMEOUT_MAX_SECONDS = 72 * 3600
_CONCURRENCY = 4
_CONCURRENCY_MAX = 1000

_CANCEL_POLL_SECONDS = 0.3  # a cancel is seen within "seconds"; one small query each time
_WATCH_POLL_SECONDS = 0.2  # a person notices no delay; the watcher looks less often where a look is dear
_MAX_CONCURRENT = 20  # task Jobs of one run at once, on a cluster
_QUEUE_TIMEOUT_SECONDS = 48 * 3600  # how long a run may wait for its first slot
_SETTLE_SECONDS = 5.0  # an ended run is merged within a moment; looking costs two small queries
_REAP_SECONDS = 60.0  # leftovers of ended runs are rare, and finding them lists the whole namespace
_POLL_RANGE = (0.01, 60.0)  # below, a poll is a busy loop; above, "within seconds" is not kept

LAYOUT = 1  # the arrangement of the home folder; raised when an older program could not read it any more
_LAYOUT_FILE = "layout-version"
_OWNER_MAX = 255
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
    run_timeout_seconds: int
    n_concurrent: int
    cancel_poll_seconds: float
    watch_poll_seconds: float
    debug: bool
    executor: Literal["local", "kubernetes"] = "local"
    namespace: str = "harbor-assets"
    worker_image: str = ""
    max_concurrent: int = _MAX_CONCURRENT
    queue_timeout_seconds: int = _QUEUE_TIMEOUT_SECONDS
    settle_seconds: float = _SETTLE_SECONDS
    reap_seconds: float = _REAP_SECONDS
    profiles: Path = Path("/etc/harbor-assets/profiles")
    buildkit: str = ""
    registry: str = ""
    insecure_registries: str = ""
    registry_mirrors: str = ""
    docker_config: str = ""
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
        for variable in _VARIABLES:
            text = env.get(variable.name, "")
            if not text:
                values[variable.field] = variable.default(values)
                continue
            given.add(variable.name)
            try:
                values[variable.field] = variable.parse(text)
            except _BadValue as bad:
                problems.append(Problem(variable.name, f"{mask_url(text)[:_QUOTED_MAX]!r} {bad}"))
                values[variable.field] = variable.default(values)
        if problems:
            raise Refused("Settings in the environment cannot be used:", problems)
        known = {variable.name for variable in _VARIABLES}
        unknown = sorted(
            name for name in env if name.startswith(PREFIX) and not name.startswith(TEST_PREFIX) and name not in known
        )
        return cls(**values, from_environment=frozenset(given), unknown=tuple(unknown))

    def describe(self) -> list[Setting]:
        """Every setting with its value, where it comes from and what it is for; passwords masked."""
        return [
            Setting(
                variable.name,
                mask_url(str(getattr(self, variable.field))),
                "environment" if variable.name in self.from_environment else "default",
                variable.help,
            )
            for variable in _VARIABLES
        ]

    def as_environ(self) -> dict[str, str]:
        """The variables that make another process load exactly these settings (holds passwords: never print it)."""
        return {variable.name: str(getattr(self, variable.field)) for variable in _VARIABLES}

    def warnings(self) -> list[str]:
        """One sentence for each variable that looks like a setting and is none."""
        known = [variable.name for variable in _VARIABLES]
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

    @property
    def leaderboard(self) -> Path:
        """The leaderboard's DuckDB file."""
        return self.home / "leaderboard.duckdb"

    def prepare_home(self) -> Path:
        """Make the home folder and its rooms if they are missing, and return it.

        Raises `HomeUnusable` if it is no folder, cannot be read or written, or belongs to a newer version;
        `StorageFull` if there is no space to make it.
        """
        rule = f"choose another with {PREFIX}HOME"
        try:
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)  # trial folders may hold what agents read
            if not os.access(self.home, os.R_OK | os.W_OK | os.X_OK):
                raise HomeUnusable(f"The home folder {self.home} cannot be read and written by this user; {rule}.")
            self._check_layout()
            for room in (self.locks, self.logs, self.cache, self.work, self.sandboxes, self.dagster):
                room.mkdir(exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise HomeUnusable(
                f"The home {self.home} needs {error.filename} to be a folder, it is not; {rule}."
            ) from error
        except OSError as error:
            if error.errno in NO_SPACE:
                raise StorageFull(
                    f"There is no space left for the home folder {self.home}; free some, or {rule}."
                ) from error
            raise HomeUnusable(f"The home folder {self.home} cannot be used: {error.strerror}; {rule}.") from error
        return self.home

    def _check_layout(self) -> None:
        path = self.home / _LAYOUT_FILE
        try:
            text = path.read_text(encoding="ascii", errors="replace").strip()
        except FileNotFoundError:
            # Beside, then renamed: a second command at the same moment reads all of it or nothing.
            beside = self.home / f".{_LAYOUT_FILE}-{os.getpid()}"
            beside.write_text(f"{LAYOUT}\n", encoding="ascii")
            beside.replace(path)
            return
        if text != str(LAYOUT):
            raise HomeUnusable(
                f"The home folder {self.home} has layout {text[:20]!r}, this version of harbor-assets reads {LAYOUT}; "
                f"upgrade harbor-assets, or choose another home with {PREFIX}HOME."
            )


def mask_url(text: str) -> str:
    """`text` with what could be a password in a URL replaced by `***`; rather too much than too little."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        return text
    address, question, query = rest.partition("?")
    user, at, host = address.rpartition("@")
    if at:
        address = f"{user.partition(':')[0]}:***@{host}" if ":" in user else f"{user}@{host}"
    if question:
        query = "&".join(
            f"{part.partition('=')[0]}=***" if _SECRET_PARAMETER.search(part.partition("=")[0]) else part
            for part in query.split("&")
        )
    return f"{scheme}://{address}{question}{query}"


_SECRET_PARAMETER = re.compile(r"pass|secret|token|key|sig|cred|auth", re.IGNORECASE)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")


class _BadValue(Exception):
    """What the rule is, as the rest of a sentence that began with the value."""


@dataclass(frozen=True, slots=True)
class _Variable:
    field: str
    help: str
    parse: Callable[[str], Any]
    default: Callable[[Mapping[str, Any]], Any]

    @property
    def name(self) -> str:
        return PREFIX + self.field.upper()


def _folder(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # ~somebody, who does not exist
        raise _BadValue("names a user's home that is not known; write the full path") from error


def _workspace(text: str) -> str:
    if problem := name_problem(text):
        raise _BadValue(f"{problem}; choose another name for the workspace")
    return text


def _owner(text: str) -> str:
    if len(text) > _OWNER_MAX or not text.isprintable():
        raise _BadValue(f"must be at most {_OWNER_MAX} printable characters")
    return text


def _catalog_url(text: str) -> str:
    if text.startswith("sqlite:///"):
        return f"sqlite:///{_folder(text.removeprefix('sqlite:///'))}"
    if text.startswith(("postgresql://", "postgresql+psycopg://")):
        return text
    raise _BadValue("must be sqlite:///<path of a file> or postgresql+psycopg://<user>:<password>@<host>/<database>")


def _artifacts_url(text: str) -> str:
    if _SCHEME.match(text):
        return text
    return str(_folder(text))


def _buildkit(text: str) -> str:
    if re.fullmatch(r"tcp://[^/\s]+:[0-9]+|unix:///\S+", text):
        return text
    raise _BadValue("must be tcp://<host>:<port> or unix:///<path>")


_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?"


def _prefix(text: str) -> str:
    if re.fullmatch(rf"{_HOST}(/[a-z0-9]+([._-]+[a-z0-9]+)*)*/?", text):
        return text.rstrip("/")
    raise _BadValue("must be <host>[:<port>][/<folder>], the folder in lower case")


def _hosts(text: str) -> str:
    hosts = [host.strip() for host in text.split(",")]
    if all(re.fullmatch(_HOST, host) for host in hosts):
        return ",".join(hosts)
    raise _BadValue("must be <host>[:<port>], several by commas")


def _mirrors(text: str) -> str:
    pairs = [pair.strip() for pair in text.split(",")]
    if all(re.fullmatch(rf"{_HOST}={_HOST}", pair) for pair in pairs):
        return ",".join(pairs)
    raise _BadValue("must be <registry>=<mirror>, several by commas")


def _optional_file(text: str) -> str:
    return str(_folder(text))


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", text) or not low <= int(text) <= high:
            raise _BadValue(f"must be a whole number from {low} to {high}")
        return int(text)

    return parse


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise _BadValue(f"must be a number of seconds from {low} to {high:g}")
        return value

    return parse


def _switch(text: str) -> bool:
    value = {"1": True, "true": True, "on": True, "0": False, "false": False, "off": False}.get(text.lower())
    if value is None:
        raise _BadValue("must be 1 or 0")
    return value


def _executor(text: str) -> str:
    if text not in ("local", "kubernetes"):
        raise _BadValue("must be local (a worker on this machine) or kubernetes (a Job per task)")
    return text


def _namespace(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise _BadValue("must be a Kubernetes namespace: at most 63 of a-z, 0-9 and -, not at its ends")
    return text


def _image(text: str) -> str:
    if not re.fullmatch(r"[\x21-\x7e]{1,512}", text):
        raise _BadValue("must be an image reference without spaces, such as registry/harbor-assets-worker@sha256:...")
    return text


def _user(_: Mapping[str, Any]) -> str:
    import getpass  # imports termios and more: only where no owner is set

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without an entry in passwd, as in many containers
        return f"uid-{os.getuid()}"


_VARIABLES = (
    _Variable(
        "home",
        "folder of the catalog, the artifacts, logs and scratch space",
        _folder,
        lambda _: Path("~/.harbor-assets").expanduser().absolute(),
    ),
    _Variable("workspace", "workspace of names given without one", _workspace, lambda _: "default"),
    _Variable("owner", "who submits; `runs list --mine` shows this owner's runs", _owner, _user),
    _Variable(
        "catalog_url",
        "database of tasks, tasksets and runs: sqlite:///<file> or postgresql+psycopg://...",
        _catalog_url,
        lambda values: f"sqlite:///{values['home'] / 'catalog.db'}",
    ),
    _Variable(
        "artifacts_url",
        "where archives, trial folders and bundles lie: a folder, or a URL such as s3://bucket/prefix",
        _artifacts_url,
        lambda values: str(values["home"] / "artifacts"),
    ),
    _Variable(
        "run_timeout_seconds",
        "time budget of a run, counted from its first slot",
        _whole(1, _RUN_TIMEOUT_MAX_SECONDS),
        lambda _: _RUN_TIMEOUT_SECONDS,
    ),
    _Variable("n_concurrent", "trials of a run at the same time", _whole(1, _CONCURRENCY_MAX), lambda _: _CONCURRENCY),
    _Variable(
        "cancel_poll_seconds",
        "how often a worker looks whether its run was cancelled",
        _seconds(*_POLL_RANGE),
        lambda _: _CANCEL_POLL_SECONDS,
    ),
    _Variable(
        "watch_poll_seconds",
        "how often --watch and --wait look at the run",
        _seconds(*_POLL_RANGE),
        lambda _: _WATCH_POLL_SECONDS,
    ),
    _Variable("debug", "1: an error is printed with the place it comes from", _switch, lambda _: False),
    _Variable("executor", "where trials run: local, or kubernetes (a deployment)", _executor, lambda _: "local"),
    _Variable("namespace", "Kubernetes namespace of a run's Jobs and pods", _namespace, lambda _: "harbor-assets"),
    _Variable("worker_image", "image of run workers and task Jobs on a cluster", _image, lambda _: ""),
    _Variable(
        "max_concurrent",
        "task Jobs of one run at once on a cluster; a request may ask for fewer",
        _whole(1, _CONCURRENCY_MAX),
        lambda _: _MAX_CONCURRENT,
    ),
    _Variable(
        "queue_timeout_seconds",
        "how long a run on a cluster may wait for its first slot before it expires",
        _whole(1, 30 * 24 * 3600),
        lambda _: _QUEUE_TIMEOUT_SECONDS,
    ),
    _Variable(
        "settle_seconds",
        "how often a deployment looks after its active runs",
        _seconds(1.0, 600.0),
        lambda _: _SETTLE_SECONDS,
    ),
    _Variable(
        "reap_seconds",
        "how often a deployment looks for what ended runs left in the cluster",
        _seconds(1.0, 3600.0),
        lambda _: _REAP_SECONDS,
    ),
    _Variable(
        "profiles",
        "folder of a deployment's sandbox profiles (*.yaml)",
        _folder,
        lambda _: Path("/etc/harbor-assets/profiles"),
    ),
    _Variable("buildkit", "BuildKit that builds images: tcp://host:port or unix:///path", _buildkit, lambda _: ""),
    _Variable("registry", "registry and folder for built images, as registry.example.org/evals", _prefix, lambda _: ""),
    _Variable("insecure_registries", "registries spoken to over plain HTTP, by commas", _hosts, lambda _: ""),
    _Variable(
        "registry_mirrors",
        "registries asked in place of others, by commas: docker.io=mirror.example.org",
        _mirrors,
        lambda _: "",
    ),
    _Variable("docker_config", "docker config.json with registries' credentials", _optional_file, lambda _: ""),
    _Variable("context", "saved service that commands talk to, by name; local: this home", str, lambda _: ""),
    _Variable(
        "allow_remote",
        "1: `serve` may listen on addresses that others reach, though it has no authentication",
        _switch,
        lambda _: False,
    ),
)
assert {variable.field for variable in _VARIABLES} | {"from_environment", "unknown"} == {
    f.name for f in fields(Settings)
}
