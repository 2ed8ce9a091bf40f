"""kubectl and buildctl as programs: their answers as objects, their refusals as errors of this project."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harbor_assets.domain.errors import Refused, ServiceUnavailable

_SAID_MAX = 4000  # characters of a program's own words in an error: its end, where the reason stands
_ANSWER_SECONDS = 30.0  # of a BuildKit that is asked for its workers, which takes milliseconds
_LOGGED = re.compile(r"[EWI][0-9]{4} ")  # kubectl's own log lines before what it says in the end
_AWAY = (
    "connection refused",
    "i/o timeout",
    "no route to host",
    "no such host",
    "tls handshake timeout",
    "unable to connect",
    "was refused - did you specify",
)


class Kubectl:
    """The cluster that the user's kubeconfig names, in `context` if one is given."""

    def __init__(self, context: str | None = None) -> None:
        self._base = [_program("kubectl", "it talks to the cluster"), *(["--context", context] if context else [])]

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        """Run it and return what it printed. Raises `Refused`, or `ServiceUnavailable` if no cluster answers."""
        done = subprocess.run([*self._base, *words], input=stdin, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout
        said = "\n".join(line for line in lines(done.stderr) if not _LOGGED.match(line))[-_SAID_MAX:]
        if any(words in said.lower() for words in _AWAY):
            raise ServiceUnavailable(f"The cluster does not answer; see KUBECONFIG and `kubectl cluster-info`:\n{said}")
        raise Refused(f"kubectl {' '.join(words[:3])} was refused:\n{said}")

    def first_contact(self) -> list[dict[str, Any]]:
        """The nodes. Raises `Refused` if the kubeconfig leads to no cluster: the user named it, nothing has begun."""
        named = os.environ.get("KUBECONFIG", "")
        if named and not any(Path(path).is_file() for path in named.split(os.pathsep) if path):
            raise Refused(f"KUBECONFIG names {named}, and there is no such file; set it to a cluster's kubeconfig")
        try:
            return self.items("nodes")
        except ServiceUnavailable as error:
            raise Refused(str(error)) from error

    def get(self, *words: str) -> dict[str, Any] | None:
        """`kubectl get ... -o json`; None where there is no such thing."""
        out = self("get", *words, "--ignore-not-found", "-o", "json")
        return json.loads(out) if out.strip() else None

    def items(self, *words: str) -> list[dict[str, Any]]:
        """The items of a list."""
        return (self.get(*words) or {}).get("items", [])


def check_builder(buildkit: str) -> None:
    """Raises `Refused` if BuildKit cannot be reached as `buildkit` says, or there is no buildctl."""
    if not re.fullmatch(r"tcp://[^/\s]+:[0-9]+|unix:///\S+", buildkit):
        raise Refused(f"{buildkit!r} is no address of a BuildKit; write tcp://<host>:<port> or unix:///<path>")
    words = [_program("buildctl", "it builds the images"), "--addr", buildkit, "debug", "workers"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=_ANSWER_SECONDS)
        if done.returncode == 0:
            return
        said = done.stderr.strip()[-_SAID_MAX:]
    except subprocess.TimeoutExpired:
        said = f"no answer in {_ANSWER_SECONDS:.0f} s"
    raise Refused(f"The BuildKit at {buildkit} does not answer; start it, or name another with --buildkit:\n{said}")


def build(context: Path, image: str, *, buildkit: str, insecure: bool, log: Path) -> None:
    """Build a context and push it as `image`. Raises `Refused` with the end of the build's log."""
    output = f"type=image,name={image},push=true" + (",registry.insecure=true" if insecure else "")
    words = [
        _program("buildctl", "it builds the images"), "--addr", buildkit, "build", "--frontend", "dockerfile.v0",
        "--local", f"context={context}", "--local", f"dockerfile={context}", "--opt", "filename=Containerfile",
        "--progress", "plain", "--output", output,
    ]  # fmt: skip
    with log.open("wb") as file:
        done = subprocess.run(words, stdout=file, stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        raise Refused(f"{image} could not be built by {buildkit}:\n{log.read_text(errors='replace')[-_SAID_MAX:]}")


def _program(name: str, why: str, environment: Mapping[str, str] = os.environ) -> str:
    found = shutil.which(name, path=environment.get("PATH"))
    if found is None:
        raise Refused(f"The program {name} is not on PATH, and {why}; install it, then repeat")
    return found


def lines(text: str) -> Sequence[str]:
    """The lines of an answer that hold something."""
    return [line for line in text.splitlines() if line.strip()]
