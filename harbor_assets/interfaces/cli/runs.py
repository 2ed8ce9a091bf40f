"""`harbor-assets runs ...`: submit runs, follow them, read and fetch what they gave."""

from typing import Annotated, Literal

import typer

from harbor_assets.interfaces.cli.marks import add_to_runs
from harbor_assets.interfaces.cli.options import (
    Agent,
    AgentEnv,
    AgentTimeoutMultiplier,
    BaseUrl,
    Cpus,
    Exclude,
    Experiment,
    FailIf,
    HarborDir,
    IdempotencyKey,
    Include,
    InfraRetries,
    IntakeDataset,
    Json,
    KeepSeconds,
    Limit,
    MaxRetries,
    MemoryMb,
    MinCoverage,
    NAttempts,
    NConcurrent,
    NoDelete,
    NodeSelector,
    Rehash,
    RunId,
    Sandbox,
    SandboxProfile,
    SkipInvalid,
    SpecFile,
    StorageMb,
    Strict,
    Tasks,
    Tolerations,
    Workspace,
    examples,
)

app = typer.Typer(
    help="Submit runs, follow them, read and fetch what they gave.",
    epilog=examples("runs submit --harbor-dir ./my-suite --wait", "runs list --active"),
    no_args_is_help=True,
    rich_markup_mode=None,
)

Phase = Literal["registered", "image_ready", "succeeded", "failed", "cancelled", "expired"]


def add_to(parent: typer.Typer) -> None:
    """Hang this noun into the command line."""
    parent.add_typer(app, name="runs")


@app.command(
    epilog=examples(
        "runs submit --harbor-dir ./my-suite --list-tasks",
        "runs submit --harbor-dir ./my-suite --tasks 0,2 --agent oracle --wait",
        "runs submit --taskset 'default/my-suite-1a2b3c4d#latest' --agent nop --n-attempts 3",
        "runs submit --harbor-dir ./my-suite --spec-file request.json --idempotency-key nightly-7",
        "runs submit --taskset my-suite --experiment harbor-runs --intake-dataset 'org/suite@sha256:3f9a…'",
    )
)
def submit(
    harbor_dir: HarborDir = None,
    taskset: Annotated[
        str | None,
        typer.Option("--taskset", metavar="REF", help="A stored taskset: name, ws/name or ws/name#digest."),
    ] = None,
    list_tasks: Annotated[
        bool, typer.Option("--list-tasks", help="Print the tasks with their indexes; store and start nothing.")
    ] = False,
    tasks: Tasks = None,
    include: Include = None,
    exclude: Exclude = None,
    limit: Limit = None,
    spec_file: SpecFile = None,
    agent: Agent = None,
    agent_env: AgentEnv = None,
    agent_timeout_multiplier: AgentTimeoutMultiplier = None,
    n_attempts: NAttempts = None,
    max_retries: MaxRetries = None,
    min_coverage: MinCoverage = None,
    infra_retries: InfraRetries = None,
    sandbox: Sandbox = None,
    sandbox_profile: SandboxProfile = None,
    n_concurrent: NConcurrent = None,
    cpus: Cpus = None,
    memory_mb: MemoryMb = None,
    storage_mb: StorageMb = None,
    node_selector: NodeSelector = None,
    tolerations: Tolerations = None,
    no_delete: NoDelete = False,
    keep_seconds: KeepSeconds = None,
    experiment: Experiment = None,
    intake_dataset: IntakeDataset = None,
    idempotency_key: IdempotencyKey = None,
    skip_invalid: SkipInvalid = False,
    strict: Strict = False,
    rehash: Rehash = False,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run and exit with how it ended.")] = False,
    json: Json = False,
) -> None:
    """Publish a suite's tasks, or take a stored taskset, and start a run on them.

    Returns at once with the run's id; the run goes on when the terminal closes. With --wait the exit code is 0 if every
    trial was scored, 3 if some, 4 if none, 5 cancelled, 6 expired, 130 interrupted (the run goes on). 9: the
    idempotency key was used before with another request.
    """
    from harbor_assets.domain.profiles import KEEP_SECONDS
    from harbor_assets.interfaces.cli.asked import Asked
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.source import Choice
    from harbor_assets.interfaces.cli.submit import Submission

    submission = Submission(
        choice=Choice(
            harbor_dir=harbor_dir,
            taskset=taskset,
            tasks=tasks,
            include=tuple(include or ()),
            exclude=tuple(exclude or ()),
            limit=limit,
            skip_invalid=skip_invalid,
            strict=strict,
            rehash=rehash,
        ),
        asked=Asked(
            spec_file=spec_file,
            agent=agent,
            agent_env=tuple(agent_env) if agent_env else None,
            agent_timeout_multiplier=agent_timeout_multiplier,
            n_attempts=n_attempts,
            max_retries=max_retries,
            min_coverage=min_coverage,
            infra_retries=infra_retries,
            sandbox=sandbox,
            profile=sandbox_profile,
            n_concurrent=n_concurrent,
            cpus=cpus,
            memory_mb=memory_mb,
            storage_mb=storage_mb,
            node_selector=tuple(node_selector) if node_selector else None,
            tolerations=tuple(tolerations) if tolerations else None,
            experiment=experiment,
            intake_dataset=intake_dataset,
            keep_seconds=KEEP_SECONDS if no_delete and keep_seconds is None else keep_seconds,
        ),
        wait=wait,
        idempotency_key=idempotency_key,
    )
    out = Output(json=json)
    where = (workspace, base_url)
    raise typer.Exit(submission.list_tasks(*where, out=out) if list_tasks else submission.run(*where, out=out))


