"""The page in a real browser, where one is installed: its script runs under its own policy, and filters and sorts."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest

from harbor_assets.domain.outcomes import Reason
from harbor_assets.report import HtmlReport
from tests.fakes.accounts import make_bundle, make_plan, make_row

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to open the report")
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --virtual-time-budget=3000 --dump-dom""".split()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    plan = make_plan(["alpha", "beta", "gamma"])
    rows = [
        make_row(plan, 0, 1, 0.5),
        make_row(plan, 1, 1, Reason.SANDBOX_LOST, message="the sandbox is gone"),
        make_row(plan, 2, 1, 0.25),
    ]
    path = tmp_path / "report.html"
    path.write_bytes(b"".join(HtmlReport().render(make_bundle(plan, rows).report)))
    return path


def open_page(path: Path) -> str:
    """The document after its scripts ran."""
    assert CHROMIUM is not None
    profile = path.parent / "profile"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", path.as_uri()], capture_output=True, timeout=60, check=True
    )
    return done.stdout.decode()


def test_the_script_runs_under_the_pages_own_policy(page: Path):
    dom = open_page(page)
    assert '<div class="controls">' in dom
    assert dom.count('aria-sort="none"') == 4
    assert ">3 trials<" in dom


STEPS = """
const seen = {};
const shown = () => [...document.querySelectorAll("tbody tr[data-outcome]:not([hidden]) .task")]
  .map((cell) => cell.firstChild.textContent.trim()).join(" ");
const note = (step) => {
  const sorted = document.querySelector("[data-sort=reward]").getAttribute("aria-sort");
  seen[step] = [shown(), document.getElementById("shown").textContent, sorted];
};
const chip = document.querySelector(".chip.infra_failed");
const reward = document.querySelector("[data-sort=reward] button");
const type = async (text) => {
  const field = document.querySelector("input");
  field.value = text;
  field.dispatchEvent(new Event("input"));
  await new Promise((done) => setTimeout(done, 200));
};
(async () => {
  note("all");
  chip.click(); note("chip"); chip.click();
  await type("GONE lost"); note("words");
  await type("zzz"); note("nothing");
  seen.offer = document.getElementById("nothing").hidden ? "" : document.getElementById("nothing").textContent.trim();
  document.getElementById("reset").click(); note("reset");
  reward.click(); note("up"); reward.click(); note("down");
  document.body.append(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
})();
"""


def test_filters_and_sorting(page: Path):
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())  # else STEPS may not run
    page.write_text(html.replace("</body>", f"<script>{STEPS}</script></body>"))
    (found,) = re.findall(r'<pre id="seen">(.*?)</pre>', open_page(page))
    assert json.loads(unescape(found)) == {
        "all": ["hello-alpha hello-beta hello-gamma", "3 trials", "none"],
        "chip": ["hello-beta", "1 of 3 trials", "none"],
        "words": ["hello-beta", "1 of 3 trials", "none"],
        "nothing": ["", "0 of 3 trials", "none"],
        "offer": "No trial matches. Show all trials",
        "reset": ["hello-alpha hello-beta hello-gamma", "3 trials", "none"],
        "up": ["hello-gamma hello-alpha hello-beta", "3 trials", "ascending"],  # no reward is no zero: always last
        "down": ["hello-alpha hello-gamma hello-beta", "3 trials", "descending"],
    }
