"""What an agent did in a trial, from the traces in its folder. Never refused: what cannot be read is not there."""

import re
from collections.abc import Mapping

from harbor_assets.domain.atif import Trajectory, joined, read_atif
from harbor_assets.domain.errors import NotReady
from harbor_assets.domain.otlp import read_otlp_lines, single_root
from harbor_assets.domain.outcomes import TrialOutcome
from harbor_assets.domain.publication import Publication
from harbor_assets.domain.runs import Run, bundle_key
from harbor_assets.domain.trace_reading import DOCUMENT_MAX_BYTES
from harbor_assets.domain.traces import TrialTrace
from harbor_assets.engine.bundle_rows import BundleRows
from harbor_assets.engine.evidence import TRAJECTORY
from harbor_assets.engine.ports import Artifacts
from harbor_assets.engine.trial_evidence import TrialEvidence
from harbor_assets.engine.trial_sessions import trial_session

_STEP = re.compile(r"steps/([^/]+)/agent/trajectory\.json")  # a task of several steps has an agent's folder in each


def read_trace(artifacts: Artifacts, row: TrialOutcome) -> Trajectory | None:
    """An OpenTelemetry trace with one span around all others, else the agent's own trajectory, else those of its steps;
    None if there is none that can be read."""
    if row.evidence is None:
        return None
    folder = f"{bundle_key(row.run_id)}/{row.evidence}"
    files = dict(artifacts.list(folder))
    for path in sorted(path for path in files if "traces" in path.split("/")[:-1] and path.endswith(".jsonl")):
        data = _read(artifacts, folder, path, files)
        spans = read_otlp_lines(data) if data else ()
        if (root := single_root(spans)) is not None:
            rest = [span for span in spans if span is not root]
            model = next((span.model_name for span in spans if span.model_name), None)
            return Trajectory([root, *rest], model_name=model, final_message=root.output)
    for path in (TRAJECTORY, *sorted(path for path in files if path.endswith(".atif.json"))):
        if (found := _trajectory(artifacts, folder, path, files)) is not None:
            return found
    steps = [(match[1], path) for path in files if (match := _STEP.fullmatch(path))]
    read = [(name, found) for name, path in steps if (found := _trajectory(artifacts, folder, path, files))]
    return joined(read) if read else None


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
    shown = trial_session(run, row, made, run.plan.publication or nowhere, read_trace(artifacts, row))
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
        **{
            name: getattr(session, name) for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")
        },
    )


def _trajectory(artifacts: Artifacts, folder: str, path: str, files: Mapping[str, int]) -> Trajectory | None:
    data = _read(artifacts, folder, path, files)
    return read_atif(data) if data else None


def _read(artifacts: Artifacts, folder: str, path: str, files: Mapping[str, int]) -> bytes | None:
    if files.get(path, DOCUMENT_MAX_BYTES + 1) > DOCUMENT_MAX_BYTES:
        return None
    with artifacts.open(f"{folder}/{path}") as file:
        return file.read(DOCUMENT_MAX_BYTES + 1)
