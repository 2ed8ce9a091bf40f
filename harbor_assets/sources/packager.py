"""Harbor's own content digest of a task folder, computed without importing Harbor where its rules are plain.

Source: Harbor's packager (docs/decisions.md, "Digests"): SHA-256 over `<path>\\0<sha256 of the file>\\n`, sorted by
path, of task.toml, instruction.md, README.md, trajectory.json and all files under environment/, tests/, solution/ and
steps/, less the default ignore list. Tasks with ignore files or links are left to Harbor itself.
"""

import hashlib
from pathlib import Path

from harbor_assets.domain.archives import Entry
from harbor_assets.domain.errors import Problem, Refused
from harbor_assets.sources.archive import CHUNK, open_regular
from harbor_assets.sources.scan import Scan

_SINGLE = frozenset({"task.toml", "instruction.md", "README.md", "trajectory.json"})
_FOLDERS = frozenset({"environment", "tests", "solution", "steps"})
_IGNORE_FILES = frozenset({".gitignore", ".harborignore"})
_IGNORED_NAMES = frozenset({".DS_Store"})
_IGNORED_ENDS = (".pyc", ".swp", ".swo", "~")
_IGNORED_FOLDER = "__pycache__"


def package_digest(scan: Scan) -> str:
    """64 hexadecimal characters. Raises `Refused` if a file cannot be read or an ignore file cannot be understood."""
    if any(entry.kind == "link" or entry.path.rpartition("/")[2] in _IGNORE_FILES for entry in scan.entries):
        return _by_harbor(scan.folder)
    outer = hashlib.sha256()
    for entry in scan.entries:
        if entry.kind == "file" and _is_packaged(entry):
            outer.update(f"{entry.path}\0{_file_hash(scan.folder / entry.path)}\n".encode())
    return outer.hexdigest()


def _is_packaged(entry: Entry) -> bool:
    *folders, name = entry.path.split("/")
    if entry.path not in _SINGLE and not (folders and folders[0] in _FOLDERS):
        return False
    ignored = any(part in _IGNORED_NAMES or part.endswith(_IGNORED_ENDS) for part in (*folders, name))
    return not ignored and _IGNORED_FOLDER not in folders


def _file_hash(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while data := file.read(CHUNK):
                digest.update(data)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror or error}.") from error
    return digest.hexdigest()


def _by_harbor(folder: Path) -> str:
    from harbor.publisher.packager import Packager

    try:
        return Packager.compute_content_hash(folder)[0]
    except (OSError, ValueError, RuntimeError) as error:
        raise Refused(
            f"The task folder {folder} cannot be fingerprinted:",
            [Problem(".gitignore", f"{error}; correct the ignore files (.gitignore, .harborignore) of the task")],
        ) from error
