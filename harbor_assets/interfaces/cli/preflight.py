"""Before a suite is published for a run: ask the service whether its tasks could run, and tell what it warns of."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.obstacles import TOLD_FILES
from harbor_assets.domain.plans import ORACLE
from harbor_assets.domain.preflight import CandidateTask, RunCheck
from harbor_assets.domain.requests import RequestFile, TaskSelection
from harbor_assets.domain.suites import SourceTask
from harbor_assets.interfaces.cli.output import note
from harbor_assets.interfaces.cli.session import Session

BATCH = 500  # tasks in one question: their task.tomls fit a request's limit even at 30 KB each
NAMES_SHOWN = 10


def check_run(session: Session, tasks: Sequence[SourceTask], wanted: RequestFile) -> None:
    """Raises `Refused` with the problems of all tasks, when nothing has been uploaded or built yet."""
    problems, message, lacking = {}, "", []
    for start in range(0, len(tasks), BATCH):
        asked = RunCheck(
            spec=wanted.spec,
            execution=wanted.execution,
            timeout_seconds=wanted.timeout_seconds,
            tasks=[_candidate(task) for task in tasks[start : start + BATCH]],
        )
        try:
            lacking += session.evaluator.runs.check(asked).without_solution
        except Refused as refused:
            if not refused.problems:
                raise
            message = refused.message
            problems |= dict.fromkeys(refused.problems)  # what is wrong with the request itself is told each time
    if problems:
        raise Refused(message, list(problems))
    _tell_without_solution(lacking)


def check_stored(session: Session, stored: TaskSelection, wanted: RequestFile) -> None:
    """Tell of stored tasks that the run's agent cannot solve. Raises `Refused` for a request that cannot run."""
    if wanted.spec.target.source.name != ORACLE:
        return
    asked = RunCheck(
        spec=wanted.spec, execution=wanted.execution, timeout_seconds=wanted.timeout_seconds, stored=stored
    )
    _tell_without_solution(session.evaluator.runs.check(asked).without_solution)


def _tell_without_solution(lacking: Sequence[str]) -> None:
    if lacking:
        more = f", … ({len(lacking)} tasks)" if len(lacking) > NAMES_SHOWN else ""
        note(
            f"Warning: {', '.join(lacking[:NAMES_SHOWN])}{more}: no solution/solve.sh, so the agent oracle has nothing "
            "to apply and its trials earn nothing"
        )


def _candidate(task: SourceTask) -> CandidateTask:
    return CandidateTask(name=task.stored_name, config=task.config, files=list(_files(Path(task.folder))))


def _files(folder: Path) -> Iterator[str]:
    return (path for path in TOLD_FILES if (folder / path).is_file())
