"""Tasks as they are met in the wild: in steps, with a verifier of their own, with users, hooks and old spellings.

One maker for each; all offline and pure shell unless it says otherwise. See `make` for the plain ones.
"""

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harbor_assets.domain.endings import Ending
from harbor_assets.domain.outcomes import Reason
from tests.suites.make import DOCKERFILE, SOLVE, grade, make_task, memory_hog, script

_REWARD = "/logs/verifier/reward.txt"


def reward(value: str) -> str:
    return f"echo {value} > {_REWARD}"


# --- in steps -----------------------------------------------------------------------------------------------------


def in_steps(
    root: Path,
    name: str,
    rewards: Mapping[str, str],
    *,
    strategy: str | None = None,
    step: Mapping[str, str] | None = None,
    files: Mapping[str, str | bytes] | None = None,
    **options: Any,
) -> Path:
    """A task in steps, each with tests that give its reward: step name -> what is echoed into reward.txt.

    `strategy`: `mean` or `final`. `step`: more lines of TOML for the [[steps]] of a name.
    """
    tables = "".join(f'\n[[steps]]\nname = "{key}"\n{(step or {}).get(key, "")}\n' for key in rewards)
    more: dict[str, str | bytes] = {}
    for key, value in rewards.items():
        more[f"steps/{key}/instruction.md"] = f"Do the step {key}.\n"
        more[f"steps/{key}/solution/solve.sh"] = script(f"echo {key} >> /app/done.txt")
        more[f"steps/{key}/tests/test.sh"] = script(f"grep -qx {key} /app/done.txt && {reward(value)}")
    top: dict[str, Any] = {"multi_step_reward_strategy": strategy} if strategy else {}
    top |= options.pop("top", {})
    return make_task(root, name, solve=None, top=top, toml_extra=tables, files={**more, **(files or {})}, **options)


def steps_by_mean(root: Path, name: str = "steps-mean") -> Path:
    """1.0 and 0.5: 0.75."""
    return in_steps(root, name, {"first": "1.0", "second": "0.5"})


def steps_by_last(root: Path, name: str = "steps-final") -> Path:
    """1.0 and 0.5, of which the last counts."""
    return in_steps(root, name, {"first": "1.0", "second": "0.5"}, strategy="final")


def steps_given_up(root: Path, name: str = "steps-min-reward") -> Path:
    """The second step stays below its `min_reward`: the third is not run, and the mean is over two."""
    rewards = {"first": "1.0", "second": "0.5", "third": "1.0"}
    return in_steps(root, name, rewards, step={"second": "min_reward = 0.9"})


def steps_without_a_reward(root: Path, name: str = "steps-no-reward") -> Path:
    """The second step's tests leave a word in place of a reward."""
    return in_steps(root, name, {"first": "1.0", "second": "passed"})


def steps_that_cannot_be_set_up(root: Path, name: str = "steps-setup-fails") -> Path:
    """The second step's `setup.sh` fails before its agent begins."""
    files = {"steps/second/workdir/setup.sh": script("echo no such service >&2; exit 7")}
    return in_steps(root, name, {"first": "1.0", "second": "1.0"}, files=files)


def steps_that_are_not_healthy(root: Path, name: str = "steps-unhealthy") -> Path:
    """The second step's own health check never succeeds."""
    check = '[steps.healthcheck]\ncommand = "false"\nretries = 1\ninterval_sec = 0.1\nstart_period_sec = 0.0'
    return in_steps(root, name, {"first": "1.0", "second": "1.0"}, step={"second": check})


def steps_with_files(root: Path, name: str = "steps-workdir") -> Path:
    """A step's `workdir/` is put where the agent works, and its `setup.sh` is run there."""
    files = {
        "steps/second/workdir/data.txt": "given\n",
        "steps/second/workdir/setup.sh": script("cat data.txt > made.txt"),
        "steps/second/tests/test.sh": script(f'[ "$(cat /app/made.txt)" = given ] && {reward("1.0")}'),
    }
    return in_steps(root, name, {"first": "1.0", "second": "1.0"}, files=files)


# --- a verifier of its own ----------------------------------------------------------------------------------------


