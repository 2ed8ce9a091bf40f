"""Publishing the chosen tasks, and the lines that tell of it."""

from harbor_assets.engine.publish import Published, publish_suite
from harbor_assets.interfaces.cli import source
from harbor_assets.interfaces.cli.output import Output, counted, note, one_line
from harbor_assets.interfaces.cli.session import Session, open_session
from harbor_assets.sources.packing import FolderPacker

PROBLEMS_SHOWN = 10


def publish(session: Session, chosen: source.Chosen, out: Output, *, rehash: bool) -> Published:
    """Publish the chosen tasks and a taskset of them, a line for each as it happens."""
    with session.known_files(rehash=rehash) as known, session.scratch() as scratch:
        return publish_suite(
            chosen.suite,
            chosen.tasks,
            workspace=session.workspace,
            target=session.evaluator.publishing,
            packer=FolderPacker(scratch, known),
            report=lambda event: out.line(str(event)),
        )


def create(session: Session, choice: source.Choice, out: Output) -> None:
    """`tasksets create`: publish, and print the taskset's reference last."""
    chosen = source.choose(session, choice)
    published = publish(session, chosen, out, rehash=choice.rehash)
    ref = published.taskset.ref
    if not out.json:
        out.line(ref)
        return
    out.document(
        {
            "taskset_ref": ref,
            "intake_dataset": f"{published.taskset.name}@{published.taskset.digest}",  # how runs of it are labelled
            "published": published.cut,
            "tasks": [
                {"index": at, "name": task.name, "ref": task.ref, "published": cut}
                for at, (task, cut) in enumerate(published.tasks)
            ],
            "total": published.total,
            "skipped": [task.model_dump(mode="json") for task in chosen.skipped],
        }
    )


def publish_run(run_id: str, where: tuple[str | None, str | None], out: Output) -> int:
    """`runs publish`. `where`: workspace and base URL. Returns the exit code: 1 if a trial could not be published."""
    with open_session(*where) as session:
        done = session.evaluator.runs.publish(run_id)
    told = f"{done.published} of {counted(done.trials, 'trial')} published"
    out.line(f"Evaluation {done.evaluation} in Experiment {done.experiment}: {told}, the rest was there")
    for said in (*done.skipped[:PROBLEMS_SHOWN], *done.failed[:PROBLEMS_SHOWN]):
        note(f"Not published: {one_line(said)}")
    if out.json:
        out.document(done.model_dump(mode="json"))
    return 1 if done.failed else 0
