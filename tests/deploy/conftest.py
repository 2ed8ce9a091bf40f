import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.interfaces.deployment.install import OVERLAYS, read_objects

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """The objects of an overlay, as kustomize makes them."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, which holds kustomize")
    words = ["kubectl", "kustomize", str(DEPLOY / "overlays" / request.param)]
    return read_objects(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
