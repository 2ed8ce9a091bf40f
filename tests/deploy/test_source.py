"""The wheel that images get: what runs here, the same bytes each time, and it installs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from harbor_assets.artifacts.drivers import DRIVERS, driver_of
from harbor_assets.domain.errors import Refused
from harbor_assets.interfaces.deployment.source import constraints, copy_manifests, write_context, write_wheel


def test_the_wheel_holds_this_program_and_is_the_same_each_time(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = write_wheel(tmp_path / "a"), write_wheel(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert {"harbor_assets/cli.py", "harbor_assets/definitions.py"} & set(names)
    for wanted in ("resources/engine.py", "sensors/deployment.py", "harbor_assets/report/report.css"):
        assert wanted in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests", "harbor_assets/deploy"))]


def test_it_installs_and_knows_its_version(tmp_path: Path):
    wheel = write_wheel(tmp_path)
    target = tmp_path / "installed"
    words = ["uv", "pip", "install", "--quiet", "--no-deps", "--offline", "--target", str(target), str(wheel)]
    subprocess.run(words, check=True)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import harbor_assets, importlib.metadata as m\n"
        "assert harbor_assets.__file__.startswith(sys.argv[1])\n"
        "print(m.version('harbor-assets'), *m.distribution('harbor-assets').entry_points.names)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(target)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.split()[1] == "harbor-assets"


def test_a_build_context_is_known_by_its_content(tmp_path: Path):
    one, two = write_context("worker", tmp_path / "1"), write_context("worker", tmp_path / "2")
    assert one == two != write_context("service", tmp_path / "3")
    assert {path.name for path in (tmp_path / "1").iterdir() if path.suffix != ".whl"} == {
        "Containerfile",
        "base.txt",
        "constraints.txt",
        "drivers.txt",
    }
    assert "harbor==" in constraints()


def test_an_object_stores_driver_is_part_of_the_context(tmp_path: Path):
    plain = write_context("worker", tmp_path / "1")
    assert (tmp_path / "1" / "drivers.txt").read_text() == ""
    assert write_context("worker", tmp_path / "2", ["s3fs"]) != plain
    assert (tmp_path / "2" / "drivers.txt").read_text() == "s3fs\n"
    pinned = {line.split("==")[0] for line in constraints().splitlines()}
    assert set(DRIVERS.values()) <= pinned
    assert driver_of("s3://bucket/prefix") == "s3fs"
    assert driver_of("/var/lib/harbor-assets/artifacts") is None


def test_a_copy_of_the_manifests_is_all_that_kustomize_reads(tmp_path: Path):
    copy_manifests(tmp_path / "mine")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"base", "components", "overlays", "profiles"}
    with pytest.raises(Refused, match="there already"):
        copy_manifests(tmp_path / "mine")
