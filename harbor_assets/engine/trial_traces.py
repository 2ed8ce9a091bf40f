"""What an agent did in a trial, from the traces in its folder. Never refused: of what cannot be read is said why."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from harbor_assets.domain.atif import Trajectory, atif_of, joined, too_large
from harbor_assets.domain.errors import NotReady
from harbor_assets.domain.otlp import read_otlp_lines, single_root
from harbor_assets.domain.outcomes import Measurements, TrialOutcome
from harbor_assets.domain.publication import Publication
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.text import visible
from harbor_assets.domain.trace_reading import DOCUMENT_MAX_BYTES
from harbor_assets.domain.traces import TrialTrace, usage_of
from harbor_assets.engine.bundle_rows import BundleRows
from harbor_assets.engine.evidence import TRAJECTORY
from harbor_assets.engine.ports import Artifacts
from harbor_assets.engine.trial_evidence import TrialEvidence
from harbor_assets.engine.trial_sessions import trial_session

_STEP = re.compile(r"steps/([^/]+)/agent/trajectory\.json")  # a task of several steps has an agent's folder in each


class Look(NamedTuple):
    """What a trial's folder says of what its agent did. `unreadable`: a sentence for each trajectory that is there and
    cannot be read."""

    trajectory: Trajectory | None = None
    unreadable: Sequence[str] = ()


def look(files: Mapping[str, int], read: Callable[[str], bytes]) -> Look:
    """An OpenTelemetry trace with one span around all others, else the agent's own trajectory, else those of its steps.

    `files`: path relative to the trial's folder -> size in bytes; `read`: at least the first `DOCUMENT_MAX_BYTES + 1`
    bytes of one, where it has as many. The same for a folder on a disk and for one in a store, so that both say the
    same of what was used.
    """
    for path in sorted(path for path in files if "traces" in path.split("/")[:-1] and path.endswith(".jsonl")):
        spans = read_otlp_lines(read(path)) if 0 < files[path] <= DOCUMENT_MAX_BYTES else ()
        if (root := single_root(spans)) is not None:
            rest = [span for span in spans if span is not root]
            model = next((span.model_name for span in spans if span.model_name), None)
            return Look(Trajectory([root, *rest], model_name=model, final_message=root.output))
    unreadable: list[str] = []

    def trajectory(path: str) -> Trajectory | None:
        try:
            return atif_of(read(path)) if files[path] <= DOCUMENT_MAX_BYTES else too_large(files[path])
        except ValueError as error:
            unreadable.append(f"{visible(path)} could not be read: {error}")
            return None

    own = (path for path in (TRAJECTORY, *sorted(path for path in files if path.endswith(".atif.json"))))
    for path in own:
        if path in files and (found := trajectory(path)) is not None:
            return Look(found, unreadable)
    steps = [(match[1], path) for path in files if (match := _STEP.fullmatch(path))]
    parts = [(name, found) for name, path in steps if (found := trajectory(path))]
    return Look(joined(parts) if parts else None, unreadable)


def is_trace(path: str) -> bool:
    """Whether `look` would read a file of this path, relative to the trial's folder."""
    return (
        path == TRAJECTORY
        or path.endswith(".atif.json")
        or bool(_STEP.fullmatch(path))
        or ("traces" in path.split("/")[:-1] and path.endswith(".jsonl"))
    )


def read_trace(artifacts: Artifacts, row: TrialOutcome) -> Look:
    """What a trial's folder in the store says. Nothing where no folder was made."""
    if row.evidence is None:
        return Look()
    folder = f"{bundle_key(row.run_id)}/{row.evidence}"

    def read(path: str) -> bytes:
        with artifacts.open(f"{folder}/{path}") as file:
            return file.read(DOCUMENT_MAX_BYTES + 1)

    return look(dict(artifacts.list(folder)), read)


def completed(own: Measurements, trajectory: Trajectory | None) -> Measurements:
    """What a trial used: Harbor's own sum, and where that says nothing, what the agent's trace says. Never both."""
    if trajectory is None:
        return own
    traced = usage_of(trajectory.spans)
    known = {
        "prompt_tokens": traced.prompt_tokens,
        "completion_tokens": traced.completion_tokens,
        "cache_read_tokens": traced.cached_tokens,
        "cost_usd": traced.cost_usd,
    }
    return own.model_copy(update={name: value for name, value in known.items() if getattr(own, name) is None})


def trial_trace(run: Run, trial: TrialEvidence, artifacts: Artifacts) -> TrialTrace:
    """What a trial's agent did and what it used, as an Experiment would show it. Raises `NotReady` before its end."""
    row = trial.row
    if row is None:
        raise NotReady(
            f"Trial {trial.k} of task {trial.task.index} of {run.id} has not ended; its trace is there when it has. "
            f"Follow it with: harbor-assets runs logs {run.id} --task {trial.task.index} --follow"
        )
    nowhere = Publication(
        experiment="-", evaluation="-", dataset="-", dataset_version="-", agent_name=run.plan.agent.name
    )
    made = BundleRows.of(run.plan, [row])
    found = read_trace(artifacts, row)
    shown = trial_session(run, row, made, run.plan.publication or nowhere, found.trajectory)
    session = shown.session
    return TrialTrace(
        run_id=run.id,
        index=row.index,
        task=row.task,
        k=row.k,
        trial_id=row.trial_id,
        outcome=row.outcome.value,
        reason=row.reason.value,
        reward=row.reward,
        agent_name=session.agent_name,
        agent_version=session.agent_version,
        model_name=session.model_name,
        runtime_sec=row.measurements.runtime_sec,
        error_type=session.error_type,
        error_message=session.error_message,
        final_message=session.final_message,
        spans=tuple(shown.spans),
        unreadable=tuple(found.unreadable),
        **{
            name: getattr(session, name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
        },
    )
