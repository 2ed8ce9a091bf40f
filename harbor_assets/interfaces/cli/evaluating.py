"""Reading a file of outputs, having it scored, and telling what came of it."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from harbor_assets.documents import read_json
from harbor_assets.domain.agent_eval import AgentEvalInputSpec
from harbor_assets.domain.bundle import AgentOutput, BundleError, Trial
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.domain.names import Ref, nearest
from harbor_assets.domain.validation import sentence
from harbor_assets.engine.agent_evals import task_ids
from harbor_assets.interfaces.cli.output import Output, counted, score
from harbor_assets.interfaces.cli.session import Session

FILE_MAX = 12 * 1024 * 1024  # bytes: with what is said around each output it fits into one request of 16 MiB
PROBLEMS_SHOWN = 20
MISSING = "OutputMissing"


class OutputLine(BaseModel):
    """One line of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str = Field(min_length=1)
    trial: str | None = Field(default=None, min_length=1, max_length=255)
    output_text: str | None = None
    response: JsonValue = None

    @model_validator(mode="after")
    def _something(self) -> "OutputLine":
        if self.output_text is None and self.response is None:
            raise ValueError("output_text or response is missing")
        return self


def run_evaluation(session: Session, taskset: str, file: Path, folder: Path, out: Output) -> int:
    """`evaluate`: returns the exit code. Every line is checked before anything is sent."""
    ref = Ref.parse(taskset, workspace=session.workspace)
    stored = session.evaluator.tasksets.retrieve(str(ref))
    known = list(task_ids(session.evaluator.tasks.pinned(stored.tasks)).values())
    trials = [*read_outputs(file, known)]
    given = {trial.task_id for trial in trials}
    missing = [task for task in known if task not in given]
    trials += [_missing(task) for task in missing]
    spec = AgentEvalInputSpec(tasks=stored.ref, trials=trials)
    job = session.evaluator.evaluations.submit(spec)
    result = session.evaluator.evaluations.result(job.name)
    bundle = session.evaluator.evaluations.download(job.name, folder)
    coverage = [one for outputs in result.summary.metric_coverage.values() for one in outputs.values()]
    scored, total = sum(one.scored for one in coverage), sum(one.total for one in coverage)
    if out.json:
        out.document({"name": job.name, "bundle": str(bundle.absolute()), "taskset_ref": stored.ref,
                      "missing_outputs": missing, "result": result.model_dump(mode="json")})  # fmt: skip
    else:
        _tell(out, result.model_dump(mode="json"), missing, len(known))
        out.line(f"Bundle: {bundle}")
    return 0 if scored == total else 3 if scored else 4


def read_outputs(file: Path, known: Sequence[str]) -> list[Trial]:
    """The trials of a file. Raises `Refused` naming every line that cannot be taken."""
    try:
        if file.stat().st_size > FILE_MAX:
            raise Refused(f"{file} has more than {FILE_MAX} bytes, the most that is scored at once; split it by tasks")
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise Refused(f"{file} cannot be read: {error.strerror}") from error
    problems: list[Problem] = []
    found: list[OutputLine] = []
    numbers: list[int] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found.append(_line(line, known))
            numbers.append(number)
        except ValueError as error:
            problems.append(Problem(f"line {number}", str(error)))
    seen: dict[str, int] = {}
    trials: list[Trial] = []
    nth = Counter[str]()
    for number, one in zip(numbers, found, strict=True):
        nth[one.task] += 1
        name = one.trial or f"{one.task}__{nth[one.task]}"
        if name in seen:
            problems.append(Problem(f"line {number}", f"the trial '{name[:80]}' stands in line {seen[name]} already"))
        seen[name] = number
        output = AgentOutput(output_text=one.output_text, response=one.response)
        trials.append(Trial(id=name, task_id=one.task, status="completed", output=output))
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        shown = [*problems[:PROBLEMS_SHOWN], *([Problem("", f"and {more} more")] if more > 0 else [])]
        raise Refused(f"{file} was not taken; nothing was scored or stored:", shown)
    return trials


def _line(line: bytes, known: Sequence[str]) -> OutputLine:
    """Raises `ValueError` in words of ours."""
    try:
        value = read_json(line.decode())
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not a JSON object: {error}") from None
    try:
        one = OutputLine.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise ValueError(f"{at} {sentence(first)}" if at else sentence(first, shown=False)) from None
    if one.task not in known:
        close = nearest(one.task, known, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"the task '{one.task[:80]}' is not in the taskset{hint}")
    return one


def _missing(task: str) -> Trial:
    error = BundleError(type=MISSING, message="the file of outputs has none for this task")
    return Trial(id=f"{task}__missing", task_id=task, status="failed", error=error)


def _tell(out: Output, result: dict[str, Any], missing: Sequence[str], tasks: int) -> None:
    rows = [
        [one["name"], score(one["mean"]), f"{one['count']} of {one['count'] + one['nan_count']}"]
        for one in result["scores"]
    ]
    out.table(["SCORE", "MEAN", "OVER"], rows)
    if missing:
        shown = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
        out.line(f"{len(missing)} of {counted(tasks, 'task')} without an output, not counted as zero: {shown}")
