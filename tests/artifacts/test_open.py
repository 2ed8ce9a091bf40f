import subprocess
import sys
from pathlib import Path

import pytest

from harbor_assets.artifacts import open_artifacts
from harbor_assets.domain.errors import Refused


def test_a_missing_driver_is_named() -> None:
    with pytest.raises(Refused, match="pip install s3fs"):
        open_artifacts("s3://bucket/prefix")


def test_a_scheme_nobody_knows() -> None:
    with pytest.raises(Refused, match="no artifact store") as caught:
        open_artifacts("gopher2://eva:hunter2@host/x")
    assert "hunter2" not in str(caught.value)


def test_a_file_url_with_a_host() -> None:
    with pytest.raises(Refused, match="names a host"):
        open_artifacts("file://server/share")


def test_two_openings_of_one_url_see_each_others_objects() -> None:
    open_artifacts("memory://shared/x").put_bytes("a", b"1")
    assert [*open_artifacts("memory://shared").list("x")] == [("a", 1)]


def test_a_folder_store_loads_no_drivers(tmp_path: Path) -> None:
    code = (
        "import sys; from harbor_assets.artifacts import open_artifacts; "
        f"open_artifacts({str(tmp_path / 's')!r}).put_bytes('a', b'1'); "
        "print(sorted({'upath', 'fsspec', 'sqlalchemy', 'asyncio', 'ctypes', 'pydantic'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
