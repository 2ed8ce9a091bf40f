"""What a Dockerfile does: its instructions run through ARG, ENV, USER, WORKDIR and SHELL to a list of steps. Pure.

Order and scope of variables follow BuildKit (frontend/dockerfile/dockerfile2llb). What an image would bring along
(its own ENV, WORKDIR, USER, SHELL) is unknown here, so a recipe starts from Docker's defaults.
"""

import difflib
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from harbor_assets.sandboxes.process.dockerfile import KNOWN, Dockerfile, DockerfileUnsupported, Instruction
from harbor_assets.sandboxes.process.dockerwords import WordError, expand, marker, raw_words

DEFAULT_PATH = (
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # what Docker gives where an image has none
)
SCRIPT = "/dev/shm/run-heredoc"  # noqa: S108  a tmpfs of the sandbox: the script leaves nothing in the layer
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}  # uname's name -> Docker's


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY or ADD. `sources` are paths in the context, `contents` (name, text) of here-documents; `target` is absolute
    and ends with `/` where it must be a folder. `owner` is `user[:group]`; `mode` replaces the files' own."""

    at: Instruction
    sources: tuple[str, ...]
    contents: tuple[tuple[str, str], ...]
    target: str
    owner: str | None = None
    mode: int | None = None
    unpack: bool = False


@dataclass(frozen=True, slots=True)
class Workdir:
    """A folder that must exist; what is missing of it belongs to `owner`."""

    at: Instruction
    path: str
    owner: str | None


@dataclass(frozen=True, slots=True)
class Run:
    """A command. `script` is written to `SCRIPT` first; `folders` (the targets of mounts left out) are made first."""

    at: Instruction
    argv: tuple[str, ...]
    env: Mapping[str, str]
    user: str | None
    cwd: str
    network: bool
    script: str | None = None
    folders: tuple[str, ...] = ()


type Step = Copy | Workdir | Run


@dataclass(frozen=True, slots=True)
class Recipe:
    """What to do, in order, and what later commands start from. `base` is the image that FROM asks for."""

    base: str
    steps: tuple[Step, ...]
    cwd: str
    user: str | None
    env: Mapping[str, str]
    notes: tuple[str, ...]


def recipe(file: Dockerfile, *, machine: str) -> Recipe:
    """Evaluate a Dockerfile; `machine` is uname's architecture. Raises `DockerfileUnsupported` naming the line."""
    reader = _Reader(file.escape, machine)
    for instruction in file.instructions:
        try:
            reader.read(instruction)
        except WordError as error:
            raise instruction.refusal(f"{error}.") from None
    if reader.base is None:
        raise DockerfileUnsupported("The Dockerfile has no FROM. It needs one, also where the image is substituted.")
    return Recipe(reader.base, tuple(reader.steps), reader.cwd, reader.user, reader.env, tuple(reader.notes))


