"""The Dagster instance of a home: its databases are made once, however many programs come first."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

OPEN = """
from harbor_assets.local.instance import open_instance
from harbor_assets.settings import Settings
open_instance(Settings.load()).dispose()
"""
PROGRAMS = 4


def test_programs_that_open_a_fresh_home_at_once_leave_it_whole(tmp_path: Path):
    env = {**os.environ, "HARBOR_ASSETS_HOME": str(tmp_path / "home")}
    asked = [subprocess.Popen([sys.executable, "-c", OPEN], env=env, stderr=subprocess.PIPE) for _ in range(PROGRAMS)]
    assert [(one.communicate()[1], one.returncode)[1] for one in asked] == [0] * PROGRAMS

    made = [path for path in (tmp_path / "home").rglob("*.db") if _heads(path) is not None]
    assert {"index.db", "runs.db", "schedules.db"} <= {path.name for path in made}
    assert all(len(_heads(path) or []) == 1 for path in made)


def _heads(path: Path) -> list[str] | None:
    with sqlite3.connect(path) as database:
        if not database.execute("select 1 from sqlite_master where name = 'alembic_version'").fetchone():
            return None
        return [head for (head,) in database.execute("select version_num from alembic_version")]
