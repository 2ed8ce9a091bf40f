"""Tries what a sandbox needs and says which step was refused. Everything goes with the process, but an empty folder."""

import os
import sys

from harbor_assets.sandboxes.process.inside import calls
from harbor_assets.sandboxes.process.inside.keeper import enter_user_namespace, remove_tree


def main(folder: str, privileged: bool) -> None:
    """Exit 0 if all is well; else print `<step>: <error>` and exit 1."""
    step = "folder"
    try:
        for name in ("upper", "work", "root"):
            os.makedirs(f"{folder}/{name}")
        step = "attributes"
        os.setxattr(f"{folder}/root", "trusted.overlay.opaque" if privileged else "user.overlay.opaque", b"y")
        if not privileged:
            step = "user namespace"
            enter_user_namespace()
        step = "namespaces"
        os.unshare(os.CLONE_NEWNS | os.CLONE_NEWIPC | os.CLONE_NEWUTS | os.CLONE_NEWNET | os.CLONE_NEWPID)
        if not privileged:
            step = "user namespace"  # where a security module forbids them, the first mount is what fails
        calls.mount("", "/", "", calls.REC | calls.PRIVATE)
        step = "overlay"
        os.chdir(folder)
        options = "lowerdir=/usr,upperdir=upper,workdir=work," + ("volatile" if privileged else "volatile,userxattr")
        calls.mount("overlay", "root", "overlay", calls.NODEV, options)
        step = "proc"
        pid = os.fork()  # the first of the new pid namespace
        if pid == 0:
            try:
                calls.mount("proc", "root/share", "proc", calls.NOSUID | calls.NODEV | calls.NOEXEC)
                os._exit(0)
            except OSError as e:
                os._exit(e.errno or 1)
        refused = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if refused:
            raise OSError(refused, os.strerror(refused))
    except OSError as e:
        os.write(1, f"{step}: {e.strerror or e}\n".encode())
        code = 1
    else:
        code = 0
    finally:
        os.chdir("/")
        try:
            calls.detach(f"{folder}/root")
        except OSError:
            pass
        remove_tree(folder)
    sys.exit(code)
