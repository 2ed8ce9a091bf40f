"""The store behind a URL of fsspec's: S3, Google Cloud, Azure, memory."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from stat import S_ISDIR
from typing import Any, BinaryIO

from upath import UPath

from harbor_assets.artifacts import tree
from harbor_assets.artifacts.drivers import DRIVERS
from harbor_assets.artifacts.keys import check_key
from harbor_assets.domain.errors import NO_SPACE, HarborAssetsError, NotFound, Refused, ServiceUnavailable, StorageFull
from harbor_assets.settings import mask_url

_PATTERN = frozenset("*?[")


class RemoteArtifacts:
    """`Artifacts` in an object store.

    An object appears whole, by one request. A tree appears object by object: what makes it count is the caller's own
    record, written after it. Empty folders are not kept: such stores have none.
    """

    def __init__(self, url: str, fs: Any, prefix: str) -> None:
        self._url, self._fs, self._prefix = mask_url(url).rstrip("/"), fs, prefix.rstrip("/")

    @classmethod
    def at(cls, url: str) -> "RemoteArtifacts":
        """Raises `Refused` if the scheme is not known or its driver is not installed."""
        scheme = url.partition("://")[0]
        try:
            # Without a cache of listings: other processes write to the same place.
            root = UPath(url, use_listings_cache=False)
            return cls(url, root.fs, root.path)
        except ImportError as error:
            driver = DRIVERS.get(scheme, "the driver that fsspec names for it")
            raise Refused(f"The artifact store {mask_url(url)} needs a package: pip install {driver}") from error
        except ValueError as error:
            raise Refused(
                f"'{mask_url(url)}' is no artifact store ('{scheme}' is not a scheme of fsspec's); "
                "write a folder's path, or a URL such as s3://bucket/prefix"
            ) from error

    def exists(self, key: str) -> bool:
        """See `Artifacts`; true for an object and for a tree."""
        with self._told(key):
            return bool(self._fs.exists(self._path(key)))

    def size(self, key: str) -> int:
        """See `Artifacts`."""
        with self._told(key):
            info = self._fs.info(self._path(key))
            if info["type"] != "file":
                raise _not_found(key)
            return int(info["size"])

    def open(self, key: str) -> AbstractContextManager[BinaryIO]:
        """See `Artifacts`."""
        with self._told(key):
            self.size(key)  # a folder opens on some of them, and reads as nothing
            return self._fs.open(self._path(key), "rb")

    def put_bytes(self, key: str, data: bytes) -> None:
        """See `Artifacts`."""
        path = self._path(key)
        with self._told(key):
            self._fs.pipe_file(path, data)

    def put_file(self, key: str, source: Path) -> None:
        """See `Artifacts`. Raises `Refused` if `source` cannot be read."""
        path = self._path(key)
        try:
            source.open("rb").close()
        except OSError as error:
            raise Refused(f"{source} cannot be stored: {error.strerror}") from error
        with self._told(key):
            # Not copied into an opened file: closing that after an error would store the half that came.
            self._fs.put_file(str(source), path)

    def put_tree(self, key: str, source: Path) -> int:
        """See `Artifacts`. Raises `Refused` if `source` is not a folder."""
        path = self._path(key)
        try:
            is_folder = S_ISDIR(source.lstat().st_mode)
        except OSError:
            is_folder = False
        if not is_folder:
            raise Refused(f"{source} cannot be stored as {key!r}: it is not a folder")
        with self._told(key):
            found = tree.survey(source, key)
            old = {name for name, _ in self.list(key)}
            for name in found.files:
                self._fs.put_file(str(source / name), f"{path}/{name}")
            self._delete([f"{path}/{name}" for name in sorted(old.difference(found.files))])
            return len(found.left_out)

    def list(self, key: str) -> Iterator[tuple[str, int]]:
        """See `Artifacts`."""
        path = self._path(key)
        with self._told(key):
            found = self._find(path)
        below = f"{path}/"
        return iter(
            sorted(
                (name.removeprefix(below), int(info["size"])) for name, info in found.items() if name.startswith(below)
            )
        )

    def remove(self, key: str) -> None:
        """See `Artifacts`."""
        path = self._path(key)
        with self._told(key):
            self._delete([name for name in self._find(path) if name == path or name.startswith(f"{path}/")])

    def sweep(self) -> int:
        """See `Artifacts`: nothing, since an object appears whole or not at all (what a killed upload left of itself is
        the bucket's own rule to remove)."""
        return 0

    def url(self, key: str) -> str:
        """See `Artifacts`: the URL, without a password."""
        return f"{self._url}/{check_key(key)}"

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{check_key(key)}"

    def _find(self, path: str) -> dict[str, dict[str, Any]]:
        return self._fs.find(path, detail=True)

    def _delete(self, paths: Sequence[str]) -> None:
        """Remove objects, many in one request; one by one where a name reads as a pattern, which `rm` would follow."""
        plain = [path for path in paths if _PATTERN.isdisjoint(path)]
        if plain:
            self._fs.rm(plain)
        for path in paths:
            if not _PATTERN.isdisjoint(path):
                self._fs.rm_file(path)

    @contextmanager
    def _told(self, key: str) -> Iterator[None]:
        try:
            yield
        except HarborAssetsError:
            raise
        except FileNotFoundError as error:
            raise _not_found(key) from error
        except PermissionError as error:
            raise Refused(f"The artifact store {self._url} refused access; see its credentials.") from error
        except Exception as error:  # each driver has its own family of errors
            if getattr(error, "errno", None) in NO_SPACE:
                raise StorageFull(f"The artifact store {self._url} has no space left.") from error
            raise ServiceUnavailable(
                f"The artifact store {self._url} did not answer: {type(error).__name__}."
            ) from error


def _not_found(key: str) -> NotFound:
    return NotFound(f"There is no artifact {key!r}.")