@app.command(epilog=examples("runs status RUN_ID", "runs status RUN_ID --watch", "runs status RUN_ID --json"))
def status(
    run_id: RunId,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow the run and exit with how it ended (as submit --wait).")
    ] = False,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show where a run stands, task by task."""
    from harbor_assets.interfaces.cli import report
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    with open_session(workspace, base_url) as session:
        if watch:
            raise typer.Exit(report.watch(session, run_id, out))
        found = session.evaluator.runs.status(run_id)
        if json:
            out.document(found.model_dump(mode="json"))
        else:
            report.print_status(session, found, out)


@app.command(
    epilog=examples(
        "runs results RUN_ID", "runs results RUN_ID --json", "runs results RUN_ID --fail-if 'mean<0.5,coverage<0.95'"
    )
)
def results(
    run_id: RunId,
    fail_if: FailIf = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show the scores of a run that has ended: means with their coverage, and every task's reward.

    Conditions of --fail-if name mean, mean_missing_as_zero, coverage, scored, unscored, cost_usd, duration_sec (of all
    trials) or elapsed_sec. What is not known fails: the cost, if a trial does not know its own.
    """
    from harbor_assets.interfaces.cli import report
    from harbor_assets.interfaces.cli.comparing import check_gate, gate_results
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    check_gate(fail_if or ())
    with open_session(workspace, base_url) as session:
        report.print_results(session, run_id, out)
        code = gate_results(session, run_id, fail_if or ())
    raise typer.Exit(code)


