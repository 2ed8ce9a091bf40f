"""What agents and tests printed is kept to a size."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.trials.output import cut_output, note


def _write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@given(size=st.integers(0, 3000), keep=st.integers(400, 1000))
def test_begin_and_end_are_kept_and_the_rest_counted(tmp_path_factory, size: int, keep: int) -> None:
    folder = tmp_path_factory.mktemp("trial")
    data = bytes(i % 251 for i in range(size))
    path = _write(folder / "agent" / "deep" / "log.txt", data)
    dropped = cut_output(folder, keep)
    kept = path.read_bytes()
    assert len(kept) <= max(keep, size if size <= keep else 0)
    if dropped == 0:
        assert kept == data
    else:
        begin, end = kept.split(note(dropped))
        assert len(begin) + dropped + len(end) == size
        assert data.startswith(begin)
        assert data.endswith(end)
    assert cut_output(folder, keep) == 0  # once is enough
    assert [p.name for p in path.parent.iterdir()] == ["log.txt"]


def test_artifacts_and_what_links_lead_to_stay_whole(tmp_path: Path) -> None:
    outside = _write(tmp_path / "outside", b"x" * 2000)
    folder = tmp_path / "trial"
    artifact = _write(folder / "artifacts" / "big", b"x" * 2000)
    step = _write(folder / "steps" / "one" / "verifier" / "test-stdout.txt", b"x" * 2000)
    (folder / "agent").mkdir()
    (folder / "agent" / "link").symlink_to(outside)
    assert cut_output(folder, 1000) > 1000
    assert len(step.read_bytes()) <= 1000
    assert {len(p.read_bytes()) for p in (artifact, outside)} == {2000}