def separate(root: Path, name: str = "separate", **more: Any) -> Path:
    """`environment_mode = "separate"`: the tests see what was declared an artifact, and nothing else of the agent's."""
    test = f"[ -f /app/answer.txt ] && [ ! -e /app/left.txt ] && r=1.0 || r=0.0\n{reward('$r')}"
    return make_task(
        root,
        name,
        solve=f"{SOLVE}\necho hidden > /app/left.txt",
        test=test,
        verifier={"environment_mode": "separate", **more.pop("verifier", {})},
        top={"artifacts": ["/app/answer.txt"]},
        **more,
    )


def separate_environment(root: Path, name: str = "separate-environment") -> Path:
    """`[verifier.environment]` alone makes it separate; its own variables, workdir and network are the tests' own."""
    test = f'[ "$WHO" = verifier ] && [ "$PWD" = /grade ] && [ -f /app/answer.txt ] && r=1.0 || r=0.0\n{reward("$r")}'
    table = {"network_mode": "no-network", "workdir": "/grade", "env": {"WHO": "verifier"}}
    return make_task(root, name, test=test, verifier={"environment": table}, top={"artifacts": ["/app/answer.txt"]})


def separate_dockerfile(root: Path, name: str = "separate-dockerfile") -> Path:
    """`tests/Dockerfile`: the verifier's image brings its tests along, and tools of its own."""
    dockerfile = "FROM debian:bookworm-slim\nCOPY . /tests/\nRUN echo tool > /opt/tool && chmod +x /tests/test.sh\n"
    test = f'[ "$(cat /opt/tool)" = tool ] && [ -f /app/answer.txt ] && r=1.0 || r=0.0\n{reward("$r")}'
    return make_task(
        root,
        name,
        solve=f"[ ! -e /opt/tool ] && {SOLVE}",
        test=test,
        verifier={"environment_mode": "separate"},
        top={"artifacts": ["/app/answer.txt"]},
        files={"tests/Dockerfile": dockerfile},
    )


_COLLECT = '\n[[verifier.collect]]\ncommand = "{command}"\n'


def collect(root: Path, name: str = "collect") -> Path:
    """A collect hook makes, after the agent, what the separate verifier gets."""
    return make_task(
        root,
        name,
        solve="echo 41 > /app/state",
        test=f'[ "$(cat /app/dump.txt)" = 41 ] && r=1.0 || r=0.0\n{reward("$r")}',
        verifier={"environment_mode": "separate"},
        top={"artifacts": ["/app/dump.txt"]},
        toml_extra=_COLLECT.format(command="cp /app/state /app/dump.txt"),
    )


def collect_fails(root: Path, name: str = "collect-fails") -> Path:
    """Harbor goes on after a collect hook that failed; here nothing is lost by it."""
    return make_task(root, name, toml_extra=_COLLECT.format(command="exit 3"))


# --- users, health, variables, images, old spellings ----------------------------------------------------------------


def users(root: Path, name: str = "users") -> Path:
    """The agent is `worker`, the tests are `checker`; both are made by the Dockerfile. Needs root on the machine."""
    dockerfile = DOCKERFILE + "RUN useradd -m worker && useradd -m checker && chown worker /app\n"
    test = f'[ "$(id -un)" = checker ] && [ "$(cat /app/who)" = worker ] && r=1.0 || r=0.0\n{reward("$r")}'
    return make_task(
        root,
        name,
        dockerfile=dockerfile,
        solve="id -un > /app/who",
        test=test,
        agent={"user": "worker"},
        verifier={"user": "checker"},
    )


def ghost_agent(root: Path, name: str = "ghost-agent") -> Path:
    """Nobody made the agent's user."""
    return make_task(root, name, agent={"user": "ghost"})


def ghost_verifier(root: Path, name: str = "ghost-verifier") -> Path:
    """Nobody made the tests' user."""
    return make_task(root, name, verifier={"user": "ghost"})


_HEALTH = (
    "\n[environment.healthcheck]\ncommand = '{command}'\ninterval_sec = 0.1\nstart_period_sec = 0.0\nretries = {n}\n"
)


