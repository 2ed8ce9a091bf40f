"""Files into a pod and out of it."""

import asyncio
import contextlib
import filecmp
import hashlib
import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("harbor")

from harbor_assets.sandboxes.kubernetes import transfer
from harbor_assets.sandboxes.kubernetes.kube import StreamBroken

from .conftest import run

pytestmark = pytest.mark.req_k8s
Make = Callable[..., Any]


def tree(root: Path, files: int) -> Path:
    for i in range(files):
        path = root / f"d{i % 50}" / f"f{i}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(i % 700))
    (root / "tool").write_text("#!/bin/sh\necho ran\n")
    (root / "tool").chmod(0o751)
    (root / "link").symlink_to("tool")
    (root / "empty").mkdir()
    return root


def same(one: Path, other: Path) -> bool:
    found = filecmp.dircmp(one, other)
    if found.left_only or found.right_only or found.funny_files:
        return False
    _, wrong, errors = filecmp.cmpfiles(one, other, found.common_files, shallow=False)
    return not wrong and not errors and all(same(one / name, other / name) for name in found.common_dirs)


def test_three_thousand_files_and_back(sandbox: Make, tmp_path: Path) -> None:
    async def work() -> None:
        source = tree(tmp_path / "source", 3000)
        async with sandbox() as box:
            await box.upload_dir(source, "/work/in side")
            done = await box.exec(
                "cd '/work/in side' && ./link && stat -c %a tool && readlink link && find . -type f | wc -l"
            )
            assert done.stdout == "ran\n751\ntool\n3001\n"
            await box.download_dir("/work/in side", tmp_path / "back")
            assert same(source, tmp_path / "back")
            assert stat.S_IMODE((tmp_path / "back/tool").stat().st_mode) == 0o751
            assert (tmp_path / "back/link").readlink() == Path("tool")
            assert (tmp_path / "back/empty").is_dir()
            await box.download_dir_filtered(source_dir="/work/in side", target_dir=tmp_path / "some", include=["d7/*"])
            assert {p.name for p in (tmp_path / "some").iterdir()} == {"d7"}
            await box.download_dir_with_exclusions(
                source_dir="/work/in side", target_dir=tmp_path / "less", exclude=["d*"]
            )
            assert not list((tmp_path / "less").glob("d*"))

    run(work())


@contextlib.contextmanager
def rises() -> Iterator[Callable[[], int]]:
    """By how many bytes the memory of this process has risen at most meanwhile."""
    page, done, seen = os.sysconf("SC_PAGE_SIZE"), threading.Event(), []

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * page

    def look() -> None:
        while not done.wait(0.02):
            seen.append(resident())

    before, looking = resident(), threading.Thread(target=look)
    looking.start()
    try:
        yield lambda: max(seen) - before
    finally:
        done.set()
        looking.join()


def test_a_large_file_in_flat_memory_and_single_files(sandbox: Make, tmp_path: Path) -> None:
    async def work() -> None:
        big = tmp_path / "big"
        part = os.urandom(1 << 20)
        with big.open("wb") as out:
            for _ in range(200):
                out.write(part)
        async with sandbox() as box:
            with rises() as most:
                await box.upload_file(big, "/data/deep/big")
                await box.download_file("/data/deep/big", tmp_path / "got")
            assert most() < 64 << 20
            assert filecmp.cmp(big, tmp_path / "got", shallow=False)
            (tmp_path / "got").unlink()
            big.unlink()
            (tmp_path / "small").write_text("s")
            await box.upload_file(tmp_path / "small", "/data")  # a folder: into it
            assert (await box.exec("cat /data/small")).stdout == "s"
            for missing in ("/nothing", "/usr/bin"):
                with pytest.raises(FileNotFoundError, match=missing):
                    await box.download_file(missing, tmp_path / "x")
            with pytest.raises(RuntimeError, match="nowhere"):
                await box.download_dir("/nowhere", tmp_path / "x")
            with pytest.raises(RuntimeError, match="nowhere"):
                await box.download_dir_filtered(source_dir="/nowhere", target_dir=tmp_path / "x", include=["*"])
            await box.exec("mkdir /none")
            await box.download_dir_filtered(source_dir="/none", target_dir=tmp_path / "x", include=["*"])
            assert not (tmp_path / "x").exists()
            with pytest.raises(FileNotFoundError):
                await box.upload_file(tmp_path / "not-there", "/data/y")
            with pytest.raises(RuntimeError, match="upload to"):
                await box.upload_dir(tmp_path / "environment", "/proc/x")

    run(work(), 240)


def test_a_slow_reader_gets_everything(sandbox: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reports success and drops the end of what was not taken yet, if it may."""
    real = transfer._Inward.put

    async def slowly(self: Any, data: bytes) -> None:
        await asyncio.sleep(0.001)
        await real(self, data)

    monkeypatch.setattr(transfer._Inward, "put", slowly)

    async def work() -> None:
        async with sandbox() as box:
            await box.exec("mkdir /d; for i in 1 2 3; do head -c 15000000 /dev/urandom > /d/$i; done")
            sums = (await box.exec("cd /d && sha256sum *")).stdout
            before = box._kube.requests
            await box.download_dir("/d", tmp_path / "d")
            assert box._kube.requests == before + 1
            for line in sums.splitlines():
                digest, name = line.split()
                assert hashlib.sha256((tmp_path / "d" / name).read_bytes()).hexdigest() == digest

    run(work())


def test_a_cut_transfer_is_done_again(sandbox: Make, tmp_path: Path) -> None:
    async def work() -> None:
        source = tree(tmp_path / "source", 200)
        (source / "bulk").write_bytes(os.urandom(20 << 20))
        async with sandbox() as box:
            real, cuts = box._pod.exec, 0

            async def cutting(command: list[str], **how: Any) -> int:
                nonlocal cuts
                if cuts % 2:
                    cuts += 1
                    return await real(command, **how)
                cuts += 1
                for name in ("out",):
                    if how.get(name):
                        inner = how[name]
                        seen = 0

                        async def some(data: bytes, inner: Any = inner) -> None:
                            nonlocal seen
                            seen += len(data)
                            if seen > 4 << 20:
                                raise StreamBroken("cut by the test")
                            await inner(data)

                        how[name] = some
                if how.get("stdin") is not None and not how.get("out"):
                    whole = how["stdin"]

                    async def part() -> Any:
                        seen = 0
                        async for chunk in whole:
                            seen += len(chunk)
                            if seen > 4 << 20:
                                return
                            yield chunk

                    how["stdin"] = part()
                    await real(command, **how)
                    raise StreamBroken("cut by the test")
                try:
                    return await real(command, **how)
                except Exception as error:
                    raise StreamBroken(str(error)) from error

            box._pod.exec = cutting
            await box.upload_dir(source, "/work")
            await box.download_dir("/work", tmp_path / "back")
            box._pod.exec = real
            assert cuts == 4
            assert same(source, tmp_path / "back")

    run(work())


def test_what_an_agent_leaves_cannot_lead_outside(sandbox: Make, tmp_path: Path) -> None:
    async def work() -> None:
        async with sandbox() as box:
            await box.exec(
                "mkdir /o; cd /o; ln -s /etc/passwd abs; ln -s ../../x up; mkfifo pipe; echo a > ok; ln -s ok in"
            )
            await box.download_dir("/o", tmp_path / "o")
            assert {p.name for p in (tmp_path / "o").iterdir()} == {"ok", "in"}

    run(work())
