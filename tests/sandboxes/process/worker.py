"""A worker to be killed: `python worker.py HOME MOMENT`. Prints `ready` when it has got there, and waits."""

import asyncio
import sys
import time
from pathlib import Path

from harbor_assets.sandboxes.process import limits, net, sandbox
from harbor_assets.sandboxes.process.limits import Limits
from harbor_assets.sandboxes.process.sandbox import Sandbox


def pause(*_: object, **__: object) -> None:
    print("ready", flush=True)
    time.sleep(600)


async def main(home: Path, moment: str) -> None:
    boxes = [Sandbox(home / "sandboxes" / f"w-{n}", [], home=home, limits=Limits(memory_mb=64)) for n in range(2)]
    if moment == "folder":
        limits.make = pause
    elif moment == "cgroups":
        real = limits.make
        limits.make = lambda *args: pause(real(*args))
    elif moment == "spawned":
        Sandbox._await_ready = pause
    for box in boxes:
        if moment == "disk":
            box.limits = Limits(storage_mb=32)
        await box.start()
    if moment == "link":
        net._no_ipv6 = pause
    if moment in ("link", "network", "command"):
        await boxes[0].attach_network()
    if moment == "command":
        tasks = [asyncio.create_task(box.exec(["bash", "-c", "setsid sleep 600 & sleep 600"])) for box in boxes]
        await asyncio.sleep(0.2)
        print("ready", flush=True)
        await asyncio.gather(*tasks)
    if moment == "stopping":
        sandbox.Sandbox._sweep = pause
        await boxes[0].stop()
    pause()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