def healthy_late(root: Path, name: str = "healthy-late") -> Path:
    """The health check succeeds at its third call."""
    command = "echo x >> /tmp/calls; [ $(wc -l < /tmp/calls) -ge 3 ]"
    return make_task(root, name, toml_extra=_HEALTH.format(command=command, n=5))


def never_healthy(root: Path, name: str = "never-healthy") -> Path:
    return make_task(root, name, toml_extra=_HEALTH.format(command="echo no database; false", n=2))


def variables(root: Path, name: str = "variables") -> Path:
    """`${VAR}` and `${VAR:-default}` of whoever starts the run, in the tables that may hold them."""
    test = f'[ "$(cat /app/said)" = "base given" ] && [ "$KEY" = given ] && r=1.0 || r=0.0\n{reward("$r")}'
    return make_task(
        root,
        name,
        solve='echo "$BASE $WORD" > /app/said',
        test=test,
        environment={"env": {"BASE": "${WILD_UNSET_VARIABLE:-base}"}},
        verifier={"env": {"KEY": "${WILD_GIVEN_VARIABLE}"}},
        toml_extra='\n[solution.env]\nWORD = "${WILD_GIVEN_VARIABLE:-other}"\n',
    )


def docker_image(root: Path, name: str = "docker-image") -> Path:
    """An image and no Dockerfile."""
    solve = "mkdir -p /app && " + SOLVE
    return make_task(root, name, dockerfile=None, solve=solve, environment={"docker_image": "example.org/some/image:1"})


def old_schema(root: Path, name: str = "old-schema") -> Path:
    """`version` for `schema_version`, no [task] table, and the environment as it was once spelt."""
    task = make_task(root, name)
    (task / "task.toml").write_text(
        'version = "1.0"\n\n[metadata]\nauthor_name = "A"\ndifficulty = "easy"\n\n'
        "[verifier]\ntimeout_sec = 60.0\n\n[agent]\ntimeout_sec = 60.0\n\n"
        '[environment]\nbuild_timeout_sec = 60.0\ncpus = 1\nmemory = "256M"\nstorage = "1G"\nallow_internet = false\n'
    )
    return task


