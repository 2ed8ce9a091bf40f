import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harbor_assets.artifacts import open_artifacts
from harbor_assets.engine.ports import Artifacts
from tests.fakes.artifacts import MemoryArtifacts


@pytest.fixture(params=["fake", "folder", "file url", "memory url"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    """Every kind of store: whatever a test says of one must hold for all."""
    match request.param:
        case "fake":
            return MemoryArtifacts()
        case "folder":
            return open_artifacts(str(tmp_path / "store"))
        case "file url":
            return open_artifacts(f"file://{tmp_path}/other store")
        case _:
            return open_artifacts(f"memory://{secrets.token_hex(8)}/prefix")


@pytest.fixture
def other_file_system() -> Iterator[Path]:
    """A folder that a rename from the temporary folder does not reach."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == Path("/tmp").stat().st_dev:
        pytest.skip("no second file system to write to: /dev/shm is missing")
    folder = shm / f"harbor-assets-test-{secrets.token_hex(8)}"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)
