"""What is deployed: the manifests and this very program, from a checkout or from an installed package alike."""

import base64
import hashlib
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

import tomli

import harbor_assets
from harbor_assets.domain.errors import Broken, Refused

MANIFESTS = ("base", "components", "overlays", "profiles")  # what kustomize reads
PACKAGES = ("harbor_assets", "resources", "sensors")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the oldest a zip can tell: same content, same bytes


def deploy_folder() -> Path:
    """The folder with `base`, `overlays`, `images`: in the package, or beside it in a checkout."""
    package = Path(harbor_assets.__file__).parent
    for folder in (package / "deploy", package.parent / "deploy"):
        if (folder / "base" / "kustomization.yaml").is_file():
            return folder
    raise Broken(f"The manifests are missing: {package / 'deploy'} is not there; install harbor-assets again")


def copy_manifests(folder: Path) -> None:
    """Copy the manifests to `folder`, which is made, for somebody who changes them. Raises `Refused` if it is there."""
    if folder.exists():
        raise Refused(f"{folder} is there already; name a folder that can be made")
    for name in MANIFESTS:
        shutil.copytree(deploy_folder() / name, folder / name)


def constraints() -> str:
    """The exact versions of everything an image gets, one on a line, as pyproject.toml holds them."""
    folder = deploy_folder()
    for path in (folder / "pyproject.toml", folder.parent / "pyproject.toml"):
        if path.is_file():
            with path.open("rb") as file:
                return "".join(f"{line}\n" for line in tomli.load(file)["tool"]["uv"]["constraint-dependencies"])
    raise Broken(f"The constraints are missing: no pyproject.toml in {folder}; install harbor-assets again")


def write_context(image: str, folder: Path, drivers: Sequence[str] = ()) -> str:
    """Write the build context of an image (`service`, `worker`) to `folder`. Returns its digest (hex).

    `drivers` are packages of the extra `stores`, for an object store that artifacts lie in.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = deploy_folder() / "images"
    for path in (images / "base.txt", *(images / image).iterdir()):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "constraints.txt").write_text(constraints(), encoding="utf-8")
    (folder / "drivers.txt").write_text("".join(f"{name}\n" for name in sorted(drivers)), encoding="utf-8")
    write_wheel(folder)
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def write_wheel(folder: Path) -> Path:
    """A wheel of this program as it runs: same code, same bytes. `folder` gets no other file."""
    ours = distribution("harbor-assets")
    info = f"harbor_assets-{ours.version}.dist-info"
    wheel = folder / f"harbor_assets-{ours.version}-py3-none-any.whl"
    files = {
        **dict(_modules()),
        f"{info}/METADATA": (ours.read_text("METADATA") or "").encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: harbor-assets\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": _entry_points(ours).encode(),
    }
    record = [f"{name},sha256={_hash(data)},{len(data)}" for name, data in sorted(files.items())]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, files[name])
    return wheel


def _modules() -> Iterator[tuple[str, bytes]]:
    root = Path(harbor_assets.__file__).parents[1]
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            relative = path.relative_to(root)
            if path.is_file() and relative.parts[1] != "deploy" and "__pycache__" not in relative.parts:
                yield relative.as_posix(), path.read_bytes()


def _entry_points(ours: Distribution) -> str:
    return "[console_scripts]\n" + "".join(
        f"{point.name} = {point.value}\n" for point in ours.entry_points if point.group == "console_scripts"
    )


def _hash(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