def wheel() -> bytes:
    """A package `wildtool` that says 42, as the file pip installs without a network."""
    buffer = io.BytesIO()
    info = "wildtool-1.0.dist-info"
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("wildtool.py", "ANSWER = 42\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: wildtool\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return buffer.getvalue()


WHEEL = "wildtool-1.0-py3-none-any.whl"


def pip_tools(root: Path, name: str = "pip-tools") -> Path:
    """Tools by pip, in the Dockerfile and by the tests: a distribution's Python refuses that unless told not to."""
    test = (
        f"pip install --no-index --root-user-action=ignore --force-reinstall /tests/{WHEEL}\n"
        f'[ "$(python3 -c "import wildtool; print(wildtool.ANSWER)")" = 42 ] && [ -f /app/answer.txt ] '
        f"&& r=1.0 || r=0.0\n{reward('$r')}"
    )
    return make_task(
        root,
        name,
        dockerfile=DOCKERFILE + f"COPY {WHEEL} /opt/\nRUN pip install --no-index /opt/{WHEEL}\n",
        test=test,
        files={f"environment/{WHEEL}": wheel(), f"tests/{WHEEL}": wheel()},
    )


# --- what a suite's author gets wrong -------------------------------------------------------------------------------


def solution_fails(root: Path, name: str = "solution-fails", *, code: int = 9) -> Path:
    return make_task(root, name, solve=f"echo oh no\nexit {code}")


def no_solution(root: Path, name: str = "no-solution") -> Path:
    return make_task(root, name, solve=None)


def memory_hog_in_tests(root: Path, name: str = "memory-hog-in-tests", *, memory_mb: int = 64) -> Path:
    """The tests want more memory than the task may have, in a process they do not miss."""
    return make_task(root, name, environment={"memory_mb": memory_mb}, test=f"tail /dev/zero\n{grade()}")


def disk_hog(root: Path, name: str = "disk-hog", *, storage_mb: int = 32) -> Path:
    """The solution fills the disk that the task may have, and fails for it."""
    solve = f"set -e\ndd if=/dev/zero of=/app/big bs=1M count={4 * storage_mb}\n{SOLVE}"
    return make_task(root, name, environment={"storage_mb": storage_mb}, solve=solve)


ODD_REWARDS = {
    "link": f"echo 1 > /logs/verifier/real.txt; ln -s real.txt {_REWARD}",
    "link-outside": f"echo 1 > /tmp/real.txt; ln -s /tmp/real.txt {_REWARD}",
    "pipe": f"mkfifo {_REWARD}",
    "folder": f"mkdir {_REWARD}",
    "folder-json": "mkdir /logs/verifier/reward.json",
}


def odd_reward(root: Path, kind: str) -> Path:
    """Tests that leave something else than a file where the reward belongs."""
    return make_task(root, f"reward-{kind}", test=ODD_REWARDS[kind])


# --- and how each of them ends, in whichever sandbox ----------------------------------------------------------------

GIVEN = ("WILD_GIVEN_VARIABLE", "given")  # in the environment of whoever runs `variables`


@dataclass(frozen=True, kw_only=True)
class Case:
    """A task and its ending. `said` is part of the ending's message."""

    maker: Callable[[Path], Path]
    reason: Reason = Reason.GRADED
    reward: float | None = 1.0
    flags: tuple[str, ...] = ()
    said: str = ""

    def check(self, ending: Ending) -> None:
        found = (ending.reason, ending.reward, ending.flags)
        assert found == (self.reason, self.reward, self.flags), ending.message
        assert self.said in (ending.message or "")


CASES = (
    Case(maker=steps_by_mean, reward=0.75),
    Case(maker=steps_by_last, reward=0.5),
    Case(maker=steps_given_up, reward=0.75, flags=("steps_not_run",)),
    Case(maker=steps_with_files),
    Case(maker=separate),
    Case(maker=separate_environment),
    Case(maker=separate_dockerfile),
    Case(maker=collect),
    Case(maker=collect_fails, flags=("collect_hook_failed",)),
    Case(maker=users),
    Case(maker=healthy_late),
    Case(maker=variables),
    Case(maker=docker_image),
    Case(maker=old_schema),
    Case(maker=pip_tools),
    # What cannot be graded is no score.
    Case(
        maker=steps_without_a_reward,
        reason=Reason.REWARD_NOT_A_NUMBER,
        reward=None,
        said="step 'second': reward.txt holds 'passed'",
    ),
    Case(
        maker=steps_that_cannot_be_set_up,
        reason=Reason.SANDBOX_START,
        reward=None,
        said="setup.sh exited with code 7: no such service",
    ),
    Case(maker=steps_that_are_not_healthy, reason=Reason.SANDBOX_START, reward=None, said="HealthcheckError"),
    Case(
        maker=never_healthy,
        reason=Reason.SANDBOX_START,
        reward=None,
        said="asked once more it ended with 1 and said no database",
    ),
    # A suite's author is told why.
    Case(maker=solution_fails, reward=0.0, flags=("solution_exit_9",), said="solve.sh ended with exit code 9"),
    Case(
        maker=no_solution,
        reason=Reason.GRADED_AFTER_AGENT_ERROR,
        reward=0.0,
        flags=("solution_missing",),
        said="no solution/solve.sh",
    ),
    Case(
        maker=memory_hog,
        reason=Reason.GRADED_AFTER_MEMORY_LIMIT,
        flags=("solution_exit_137", "memory_limit_hit"),
        said="limit of 64 MB",
    ),
    Case(maker=memory_hog_in_tests, flags=("memory_limit_hit",), said="a process was killed"),
    Case(maker=disk_hog, reward=0.0, flags=("solution_exit_1", "disk_limit_hit"), said="the task's disk was full"),
    Case(maker=ghost_agent, reward=0.0, flags=("solution_exit_126", "user_missing"), said="no user 'ghost'"),
    Case(
        maker=ghost_verifier, reason=Reason.REWARD_MISSING, reward=None, flags=("user_missing",), said="no user 'ghost'"
    ),
)
