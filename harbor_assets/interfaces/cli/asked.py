"""What a run is to be like, from the flags of the command line or from a request file: never from both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import name_problem
from harbor_assets.domain.placement import Toleration, label_problem, read_toleration
from harbor_assets.domain.publication import Intake, PublicationRequest, read_dataset
from harbor_assets.domain.requests import VALUES_UNSEEN, VARIABLE, RequestFile
from harbor_assets.domain.text import quoted
from harbor_assets.domain.validation import problems_of
from harbor_assets.interfaces.cli.bodies import read_document

FILE_MAX = 1 << 20  # bytes; a request is a page of text
_REFUSED = "The run was not submitted:"
# field of Asked -> the flag, and the place of its value in a request
_FLAGS = {
    "agent": ("--agent", "spec.target.source.name"),
    "agent_env": ("--ae", "spec.target.env_vars"),
    "agent_timeout_multiplier": ("--agent-timeout-multiplier", "spec.target.agent_timeout_multiplier"),
    "n_attempts": ("--n-attempts", "spec.target.n_attempts"),
    "max_retries": ("--max-retries", "spec.target.max_retries"),
    "min_coverage": ("--min-coverage", "min_coverage"),
    "infra_retries": ("--infra-retries", "execution.infra_retries"),
    "sandbox": ("--sandbox", "execution.sandbox.kind"),
    "profile": ("--sandbox-profile", "execution.sandbox.profile"),
    "n_concurrent": ("--n-concurrent", "execution.max_concurrent_task_jobs"),
    "cpus": ("--cpus", "execution.sandbox.cpus"),
    "memory_mb": ("--memory-mb", "execution.sandbox.memory_mb"),
    "storage_mb": ("--storage-mb", "execution.sandbox.storage_mb"),
    "node_selector": ("--node-selector", "execution.sandbox.node_selector"),
    "keep_seconds": ("--keep-seconds", "execution.sandbox.keep_seconds"),
    "tolerations": ("--toleration", "execution.sandbox.tolerations"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The flags that say what a run is to be like; None where they were not given."""

    spec_file: str | None = None
    agent: str | None = None
    agent_env: tuple[str, ...] | None = None  # KEY=VALUE
    agent_timeout_multiplier: float | None = None
    n_attempts: int | None = None
    max_retries: int | None = None
    min_coverage: float | None = None
    infra_retries: int | None = None
    sandbox: str | None = None
    profile: str | None = None
    n_concurrent: int | None = None
    cpus: float | None = None
    memory_mb: int | None = None
    storage_mb: int | None = None
    node_selector: tuple[str, ...] | None = None  # KEY=VALUE
    keep_seconds: int | None = None
    tolerations: tuple[str, ...] | None = None  # KEY[=VALUE][:EFFECT]
    experiment: str | None = None  # replaces what a request file says of publication
    intake_dataset: str | None = None  # NAME[@VERSION]

    def read(self) -> RequestFile:
        """The request but for its tasks. Raises `Refused` with every problem at once."""
        publication = self._publication()  # read first: it stands beside a request file, too
        wanted = self._read()
        if publication is None:
            return wanted
        return wanted.model_copy(update={"spec": wanted.spec.model_copy(update={"publication": publication})})

    def _publication(self) -> PublicationRequest | None:
        """What `--experiment` and `--intake-dataset` ask for."""
        if self.experiment is None:
            if self.intake_dataset is not None:
                raise Refused("--intake-dataset labels what is published; write --experiment NAME, too")
            return None
        if why := name_problem(self.experiment):
            raise Refused(_REFUSED, [Problem("--experiment", f"{quoted(self.experiment)} {why}")])
        name, version = None, None
        if self.intake_dataset is not None:
            try:
                name, version = read_dataset(self.intake_dataset)
            except Refused as refused:
                raise Refused(_REFUSED, [Problem("--intake-dataset", refused.message)]) from None
        intake = Intake(experiment=self.experiment, dataset_name=name, dataset_version=version)
        return PublicationRequest(intake=intake)

    def _read(self) -> RequestFile:
        given = self._given()
        if self.spec_file is not None:
            if given:
                hint = "not beside --spec-file; write it in the file, as"
                raise Refused(_REFUSED, [Problem(flag, f"{hint} {path}") for flag, path, _ in given])
            return read_request_file(Path(self.spec_file))
        document: dict[str, Any] = {"execution": {}}
        for _, path, value in given:
            *parents, last = path.split(".")
            at = document
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = _READ[path](value) if path in _READ else value
        try:
            return RequestFile.model_validate(document)
        except ValidationError as error:
            flags = {path: flag for flag, path in _FLAGS.values()}
            found = problems_of(error, RequestFile, quiet=VALUES_UNSEEN)
            problems = [Problem(flags.get(p.subject, p.subject), p.message) for p in found]
            raise Refused(_REFUSED, problems) from None

    def words(self) -> list[str]:
        """What a printed command must say to ask for the same."""
        given = [word for flag, _, value in self._given() if flag != "--agent" for word in _words(flag, value)]
        pairs = (("--experiment", self.experiment), ("--intake-dataset", self.intake_dataset))
        published = [word for flag, value in pairs if value is not None for word in (flag, value)]
        if self.spec_file is not None:
            return ["--spec-file", self.spec_file, *published]
        return ["--agent", self.agent or "oracle", *given, *published]

    def _given(self) -> list[tuple[str, str, Any]]:
        return [
            (flag, path, value) for name, (flag, path) in _FLAGS.items() if (value := getattr(self, name)) is not None
        ]


