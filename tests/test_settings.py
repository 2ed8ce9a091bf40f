import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.domain import plans, retries
from harbor_assets.domain.errors import HomeUnusable, Refused
from harbor_assets.settings import LAYOUT, Settings, mask_url


def load(home: Path, **values: str) -> Settings:
    return Settings.load({"HARBOR_ASSETS_HOME": str(home), **{f"HARBOR_ASSETS_{k}": v for k, v in values.items()}})


def test_defaults_follow_the_home(tmp_path: Path) -> None:
    settings = load(tmp_path / "h")
    assert settings.catalog_url == f"sqlite:///{tmp_path}/h/catalog.db"
    assert settings.artifacts_url == f"{tmp_path}/h/artifacts"
    assert settings.workspace == "default"
    assert settings.owner


def test_numbers_equal_the_rules_of_the_domain(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert settings.run_timeout_seconds == plans.RUN_TIMEOUT_SECONDS
    assert settings.n_concurrent == plans.DEFAULT_CONCURRENCY
    assert settings.infra_retries == retries.INFRA_RETRIES
    assert load(tmp_path, RUN_TIMEOUT_SECONDS=str(plans.RUN_TIMEOUT_MAX_SECONDS))
    with pytest.raises(Refused, match=f"from 1 to {plans.RUN_TIMEOUT_MAX_SECONDS}"):
        load(tmp_path, RUN_TIMEOUT_SECONDS=str(plans.RUN_TIMEOUT_MAX_SECONDS + 1))


def test_empty_counts_as_unset(tmp_path: Path) -> None:
    assert load(tmp_path, WORKSPACE="", N_CONCURRENT="") == load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RUN_TIMEOUT_SECONDS", "0"),
        ("RUN_TIMEOUT_SECONDS", "1_000"),
        ("RUN_TIMEOUT_SECONDS", "1h"),
        ("N_CONCURRENT", "-1"),
        ("N_CONCURRENT", "1001"),
        ("CANCEL_POLL_SECONDS", "nan"),
        ("CANCEL_POLL_SECONDS", "inf"),
        ("CANCEL_POLL_SECONDS", "soon"),
        ("WATCH_POLL_SECONDS", "0"),
        ("DEBUG", "2"),
        ("WORKSPACE", "a/b"),
        ("OWNER", "two\nlines"),
        ("CATALOG_URL", "mysql://h/db"),
        ("CATALOG_URL", "catalog.db"),
        ("HOME", "~no-such-user-here/x"),
    ],
)
def test_a_bad_value_names_variable_value_and_rule(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(Refused) as caught:
        load(tmp_path, **{name: value})
    (problem,) = caught.value.problems
    assert problem.subject == f"HARBOR_ASSETS_{name}"
    assert repr(value) in problem.message
    assert "must be" in problem.message or "allowed" in problem.message or "write" in problem.message


def test_every_bad_value_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        load(tmp_path, N_CONCURRENT="x", WORKSPACE="/", CANCEL_POLL_SECONDS="-1")
    assert len(caught.value.problems) == 3


def test_passwords_are_never_shown(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        CATALOG_URL="postgresql+psycopg://eva:hunter2@db/h?sslpassword=hunter2&sslmode=require",
        ARTIFACTS_URL="s3://key:hunter2@bucket/p",
    )
    shown = {line.name: line for line in settings.describe()}
    assert shown["HARBOR_ASSETS_CATALOG_URL"].value == (
        "postgresql+psycopg://eva:***@db/h?sslpassword=***&sslmode=require"
    )
    assert shown["HARBOR_ASSETS_CATALOG_URL"].source == "environment"
    assert shown["HARBOR_ASSETS_WORKSPACE"].source == "default"
    assert "hunter2" not in str(settings.describe())
    assert all(line.help for line in settings.describe())
    with pytest.raises(Refused) as caught:
        load(tmp_path, CATALOG_URL="mysql://eva:hunter2@db/h")
    assert "hunter2" not in str(caught.value)


@given(st.text(alphabet=":@/?&=ab", max_size=12))
def test_masking_hides_a_password_of_any_characters(password: str) -> None:
    secret = f"S3{password}CRET"
    if "?" not in secret:  # an unescaped ? ends the address for every parser of URLs
        assert secret not in mask_url(f"postgresql://eva:{secret}@host/db")


def test_another_process_loads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = load(Path("relative"), ARTIFACTS_URL="store", CATALOG_URL="sqlite:///c.db", CANCEL_POLL_SECONDS="0.05")
    monkeypatch.chdir("/")
    second = Settings.load(first.as_environ())
    assert second.home == tmp_path / "relative"
    assert second.artifacts_url == str(tmp_path / "store")
    assert second.catalog_url == f"sqlite:///{tmp_path}/c.db"
    assert first.as_environ() == second.as_environ()


def test_a_misspelled_variable_is_told(tmp_path: Path) -> None:
    settings = load(tmp_path, N_CONCURENT="3", TEST_POSTGRES="x")
    assert settings.unknown == ("HARBOR_ASSETS_N_CONCURENT",)
    (sentence,) = settings.warnings()
    assert "HARBOR_ASSETS_N_CONCURRENT" in sentence


def test_prepare_home_makes_it_private_and_is_repeatable(tmp_path: Path) -> None:
    settings = load(tmp_path / "deep" / "home")
    assert settings.prepare_home() == settings.prepare_home()
    assert settings.home.stat().st_mode & 0o777 == 0o700
    for room in (settings.locks, settings.logs, settings.cache, settings.work, settings.sandboxes, settings.dagster):
        assert room.is_dir()


def test_a_file_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    for home in (tmp_path / "f", tmp_path / "f" / "below"):
        with pytest.raises(HomeUnusable, match="HARBOR_ASSETS_HOME"):
            load(home).prepare_home()


def test_a_home_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    settings = load(tmp_path)
    settings.prepare_home()
    (tmp_path / "layout-version").write_text(f"{LAYOUT + 1}\n")
    with pytest.raises(HomeUnusable, match="upgrade"):
        settings.prepare_home()


@pytest.mark.skipif(os.getuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize("mode", [0o000, 0o500])
def test_a_home_without_permission(tmp_path: Path, mode: int) -> None:
    home = tmp_path / "h"
    home.mkdir()
    home.chmod(mode)
    try:
        with pytest.raises(HomeUnusable, match="read and written"):
            load(home).prepare_home()
    finally:
        home.chmod(0o700)


def test_import_is_cheap() -> None:
    heavy = "{'pydantic', 'sqlalchemy', 'upath', 'asyncio', 'getpass'}"
    code = f"import sys, harbor_assets.settings; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_folder_in_use_for_something_else_is_no_home(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_text("theirs")
    with pytest.raises(HomeUnusable, match=r"holds other files \(passwd\) and was never a home"):
        load(tmp_path).prepare_home()
    assert [path.name for path in tmp_path.iterdir()] == ["passwd"]
    with pytest.raises(HomeUnusable, match="HARBOR_ASSETS_HOME"):
        load(Path("/usr")).prepare_home()


def test_a_disk_on_which_only_artifacts_lie_yet_becomes_a_home(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "catalog.db-wal").touch()
    assert load(tmp_path).prepare_home() == tmp_path
    (tmp_path / "notes.txt").touch()  # what somebody puts into a home later is theirs to keep there
    assert load(tmp_path).prepare_home() == tmp_path


def test_other_programs_of_ours_get_the_settings_and_no_token(tmp_path: Path):
    settings = load(tmp_path, TOKEN="hunter2", OWNER="ann")
    child = settings.for_child({"PATH": "/bin", "HARBOR_ASSETS_TOKEN": "hunter2", "HARBOR_ASSETS_OWNER": "bob"})
    assert (child["PATH"], child["HARBOR_ASSETS_OWNER"]) == ("/bin", "ann")
    assert "hunter2" not in str(child) + repr(settings) + str(settings.describe())


def test_the_webhooks_address_goes_to_workers_alone_and_is_shown_nowhere() -> None:
    url = "https://hooks.example.org/s3cr3t"
    settings = Settings.load({"HARBOR_ASSETS_WEBHOOK_URL": url, "HARBOR_ASSETS_WEBHOOK_EVENTS": "failed, ended,failed"})
    assert settings.webhook_events == "failed,ended"
    assert "HARBOR_ASSETS_WEBHOOK_URL" not in settings.for_child({"HARBOR_ASSETS_WEBHOOK_URL": url})
    assert settings.for_worker({})["HARBOR_ASSETS_WEBHOOK_URL"] == url
    assert "s3cr3t" not in repr(settings) + str(settings.describe())
    for bad in ("hooks.example.org/s3cr3t", "https://me:s3cr3t@example.org/", "https://e.org/s3cr3t\nX: y"):
        with pytest.raises(Refused) as refused:
            Settings.load({"HARBOR_ASSETS_WEBHOOK_URL": bad})
        assert "s3cr3t" not in str(refused.value)
