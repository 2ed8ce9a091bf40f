"""Which images a task needs, and the key that says when a built one is still right. Pure.

Which folder or image a sandbox is made from is Harbor's rule (0.26, `resolve_verifier_environment_definition`): a
`docker_image` goes before a Dockerfile; a separate verifier uses its own `docker_image`, else `tests/Dockerfile`, else
what the agent's sandbox is made from.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import Field

from harbor_assets.domain.digests import digest_of
from harbor_assets.domain.outcomes import Frozen
from harbor_assets.domain.plans import ImageConfig, ImageProblem, SandboxKind, SandboxWord
from harbor_assets.domain.profiles import separate
from harbor_assets.domain.tasks import Body, Hex64

Role = Literal["agent", "verifier"]
ImageState = Literal["ready", "failed"]
ROLES: tuple[Role, ...] = ("agent", "verifier")
DOCKERFILE, COMPOSE = "Dockerfile", "docker-compose.yaml"
BUILD_SECONDS = 600.0  # Harbor's default of [environment] build_timeout_sec
KEY_SHOWN = 32  # characters of the key in a tag: 128 bits, no two contents meet
NAME_MAX = 100  # of a repository's last component; registries take 255 for the whole name


class WrittenImage(NamedTuple):
    """A place of a task.toml in which the image built from one of the task's folders stands, or may stand.

    `content_hash` is that of the folder it was built from: with one, the image is one of ours to renew; without, the
    suite's author named it.
    """

    role: Role
    table: tuple[str, ...]
    context: str
    image: str | None
    content_hash: str | None

    @property
    def named_by_author(self) -> bool:
        return self.image is not None and self.content_hash is None


def written_images(config: Mapping[str, Any], has_file: Callable[[str], bool]) -> Iterator[WrittenImage]:
    """Where a task's built images stand in its task.toml. `has_file` as of `plan_images`.

    A verifier's only where there is a `[verifier.environment]`: a new one would take sizes from nowhere.
    """
    own = _table(_table(config, "verifier"), "environment")
    places: list[tuple[Role, tuple[str, ...], str, Mapping[str, Any]]] = [
        ("agent", ("environment",), "environment", _table(config, "environment"))
    ]
    if own:
        places.append(("verifier", ("verifier", "environment"), "tests", own))
    for role, path, context, table in places:
        if has_file(f"{context}/{DOCKERFILE}"):
            image, content = table.get("docker_image"), table.get("built_content_hash")
            yield WrittenImage(role, path, context, str(image) if image else None, str(content) if content else None)


class ImageNeed(Frozen):
    """One image of a task: to be built from `context` (a folder of the task), or to be found by name."""

    role: Role
    context: str | None = None
    image: str | None = None
    build_seconds: float = BUILD_SECONDS


class TaskImage(Frozen):
    """What is known of one role of a task's content: the key of its image, or why there can be none."""

    role: Role
    key: Hex64 | None = None
    problem: str | None = None


class ImageRecord(Frozen):
    """What became of one image. `ref` is `repository@digest` when `ready`; `log` an artifact's key; `seen_at` when it
    was built, found or failed. There is no row while it is being built: a builder that dies leaves nothing half."""

    key: Hex64
    name: str
    state: ImageState
    ref: str | None = None
    config: ImageConfig = ImageConfig()
    problem: ImageProblem | None = None
    log: str | None = None
    seen_at: datetime


class TaskImages(NamedTuple):
    """What a plan takes over for a task. `missing`: roles that were never built, or are being built; `impossible`: why
    the task as it is can have no image, ever."""

    images: dict[str, str]
    config: dict[str, ImageConfig]
    problem: ImageProblem | None
    missing: tuple[Role, ...]
    impossible: str | None = None


class ImageView(Frozen):
    """One image of a taskset as a client sees it. `state` is of the task where its images are not known yet; `log` is
    where the log of its last build lies: the artifact's key, in `--json` of a command the path or URL."""

    task: str
    role: Role | None = None
    state: Literal["missing", "waiting", "building", "ready", "failed"]
    ref: str | None = None
    message: str | None = None
    key: str | None = None
    log: str | None = None
    unchanged: bool = False


class ImageStatus(Frozen):
    """The images of a taskset for one kind of sandbox. `needed` is False where that needs none."""

    taskset_ref: str
    sandbox: SandboxKind = "kubernetes"
    needed: bool = True
    images: tuple[ImageView, ...] = ()

    @property
    def done(self) -> bool:
        """Nothing is being built or waits for it."""
        return all(view.state not in ("waiting", "building") for view in self.images)


class BuildRequest(Body):
    """The body that asks for a taskset's images. `select`: stored names of tasks; None: all. `sandbox`: of which kind
    of sandbox, as a run would ask for it."""

    sandbox: SandboxWord = "auto"
    revision: str | None = None
    select: list[str] | None = None
    concurrency: int = Field(default=4, ge=1, le=64)


class ImagesImpossible(ValueError):
    """Why a task can have no images; the text says what to change."""


