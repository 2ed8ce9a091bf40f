"""`runs resume`: let a run go on by hand, and say what is run again."""

from harbor_assets.domain.resumes import Redone, Resumed
from harbor_assets.interfaces.cli import report
from harbor_assets.interfaces.cli.output import Output, command, counted, moment, one_line
from harbor_assets.interfaces.cli.session import open_session, recover

REDONE_SHOWN = 20


def go_on(run_id: str, *, where: tuple[str | None, str | None], wait: bool, out: Output) -> int:
    """Let the run go on. `where`: workspace and base URL. Returns the exit code."""
    with open_session(*where, take_up=False) as session:  # else this command's own start would take it up unsaid
        resumed = session.evaluator.runs.resume(run_id)
        _tell(resumed, out)
        recover(session)
        words = session.own_words()
        out.line(f"Follow it: {command('runs', 'status', resumed.run.id, '--watch', *words)}")
        code = report.watch(session, resumed.run.id, out, document=False) if wait else 0
        if out.json:
            run = session.evaluator.runs.retrieve(resumed.run.id) if wait else resumed.run
            out.document({**resumed.model_dump(mode="json"), "run": run.model_dump(mode="json")})
        return code


def _tell(resumed: Resumed, out: Output) -> None:
    run = resumed.run
    if resumed.reopened:
        out.line(f"{run.id} was paused: its next trial begins now")
    if resumed.at_work:
        out.line(f"{run.id} has a worker at work already; nothing was started")
    elif not resumed.started:
        out.line(f"{run.id} goes on by itself as soon as what its last worker left has ended")
    else:
        left = run.n_trials - resumed.finished
        out.line(
            f"{run.id} goes on: {counted(left, 'trial')} to run; {resumed.finished} of {run.n_trials} had ended and "
            "stay as they are"
        )
    if resumed.redone:
        out.line(f"Run again, since they had begun: {counted(len(resumed.redone), 'trial')}")
        for trial in resumed.redone[:REDONE_SHOWN]:
            out.line(f"  {trial.index} {one_line(trial.task)}{_told(trial)}")
        if len(resumed.redone) > REDONE_SHOWN:
            out.line(f"  … and {len(resumed.redone) - REDONE_SHOWN} more (--json has all)")


def _told(trial: Redone) -> str:
    which = f" trial {trial.k}" if trial.k > 1 else ""
    cost = "at a cost that nobody saw" if trial.cost_usd is None else f"for ${trial.cost_usd:.4f} that are known of"
    lost = f", {trial.lost} lost with the worker" if trial.lost else ""
    tries = "1 try" if trial.tries == 1 else f"{trial.tries} tries"
    return f"{which}: {tries}{lost}, the last begun {moment(trial.began)}, {cost}"
