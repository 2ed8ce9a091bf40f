import os
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


def test_config_lists_every_setting_with_where_it_comes_from(bare: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARBOR_ASSETS_CATALOG_URL", "postgresql+psycopg://me:hunter2@db/x")
    said = bare("config", "--json")
    settings = {setting["name"]: setting for setting in said.json["data"]}
    assert settings["HARBOR_ASSETS_CATALOG_URL"]["source"] == "environment"
    assert settings["HARBOR_ASSETS_N_CONCURRENT"]["value"] == "4"
    text = bare("config")
    assert all(name in text.out for name in settings)
    assert "hunter2" not in said.out + text.out


def test_misspelt_settings_are_told_and_bad_ones_refused(bare: Cli, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HARBOR_ASSETS_HOEM", "/x")
    said = bare("config")
    assert (said.code, "did you mean HARBOR_ASSETS_HOME" in said.err) == (0, True)
    monkeypatch.setenv("HARBOR_ASSETS_N_CONCURRENT", "many")
    refused = bare("runs", "list")
    assert (refused.code, refused.out) == (2, "")
    assert "HARBOR_ASSETS_N_CONCURRENT: 'many'" in refused.err


def test_a_home_that_is_a_file_is_refused(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "file"
    file.write_text("")
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(file))
    said = bare("runs", "list")
    assert (said.code, said.out) == (2, "")
    assert str(file) in said.err
    assert "HARBOR_ASSETS_HOME" in said.err


def test_a_home_that_cannot_be_read_is_refused(bare: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    home = tmp_path / "home"
    home.mkdir(mode=0o000)
    monkeypatch.setenv("HARBOR_ASSETS_HOME", str(home))
    assert bare("runs", "list").code == 2


def test_the_workspace_of_the_ui_is_the_repositorys():
    from harbor_assets.interfaces.cli.serving import WORKSPACE

    root = Path(__file__).parents[2]
    assert (root / "workspace.yaml").read_text(encoding="utf-8") == WORKSPACE