@dataclass
class _Reader:
    escape: str
    machine: str
    base: str | None = None
    cwd: str = "/"
    user: str | None = None
    env: dict[str, str] = field(default_factory=dict)  # the image's: ENV alone
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    steps: list[Step] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        arch = _ARCHITECTURES.get(self.machine, self.machine)
        self.globals = {f"{side}OS": "linux" for side in ("BUILD", "TARGET")}
        self.globals |= {f"{side}ARCH": arch for side in ("BUILD", "TARGET")}
        self.globals |= {f"{side}PLATFORM": f"linux/{arch}" for side in ("BUILD", "TARGET")}
        self.now = {"PATH": DEFAULT_PATH}  # ENV and ARG as seen by the instruction at hand

    def read(self, at: Instruction) -> None:
        if at.word not in KNOWN:
            near = difflib.get_close_matches(at.word, KNOWN, 1)
            raise at.refusal(f"'{at.word}' is no instruction.{f' Did you mean {near[0]}?' if near else ''}")
        if not at.rest:
            raise at.refusal("it says nothing. Give it an argument.")
        if self.base is None and at.word not in ("FROM", "ARG"):
            raise at.refusal("it stands before FROM. Move it below.")
        reading = getattr(self, f"_{at.word.lower()}", None)
        if reading is None:
            self.notes.append(f"{at.text}: ignored, a sandbox has no use for it")
        else:
            reading(at)

    def _expand(self, at: Instruction, text: str, env: Mapping[str, str] | None = None, *, quotes: bool = True) -> str:
        unset: list[str] = []
        value = expand(text, self.now if env is None else env, escape=self.escape, quotes=quotes, unset=unset)
        for name in unset:
            note = f"{at.text}: ${name} is not set; if the image sets it, that is unknown here"
            if note not in self.notes:
                self.notes.append(note)
        return value

    def _from(self, at: Instruction) -> None:
        words = at.rest.split()
        if self.base is not None:
            raise at.refusal(
                "a second FROM. Several stages need an engine that builds images; write one stage, or use a sandbox "
                "that runs images."
            )
        if len(words) != 1 and not (len(words) == 3 and words[1].upper() == "AS"):
            raise at.refusal("FROM takes an image, or an image AS a name.")
        self.base = self._expand(at, words[0], self.globals)
        if not self.base:
            raise at.refusal("the image's name is empty after its variables are replaced. Give the ARG a default.")

    def _arg(self, at: Instruction) -> None:
        scope = self.globals if self.base is None else self.now
        for raw, _ in raw_words(at.rest, escape=self.escape):
            key, given, value = raw.partition("=")
            name = self._expand(at, key, scope)
            if given:
                scope[name] = self._expand(at, value, scope)
            elif self.base is not None and name in self.globals:
                scope[name] = self.globals[name]

    def _env(self, at: Instruction) -> None:
        words = [raw for raw, _ in raw_words(at.rest, escape=self.escape)]
        if "=" in words[0]:
            pairs = [raw.partition("=")[::2] for raw in words]
            if bad := next((raw for raw in words if "=" not in raw), None):
                raise at.refusal(f"'{bad}' has no '='. Write name=value, with quotes around blanks.")
        else:  # the old form, one pair: ENV name the rest is the value
            name, *value = at.rest.split(maxsplit=1)
            if not value:
                raise at.refusal(f"'{name}' has no value. Write {name}=value.")
            pairs = [(name, value[0])]
        values = {self._expand(at, key): self._expand(at, value) for key, value in pairs}  # all see what was before
        if "" in values:
            raise at.refusal("a name is empty. Write name=value.")
        self.env |= values
        self.now |= values

    def _user(self, at: Instruction) -> None:
        self.user = self._expand(at, at.rest) or None

    def _shell(self, at: Instruction) -> None:
        if not at.array:
            raise at.refusal('SHELL takes a JSON array, such as ["/bin/bash", "-c"].')
        self.shell = at.array

    def _workdir(self, at: Instruction) -> None:
        self.cwd = self._absolute(self._expand(at, at.rest))
        self.steps.append(Workdir(at, self.cwd, self.user))

    def _absolute(self, path: str) -> str:
        return "/" + posixpath.normpath(posixpath.join(self.cwd, path)).lstrip("/")

    def _copy(self, at: Instruction) -> None:
        flags = self._copy_flags(at)
        opened = [doc.marker for doc in at.heredocs]
        words = list(at.array or ([raw for raw, _ in raw_words(at.rest, heredocs=True)] if opened else at.rest.split()))
        if len(words) < 2:
            raise at.refusal("it takes at least one source and a target.")
        sources = [word for word in words[:-1] if not opened or marker(word) not in opened]
        sources = [self._source(at, self._expand(at, word)) for word in sources]
        contents = [
            (doc.marker.name, self._expand(at, doc.body, quotes=False) if doc.marker.expand else doc.body)
            for doc in at.heredocs
        ]
        target = self._expand(at, words[-1])
        must_be_folder = target.endswith(("/", "/.", "/..")) or target in ("", ".", "..") or len(words) > 2
        absolute = self._absolute(target).rstrip("/") + ("/" if must_be_folder else "")
        mode = flags.get("chmod")
        if mode and not re.fullmatch("0*[0-7]{1,4}", mode):
            raise at.refusal(f"--chmod={mode} is not understood. Write it in octal, up to 7777.")
        self.steps.append(
            Copy(
                at,
                tuple(sources),
                tuple(contents),
                absolute or "/",
                flags.get("chown") or None,
                int(mode, 8) if mode else None,
                unpack=at.word == "ADD" and flags.get("unpack") != "false",
            )
        )

    _add = _copy

    def _copy_flags(self, at: Instruction) -> dict[str, str]:
        flags = {name: self._expand(at, value) for name, value in at.flags}
        if "from" in flags:
            raise at.refusal(
                f"--from={flags['from']} takes files out of another image or stage, and there is none here. Put the "
                "files into the environment folder, or use a sandbox that runs images."
            )
        known = {"chown", "chmod", "link", *(("unpack", "checksum", "keep-git-dir") if at.word == "ADD" else ())}
        if unknown := sorted(flags.keys() - known):
            raise at.refusal(f"--{unknown[0]} is not supported. Name the files, or use a .dockerignore.")
        return flags

    def _source(self, at: Instruction, source: str) -> str:
        if "://" in source or source.startswith(("git@", "github.com/")):
            raise at.refusal(
                f"'{source}' is not in the context, and what it holds can change. Put the file into the environment "
                "folder, or fetch it in a RUN."
            )
        if not source:
            raise at.refusal("a source is empty after its variables are replaced. Give the variable a value.")
        path = posixpath.normpath(source.lstrip("/") or ".")
        if path.split("/", 1)[0] == "..":
            raise at.refusal(f"'{source}' leaves the context. Put the file into the environment folder.")
        return path

    def _run(self, at: Instruction) -> None:
        network, folders = True, []
        for name, value in at.flags:
            if name == "mount":
                folders.append(self._mount(at, self._expand(at, value)))
            elif name == "network" and value in ("none", "default", "host"):
                network = value != "none"
                if value == "host":
                    self.notes.append(f"{at.text}: the machine's network is not given, an own address instead")
            elif (name, value) != ("security", "sandbox"):
                raise at.refusal(f"--{name}={value} is not supported. Leave it out.")
        argv, script = self._command(at)
        folders = [folder for folder in folders if folder]
        self.steps.append(Run(at, argv, dict(self.now), self.user, self.cwd, network, script, tuple(folders)))

    def _command(self, at: Instruction) -> tuple[tuple[str, ...], str | None]:
        if at.array is not None:
            if not at.array:
                raise at.refusal("an empty list is no command.")
            return at.array, None
        if not at.heredocs:
            return (*self.shell, at.rest), None
        if marker(at.rest) is None:  # a command that reads here-documents: the shell gets them as they stand
            return (*self.shell, at.rest + "".join(f"\n{doc.raw}{doc.marker.name}" for doc in at.heredocs)), None
        body = at.heredocs[0].body
        return ((*self.shell, SCRIPT), body) if body.startswith("#!") else ((*self.shell, body), None)

    def _mount(self, at: Instruction, value: str) -> str:
        options = {key: given for key, _, given in (part.partition("=") for part in value.split(","))}
        kind = options.get("type", "bind")
        if kind in ("secret", "ssh"):
            raise at.refusal(f"no {kind} is given to a build here. Bring what the step needs in another way.")
        if kind not in ("cache", "tmpfs"):
            raise at.refusal(f"a mount of type {kind} is not supported. COPY what the step needs before it.")
        target = next((options[key] for key in ("target", "dst", "destination") if options.get(key)), "")
        self.notes.append(f"{at.text}: the {kind} mount is left out; what is written there stays in the layer")
        return self._absolute(target) if target else ""
