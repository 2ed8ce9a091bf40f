"""Publishing the chosen tasks, and the lines that tell of it."""

from harbor_assets.engine.publish import Published, publish_suite
from harbor_assets.interfaces.cli import source
from harbor_assets.interfaces.cli.output import Output
from harbor_assets.interfaces.cli.session import Session
from harbor_assets.sources.packing import FolderPacker


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