def _words(flag: str, value: Any) -> list[str]:
    if isinstance(value, tuple):
        return [word for one in value for word in (flag, one)]
    return [flag, f"{value:g}" if isinstance(value, float) else str(value)]


def _variables(words: Sequence[str]) -> dict[str, str]:
    """The variables of `--ae`. Raises `Refused`, without a value, for one that is no KEY=VALUE or is given twice."""
    pairs: dict[str, str] = {}
    problems: list[Problem] = []
    for at, word in enumerate(words, 1):
        name, equals, value = word.partition("=")
        if not equals or not VARIABLE.fullmatch(name):
            how = "is no KEY=VALUE, KEY being letters, digits and _; write as LOG_LEVEL=debug"
            problems.append(Problem("--ae", f"number {at} {how}"))  # unnamed: it may be a key by mistake
        elif name in pairs:
            problems.append(Problem("--ae", f"{name} is given twice"))
        pairs[name] = value
    if problems:
        raise Refused(_REFUSED, problems)
    return pairs


def _labels(words: Sequence[str]) -> dict[str, str]:
    """The labels of `--node-selector`. Raises `Refused`."""
    labels: dict[str, str] = {}
    problems: list[Problem] = []
    for word in words:
        key, equals, value = word.partition("=")
        why = label_problem(key, value) if equals else "is no KEY=VALUE; write as pool=gpu"
        if key in labels:
            why = "is given twice"
        if why:
            problems.append(Problem("--node-selector", f"'{key[:80]}' {why}"))
        labels[key] = value
    if problems:
        raise Refused(_REFUSED, problems)
    return labels


def _tolerations(words: Sequence[str]) -> list[dict[str, Any]]:
    """The taints of `--toleration`. Raises `Refused`."""
    found: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for word in words:
        try:
            found.append(read_toleration(word).model_dump())
        except ValidationError as error:
            problems += [Problem("--toleration", f"'{word[:80]}': {p.message}") for p in problems_of(error, Toleration)]
        except ValueError as error:
            problems.append(Problem("--toleration", f"'{word[:80]}': {error}"))
    if problems:
        raise Refused(_REFUSED, problems)
    return found


# How the words of flags that may stand several times are read, by the place of their value.
_READ: dict[str, Callable[[Sequence[str]], Any]] = {
    "spec.target.env_vars": _variables,
    "execution.sandbox.node_selector": _labels,
    "execution.sandbox.tolerations": _tolerations,
}


def read_request_file(path: Path) -> RequestFile:
    """A request file, JSON or YAML by its name. Raises `Refused` with every problem and its path in the document."""
    subject = f"The request file {path}"
    where = f"{subject} cannot be used:"
    document = read_document(str(path), subject, limit=FILE_MAX)
    if isinstance(document, dict) and isinstance(spec := document.get("spec"), dict) and "tasks" in spec:
        how = "take it out; the tasks are named on the command line, by --harbor-dir or --taskset, and --tasks"
        raise Refused(where, [Problem("spec.tasks", how)])
    try:
        return RequestFile.model_validate(document)
    except ValidationError as error:
        raise Refused(where, [_told(p) for p in problems_of(error, RequestFile, quiet=VALUES_UNSEEN)]) from None


def _told(problem: Problem) -> Problem:
    if (problem.subject, problem.message) == ("execution", "is missing"):
        return Problem("execution", "is missing; {} takes the deployment's defaults")
    return problem if problem.subject else Problem("the document", problem.message)
