"""What holds for every test: a home of its own, no telemetry, no network, and marks that skip with a reason."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from tests.cluster.harness.deployment import Deployment

# No property is about speed: on a busy machine a slow example would fail it.
hypothesis.settings.register_profile("untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
# The gate's: the same examples each time, so that it is red because of a change. By hand every run draws others.
hypothesis.settings.register_profile("gate", hypothesis.settings.get_profile("untimed"), derandomize=True)
hypothesis.settings.load_profile("untimed")

os.environ.setdefault("HARBOR_TELEMETRY", "0")
os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")

# A shell that starts the tests in the background has them ignore SIGINT, and every process below inherits that: what
# Ctrl-C does could then not be tested.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A kubeconfig alone is no permission: many machines have one, of a cluster that is not for tests.
CLUSTER = ("KUBECONFIG", "TEST_REGISTRY", "TEST_BUILDKIT")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = sys.platform == "linux" and os.geteuid() == 0
    missing = ", ".join(name for name in CLUSTER if not os.environ.get(name))
    for item in items:
        if item.get_closest_marker("req_root") and not root:
            item.add_marker(pytest.mark.skip(reason="needs root on Linux: networks, limits and other users' files"))
        if item.get_closest_marker("req_k8s") and missing:
            item.add_marker(pytest.mark.skip(reason=f"needs a Kubernetes cluster for tests: {missing} not set"))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    """For several processes that take a file each: the longest first, and last what nobody may run beside."""
    if item.get_closest_marker("alone"):
        return 2
    return 0 if item.path.name == "test_installed.py" else 1


@pytest.fixture(autouse=True)
def _own_home(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test reads or writes the home of whoever runs it, and none but those marked so finds a cluster."""
    if not request.node.get_closest_marker("req_k8s"):
        monkeypatch.delenv("KUBECONFIG", raising=False)
    for name in [name for name in os.environ if name.startswith("HARBOR_ASSETS_") and "_TEST_" not in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)


@pytest.fixture(scope="session")
def _session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all processes of a test session (`pytest -n`)."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own


@pytest.fixture(scope="session")
def _deployment(_session_folder: Path) -> "Iterator[Deployment]":
    """One installation for all that need one: it takes a minute or two, and two volumes of the cluster's few."""
    from tests.cluster.harness.deployment import deployment

    with deployment(_session_folder) as it:
        yield it


@pytest.fixture
def deployed(
    request: pytest.FixtureRequest, _session_folder: Path, _deployment: "Deployment"
) -> "Iterator[Deployment]":
    """The installation; nobody else uses it meanwhile if the test is marked `alone`."""
    from tests.cluster.harness.deployment import used

    with used(_session_folder, alone=request.node.get_closest_marker("alone") is not None):
        yield _deployment
