"""The wheel that images get: what runs here, the same bytes each time, and it installs."""

import subprocess
import sys
import zipfile
from pathlib import Path

from harbor_assets.interfaces.deployment.source import constraints, write_context, write_wheel


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
    }
    assert "harbor==" in constraints()
