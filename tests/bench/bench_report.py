"""How long a report takes to open, to filter and to sort in a browser.

    uv run python tests/bench/bench_report.py [TRIALS ...]

Each figure is of a new page in headless Chromium: until the page is laid out and its script has run, then each action
until its frame is painted.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from harbor_assets.domain.outcomes import Reason
from harbor_assets.report import HtmlReport
from tests.fakes.accounts import make_bundle, make_plan, make_row

SIZES = [int(argument) for argument in sys.argv[1:]] or [100, 1_000, 10_000]
ATTEMPTS = 10
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1400,1000"]
STEPS = """
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
const timed = async (act, pause = 0) => {
  const start = performance.now();
  act();
  await new Promise((done) => setTimeout(done, pause));
  await painted();
  return performance.now() - start;
};
addEventListener("load", async () => {
  await painted();
  const seen = { open: performance.now(), characters: document.documentElement.textContent.length };
  const field = document.getElementById("find");
  seen.filter = await timed(() => { field.value = "task-00001"; field.dispatchEvent(new Event("input")); }, 61);
  seen.reset = await timed(() => document.getElementById("reset").click());
  seen.sort = await timed(() => document.querySelector("[data-sort=reward] button").click());
  await fetch("/", { method: "POST", body: JSON.stringify(seen) });
});
"""


def render(trials: int) -> bytes:
    """A report of that many trials: one in eleven without a reward, the others 0, 0.5 or 1."""
    plan = make_plan([f"task-{i:05d}" for i in range(trials // ATTEMPTS)], n_attempts=ATTEMPTS)
    rows = [
        make_row(plan, task.index, k, Reason.REWARD_MISSING if (task.index + k) % 11 == 0 else (task.index * k % 3) / 2)
        for task in plan.tasks
        for k in range(1, ATTEMPTS + 1)
    ]
    page = b"".join(HtmlReport().render(make_bundle(plan, rows).report)).decode()
    policy = page[page.index("<meta http-equiv=") :].partition("\n")[0]  # else STEPS may not run
    return page.replace(policy, "").replace("</body>", f"<script>{STEPS}</script></body>").encode()


class Answers(BaseHTTPRequestHandler):
    """Gives the page and takes what it measured."""

    def __init__(self, page: bytes, seen: list[dict[str, float]], *args: object) -> None:
        self.page, self.seen = page, seen
        super().__init__(*args)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        if self.path == "/":
            self.wfile.write(self.page)

    def do_POST(self) -> None:
        self.seen.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


def measure(chromium: str, page: bytes, profile: Path) -> dict[str, float]:
    """Open the page once; what its script measured, in milliseconds."""
    seen: list[dict[str, float]] = []
    with HTTPServer(("127.0.0.1", 0), partial(Answers, page, seen)) as server:
        server.timeout = 120
        argv = [chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0"]
        argv.append(f"http://127.0.0.1:{server.server_port}/")
        browser = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not seen:
                server.handle_request()
        finally:
            browser.terminate()
            browser.wait()
    return seen[0]


def main() -> None:
    chromium = shutil.which("chromium") or sys.exit("needs Chromium")
    print(f"{os.cpu_count()} cores; load average before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for trials in SIZES:
            page = render(trials)
            seen = measure(chromium, page, Path(folder) / "profile")
            told = "   ".join(f"{name} {seen[name] / 1000:5.2f} s" for name in ("open", "filter", "reset", "sort"))
            print(f"{trials:>6} trials, {len(page) / 1e6:5.1f} MB   {told}")


if __name__ == "__main__":
    main()