@app.command(
    epilog=examples(
        "runs compare RUN_A RUN_B",
        "runs compare RUN_A RUN_B --json",
        "runs compare RUN_A RUN_B --fail-if 'regressions>0,coverage<0.95'",
    )
)
def compare(
    first: Annotated[str, typer.Argument(metavar="RUN_A", help="The run that is held against.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="RUN_B", help="The run that is judged.", show_default=False)],
    fail_if: FailIf = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Look at conditions also where the runs are not comparable.")
    ] = False,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Compare two runs task by task.

    Better, worse, regressions, cost and time of RUN_B against RUN_A. The difference of the means has an interval and a
    paired test over the tasks that both have scored. Where the runs were made under other conditions, what differs is
    said on stderr, and --fail-if is refused. Conditions name the figures of `runs results --fail-if`, of RUN_B; with
    `first_` before them, of RUN_A; and wins, losses, ties, regressions, tasks, difference, difference_low,
    difference_high, p.
    """
    from harbor_assets.interfaces.cli.comparing import print_comparison
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        code = print_comparison(session, first, second, Output(json=json), fail_if=fail_if or (), anyway=anyway)
    raise typer.Exit(code)


@app.command(
    epilog=examples(
        "runs download RUN_ID",
        "runs download RUN_ID --task 3 --output ./results",
        "runs download RUN_ID --output s3://bucket/results",
    )
)
def download(
    run_id: RunId,
    task: Annotated[
        int | None, typer.Option("--task", metavar="I", min=0, help="Only the bundle of the task with this index.")
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            metavar="DIR|URL",
            help="Folder, or URL of an object store (s3://bucket/prefix), in which RUN_ID/agent-eval-results is made.",
        ),
    ] = ".",
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Write a run's result bundle, report.html and the trials' own files to a folder or an object store.

    The bundle of a single task is there as soon as the task has ended, also while the run goes on.
    """
    from harbor_assets.interfaces.cli.fetch import download as fetch
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        raise typer.Exit(fetch(session, run_id, output, Output(json=json), task=task))


@app.command(name="list", epilog=examples("runs list", "runs list --mine --active", "runs list --json"))
def list_runs(
    mine: Annotated[bool, typer.Option("--mine", help="Only runs you submitted.")] = False,
    active: Annotated[bool, typer.Option("--active", help="Only runs that have not ended.")] = False,
    page: Annotated[int, typer.Option("--page", metavar="N", min=1, help="Which page.")] = 1,
    page_size: Annotated[int, typer.Option("--page-size", metavar="N", min=1, max=1000, help="Runs on a page.")] = 100,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """List runs, newest first."""
    from harbor_assets.interfaces.cli import report
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    with open_session(workspace, base_url) as session:
        found = session.evaluator.runs.list(active=active, mine=mine, page=page, page_size=page_size)
        report.print_runs(found, out)


@app.command(epilog=examples("runs tasks RUN_ID", "runs tasks RUN_ID --phase failed"))
def tasks(
    run_id: RunId,
    phase: Annotated[
        Phase | None, typer.Option("--phase", help="Only tasks in this phase.", show_default=False)
    ] = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """List the tasks of a run: index, phase, and what became of each trial."""
    from harbor_assets.interfaces.cli import report
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    with open_session(workspace, base_url) as session:
        status = session.evaluator.runs.status(run_id)  # all as of one moment, as pages would not be
        report.print_tasks([task for task in status.tasks if phase in (None, task.phase)], out)


@app.command(epilog=examples("runs rerun RUN_ID --failed --wait", "runs rerun RUN_ID --tasks 3,7"))
def rerun(
    run_id: RunId,
    failed: Annotated[bool, typer.Option("--failed", help="Only tasks of which a trial was not scored.")] = False,
    tasks: Tasks = None,
    idempotency_key: IdempotencyKey = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the new run and exit with how it ended.")] = False,
    json: Json = False,
) -> None:
    """Run tasks of a run again with its settings, as a new run that names the old one.

    The old run stays as it is. Exit codes as those of submit.
    """
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.submit import run_again

    out = Output(json=json)
    raise typer.Exit(
        run_again(
            run_id,
            failed=failed,
            tasks=tasks,
            idempotency_key=idempotency_key,
            where=(workspace, base_url),
            wait=wait,
            out=out,
        )
    )


@app.command(epilog=examples("runs resume RUN_ID", "runs resume RUN_ID --wait"))
def resume(
    run_id: RunId,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the run and exit with how it ended.")] = False,
    json: Json = False,
) -> None:
    """Let a run go on that lost its worker.

    It keeps its id and runs the trials without an outcome, and no others; what is run again is said.
    Runs go on by themselves; this is for one that is to go on now. A paused run tries its next trial at once. An ended
    run never changes: use rerun.
    """
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.resuming import go_on

    raise typer.Exit(go_on(run_id, where=(workspace, base_url), wait=wait, out=Output(json=json)))


@app.command(epilog=examples("runs publish RUN_ID"))
def publish(run_id: RunId, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
    """Publish what of an ended run is missing.

    Runs are published to their Experiment by themselves; this is for one whose error says that it could not be, or
    whose Evaluation was deleted: it is made anew.
    """
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.publishing import publish_run

    raise typer.Exit(publish_run(run_id, (workspace, base_url), Output(json=json)))


@app.command(epilog=examples("runs regrade RUN_ID --wait", "runs regrade RUN_ID --tasks 3,7 --taskset my-suite"))
def regrade(
    run_id: RunId,
    tasks: Tasks = None,
    taskset: Annotated[
        str | None,
        typer.Option(
            "--taskset",
            metavar="REF",
            help="Whose tests. [default: the newest taskset of the tasks' newest revisions]",
            show_default=False,
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    wait: Annotated[bool, typer.Option("--wait", help="Follow the new run and exit with how it ended.")] = False,
    json: Json = False,
) -> None:
    """Verify again what a run kept, without an agent.

    The verifiers alone run on what an ended run kept of its agent's work, as a new run that names the old one. What a
    task's artifacts hold is verified again if its verifier has a sandbox of its own; trials of which nothing was kept
    end not_started (work_not_kept). Exit codes as those of submit.
    """
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.submit import grade_again

    out = Output(json=json)
    raise typer.Exit(
        grade_again(
            run_id,
            tasks=tasks,
            taskset=taskset,
            idempotency_key=idempotency_key,
            where=(workspace, base_url),
            wait=wait,
            out=out,
        )
    )


@app.command(epilog=examples("runs cancel RUN_ID"))
def cancel(run_id: RunId, workspace: Workspace = None, base_url: BaseUrl = None, json: Json = False) -> None:
    """Stop a run. Trials that were scored stay scored, and are merged into its bundle."""
    from harbor_assets.interfaces.cli.output import Output, command, counted
    from harbor_assets.interfaces.cli.session import open_session

    out = Output(json=json)
    with open_session(workspace, base_url) as session:
        run = session.evaluator.runs.cancel(run_id)
        if run.phase.terminal:
            out.line(f"{run.id} has ended already: {run.phase}")
        else:
            out.line(
                f"{run.id} is being cancelled: {sum(run.counts.values())} of {counted(run.n_trials, 'trial')} had ended"
            )
            out.line(f"Follow it: {command('runs', 'status', run.id, '--watch', *session.own_words())}")
        if json:
            out.document({"run": run.model_dump(mode="json")})


@app.command(epilog=examples("runs logs RUN_ID", "runs logs RUN_ID --task 0", "runs logs RUN_ID --follow"))
def logs(
    run_id: RunId,
    task: Annotated[
        int | None, typer.Option("--task", metavar="I", min=0, help="The log of the task with this index.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until nothing more will come.")] = False,
    whole: Annotated[bool, typer.Option("--all", help="All of a long log; else its last megabyte.")] = False,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
) -> None:
    """Print the log of a run's worker, or of one task's trials."""
    from harbor_assets.interfaces.cli.fetch import print_logs
    from harbor_assets.interfaces.cli.session import open_session

    with open_session(workspace, base_url) as session:
        raise typer.Exit(print_logs(session, run_id, task, follow=follow, whole=whole))


@app.command(
    epilog=examples("runs trace RUN_ID 0", "runs trace RUN_ID fix-the-build --k 2", "runs trace RUN_ID 0 --json")
)
def trace(
    run_id: RunId,
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task's index or name.", show_default=False)],
    k: Annotated[int, typer.Option("--k", metavar="K", min=1, max=1000, help="Which of its trials.")] = 1,
    workspace: Workspace = None,
    base_url: BaseUrl = None,
    json: Json = False,
) -> None:
    """Show what the agent of a trial did.

    Its messages, model calls, tool calls, tokens and cost, as soon as the trial has ended. Usage counts once; what
    nobody reported is unknown, never 0.
    """
    from harbor_assets.interfaces.cli.output import Output
    from harbor_assets.interfaces.cli.session import open_session
    from harbor_assets.interfaces.cli.traces import print_trace

    with open_session(workspace, base_url) as session:
        print_trace(session, run_id, task, k, Output(json=json))


add_to_runs(app)
