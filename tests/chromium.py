"""Headless Chromium by its own protocol, where it is installed."""

import itertools
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = """--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars
--disable-background-networking --disable-component-update --disable-sync""".split()
POLL_SECONDS = 0.05
_COMPLAINTS = frozenset({"Log.entryAdded", "Runtime.exceptionThrown"})


class Browser:
    """One page. `complaints`: what the browser said of it, as refused scripts and failed requests."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.complaints: list[str] = []

    def ask(self, method: str, **parameters: Any) -> Any:
        """One call; its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self._socket.recv())
            if told.get("id") == number:
                assert "error" not in told, told
                return told["result"]
            if told.get("method") in _COMPLAINTS:
                self.complaints.append(json.dumps(told["params"]))

    def seen(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        return self.ask("Runtime.evaluate", expression=expression, awaitPromise=True)["result"].get("value")

    def go(self, url: str) -> None:
        """Open a page, and wait until it is whole."""
        self.ask("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def until(self, expression: str, seconds: float = 60.0) -> float:
        """Wait until an expression is true; the seconds that took. Raises `TimeoutError`."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self.seen(expression):
                return time.monotonic() - began
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"{expression} was not true within {seconds:.0f} s; the page: {self.text[:2000]}")

    def opened(self, url: str, words: str, seconds: float = 180.0) -> float:
        """Seconds until a page that is opened anew shows these words."""
        self.ask("Page.navigate", url="about:blank")
        began = time.monotonic()
        self.ask("Page.navigate", url=url)
        self.until(f"document.body?.innerText.includes({json.dumps(words)})", seconds)
        return time.monotonic() - began

    def press(self, key: str, code: int) -> None:
        """A key, as a person presses it."""
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    @property
    def text(self) -> str:
        return self.seen("document.body.innerText") or ""


@contextmanager
def browser(profile: Path, *flags: str) -> Iterator[Browser]:
    """A browser of a new profile with one page."""
    assert CHROMIUM is not None
    argv = [CHROMIUM, *FLAGS, *flags, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr
        port = next(found[1] for line in process.stderr if (found := re.search(r"ws://127.0.0.1:(\d+)/", line)))
        with connect(_page_of(int(port)), max_size=None, ping_interval=None) as connection:
            page = Browser(connection)
            for domain in ("Page", "Log", "Runtime"):
                page.ask(f"{domain}.enable")
            yield page
    finally:
        process.terminate()
        process.communicate()


def _page_of(port: int) -> str:
    """The address of the browser's one page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
        return next(entry["webSocketDebuggerUrl"] for entry in json.load(answer) if entry["type"] == "page")
