"""A small image made of this machine's own programs: tests need no registry and no network."""

import io
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

IMAGE = "localhost/harbor-assets-tests/base:4"
PROGRAMS = """bash base64 cat chmod chown cp cut date dd env find grep head id kill ln ls mkdir mkfifo mv nice ps pwd rm
rmdir sed seq setsid sh sleep sort stat tail tar tee timeout touch tr true uname wc yes""".split()
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
_PASSWD = "root:x:0:0:root:/root:/bin/bash\nagent:x:1001:1001::/home/agent:/bin/bash\n"
_USERADD = """#!/bin/sh
# useradd -m NAME
id=$((2000 + $(wc -l </etc/passwd)))
echo "$2:x:$id:$id::/home/$2:/bin/bash" >>/etc/passwd
mkdir -p "/home/$2" && chown "$id:$id" "/home/$2"
"""
_GROUP = "root:x:0:\nagent:x:1001:\nextra:x:2002:agent\n"


def make(program: str) -> str:
    """The image's name; made if the engine does not have it. Raises CalledProcessError with the engine's words."""
    if subprocess.run([program, "image", "inspect", IMAGE], capture_output=True, check=False).returncode:
        subprocess.run([program, "import", "-", IMAGE], input=_archive(), capture_output=True, check=True)
    return IMAGE


def _archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder, mode in (("usr/bin", 0o755), ("usr/sbin", 0o755), ("usr/lib", 0o755), ("usr/lib64", 0o755),
                             ("tmp", 0o1777), ("root", 0o700), ("home/agent", 0o755), ("etc", 0o755),
                             ("opt", 0o755)):  # fmt: skip
            info = tarfile.TarInfo(folder)
            info.type, info.mode = tarfile.DIRTYPE, mode
            info.uid = info.gid = 1001 if folder == "home/agent" else 0
            tar.addfile(info)
        for name, target in _LINKS.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        texts = {"etc/passwd": _PASSWD, "etc/group": _GROUP, "usr/sbin/useradd": _USERADD}
        for name, text in texts.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(text), 0o755 if text.startswith("#!") else 0o644
            tar.addfile(info, io.BytesIO(text.encode()))
        libraries: set[str] = set()
        for program in PROGRAMS:
            path = shutil.which(program)
            if path is None:
                sys.exit(f"this machine has no `{program}` for the test image")
            _add(tar, Path(path), f"usr/bin/{program}", 0o755)
            said = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
            libraries |= set(re.findall(r"(/\S+) \(0x", said))
        for library in sorted(libraries):
            inside = library.lstrip("/")
            head, _, rest = inside.partition("/")
            _add(tar, Path(library), f"{_LINKS.get(head, head)}/{rest}", 0o755)
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, source: Path, name: str, mode: int) -> None:
    data = source.resolve().read_bytes()
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))
