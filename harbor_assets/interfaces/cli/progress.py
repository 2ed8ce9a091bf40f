"""Following a run: a live picture on a terminal, one line per ended task in a pipe."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from harbor_assets.domain.errors import ServiceUnavailable
from harbor_assets.domain.outcomes import Outcome
from harbor_assets.domain.phases import TaskPhase
from harbor_assets.domain.statistics import mean
from harbor_assets.domain.views import RunStatus, TaskView
from harbor_assets.domain.waiting import Wait, WaitReason
from harbor_assets.interfaces.cli.output import Output, counted, duration, note, one_line, score
from harbor_assets.interfaces.cli.session import Session, recover

if TYPE_CHECKING:
    from rich.console import RenderableType

RECOVER_SECONDS = 1.0  # a worker that dies while being watched is missed for at most this long
OUTAGE_SECONDS = 180.0  # a service is moved to another node, or its apiserver restarted, within a minute or two
OUTAGE_PAUSE_SECONDS = 1.0
REMOTE_POLL_SECONDS = 1.0  # over a network a look costs the service more than a person gains
BUSY_SHARE = (
    4  # look again only after this many times the last look's own cost: a run of 10,000 tasks is dear to ask for
)
# Ordinary parts of a run's way: not worth a line each in a pipe, nor a row before those of tasks at work.
_CALM = frozenset({WaitReason.POOL_FULL, WaitReason.STARTING})
LIVE_ROWS = 8  # of tasks at work and of tasks ended: both fit on a terminal of 24 lines


def follow(session: Session, run_id: str, out: Output) -> RunStatus:
    """Show the run until it has ended, and return it as it ended. Lost workers are taken up meanwhile."""
    view: View = LiveView(out) if out.live else PlainView(out)
    looked = time.monotonic()
    with view:
        while True:
            begin = time.monotonic()
            status = patient(session, run_id)
            view.show(status)
            if status.run.phase.terminal:
                return status
            cost = time.monotonic() - begin
            pause = REMOTE_POLL_SECONDS if session.remote else session.settings.watch_poll_seconds
            time.sleep(max(pause, BUSY_SHARE * cost))
            if time.monotonic() - looked >= RECOVER_SECONDS:
                recover(session, run_id)
                looked = time.monotonic()


def patient(session: Session, run_id: str) -> RunStatus:
    """The run's status; see `patiently`."""
    return patiently(session, lambda: session.evaluator.runs.status(run_id), "the run goes on")


def patiently[T](session: Session, look: Callable[[], T], meanwhile: str) -> T:
    """What `look` answers; a service that is away for a while is waited for, and that is said once."""
    since: float | None = None
    while True:
        try:
            status = look()
        except ServiceUnavailable as error:
            now = time.monotonic()
            if not session.remote or (since is not None and now - since > OUTAGE_SECONDS):
                raise
            if since is None:
                since = now
                note(f"{error}\nStill trying for {duration(OUTAGE_SECONDS)}; Ctrl-C stops watching, {meanwhile}.")
            time.sleep(OUTAGE_PAUSE_SECONDS)
        else:
            if since is not None:
                note(f"The service answers again after {duration(time.monotonic() - since)}")
            return status


class View(Protocol):
    """Shows a run that goes on."""

    def __enter__(self) -> "View": ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, status: RunStatus) -> None:
        """Show how far the run has come by now."""
        ...


class PlainView:
    """Lines that are only ever added: a change of phase, a task that has ended."""

    def __init__(self, out: Output) -> None:
        self._out, self._phase, self._ended = out, "", set[int]()
        self._waits: dict[int | None, WaitReason] = {}  # task, None for the run -> what it was told to wait for

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, status: RunStatus) -> None:
        """See `View`."""
        if not status.run.phase.terminal:
            self._tell_phase(status)
        for task in status.tasks:
            if task.index not in self._ended and ended(task):
                self._ended.add(task.index)
                self._out.line(f"{len(self._ended)}/{status.run.n_tasks} {one_line(task.task)} {result(task)}")
        self._tell_phase(status)
        self._tell_wait(None, status.run.id, status.run.waiting)
        for task in status.tasks:
            self._tell_wait(task.index, task.task, task.waiting)

    def _tell_phase(self, status: RunStatus) -> None:
        if status.run.phase != self._phase:
            self._phase = status.run.phase
            self._out.line(f"{status.run.id} {status.run.phase}")

    def _tell_wait(self, key: int | None, name: str, waiting: Wait | None) -> None:
        """Once for each thing that is waited for; the words about it may change at every look."""
        if waiting and waiting.reason not in _CALM and self._waits.get(key) != waiting.reason:
            self._waits[key] = waiting.reason
            self._out.line(f"{one_line(name)} waits: {one_line(waiting.message)}")


