"""How one task or taskset is shown."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from harbor_assets.domain.marks import Mark, Verdict
from harbor_assets.domain.tasks import EvaluatorTask, Task, Taskset
from harbor_assets.interfaces.cli.marks_shown import print_warnings, told
from harbor_assets.interfaces.cli.output import Output, counted, moment, one_line

TEXT_SHOWN = 2000  # characters of an instruction on a terminal; --json has the whole
MEMBERS_SHOWN = 20  # of a taskset; --json has all

type Shown = Task | Taskset


def document(record: Shown) -> dict[str, Any]:
    """A record as JSON, with the pinned reference that scripts go on with."""
    return {"ref": record.ref, **record.model_dump(mode="json")}


def print_record(record: Shown, out: Output, marks: Sequence[Mark] = ()) -> None:
    """One record for people, with what is known of it, or of the members of a taskset."""
    facts = [
        ("Task" if isinstance(record, Task) else "Taskset", record.ref),
        ("Revision", str(record.revision)),
        ("Tags", ", ".join(f"{tag} (revision {number})" for tag, number in sorted(record.tags.items()))),
        ("Project", record.project or ""),
        ("Metadata", ", ".join(f"{item.key}={json.dumps(item.value)}" for item in record.metadata)),
        ("Created", moment(record.created_at)),
        ("Updated", moment(record.updated_at)),
    ]
    if isinstance(record, Taskset):
        facts += [("Description", record.description or ""), ("Files", record.files_ref or "")]
        print_facts(facts, out)
        out.line(f"\n{counted(len(record.tasks), 'task')}")
        for member in record.tasks[:MEMBERS_SHOWN]:
            out.line(f"  {one_line(member)}")
        if len(record.tasks) > MEMBERS_SHOWN:
            out.line(f"  … and {len(record.tasks) - MEMBERS_SHOWN} more; --json has all")
        _print_marks(record, marks, out)
        return
    spec = record.spec
    facts += [("Kind", spec.kind), ("Metrics", ", ".join(map(str, spec.metrics))), ("Views", ", ".join(spec.views))]
    if isinstance(spec, EvaluatorTask):
        text = spec.inputs.instruction
        facts += [
            ("Intent", spec.intent),
            ("Reference", ", ".join(f"{key}={json.dumps(value)}" for key, value in spec.reference.items())),
        ]
    else:
        text = spec.instruction
        facts += [("Native id", spec.native_task_id), ("Archive", spec.source.fileset_ref)]
        facts += [("Harbor", f"{spec.harbor_hash.harbor_version}, package digest {spec.harbor_hash.digest}")]
    facts += [("Marked", told(mark)) for mark in marks]
    print_facts(facts, out)
    if text:
        out.line(f"\n{text[:TEXT_SHOWN].rstrip()}")
        if len(text) > TEXT_SHOWN:
            out.line(f"… ({len(text)} characters; --json has all)")


def _print_marks(taskset: Taskset, marks: Sequence[Mark], out: Output) -> None:
    """What is known of a taskset's members: how many are marked as what, and each that warns."""
    if not marks:
        return
    counts = Counter(mark.verdict for mark in marks)
    unmarked = len(taskset.tasks) - len({mark.subject for mark in marks})
    words = [f"{verdict} {counts[verdict]}" for verdict in Verdict if counts[verdict]]
    out.line(f"\nMarked: {', '.join([*words, *([f'not marked {unmarked}'] if unmarked else [])])}")
    print_warnings(marks, out)


def print_facts(facts: list[tuple[str, str]], out: Output) -> None:
    """Facts of a record, one a line; those without a value are left out."""
    for name, value in facts:
        if value:
            out.line(f"{name + ':':<13}{one_line(value)}")


def tags_of(record: Shown) -> str:
    """Its tags but `latest`, which every record has."""
    return ", ".join(sorted(tag for tag in record.tags if tag != "latest")) or "-"


def purpose_of(task: Task) -> str:
    """What a task is about, in a line."""
    return task.spec.intent if isinstance(task.spec, EvaluatorTask) else task.spec.native_task_id
