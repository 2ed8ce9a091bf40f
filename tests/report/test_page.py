"""The page in a real browser, where one is installed: its script runs under its own policy, and filters and sorts."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

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


def open_page(path: Path, place: str = "") -> str:
    """The document, opened at `place` (what follows the `#`), after its scripts ran."""
    assert CHROMIUM is not None
    profile = path.parent / "profile"
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"{path.as_uri()}#{place}"],
        capture_output=True,
        timeout=180,
        check=True,
    )
    return done.stdout.decode()


def test_the_script_runs_under_the_pages_own_policy(page: Path):
    dom = open_page(page)
    assert '<html lang="en" class="js">' in dom
    assert dom.count('aria-sort="none"') == 4
    assert ">3 trials<" in dom


STEPS = """
const seen = {};
const shown = () => [...document.querySelectorAll(".trials tbody tr:not([hidden]) .task")]
  .map((cell) => cell.firstChild.textContent.trim()).join(" ");
const note = (step) => {
  const sorted = document.querySelector("[data-sort=reward]").getAttribute("aria-sort");
  seen[step] = [shown(), document.querySelector("#trials .shown").textContent, sorted];
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


def seen_by(page: Path, steps: str, place: str = "") -> Any:
    """What `steps` left in the element `seen`, after the page was opened at `place`."""
    html = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())  # else `steps` may not run
    page.write_text(html.replace("</body>", f"<script>{steps}</script></body>"))
    (found,) = re.findall(r'<pre id="seen">(.*?)</pre>', open_page(page, place))
    return json.loads(unescape(found))


def test_filters_and_sorting(page: Path):
    assert seen_by(page, STEPS) == {
        "all": ["hello-alpha hello-beta hello-gamma", "3 trials", "none"],
        "chip": ["hello-beta", "1 of 3 trials", "none"],
        "words": ["hello-beta", "1 of 3 trials", "none"],
        "nothing": ["", "0 of 3 trials", "none"],
        "offer": "No trial matches. Show all trials",
        "reset": ["hello-alpha hello-beta hello-gamma", "3 trials", "none"],
        "up": ["hello-gamma hello-alpha hello-beta", "3 trials", "ascending"],  # no reward is no zero: always last
        "down": ["hello-alpha hello-gamma hello-beta", "3 trials", "descending"],
    }


STATE = """
setTimeout(() => {
  const rows = [...document.querySelectorAll(".trials tbody tr:not([hidden])")];
  const seen = {
    laid_out: rows.length,
    first: rows[0]?.id,
    said: document.querySelector("#trials .shown").textContent,
    focus: document.activeElement.id,
    find: document.getElementById("find").value,
    pressed: [...document.querySelectorAll(".chip[aria-pressed=true]")].map((chip) => chip.dataset.outcome),
    offered: [...document.querySelectorAll("#trials .more:not([hidden]) button")].map((one) => one.textContent),
  };
  document.body.append(Object.assign(document.createElement("pre"), { id: "seen", textContent: JSON.stringify(seen) }));
}, 300);
"""


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """700 tasks of two attempts; every seventh trial lost its sandbox."""
    plan = make_plan([f"t{i:03d}" for i in range(700)], n_attempts=2)
    rows = [
        make_row(plan, i, k, Reason.SANDBOX_LOST if (2 * i + k) % 7 == 0 else i / 700)
        for i in range(700)
        for k in (1, 2)
    ]
    path = tmp_path / "report.html"
    path.write_bytes(b"".join(HtmlReport().render(make_bundle(plan, rows).report)))
    return path


def test_a_large_table_lays_out_its_first_rows_and_says_so(large: Path):
    seen = seen_by(large, STATE)
    assert (seen["laid_out"], seen["said"]) == (500, "1400 trials, the first 500 are shown")
    assert seen["offered"] == ["Show 500 more", "Show all 1400"]


def test_the_address_of_a_trial_leads_to_its_row_however_far_down(large: Path):
    seen = seen_by(large, STATE, "hello-t600__00600-2")
    assert (seen["laid_out"], seen["focus"]) == (1400, "hello-t600__00600-2")


def test_the_address_keeps_what_is_filtered_and_sorted(large: Path):
    seen = seen_by(large, STATE, "?find=t69&outcome=scored&sort=reward%2Cdescending")
    assert seen["said"] == "17 of 1400 trials"
    assert (seen["first"], seen["find"], seen["pressed"]) == ("hello-t699__00699-1", "t69", ["scored"])


def test_an_address_that_says_nothing_we_know_changes_nothing(large: Path):
    seen = seen_by(large, STATE, "?sort=__proto__,up&outcome=%3Cb%3E&find=")
    assert (seen["laid_out"], seen["pressed"], seen["focus"]) == (500, [], "")
