"""What is held of a command's output, whatever pieces it comes in. No cluster: the pod is a script of answers."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.sandboxes.errors import SandboxLost
from harbor_assets.sandboxes.kubernetes.kube import StreamBroken
from harbor_assets.sandboxes.kubernetes.runner import Runner
from harbor_assets.sandboxes.scripts import script


class Scripted:
    """A pod that holds the output of one command, and cuts streams where it is told to. `noise` is said once."""

    memory: tuple[int, int] = (0, 0)  # processes killed for want of memory, whether the limit was met

    def __init__(self, out: bytes, err: bytes, cuts: list[int], noise: bytes = b"", code: int = 0) -> None:
        self.whole, self.cuts, self.noise, self.ends, self.launches = (out, err), cuts, noise, code, 0

    async def exec(self, command: list[str], *, stdin: Any = None, out: Any = None, err: Any = None) -> int:
        if self.ends:
            return self.ends
        self.launches += command[3] != "-"
        o, e, most = (int(word) for word in command[4:7])
        n, m = map(len, self.whole)
        noise, self.noise = self.noise, b""
        trailer = b"\0\0%d %d %d %d %d" % (7, n, m, *self.memory)
        pieces = [(out, self.whole[0][o:most]), (err, noise), (err, self.whole[1][e:most]), (err, trailer)]
        left = self.cuts.pop() if self.cuts else None
        for sink, data in pieces:
            for at in range(0, len(data), 3):
                if left is not None and left <= 0:
                    raise StreamBroken("cut")
                left = None if left is None else left - 1
                await sink(data[at : at + 3])
        return 0

    async def ask(self, problem: Exception) -> None: ...


def follow(pod: Scripted, **how: Any) -> tuple[Any, dict[str, bytes]]:
    shown = {"stdout": b"", "stderr": b""}

    async def show(data: bytes, stream: str) -> None:
        shown[stream] += data

    async def work() -> Any:
        loop = asyncio.get_running_loop()
        loop.slow_callback_duration = 60
        return await Runner(pod).run(b"x", on_chunk=show, **how)

    return asyncio.run(work()), shown


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.sleep
    monkeypatch.setattr(asyncio, "sleep", lambda _seconds: real(0))


BYTES = st.lists(st.sampled_from([b"\0", b"a", b"\xff", b"1 2", b"\n"]), max_size=30).map(b"".join)


def test_every_byte_once_whatever_is_cut() -> None:
    @given(BYTES, BYTES, st.lists(st.integers(0, 40), max_size=3))
    def check(out: bytes, err: bytes, cuts: list[int]) -> None:
        pod = Scripted(out, err, cuts)
        done, shown = follow(pod)
        assert (done.code, done.out, done.err, done.dropped) == (7, out, err, 0)
        assert shown == {"stdout": out, "stderr": err}
        assert pod.launches == 1

    check()


def test_words_of_the_shell_itself_are_no_output_and_no_hang() -> None:
    done, _ = follow(Scripted(b"out", b"err", [], noise=b"Terminated\n"))
    assert (done.code, done.out, done.err) == (7, b"out", b"err")


def test_output_beyond_the_cap_is_counted() -> None:
    done, _ = follow(Scripted(b"o" * 50, b"e" * 20, []), cap=10)
    assert (done.out, done.err, done.dropped) == (b"o" * 10, b"e" * 10, 50)


@pytest.mark.parametrize(("memory", "own", "foreign"), [((2, 1), 2, 0), ((2, 0), 0, 2), ((0, 0), 0, 0)])
def test_a_node_short_of_memory_is_told_from_the_tasks_own_limit(
    memory: tuple[int, int], own: int, foreign: int
) -> None:
    pod = Scripted(b"", b"", [1])
    pod.memory = memory
    done, _ = follow(pod)
    assert (done.kills, done.foreign_kills) == (own, foreign)


def test_a_sandbox_that_cannot_run_our_script_is_lost_and_not_waited_for() -> None:
    with pytest.raises(SandboxLost, match="ended with 127"):
        follow(Scripted(b"", b"", [], code=127))


def test_a_script_quotes_what_it_is_given() -> None:
    made = script("echo 'x'", cwd="/a b", env={"A": "it's", "not a name": "x", "B-C": "y"}).decode()
    assert made.startswith("export A='it'\"'\"'s'\ncd '/a b' || exit 1\nexec ")
    assert "not a name" not in made
    assert "B-C" not in made
    long = script("x" * 200_000, cwd=None, env={}).decode()
    assert "-c" not in long
