"""Suites of Harbor tasks made on disk for tests: good ones, broken ones, and one for each way a trial can go.

Every task is offline and pure shell. They are made rather than stored, so that a test shows what it is about.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

DOCKERFILE = "FROM debian:bookworm-slim\nWORKDIR /app\n"
SOLVE = "echo done > /app/answer.txt"  # what `grade` looks for
INSTRUCTION = "Write the word `done` to `/app/answer.txt`.\n"

type Files = Mapping[str, str | bytes]


def script(body: str) -> str:
    return f"#!/bin/bash\n{body}\n"


def grade(reward: str = "1.0", otherwise: str = "0.0") -> str:
    """A test that gives `reward` if the answer is there, else `otherwise`."""
    return f"[ -f /app/answer.txt ] && r={reward} || r={otherwise}\necho $r > /logs/verifier/reward.txt"


def toml(tables: Mapping[str, Any]) -> str:
    """Enough of TOML for task.toml: tables of strings, numbers, booleans and lists."""
    plain = [f"{key} = {_value(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    nested = [_table(key, value) for key, value in tables.items() if isinstance(value, dict)]
    return "\n\n".join(["\n".join(plain), *nested]) + "\n"


def _table(name: str, table: Mapping[str, Any]) -> str:
    plain = [f"{key} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    nested = [_table(f"{name}.{key}", value) for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([f"[{name}]", *plain, *nested])


def _value(value: Any) -> str:
    return f"[{', '.join(map(_value, value))}]" if isinstance(value, list) else json.dumps(value)


def make_task(
    root: Path,
    name: str,
    *,
    native_id: str | None = None,
    reward: str = "1.0",
    solve: str | None = SOLVE,
    test: str | None = None,
    dockerfile: str | None = DOCKERFILE,
    network: str = "no-network",
    agent: Mapping[str, Any] | None = None,
    verifier: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    top: Mapping[str, Any] | None = None,
    toml_extra: str = "",
    files: Files | None = None,
) -> Path:
    """A task folder `root/name` that the oracle solves with `reward` (nop: 0.0).

    `native_id` is `[task].name` (None: Harbor takes the folder's name). `solve` and `test` are bodies of shell scripts;
    without `solve` there is no solution. `agent`, `verifier`, `environment` and `top` add to task.toml's tables,
    `toml_extra` is appended as it stands, `files` are more files by path in the task.
    """
    task = root / name
    tables: dict[str, Any] = {"schema_version": "1.4", **(top or {})}
    if native_id is not None:
        tables["task"] = {"name": native_id}
    tables["agent"] = {"timeout_sec": 60.0, **(agent or {})}
    tables["verifier"] = {"timeout_sec": 60.0, **(verifier or {})}
    tables["environment"] = {"network_mode": network, **(environment or {})}
    content: dict[str, str | bytes] = {
        "task.toml": toml(tables) + toml_extra,
        "instruction.md": INSTRUCTION,
        "tests/test.sh": script(grade(reward) if test is None else test),
    }
    if dockerfile is not None:
        content["environment/Dockerfile"] = dockerfile
    if solve is not None:
        content["solution/solve.sh"] = script(solve)
    write(task, {**content, **(files or {})})
    return task


def write(task: Path, files: Files) -> None:
    """Write files below `task`; scripts can be executed."""
    for path, content in files.items():
        file = task / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(0o755 if file.suffix == ".sh" else 0o644)


def make_suite(root: Path, count: int, *, org: str = "tests") -> Path:
    """A suite of `count` good tasks `task-000`, ..."""
    for number in range(count):
        make_task(root, f"task-{number:03}", native_id=f"{org}/task-{number:03}")
    return root


# Broken children of a suite. Each makes one folder and returns it.


def bad_toml(root: Path, name: str = "bad-toml") -> Path:
    task = make_task(root, name, native_id=f"tests/{name}")
    (task / "task.toml").write_text("[task\nname = \n")
    return task


def bad_value(root: Path, name: str = "bad-value") -> Path:
    """TOML that Harbor's schema refuses."""
    return make_task(root, name, native_id=f"tests/{name}", environment={"memory_mb": "lots"})


def misspelt(root: Path, name: str = "misspelt") -> Path:
    """Valid for Harbor, which ignores what it does not know; `harbor lint` finds it."""
    return make_task(root, name, native_id=f"tests/{name}", toml_extra="\n[enviroment]\nmemory_mb = 64\n")


def no_instruction(root: Path, name: str = "no-instruction") -> Path:
    task = make_task(root, name, native_id=f"tests/{name}")
    (task / "instruction.md").unlink()
    return task


def no_tests(root: Path, name: str = "no-tests") -> Path:
    task = make_task(root, name, native_id=f"tests/{name}")
    shutil.rmtree(task / "tests")
    return task


def no_environment(root: Path, name: str = "no-environment") -> Path:
    return make_task(root, name, native_id=f"tests/{name}", dockerfile=None)


def link_out(root: Path, name: str = "link-out") -> Path:
    """A link in tests/ that leaves the task."""
    task = make_task(root, name, native_id=f"tests/{name}")
    (task / "tests" / "secret").symlink_to("/etc/hostname")
    return task


def unholdable(root: Path, name: str = "a name with blanks") -> Path:
    """A name that the catalog cannot hold."""
    return make_task(root, name)


def duplicates(root: Path, native_id: str = "tests/twin") -> tuple[Path, Path]:
    """Two folders with one native id."""
    return make_task(root, "twin-1", native_id=native_id), make_task(root, "twin-2", native_id=native_id)


def duplicates_by_case(root: Path) -> tuple[Path, Path]:
    """Two native ids that differ in case alone."""
    return make_task(root, "case-1", native_id="tests/Case"), make_task(root, "case-2", native_id="tests/case")


BROKEN: dict[str, Callable[[Path], Path]] = {
    maker.__name__: maker
    for maker in (bad_toml, bad_value, no_instruction, no_tests, no_environment, link_out, unholdable)
}

# Native ids that are allowed though they look odd -> what is odd.
ODD_NAMES = {
    "tests/dots.in.name": "dots",
    "tests/Upper-Case": "upper case",
    "tests/under_score-1": "an underscore and a digit",
    "other-org/dots.in.name": "the short name of another one, in another organisation",
    f"tests/{'n' * 200}": "200 characters",
}


def odd_names(root: Path) -> Path:
    """A suite of one task for each of `ODD_NAMES`."""
    for number, native_id in enumerate(ODD_NAMES):
        make_task(root, f"odd-{number}", native_id=native_id)
    return root


# Scenarios: one task each, for a real trial.

_INTERFACES = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '"


def public(root: Path, name: str = "public") -> Path:
    """Everyone has a network; the reward is 1 only if the tests see an interface besides `lo`."""
    test = f"[ $({_INTERFACES} | wc -l) -gt 1 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt"
    return make_task(root, name, network="public", test=test)


def offline(root: Path, name: str = "offline") -> Path:
    """No network at all: the reward is 1 only if the agent and the tests saw `lo` and nothing else."""
    test = _saw_only_lo(f'[ "$({_INTERFACES})" = lo ]')
    return make_task(root, name, solve=f"{_INTERFACES} > /app/seen", test=test)


def offline_agent(root: Path, name: str = "offline-agent") -> Path:
    """Public baseline, no network for the agent: 1 only if the agent saw `lo` alone and the tests see more."""
    test = _saw_only_lo(f'[ "$({_INTERFACES})" != lo ]')
    agent = {"network_mode": "no-network"}
    return make_task(root, name, network="public", agent=agent, solve=f"{_INTERFACES} > /app/seen", test=test)


def _saw_only_lo(and_now: str) -> str:
    return f'[ "$(cat /app/seen)" = lo ] && {and_now} && r=1 || r=0\necho $r > /logs/verifier/reward.txt'


def agent_timeout(root: Path, name: str = "agent-timeout", *, seconds: float = 1.0) -> Path:
    """The agent solves the task, then hangs past its time, with children of its own: still graded, 1.0."""
    solve = f"{SOLVE}\n(sleep 600 & setsid sleep 600 &)\nsleep 600"
    return make_task(root, name, agent={"timeout_sec": seconds}, solve=solve)


def verifier_timeout(root: Path, name: str = "verifier-timeout", *, seconds: float = 1.0) -> Path:
    return make_task(root, name, verifier={"timeout_sec": seconds}, test="sleep 600")


# What tests may leave as a reward: name -> the files in /logs/verifier.
REWARDS: dict[str, Files] = {
    "missing": {},
    "empty": {"reward.txt": ""},
    "blank": {"reward.txt": "  \n"},
    "text": {"reward.txt": "passed\n"},
    "infinite": {"reward.txt": "inf\n"},
    "not-a-number": {"reward.txt": "nan\n"},
    "list": {"reward.json": "[1, 0]\n"},
    "bare-number": {"reward.json": "1\n"},
    "truncated": {"reward.json": '{"reward": 1'},
    "contradicting": {"reward.txt": "0.0\n", "reward.json": '{"reward": 1.0}\n'},
    "agreeing": {"reward.txt": "0.5\n", "reward.json": '{"reward": 0.5}\n'},
    "negative": {"reward.txt": "-0.5\n"},
    "above-1": {"reward.txt": "1.5\n"},
    "boolean": {"reward.json": '{"reward": true}\n'},
    "numeric-string": {"reward.json": '{"reward": "1.0"}\n'},
    "json-infinite": {"reward.json": '{"reward": 1e999}\n'},
    "other-key": {"reward.json": '{"speed": 3}\n'},
    "several": {"reward.json": '{"reward": 1, "speed": 3.5}\n'},
    "not-utf-8": {"reward.txt": b"\xff\xfe1\n"},
    "huge": {"reward.txt": "1" * 100_000 + "\n"},
    "many-digits": {"reward.txt": "0." + "3" * 400 + "\n"},
}


def reward_files(root: Path, kind: str, name: str | None = None) -> Path:
    """A task whose tests leave the files `REWARDS[kind]`, byte for byte."""
    files = {f"tests/{path}": content for path, content in REWARDS[kind].items()}
    test = "\n".join(f"cp /tests/{path} /logs/verifier/{path}" for path in REWARDS[kind]) or "exit 0"
    return make_task(root, name or f"reward-{kind}", test=test, files=files)


def reward_by_agent(root: Path, name: str = "reward-by-agent") -> Path:
    """The agent leaves a reward; the tests leave none. It must not count."""
    return make_task(root, name, solve="echo 1 > /logs/verifier/reward.txt", test="exit 0")


def artifacts(root: Path, name: str = "artifacts") -> Path:
    """A file and a folder of the agent are kept."""
    solve = f"{SOLVE}\nmkdir -p /app/out/deep\necho one > /app/out/one.txt\necho two > /app/out/deep/two.txt"
    return make_task(root, name, solve=solve, top={"artifacts": ["/app/answer.txt", "/app/out"]})


def binary_output(root: Path, name: str = "binary-output") -> Path:
    """Agent and tests print bytes that are not UTF-8."""
    noise = "printf '\\377\\376\\000\\200 noise\\n'; printf '\\377 err\\n' >&2"
    return make_task(root, name, solve=f"{noise}\n{SOLVE}", test=f"{noise}\n{grade()}")


def big_output(root: Path, name: str = "big-output", *, megabytes: int = 300) -> Path:
    """Agent and tests print this much."""
    flood = f"head -c {megabytes}M /dev/zero | tr '\\0' 'x'; echo"
    return make_task(root, name, solve=f"{flood}\n{SOLVE}", test=f"{flood}\n{grade()}")


_SERVE = """\
mkfifo /app/ask /app/answer
echo 'while read -r question < /app/ask; do echo "you asked: $question" > /app/answer; done' > /app/serve.sh
setsid bash /app/serve.sh > /app/serve.log 2>&1 < /dev/null &
"""
_ASK = """\
[ "$(timeout 10 bash -c 'echo hello > /app/ask; cat /app/answer')" = 'you asked: hello' ] && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""


def server(root: Path, name: str = "server") -> Path:
    """The agent leaves a server running (a named pipe each way, pure shell); the tests ask it."""
    return make_task(root, name, solve=_SERVE, test=_ASK)


def memory_hog(root: Path, name: str = "memory-hog", *, memory_mb: int = 64) -> Path:
    """The agent solves the task, then wants far more memory than the task may have."""
    return make_task(root, name, environment={"memory_mb": memory_mb}, solve=f"{SOLVE}\ntail /dev/zero")


def process_hog(root: Path, name: str = "process-hog", *, count: int = 5000) -> Path:
    """The agent solves the task, then starts far more processes than it may have."""
    solve = f"{SOLVE}\nfor i in $(seq {count}); do sleep 600 & done 2>/dev/null"
    return make_task(root, name, agent={"timeout_sec": 10.0}, solve=solve)


def many_files(root: Path, name: str = "many-files", *, count: int = 2000) -> Path:
    """The environment brings many small files, and the agent leaves as many as artifacts."""
    files = {f"environment/data/{number // 100:03}/{number:05}.txt": f"{number}\n" for number in range(count)}
    test = f"[ $(find /app/data -type f | wc -l) = {count} ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt"
    return make_task(
        root,
        name,
        dockerfile=DOCKERFILE + "COPY data data\n",
        files=files,
        solve="cp -r /app/data /app/out",
        test=test,
        top={"artifacts": ["/app/out"]},
    )


STEPS = """\
# syntax=docker/dockerfile:1
FROM debian:bookworm-slim AS base
ARG GREETING=hello
ENV WORD="${GREETING} there" TOOLS=/opt/tools
RUN groupadd --gid 4200 crew && useradd --uid 4200 --gid crew --create-home sailor
WORKDIR /app
COPY --chown=sailor:crew data/ data/
COPY --chmod=755 say.sh $TOOLS/
RUN echo "$WORD" > /app/built.txt \\
    # a comment inside
    && chown sailor /app
COPY <<EOF /app/note.txt
word: $WORD
EOF
RUN <<EOF
set -e
echo two >> /app/built.txt
EOF
ENV PATH=$TOOLS:$PATH
USER sailor
RUN id -un > /home/sailor/whoami
CMD ["sleep", "infinity"]
"""
_STEPS_SOLVE = """\
[ "$(id -un)" = sailor ] && [ "$PWD" = /app ] && [ "$(say.sh)" = 'hello there' ] && echo done > /app/answer.txt
"""
_STEPS_TEST = """\
check() {
  [ "$(cat /app/built.txt)" = $'hello there\\ntwo' ] && [ "$(cat /app/note.txt)" = 'word: hello there' ] &&
  [ "$(stat -c %U:%G /app/data/one.txt)" = sailor:crew ] && [ "$(cat /home/sailor/whoami)" = sailor ] &&
  [ ! -e /app/data/skip.log ] && [ -f /app/answer.txt ]
}
check && r=1 || r=0
echo $r > /logs/verifier/reward.txt
"""


def dockerfile_steps(root: Path, name: str = "dockerfile-steps") -> Path:
    """ARG, ENV, RUN, COPY, here-documents and USER; the reward is 1 only if the agent and the tests find them all."""
    files = {
        "environment/data/one.txt": "1\n",
        "environment/data/skip.log": "left out\n",
        "environment/say.sh": script('echo "$WORD"'),
        "environment/.dockerignore": "# logs\n**/*.log\n",
    }
    return make_task(
        root, name, dockerfile=STEPS, solve=_STEPS_SOLVE, test=_STEPS_TEST, files=files, verifier={"user": "root"}
    )


def scenarios(root: Path) -> Iterator[Path]:
    """Every scenario that ends in seconds, as one suite."""
    for maker in (public, offline, offline_agent, agent_timeout, verifier_timeout, artifacts, binary_output, server):
        yield maker(root)
    for kind in REWARDS:
        yield reward_files(root, kind)
    yield reward_by_agent(root)
    yield dockerfile_steps(root)
