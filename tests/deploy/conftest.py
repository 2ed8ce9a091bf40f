import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harbor_assets.interfaces.deployment.install import OVERLAYS, read_objects

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture
def kustomized() -> Callable[[str], list[dict[str, Any]]]:
    """The objects of an overlay by its name, as kustomize makes them."""
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, which holds kustomize")

    def make(name: str) -> list[dict[str, Any]]:
        words = ["kubectl", "kustomize", str(DEPLOY / "overlays" / name)]
        return read_objects(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    return make


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest, kustomized: Callable[[str], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The objects of each overlay."""
    return kustomized(request.param)
