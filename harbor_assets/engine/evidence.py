"""What a trial's folder holds, told as the bundle format tells it, and the agent's last words. Pure.

File names and trajectories come from tasks and agents: names that cannot be written down, and more files than fit in a
row, are counted in the evidence's metadata rather than dropped.
"""

import json
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from pydantic import JsonValue

from harbor_assets.domain.bundle import Descriptor, Evidence

FILES_MAX = 500  # descriptors are for looking things up; a folder of thousands is looked at as a folder
TRAJECTORY = "agent/trajectory.json"  # where Harbor's agents leave their trajectory
TRAJECTORY_MAX_BYTES = 32 * 1024 * 1024  # larger ones are kept as evidence and not read
OUTPUT_TEXT_MAX = 64 * 1024  # characters of the agent's final message kept in a row

_JSON = {
    "config.json": ("config", "Harbor's configuration of this trial"),
    "result.json": ("result", "Harbor's result of this trial: rewards, timings, error, usage"),
}
_LOGS = (
    ("trial.log", "text", "Harbor's log of the trial"),
    ("exception.txt", "text", "the exception that ended the trial"),
    ("agent/oracle.txt", "text", "output of the reference solution"),
    ("agent/setup/stdout.txt", "text", "output of the agent's installation"),
    ("agent/command-*/stdout.txt", "text", "output of an agent's command"),
    ("verifier/reward.json", "json", "rewards as the verifier wrote them"),
    ("verifier/reward.txt", "text", "the reward as the verifier wrote it"),
    ("verifier/test-stdout.txt", "text", "what the tests printed"),
    ("verifier/test-stderr.txt", "text", "what the tests printed as errors"),
)
_ARTIFACTS = "artifacts/"


def evidence_of(folder: str, files: Iterable[tuple[str, int]], *, trajectory: bool) -> Evidence:
    """The evidence of a trial whose folder is `folder`, relative to the bundle.

    `files`: (path relative to `folder`, size in bytes). `trajectory`: `agent/trajectory.json` was read and is ATIF.
    """
    paths = sorted(path for path, _ in files)
    usable = [path for path in paths if _usable(path)]
    found: dict[str, Descriptor] = {
        "trial_dir": Descriptor(kind="filesystem", ref=folder, format="dir", description="the trial's whole folder"),
        "logs": Descriptor(kind="logs", ref=f"{folder}/agent", format="dir"),
        "final_state": Descriptor(
            kind="filesystem", ref=f"{folder}/artifacts", format="dir", metadata={"role": "final_state"}
        ),
    }
    if any(path.startswith("verifier/") for path in usable):
        found["verifier_logs"] = Descriptor(
            kind="logs", ref=f"{folder}/verifier", format="dir", metadata={"role": "verifier"}
        )
    for path in usable[:FILES_MAX]:
        _describe(found, folder, path)
    _add_traces(found, folder, usable, trajectory=trajectory)
    left_out: dict[str, JsonValue] = {}
    if len(usable) > FILES_MAX:
        left_out["files_not_listed"] = len(usable) - FILES_MAX
    if len(paths) > len(usable):
        left_out["files_with_unusable_names"] = len(paths) - len(usable)
    return Evidence(descriptors=found, metadata=left_out)


def _usable(path: str) -> bool:
    """A name that can be written down and stays inside the folder."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    parts = path.split("/")
    return not path.startswith("/") and ".." not in parts and "" not in parts


def _describe(found: dict[str, Descriptor], folder: str, path: str) -> None:
    ref = f"{folder}/{path}"
    if path in _JSON:
        alias, what = _JSON[path]
        found[alias] = found[f"json:{path}"] = Descriptor(kind="json", ref=ref, format="json", description=what)
        return
    for pattern, form, what in _LOGS:
        if fnmatchcase(path, pattern):
            found[f"log:{path}"] = Descriptor(kind="log", ref=ref, format=form, description=what)
            return
    if path != TRAJECTORY and _trace_format(path) is None:
        artifact = Descriptor(kind="artifact", ref=ref)
        found[f"artifact:{path}"] = artifact
        if path.startswith(_ARTIFACTS):
            found.setdefault(f"artifact:{path.removeprefix(_ARTIFACTS)}", artifact)


def _trace_format(path: str) -> str | None:
    if "traces" not in PurePosixPath(path).parts[:-1]:
        return None
    return "atif" if path.endswith(".atif.json") else "otlp" if path.endswith(".jsonl") else None


def _add_traces(found: dict[str, Descriptor], folder: str, paths: Sequence[str], *, trajectory: bool) -> None:
    """Key every trace; the first of each format has a key of its own, and an agent's trajectory is the trace it lacks.

    OTLP is not read here, so an ATIF trace is the primary one where both exist.
    """
    firsts: dict[str, Descriptor] = {}
    for path in paths:
        form = _trace_format(path) or ("atif" if path == TRAJECTORY and trajectory else None)
        if form is None:
            if path == TRAJECTORY:
                found.setdefault(f"artifact:{path}", Descriptor(kind="artifact", ref=f"{folder}/{path}"))
            continue
        trace = Descriptor(kind="trace", ref=f"{folder}/{path}", format=form)
        if len(found) < 2 * FILES_MAX:
            found[f"trace:{path}"] = trace
        firsts.setdefault(form, trace)
    for form, trace in firsts.items():
        found[f"trace:{form}"] = trace
    if firsts:
        found["trace"] = firsts.get("atif") or firsts["otlp"]


def final_message(trajectory: bytes) -> str | None:
    """The agent's last message with text in an ATIF trajectory; "" if it has none, None if this is no ATIF trajectory.

    Only what is needed is checked: a version `ATIF-v...` and a list of steps.
    """
    if len(trajectory) > TRAJECTORY_MAX_BYTES:
        return None
    try:
        document = json.loads(trajectory)
    except (ValueError, RecursionError):
        return None
    steps = document.get("steps") if isinstance(document, dict) else None
    version = document.get("schema_version") if isinstance(document, dict) else None
    if not isinstance(version, str) or not version.startswith("ATIF-v") or not isinstance(steps, list) or not steps:
        return None
    for step in reversed(steps):
        if isinstance(step, dict) and step.get("source") == "agent":
            text = _text(step.get("message"))
            if text.strip():
                return text
    return ""


def _text(message: object) -> str:
    """A step's message: a string, or parts of which those of type `text` are joined."""
    if isinstance(message, str):
        return message
    if not isinstance(message, list):
        return ""
    parts = (part.get("text") for part in message if isinstance(part, dict) and part.get("type") == "text")
    return "\n".join(part for part in parts if isinstance(part, str))