class LiveView:
    """A bar, the counts, and the tasks at work and last ended, redrawn in place. Stays as it was last."""

    def __init__(self, out: Output) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=out.lines, highlight=False, markup=False, emoji=False)
        self._live = Live(console=self._console, auto_refresh=False)
        self._ended: dict[int, TaskView] = {}
        self._begin = time.monotonic()

    def __enter__(self) -> View:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(None, None, None)

    def show(self, status: RunStatus) -> None:
        """See `View`."""
        for task in status.tasks:
            if task.index not in self._ended and ended(task):
                self._ended[task.index] = task
        self._live.update(self._picture(status), refresh=True)

    def _picture(self, status: RunStatus) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        run = status.run
        waiting = [task for task in status.tasks if task.waiting and task.waiting.reason not in _CALM]
        running = [task for task in status.tasks if task.running and not task.waiting]
        head = Text.assemble(
            (run.id, "bold"),
            f"  {run.phase}  {len(self._ended)} of {counted(run.n_tasks, 'task')} ended, {len(running)} at work  ",
        )
        head.append(duration(time.monotonic() - self._begin), style="dim")
        bar = Table.grid()  # a bar by itself ends no line
        bar.add_row(ProgressBar(total=run.n_tasks, completed=len(self._ended), width=min(60, self._console.width)))
        table = Table.grid(padding=(0, 2))
        table.add_column(overflow="ellipsis", no_wrap=True)
        table.add_column(overflow="ellipsis", no_wrap=True)
        if run.waiting:
            table.add_row(Text("the run", style="bold"), Text(one_line(run.waiting.message), style="magenta"))
        for task in waiting[:LIVE_ROWS]:
            said = task.waiting.message if task.waiting else ""
            table.add_row(Text(one_line(task.task)), Text(one_line(said), style="magenta"))
        for task in running[:LIVE_ROWS]:
            table.add_row(Text(one_line(task.task)), Text("at work", style="cyan"))
        for task in list(self._ended.values())[-LIVE_ROWS:]:
            style = "green" if task.phase is TaskPhase.SUCCEEDED else "yellow"
            table.add_row(Text(one_line(task.task)), Text(result(task), style=style))
        more = sum(max(0, len(rows) - LIVE_ROWS) for rows in (waiting, running, self._ended))
        counts = Text("  ".join(f"{outcome} {n}" for outcome, n in run.counts.items()), style="dim")
        tail = [Text(f"… and {more} more", style="dim")] if more else []
        return Group(head, bar, counts, table, *tail)


def ended(task: TaskView) -> bool:
    """Whether all trials of the task have ended."""
    return len(task.outcomes) >= task.n_trials


def result(task: TaskView) -> str:
    """What became of an ended task, in a few words: `scored 1.0000`, `verifier_failed reward_missing`, and its flags:
    `scored 0.0000 [solution_exit_9]`."""
    rewards = [trial.reward for trial in task.outcomes if trial.reward is not None]
    flags = flags_told([task])
    marks = f" [{flags}]" if flags else ""
    tries = sum(trial.n_tries for trial in task.outcomes)
    if tries > len(task.outcomes):
        marks += f" ({tries} tries)"
    if len(task.outcomes) != 1:
        lost = Counter(f"{t.outcome} {t.reason}" for t in task.outcomes if t.reward is None)
        why = "".join(f", {what} {n}" for what, n in lost.most_common())
        return f"scored {len(rewards)} of {task.n_trials} trials, mean {score(mean(rewards))}{why}{marks}"
    trial = task.outcomes[0]
    return f"{Outcome.SCORED} {score(trial.reward)}{marks}" if rewards else f"{trial.outcome} {trial.reason}{marks}"


def flags_told(tasks: Iterable[TaskView]) -> str:
    """The flags of all their trials, those of several trials with their number: `memory_limit_hit 3, output_cut`."""
    counted = Counter(flag for task in tasks for trial in task.outcomes for flag in trial.flags)
    return ", ".join(f"{one_line(flag)} {n}" if n > 1 else one_line(flag) for flag, n in counted.items())
