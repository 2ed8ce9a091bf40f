"""`mark-bad` and `unmark` of tasks and runs, and `harbor-assets marks`."""

from typing import Annotated

import typer

from harbor_assets.interfaces.cli.options import BaseUrl, Json, Page, PageSize, RunId, Workspace, examples
from harbor_assets.interfaces.cli.records import Ref

Why = Annotated[str, typer.Option("--why", metavar="TEXT", help="The reason, as others are to read it.")]


def add_to(parent: typer.Typer) -> None:
    """Hang `marks` into the command line."""

    @parent.command(epilog=examples("marks", "marks --all --json"))
    def marks(
        everything: Annotated[
            bool, typer.Option("--all", help="Also what was replaced, and what `tasksets verify` found.")
        ] = False,
        page: Page = 1,
        page_size: PageSize = 100,
        workspace: Workspace = None,
        base_url: BaseUrl = None,
        json: Json = False,
    ) -> None:
        """List what was marked bad, by whom and why.

        Newest first.
        """
        from harbor_assets.interfaces.cli.marked import print_marks
        from harbor_assets.interfaces.cli.output import Output
        from harbor_assets.interfaces.cli.session import open_session

        verdict = None if everything else "bad"
        with open_session(workspace, base_url) as session:
            found = session.evaluator.marks.list(verdict=verdict, page=page, page_size=page_size)
            print_marks(found, Output(json=json), earlier=everything)


def add_to_tasks(app: typer.Typer) -> None:
    """Hang the verbs into the commands of tasks."""

    @app.command("mark-bad", epilog=examples("tasks mark-bad csv-report --why 'its verifier accepts an empty file'"))
    def mark_bad(ref: Ref, why: Why, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
        """Say that a task's revision is bad.

        The newest where none is named. Every score it touches shows it; no score changes.
        """
        _need_task(ref, "mark-bad", "--why", why)
        _mark(ref, why, workspace, base_url, json)

    @app.command(epilog=examples("tasks unmark csv-report"))
    def unmark(ref: Ref, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
        """Take back that a task's revision is bad."""
        _need_task(ref, "unmark")
        _unmark(ref, workspace, base_url, json)


def add_to_runs(app: typer.Typer) -> None:
    """Hang the verbs into the commands of runs."""

    @app.command("mark-bad", epilog=examples("runs mark-bad RUN_ID --why 'the gateway served another model'"))
    def mark_bad(
        run_id: RunId, why: Why, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False
    ) -> None:
        """Say that a run is bad.

        Every number of it shows it; no score changes.
        """
        _need_run(run_id, "mark-bad", "--why", why)
        _mark(run_id, why, workspace, base_url, json)

    @app.command(epilog=examples("runs unmark RUN_ID"))
    def unmark(run_id: RunId, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
        """Take back that a run is bad."""
        _need_run(run_id, "unmark")
        _unmark(run_id, workspace, base_url, json)


def _need_run(subject: str, verb: str, *words: str) -> None:
    """Raises `Refused` for what is no run's id, before anything is marked that was not meant."""
    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.cli.output import command

    if not subject.startswith("run-"):
        raise Refused(
            f"'{subject[:200]}' is no run's id (run-...; `harbor-assets runs list` shows them). "
            f"For a task: {command('tasks', verb, subject[:200], *words)}"
        )


def _need_task(subject: str, verb: str, *words: str) -> None:
    """Raises `Refused` for a run's id, before anything is marked that was not meant."""
    from harbor_assets.domain.errors import Refused
    from harbor_assets.interfaces.cli.output import command

    if subject.startswith("run-"):
        raise Refused(
            f"'{subject[:200]}' is a run's id, no task. For the run: {command('runs', verb, subject[:200], *words)}; "
            f"a task of that name is given with its workspace, as WORKSPACE/{subject[:200]}"
        )


def _mark(subject: str, why: str, workspace: str | None, base_url: str | None, json: bool) -> None:
    from harbor_assets.interfaces.cli.output import Output, command, moment
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    with open_session(workspace, base_url) as session:
        mark = session.evaluator.marks.mark_bad(subject, why)
        out.line(f"{mark.subject} is marked bad by {mark.who}: {mark.why}")
        if mark.earlier:
            last = mark.earlier[0]
            out.line(f"It replaces what {last.who} said at {moment(last.at)}: {last.why}")
        out.line(f"What it touches: {command('lineage', mark.subject, *session.own_words())}")
        if json:
            out.document(mark.model_dump(mode="json"))


def _unmark(subject: str, workspace: str | None, base_url: str | None, json: bool) -> None:
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    with open_session(workspace, base_url) as session:
        mark = session.evaluator.marks.withdraw(subject)
        out.line(f"{mark.subject} is not marked bad any more; {mark.who} had said: {mark.why}")
        if json:
            out.document(mark.model_dump(mode="json"))
