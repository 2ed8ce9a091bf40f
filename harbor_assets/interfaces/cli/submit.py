"""Submitting a run: choose, publish, send, say what happened; with `--wait`, follow it to its end."""

import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from harbor_assets.domain.errors import HarborAssetsError, NotReady, Refused
from harbor_assets.domain.regrades import by_reason
from harbor_assets.domain.requests import RequestFile, RunRequest, TaskSelection, check_key, unsupported
from harbor_assets.domain.selection import entries_of
from harbor_assets.domain.views import RunSummary, Submitted
from harbor_assets.interfaces.cli import report, source
from harbor_assets.interfaces.cli.asked import Asked
from harbor_assets.interfaces.cli.building import see_to_images
from harbor_assets.interfaces.cli.edge import INTERRUPTED, REFUSED
from harbor_assets.interfaces.cli.marks_shown import print_warnings
from harbor_assets.interfaces.cli.output import Output, command, counted, note
from harbor_assets.interfaces.cli.preflight import check_run, check_stored
from harbor_assets.interfaces.cli.publishing import publish
from harbor_assets.interfaces.cli.session import Session, open_session
from harbor_assets.interfaces.cli.signals import remembered
from harbor_assets.interfaces.cli.source import Choice, Chosen

NOT_KEPT_SHOWN = 10
INDEXES_SHOWN = 10  # pairs on one line; `runs tasks` prints all


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What `runs submit` was told."""

    choice: Choice
    asked: Asked = field(default_factory=Asked)
    wait: bool = False
    idempotency_key: str | None = None

    def list_tasks(self, workspace: str | None, base_url: str | None, *, out: Output) -> int:
        """Print the tasks and start nothing."""
        with open_session(workspace, base_url) as session:
            some = source.list_tasks(session, self.choice, out)
        return 0 if some else REFUSED

    def run(self, workspace: str | None, base_url: str | None = None, *, out: Output, local: bool = False) -> int:
        """Do it; `local`: on this machine, whatever context is in use. Returns the exit code.

        Raises `Refused` and its like before anything was started.
        """
        wanted = self.asked.read()
        source.check_flags(self.choice)
        if self.asked.intake_dataset is not None and self.choice.taskset is None:
            raise Refused(
                "--intake-dataset is only for --taskset: a suite of this machine is labelled with the name and digest "
                "of its taskset"
            )
        if self.idempotency_key is not None:
            check_key(self.idempotency_key)
        if problems := unsupported(wanted.spec):
            raise Refused("The run was not submitted:", problems)
        submitted = None
        try:
            with open_session(workspace, base_url, local=local) as session:
                chosen = source.choose(session, self.choice)
                request = self._request(session, chosen, wanted, out)
                with remembered(signal.SIGINT) as interrupted:  # it must be known, and said, which run was accepted
                    runs = session.evaluator.runs
                    send = partial(runs.submit_request, request)
                    submitted = send_once(session, send, self.idempotency_key)
                    self._tell(session, chosen, submitted, out)
                return _end(session, submitted, out, wait=self.wait, interrupted=interrupted())
        except KeyboardInterrupt:
            if submitted is None:
                note("\nInterrupted before the run was accepted: nothing was started.")
            else:
                note(f"\nInterrupted; {submitted.run.id} was accepted and goes on.")
            return INTERRUPTED

    def _request(self, session: Session, chosen: Chosen, wanted: RequestFile, out: Output) -> RunRequest:
        """The request; publishes what is not stored yet."""
        if chosen.taskset is None:
            check_run(session, chosen.tasks, wanted)
            selection = TaskSelection(taskset=publish(session, chosen, out, rehash=self.choice.rehash).taskset.ref)
            see_to_images(session, selection.taskset, None, out, wanted.execution.sandbox.kind)
        else:
            names = None if chosen.all_taken else [task.stored_name for task in chosen.tasks]
            selection = TaskSelection(taskset=chosen.taskset.ref, select=names)
            check_stored(session, selection, wanted)
        return wanted.request(selection, list(chosen.skipped))

    def _tell(self, session: Session, chosen: Chosen, submitted: Submitted, out: Output) -> None:
        run = submitted.run
        words = session.own_words()
        moved = [f"{task.index} is {at}" for at, task in enumerate(chosen.tasks) if task.index != at]
        if chosen.taskset is None and moved:
            more = f", … ({len(moved)} tasks)" if len(moved) > INDEXES_SHOWN else ""
            out.line(f"Indexes in this run differ from those of the suite: {', '.join(moved[:INDEXES_SHOWN])}{more}")
        out.line(f"Sandbox {run.sandbox}: {run.sandbox_why}")
        _tell_accepted(submitted, out)
        out.line(f"Rerun these tasks: {self._again(chosen, run.taskset_ref, words)}")
        out.line(f"View evaluation run: {command('runs', 'status', run.id, '--watch', *words)}")

    def _again(self, chosen: Chosen, ref: str, words: list[str]) -> str:
        given = self.asked.words()
        if chosen.taskset is not None and not chosen.all_taken:
            members = [(task.stored_name, task.native_task_id) for task in chosen.suite.tasks]
            entries = entries_of([task.index for task in chosen.tasks], members)
            given += ["--tasks", ",".join(entries)]
        return command("runs", "submit", "--taskset", ref, *given, *words)


def run_again(
    run_id: str,
    *,
    failed: bool,
    tasks: str | None,
    idempotency_key: str | None,
    where: tuple[str | None, str | None],
    wait: bool,
    out: Output,
) -> int:
    """Run tasks of a run again, as a new run. `where`: workspace and base URL. Returns the exit code."""
    if failed and tasks is not None:
        raise Refused("--failed and --tasks are two selections; give one of them")
    select = None if tasks is None else tasks.split(",")

    def tell(run: RunSummary, _: Submitted) -> None:
        out.line(f"Rerun of {run_id}: {counted(run.n_tasks, 'task')} of {run.taskset_ref}")

    return _submit_again(
        lambda session: partial(session.evaluator.runs.rerun, run_id, failed=failed, select=select),
        tell,
        idempotency_key=idempotency_key,
        where=where,
        wait=wait,
        out=out,
    )


def grade_again(
    run_id: str,
    *,
    tasks: str | None,
    taskset: str | None,
    idempotency_key: str | None,
    where: tuple[str | None, str | None],
    wait: bool,
    out: Output,
) -> int:
    """Verify again what a run kept, as a new run. `where`: workspace and base URL. Returns the exit code."""
    select = None if tasks is None else tasks.split(",")

    def tell(run: RunSummary, submitted: Submitted) -> None:
        out.line(f"Regrade of {run_id}: {counted(run.n_tasks, 'task')}, by the tests of {run.taskset_ref}")
        told = by_reason(dict(_name_and_why(text) for text in submitted.not_kept))
        for tasks_told, why in told[:NOT_KEPT_SHOWN]:
            out.line(f"Nothing kept: {tasks_told}: {why}")
        if len(told) > NOT_KEPT_SHOWN:
            out.line(f"Nothing kept: more tasks, for {len(told) - NOT_KEPT_SHOWN} more reasons; --json has all")

    return _submit_again(
        lambda session: partial(session.evaluator.runs.regrade, run_id, select=select, taskset=taskset),
        tell,
        idempotency_key=idempotency_key,
        where=where,
        wait=wait,
        out=out,
    )


def _submit_again(
    call: Callable[[Session], Callable[..., Submitted]],
    tell: Callable[[RunSummary, Submitted], None],
    *,
    idempotency_key: str | None,
    where: tuple[str | None, str | None],
    wait: bool,
    out: Output,
) -> int:
    """Submit a run that comes of another by what `call` gives, `tell` what it is, and follow it if asked to."""
    if idempotency_key is not None:
        check_key(idempotency_key)
    with open_session(*where) as session:
        with remembered(signal.SIGINT) as interrupted:  # it must be known, and said, which run was accepted
            submitted = send_once(session, call(session), idempotency_key)
            tell(submitted.run, submitted)
            _tell_accepted(submitted, out)
            words = ("runs", "status", submitted.run.id, "--watch", *session.own_words())
            out.line(f"View evaluation run: {command(*words)}")
        return _end(session, submitted, out, wait=wait, interrupted=interrupted())


def _name_and_why(text: str) -> tuple[str, str]:
    name, _, why = text.partition(": ")
    return name, why


def send_once(session: Session, send: Callable[..., Submitted], key: str | None) -> Submitted:
    """Submit. Over a network always with a key, since an answer may be lost after the run was accepted."""
    key = key or (f"submit-{secrets.token_hex(8)}" if session.remote else None)
    try:
        return send(idempotency_key=key)
    except (Refused, NotReady):
        raise
    except HarborAssetsError as error:  # no answer, or one of a proxy before the service
        if key is None:
            raise
        raise type(error)(
            f"{error}\nWhether the run was accepted is not known. To find out, and to submit it if it was not, "
            f"repeat the same command with --idempotency-key {key}"
        ) from error


def _tell_accepted(submitted: Submitted, out: Output) -> None:
    run = submitted.run
    for text in run.sandbox_notes:
        out.line(f"Note: {text}")
    if submitted.created:
        out.line(f"Run {run.id} accepted: {run.n_tasks} tasks, queued; the worker starts them")
    else:
        out.line(f"Run {run.id} was accepted before with this key and request ({run.phase}); nothing new starts")
    print_warnings(submitted.marks, out)
    if (published := run.publication) is not None:
        dataset = f"{published.dataset}@{published.dataset_version}"
        out.line(f"Evaluation {published.evaluation} in Experiment {published.experiment}, dataset {dataset}")
    for other in submitted.already_running:
        out.line(f"{other} is already running {run.taskset_ref}")


def _end(session: Session, submitted: Submitted, out: Output, *, wait: bool, interrupted: bool) -> int:
    code = 0
    if interrupted:
        note(f"\nInterrupted; {submitted.run.id} was accepted and goes on.")
        code = INTERRUPTED
    elif wait:
        code = report.watch(session, submitted.run.id, out, document=False)
    if out.json:
        run = session.evaluator.runs.retrieve(submitted.run.id) if wait else submitted.run
        out.document({**submitted.model_dump(mode="json"), "run": run.model_dump(mode="json")})
    return code
