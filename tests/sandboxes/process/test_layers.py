"""Layers of a Dockerfile: made in real sandboxes, kept by content, shared, and never half."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harbor_assets.examples import hello_world
from harbor_assets.sandboxes.process import layers
from harbor_assets.sandboxes.process.layers import (
    BuiltLayers,
    DockerfileUnsupported,
    LayerBuildError,
    build,
    prune,
)
from harbor_assets.sandboxes.process.mask import shown_folders
from harbor_assets.sandboxes.process.sandbox import Sandbox
from tests.suites import make


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    home = tmp_path / "home"
    home.mkdir()
    yield home
    leftovers = sorted(path.name for path in (home / "sandboxes").glob("*"))
    assert leftovers == [], "every build removes its sandbox"


@pytest.fixture
def env(tmp_path: Path) -> Path:
    folder = tmp_path / "environment"
    folder.mkdir()
    return folder


def dockerfile(env: Path, text: str) -> Path:
    (env / "Dockerfile").write_text("FROM debian:bookworm-slim\n" + textwrap.dedent(text))
    return env


def made(home: Path, env: Path, *, log: Callable[[str], None] = lambda _: None, **how: float) -> BuiltLayers:
    return asyncio.run(build(home, env, network=False, log=log, **how))


def inside(home: Path, built: BuiltLayers, command: str) -> str:
    """Standard output of a shell command in a sandbox over the layers, as the Dockerfile left things."""

    async def ask() -> str:
        box = Sandbox(home / "sandboxes" / "asking", list(built.layers), home=home)
        await box.start()
        try:
            result = await box.exec(
                ["sh", "-c", command],
                cwd=built.cwd,
                env=dict(built.env),
                user=built.user,
                timeout=60,
                stdin=None,
                on_chunk=None,
                cap=1 << 20,
            )
        finally:
            await box.stop()
        assert result.code == 0, result.stderr.decode(errors="replace")
        return result.stdout.decode()

    return asyncio.run(ask())


def test_no_dockerfile_means_no_layers(home: Path, env: Path) -> None:
    built = made(home, env)
    assert (built.layers, built.cwd, built.substituted) == ((), "/", None)
    assert built.notes == ("no Dockerfile: the machine as it is",)


def test_what_is_unsupported_is_refused_before_anything_is_made(home: Path, env: Path) -> None:
    dockerfile(env, "RUN true\nCOPY --from=other /a /b\n")
    with pytest.raises(DockerfileUnsupported, match="--from=other"):
        made(home, env)
    assert not (home / "layers").exists()


@pytest.mark.parametrize("name", ["Dockerfile", ".dockerignore"])
def test_nothing_outside_the_environment_is_read(home: Path, env: Path, name: str) -> None:
    dockerfile(env, "RUN true\n")
    (env.parent / "secret").write_text("SECRET\n")
    (env / name).unlink(missing_ok=True)
    (env / name).symlink_to("../secret")
    with pytest.raises(DockerfileUnsupported, match="leaves the environment folder") as caught:
        made(home, env)
    assert "SECRET" not in str(caught.value)


def test_copies_work_for_everybody(home: Path, env: Path) -> None:
    (env / "data" / "deep").mkdir(parents=True)
    (env / "data" / "one.txt").write_text("1")
    (env / "data" / "deep" / "two.txt").write_text("2")
    (env / "data" / "deep" / "link").symlink_to("/app/one.txt")
    (env / "data").chmod(0o700)
    (env / "data" / "deep").chmod(0o711)
    (env / "tool").write_text("#!/bin/sh\necho tool\n")
    dockerfile(
        env,
        """\
        ENV GREETING="hello you" PATH=/opt/tools:$PATH
        WORKDIR /app/work
        COPY data /app
        COPY --chmod=755 tool /opt/tools/
        COPY tool /tmp
        COPY tool renamed
        COPY tool data/deep /app/both/
        COPY <<EOF /app/note
        $GREETING \\$x
        EOF
        """,
    )
    built = made(home, env)
    assert (built.cwd, built.user, built.substituted) == ("/app/work", None, "debian:bookworm-slim")
    assert len(built.layers) == 1, "adjacent copies share a layer"
    assert inside(home, built, 'echo "$GREETING"; pwd; tool; cat /app/one.txt /app/deep/link /app/note') == (
        "hello you\n/app/work\ntool\n11hello you $x\n"
    )
    assert inside(home, built, "stat -c '%a %U %n' /app /app/deep /app/one.txt /tmp /opt/tools/tool") == (
        "755 root /app\n711 root /app/deep\n644 root /app/one.txt\n1777 root /tmp\n755 root /opt/tools/tool\n"
    )
    assert (
        inside(home, built, "ls /tmp /app/work /app/both")
        == "/app/both:\nlink\ntool\ntwo.txt\n\n/app/work:\nrenamed\n\n/tmp:\ntool\n"
    )
    assert not os.path.lexists("/app/work/renamed"), "nothing reached the machine"


def test_simple_runs_work_for_everybody(home: Path, env: Path) -> None:
    dockerfile(
        env,
        """\
        WORKDIR /app
        ARG WHAT=built
        RUN echo "$WHAT in $PWD" > log && mkdir -p /opt/own && echo 2 > /opt/own/two
        RUN rm /opt/own/two && echo again >> log
        RUN <<EOF
        #!/usr/bin/env bash
        echo "script $0" >> /app/log
        EOF
        """,
    )
    built = made(home, env)
    assert len(built.layers) == 4
    assert inside(home, built, "cat log; ls /opt/own") == "built in /app\nagain\nscript /dev/shm/run-heredoc\n"
    assert "WHAT" not in built.env


@pytest.mark.parametrize("flag", ["", "z"])
def test_add_unpacks_archives_and_copy_does_not(home: Path, env: Path, flag: str) -> None:
    (env / "x").write_text("unpacked")
    with tarfile.open(env / "a.tar", f"w:{'gz' if flag else ''}") as tar:  # type: ignore[call-overload]
        tar.add(env / "x", "deep/x")
    dockerfile(env, "ADD a.tar /new/\nCOPY a.tar /kept/\nADD x /new/plain\n")
    built = made(home, env)
    assert inside(home, built, "cat /new/deep/x /new/plain; ls /new /kept") == (
        "unpackedunpacked/kept:\na.tar\n\n/new:\ndeep\nplain\n"
    )


def test_a_second_build_makes_nothing(home: Path, env: Path) -> None:
    (env / "x").write_text("1")
    dockerfile(env, "COPY x /x\nRUN cat /proc/sys/kernel/random/uuid > /once\nRUN true\n")
    first, log = made(home, env), []
    once = inside(home, first, "cat /once")
    second = made(home, env, log=log.append)
    assert second == first
    assert inside(home, second, "cat /once") == once
    assert [line.split(":")[1].split()[0] for line in log] == ["kept"] * 3
    os.utime(env / "x", (1, 1))
    assert made(home, env) == first, "times do not count"
    (env / "x").write_text("2")
    changed = made(home, env)
    assert not set(changed.layers) & set(first.layers), "a layer's name holds all that came before"
    assert inside(home, changed, "cat /x") == "2"


def test_only_what_follows_a_change_is_made_again(home: Path, env: Path) -> None:
    first = made(home, dockerfile(env, "RUN echo 1 > /a\nRUN echo 2 > /b\n"))
    second = made(home, dockerfile(env, "RUN echo 1 > /a\nENV X=1\nRUN echo 2 > /b\n"))
    assert second.layers[1] == first.layers[1]
    assert second.layers[0] != first.layers[0]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            "RUN echo before; echo broken >&2; exit 3",
            r"line 2, RUN echo before.*: exit code 3\. It printed:\nbefore\nbroken",
        ),
        ("RUN exit 4", r"exit code 4\. It printed nothing\."),
        ("COPY nope /x", "'nope' is not in the environment folder"),
        (
            "COPY --chown=nobody-here Dockerfile /x",
            "no user 'nobody-here' here, as the image is not. Make it in an earlier RUN",
        ),
        ("WORKDIR /etc/passwd/x", "'/etc/passwd' is there already and is no folder"),
    ],
)
def test_a_failure_names_the_step_and_what_it_printed(home: Path, env: Path, lines: str, why: str) -> None:
    with pytest.raises(LayerBuildError, match=why):
        made(home, dockerfile(env, lines + "\n"))
    assert [path for path in (home / "layers").glob("*") if not path.name.endswith(".lock")] == []


def test_a_long_output_is_cut_to_its_end(home: Path, env: Path) -> None:
    with pytest.raises(LayerBuildError) as caught:
        made(home, dockerfile(env, "RUN seq 100000; printf '\\377end'; exit 1\n"))
    assert str(caught.value).endswith("100000\n\N{REPLACEMENT CHARACTER}end")
    assert len(str(caught.value)) < 2200


def test_a_step_that_does_not_end_is_stopped(home: Path, env: Path) -> None:
    with pytest.raises(LayerBuildError, match=r"did not end within 0\.3 s\. It printed:\nstarting"):
        made(home, dockerfile(env, "RUN echo starting; sleep 600\n"), step_timeout=0.3)


def test_a_cancelled_build_leaves_nothing_and_can_be_repeated(home: Path, env: Path) -> None:
    dockerfile(env, "RUN echo 1 > /a\nRUN [ -e /go ] || sleep 600\n")

    async def cancelled() -> None:
        task = asyncio.create_task(build(home, env, network=False, log=lambda _: None))
        while len(list((home / "layers").glob("*.lock"))) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert len(kept(home)) == 1
    assert list((home / "sandboxes").iterdir()) == []
    with pytest.raises(LayerBuildError, match="did not end"):
        made(home, env, step_timeout=0.1)  # the lock is free, the first layer is used


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "layers").glob("*") if not path.name.endswith(".lock"))


BUILDER = """
import asyncio, sys
from pathlib import Path
from harbor_assets.sandboxes.process.layers import build
home, env = map(Path, sys.argv[1:])
built = asyncio.run(build(home, env, network=False, log=lambda line: print(line, flush=True)))
print(*built.layers)
"""


def builder(home: Path, env: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", BUILDER, str(home), str(env)], stdout=subprocess.PIPE, text=True)


def test_three_builders_at_once_build_once(home: Path, env: Path) -> None:
    dockerfile(env, "RUN sleep 0.3; cat /proc/sys/kernel/random/uuid > /once\nRUN sleep 0.3; cp /once /twice\n")
    running = [builder(home, env) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sum(output.count("built in") for output in outputs) == 2
    assert sum(output.count("kept") for output in outputs) == 4
    assert len({output.splitlines()[-1] for output in outputs}) == 1


def test_many_builds_in_one_process_build_once(home: Path, env: Path) -> None:
    dockerfile(env, "RUN sleep 0.2; cat /proc/sys/kernel/random/uuid > /once\n")
    log: list[str] = []

    async def together() -> list[BuiltLayers]:
        return await asyncio.gather(*(build(home, env, network=False, log=log.append) for _ in range(8)))

    assert len({built.layers for built in asyncio.run(together())}) == 1
    assert sum("built in" in line for line in log) == 1


@pytest.mark.parametrize("after", [0.0, 0.15])
def test_a_killed_build_leaves_no_half_layer(tmp_path: Path, env: Path, after: float) -> None:
    home = tmp_path / "home"
    dockerfile(env, "RUN echo 1 > /a\nRUN echo half > /b; [ -e /nowhere ] || sleep 1; echo whole > /b\n")
    process = builder(home, env)
    assert process.stdout is not None
    assert "layer 1 of 2: built" in process.stdout.readline()
    time.sleep(after)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(kept(home)) == 1
    built = made(home, env)
    assert inside(home, built, "cat /a /b") == "1\nwhole\n"
    assert len(kept(home)) == 2


@pytest.mark.req_root
def test_a_full_disk_is_not_the_tasks_fault(tmp_path: Path, env: Path) -> None:
    dockerfile(env, "RUN head -c 64M /dev/zero > /big\n")
    small = f'mount -t tmpfs -o size=16m tmpfs "{tmp_path}/home" && exec "$@"'
    (tmp_path / "home").mkdir()
    command = [
        "unshare",
        "-m",
        "sh",
        "-c",
        small,
        "sh",
        sys.executable,
        "-c",
        BUILDER,
        str(tmp_path / "home"),
        str(env),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "SandboxDiskFull: The disk of" in done.stderr


def test_more_steps_than_a_mount_can_name_share_layers(home: Path, env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "FITS", 3)
    dockerfile(env, "".join(f"RUN echo {number} >> /log\n" for number in range(7)))
    built = made(home, env)
    assert len(built.layers) == 3
    assert inside(home, built, "cat /log").split() == [str(number) for number in range(7)]


@pytest.mark.req_root
def test_so_many_layers_fit_into_one_mount(home: Path) -> None:
    """The options of a mount are one page: as many layers as may be are mounted, each with the longest top folder."""
    many = []
    for number in range(layers.FITS):
        many.append(home / f"layer-{number}")
        for top in ("ROOT", max(shown_folders(), key=len)):
            (many[-1] / top / "opt").mkdir(parents=True)
    assert inside(home, BuiltLayers(tuple(many)), "echo fits") == "fits\n"


def test_prune_removes_what_nobody_used(home: Path, env: Path) -> None:
    old = made(home, dockerfile(env, "RUN head -c 1M /dev/zero > /old\n"))
    long_ago = time.time() - 10 * 86400
    os.utime(home / "layers" / f"{old.layers[0].name}.lock", (long_ago, long_ago))
    new = made(home, dockerfile(env, "RUN echo > /new\n"))
    (would,) = prune(home, 9, dry_run=True)
    assert (would.key, round(would.idle_days), would.bytes >= 1 << 20) == (old.layers[0].name, 10, True)
    assert prune(home, 11) == ()
    assert [layer.key for layer in prune(home, 9)] == [would.key]
    assert kept(home) == [new.layers[0].name]
    assert prune(home, 0) == (), "what was just used stays"
    assert prune(home, 9) == ()
    made(home, dockerfile(env, "RUN head -c 1M /dev/zero > /old\n"))
    assert len(kept(home)) == 2


def test_prune_leaves_the_layers_of_a_living_sandbox(home: Path, env: Path) -> None:
    built = made(home, dockerfile(env, "RUN echo kept > /a\n"))

    async def live() -> None:
        box = Sandbox(home / "sandboxes" / "living", list(built.layers), home=home)
        await box.start()
        try:
            long_ago = time.time() - 10 * 86400
            os.utime(home / "layers" / f"{built.layers[0].name}.lock", (long_ago, long_ago))
            assert prune(home, 1) == ()
        finally:
            await box.stop()

    asyncio.run(live())
    assert len(prune(home, 1)) == 1


@pytest.mark.req_root
def test_users_made_in_a_step_own_what_is_copied_later(home: Path, env: Path) -> None:
    (env / "data").mkdir()
    (env / "data" / "f").write_text("f")
    dockerfile(
        env,
        """\
        RUN groupadd -g 4321 crew && useradd -u 4320 -g crew -m sailor
        COPY --chown=sailor data /own/data
        COPY --chown=sailor:root data /own/other
        COPY --chown=77 data/f /own/number
        USER sailor
        WORKDIR /work/deep
        COPY data /work
        RUN id -un > /work/deep/who && echo $HOME >> /work/deep/who
        """,
    )
    built = made(home, env)
    assert built.user == "sailor"
    seen = inside(
        home, built, "stat -c '%U:%G %n' /own/data /own/data/f /own/other/f /work /work/deep /work/f; cat who"
    )
    assert seen.splitlines() == [
        "sailor:crew /own/data",
        "sailor:crew /own/data/f",
        "sailor:root /own/other/f",
        "sailor:crew /work",
        "sailor:crew /work/deep",
        "root:root /work/f",
        "sailor",
        "/home/sailor",
    ]
    assert inside(home, built, "stat -c '%u:%g' /own/number") == "77:77\n"


@pytest.mark.req_root
def test_layers_stack_over_folders_of_the_machine(home: Path, env: Path) -> None:
    """Whiteouts, replaced folders, renamed ones, modes of top folders."""
    before = sorted(path.name for path in Path("/etc/skel").iterdir())
    dockerfile(
        env,
        """\
        RUN rm -rf /etc/skel && mkdir /etc/skel && echo own > /etc/skel/own
        RUN mv /etc/skel /etc/moved && rm /etc/hostname && chmod 700 /opt
        RUN echo more >> /etc/moved/own
        """,
    )
    built = made(home, env)
    assert inside(home, built, "ls /etc/moved; cat /etc/moved/own; stat -c %a /opt") == "own\nown\nmore\n700\n"
    assert inside(home, built, "[ ! -e /etc/skel ] && [ ! -e /etc/hostname ] && echo gone") == "gone\n"
    assert sorted(path.name for path in Path("/etc/skel").iterdir()) == before


@pytest.mark.req_root
def test_a_step_has_the_network_that_it_may(home: Path, env: Path) -> None:
    count = "tail -n +3 /proc/net/dev | wc -l"
    dockerfile(env, f"RUN {count} > /with\nRUN --network=none {count} > /without\n")
    offline = made(home, env)
    online = asyncio.run(build(home, env, network=True, log=lambda _: None))
    assert inside(home, offline, "cat /with /without").split() == ["1", "1"]
    assert inside(home, online, "cat /with /without").split() == ["2", "1"]


def test_layers_are_out_of_other_users_reach(home: Path, env: Path) -> None:
    made(home, dockerfile(env, "RUN echo > /a\n"))
    assert (home / "layers").stat().st_mode & 0o077 == 0


def trial(task: Path, home: Path, trials: Path, *, agent: str = "oracle") -> dict:
    """A real Harbor trial in the sandbox; its result.json."""
    from harbor.models.trial.config import AgentConfig, EnvironmentConfig, TaskConfig, TrialConfig
    from harbor.trial.trial import Trial

    async def run() -> None:
        config = TrialConfig(
            task=TaskConfig(path=task),
            trial_name=task.name,
            trials_dir=trials,
            agent=AgentConfig(name=agent),
            environment=EnvironmentConfig(
                import_path="harbor_assets.sandboxes.process.environment:ProcessEnvironment", kwargs={"home": str(home)}
            ),
        )
        await (await Trial.create(config)).run()

    asyncio.run(run())
    return json.loads((trials / task.name / "result.json").read_text())


def reward(result: dict) -> float:
    assert result["exception_info"] is None
    return result["verifier_result"]["rewards"]["reward"]


def test_hello_world_tells_the_oracle_from_nop(home: Path, tmp_path: Path) -> None:
    task = hello_world() / "hello-world"
    assert reward(trial(task, home, tmp_path / "oracle")) == 1.0
    assert reward(trial(task, home, tmp_path / "nop", agent="nop")) == 0.0


@pytest.mark.req_root
def test_a_trial_finds_everything_a_dockerfile_made(home: Path, tmp_path: Path) -> None:
    task = make.dockerfile_steps(tmp_path / "suite")
    assert reward(trial(task, home, tmp_path / "first")) == 1.0
    first = kept(home)
    assert reward(trial(task, home, tmp_path / "second")) == 1.0
    assert kept(home) == first
    assert reward(trial(task, home, tmp_path / "nop", agent="nop")) == 0.0
    sandbox = json.loads((tmp_path / "first" / task.name / "sandbox.json").read_text())
    assert sandbox["substituted"] == "debian:bookworm-slim"
    assert len(sandbox["layers"]) == len(first)
    assert any(note.startswith("CMD") for note in sandbox["notes"])


def test_a_trial_of_a_broken_dockerfile_says_why(home: Path, tmp_path: Path) -> None:
    dockerfile = "FROM debian:bookworm-slim\nRUN echo 'no luck' && exit 7\n"
    result = trial(make.make_task(tmp_path / "suite", "broken", dockerfile=dockerfile), home, tmp_path / "trials")
    assert result["exception_info"]["exception_type"] == "LayerBuildError"
    assert "exit code 7. It printed:\nno luck" in result["exception_info"]["exception_message"]
    assert result["verifier_result"] is None


@pytest.mark.req_root
def test_a_task_without_network_is_built_with_one(home: Path, tmp_path: Path) -> None:
    dockerfile = make.DOCKERFILE + "RUN tail -n +3 /proc/net/dev | wc -l > /built-with\n"
    test = "[ $(cat /built-with) = 2 ] && r=1 || r=0\necho $r > /logs/verifier/reward.txt"
    task = make.make_task(tmp_path / "suite", "no-network", dockerfile=dockerfile, test=test)
    assert reward(trial(task, home, tmp_path / "trials")) == 1.0
