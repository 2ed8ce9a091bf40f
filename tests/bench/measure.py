"""Timing whole commands: wall and CPU seconds of a process and its children, and how runs compare."""

import os
import resource
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One run of a command: seconds."""

    wall: float
    cpu: float


def run(argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None) -> Sample:
    """Run a command to its end; raises CalledProcessError with its output if it fails."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, env={**os.environ, **(env or {})}, cwd=cwd, capture_output=True, text=True, check=False)
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:])
        done.check_returncode()
    return Sample(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def median(samples: Sequence[Sample]) -> Sample:
    """The medians of wall and CPU."""
    return Sample(statistics.median(s.wall for s in samples), statistics.median(s.cpu for s in samples))


def line(name: str, samples: Sequence[Sample]) -> None:
    """Print one row: medians, and how far the runs lay apart."""
    middle, walls = median(samples), [s.wall for s in samples]
    print(f"{name:<52} wall {middle.wall:7.2f} s ({min(walls):.2f} to {max(walls):.2f})   cpu {middle.cpu:6.2f} s")