def plan_images(config: Mapping[str, Any], has_file: Callable[[str], bool]) -> tuple[ImageNeed, ...]:
    """The images of a task: the agent's, and the verifier's where that has a sandbox of its own.

    `has_file` answers for paths relative to the task's folder. Raises `ImagesImpossible`.
    """
    environment, verifier = _table(config, "environment"), _table(config, "verifier")
    agent = _need("agent", environment, "environment", has_file)
    steps = [step for step in config.get("steps") or () if isinstance(step, Mapping)]
    whole = separate(verifier)
    for step in steps:
        name = str(step.get("name")).replace("/", "")  # it is untrusted, and becomes part of a path
        files = [f"steps/{name}/tests/{file}" for file in (DOCKERFILE, COMPOSE)]
        if separate(_table(step, "verifier"), whole) and any(map(has_file, files)):
            raise ImagesImpossible(
                f"the step {name} has a {files[0]} of its own, which this sandbox cannot give; use tests/{DOCKERFILE} "
                "for the whole task"
            )
    if any(_table(_table(step, "verifier"), "environment") for step in steps):
        raise ImagesImpossible(
            "a step has a [verifier.environment] of its own, which this sandbox cannot give; use one for the whole task"
        )
    alone = any(separate(_table(step, "verifier"), whole) for step in steps) if steps else whole
    if not alone:
        return (agent,)
    own = _table(verifier, "environment")
    if own.get("docker_image") or any(has_file(f"tests/{name}") for name in (DOCKERFILE, COMPOSE)):
        return agent, _need("verifier", own or {**environment, "docker_image": None}, "tests", has_file)
    return agent, agent.model_copy(update={"role": "verifier"})


def _need(role: Role, environment: Mapping[str, Any], folder: str, has_file: Callable[[str], bool]) -> ImageNeed:
    if str(environment.get("os") or "linux").lower() != "linux":
        raise ImagesImpossible(f"it asks for the operating system {environment.get('os')!r}; only linux is there")
    if has_file(f"{folder}/{COMPOSE}"):
        raise ImagesImpossible(
            f"{folder}/{COMPOSE} describes several containers; this sandbox is one: use a Dockerfile"
        )
    seconds = environment.get("build_timeout_sec")
    limit = float(seconds) if isinstance(seconds, int | float) and seconds > 0 else BUILD_SECONDS
    if image := environment.get("docker_image"):
        return ImageNeed(role=role, image=str(image), build_seconds=limit)
    if not has_file(f"{folder}/{DOCKERFILE}"):
        raise ImagesImpossible(f"it has neither {folder}/{DOCKERFILE} nor a docker_image in task.toml; add one")
    return ImageNeed(role=role, context=folder, build_seconds=limit)


def base_images(dockerfile: str) -> tuple[str, ...]:
    """The images that a Dockerfile begins from, each once; its own stages and `scratch` are none.

    `ARG` defaults before the first `FROM` are filled in; what no default says is left as it is written.
    https://docs.docker.com/reference/dockerfile/#from
    """
    lines = re.sub(r"\\[ \t]*\r?\n", " ", dockerfile).splitlines()
    values: dict[str, str] = {}
    stages, found = {"scratch"}, []
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word.upper() == "ARG" and not found:
            name, given, value = rest.strip().partition("=")
            if given:
                values[name] = value.strip().strip("\"'")
        elif word.upper() == "FROM":
            words = [w for w in rest.split() if not w.startswith("--")]
            if not words:
                continue
            image = re.sub(r"\$(?:\{(\w+)[^}]*\}|(\w+))", lambda m: values.get(m[1] or m[2], m[0]), words[0])
            if image.lower() not in stages and image not in found:
                found.append(image)
            if len(words) == 3 and words[1].upper() == "AS":
                stages.add(words[2].lower())
    return tuple(found)


class ContextEntry(NamedTuple):
    """One thing in a build context. `mode` are its permission bits; `content` a file's bytes or a link's target."""

    path: str
    kind: Literal["file", "folder", "link"]
    mode: int
    content: Iterable[bytes]


def context_key(
    entries: Iterable[ContextEntry], *, platform: str | None = None, build_args: Mapping[str, str] | None = None
) -> str:
    """The key of what is built from a context: equal keys mean equal paths, kinds, modes and bytes.

    The order of `entries` does not matter. Every field is preceded by its length, so that no two contexts run together.
    """
    parts = sorted((entry.path, entry.kind, entry.mode, _hash(entry.content)) for entry in entries)
    return digest_of({"entries": parts, "platform": platform, "build_args": dict(build_args or {}), "version": 1})


def named_key(image: str) -> str:
    """The key of an image that is found by name."""
    return digest_of({"image": image, "version": 1})


def _hash(content: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for piece in content:
        digest.update(piece)
    return digest.hexdigest()


def repository(registry: str, task_name: str) -> str:
    """Where a task's images lie: the registry's prefix and the name in a registry's alphabet (it is for people: the
    tag alone says what an image holds)."""
    name = re.sub(r"[^a-z0-9]+", "-", task_name.lower()).strip("-")[:NAME_MAX].rstrip("-")
    return f"{registry.rstrip('/')}/{name or 'task'}"


def image_tag(registry: str, task_name: str, key: str) -> str:
    """The tag of a built image: `<registry>/<task>:<first half of the key>`."""
    return f"{repository(registry, task_name)}:{key[:KEY_SHOWN]}"


def log_key(key: str) -> str:
    """Where the log of an image's last build lies in the artifact store."""
    return f"images/{key}/build.log"


def partition_key(ref: str) -> str:
    """The Dagster partition of an image `repository@sha256:...`: `sha256:<12 hex>`."""
    return ref.rpartition("@")[2][: len("sha256:") + 12]


def failed_views(views: Iterable[ImageView]) -> Iterator[ImageView]:
    """Those that failed."""
    return (view for view in views if view.state == "failed")


def _table(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = holder.get(name)
    return found if isinstance(found, Mapping) else {}
