"""Archives, trial folders and bundles in one store: a folder by default, an object store by URL."""

from pathlib import Path
from typing import TYPE_CHECKING

from harbor_assets.artifacts.folder import FolderArtifacts
from harbor_assets.domain.errors import Refused
from harbor_assets.settings import mask_url

if TYPE_CHECKING:
    from harbor_assets.engine.ports import Artifacts


def open_artifacts(url: str) -> "Artifacts":
    """The store at `url`: a path or `file://` is a folder (made at the first write), anything else a URL of fsspec's
    (`s3://bucket/prefix`, `memory://`). Raises `Refused` if nothing here can reach such a URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return FolderArtifacts(Path(url))
    if scheme == "file":
        if not rest.startswith("/"):
            raise Refused(f"'{mask_url(url)}' names a host; write file:///<path> or the path alone")
        return FolderArtifacts(Path(rest))
    from harbor_assets.artifacts.remote import RemoteArtifacts  # fsspec and its drivers: only where a URL asks for them

    return RemoteArtifacts.at(url)
