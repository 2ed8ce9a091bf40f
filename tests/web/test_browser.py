"""The pages in a real browser, where one is installed: what the markup alone does not show."""

from collections.abc import Iterator

import pytest

from harbor_assets.domain.experiments import ExperimentInput
from harbor_assets.domain.outcomes import Reason
from harbor_assets.interfaces.api.app import create_app
from tests.chromium import CHROMIUM, Browser, browser
from tests.interfaces.backends import World
from tests.interfaces.served import served
from tests.web.browser import HOSTILE
from tests.web.conftest import Known
from tests.web.scenes import begin, end_trial, ended_run, finish, submit
from tests.web.test_experiments import evaluation

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium to open the pages")
TAB, ENTER = 9, 13


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium") / "profile", "--window-size=1200,900") as opened:
        yield opened


@pytest.fixture(autouse=True)
def _content(page: Browser) -> Iterator[None]:
    page.complaints.clear()
    yield
    assert page.complaints == []


def test_a_run_goes_on_before_ones_eyes_and_the_keyboard_stays_where_it_was(page: Browser, w: World):
    run = submit(w, w.publish("alpha", "beta"))
    begin(w, run)
    end_trial(w, run, 0, 1.0)
    with served(create_app(w.backend)) as base:
        page.go(f"{base}/runs/{run.id}")
        assert "1 of 2 trials ended" in page.text
        page.seen("document.querySelector('#live tbody a').focus()")
        end_trial(w, run, 1, Reason.SANDBOX_LOST)
        page.until("document.body.innerText.includes('2 of 2 trials ended')")
        assert page.seen("document.activeElement.getAttribute('href')") == f"/runs/{run.id}/tasks/0/trials/1"
        finish(w, run)
        page.until("document.body.innerText.includes('What became of 2 planned trials')")
        assert page.seen("document.querySelector('[data-live]')") is None


def test_nothing_of_strangers_runs_and_nothing_is_refused_by_our_own_policy(page: Browser, w: World):
    run = submit(w, w.publish("alpha"))
    files = {"trial.log": HOSTILE.encode(), "agent/trajectory.json": b'{"schema_version": "ATIF-v1.7", "steps": []}'}
    end_trial(w, run, 0, 1.0, files=files, flags=(HOSTILE,))
    finish(w, run)
    with served(create_app(w.backend)) as base:
        for path in (
            "/",
            "/leaderboard",
            f"/runs/{run.id}",
            f"/runs/{run.id}/tasks/0/trials/1",
            "/tasks/default/alpha",
        ):
            page.go(base + path)
            assert page.seen("document.styleSheets.length === 1 && document.styleSheets[0].cssRules.length > 50")
            assert page.seen("getComputedStyle(document.body).maxWidth") == "1344px"
            assert page.seen("document.querySelectorAll('main script, main img').length") == 0


def test_a_phone_scrolls_tables_and_never_the_page(page: Browser, w: World):
    run = ended_run(w, 1.0, Reason.VERIFIER_TIMEOUT, 0.5, names=("alpha" * 20, "beta", "gamma"))
    page.ask("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
    try:
        with served(create_app(w.backend)) as base:
            for path in ("/", "/runs", f"/runs/{run.id}", f"/runs/{run.id}/tasks/0/trials/1", "/tasks", "/leaderboard"):
                page.go(base + path)
                assert page.seen("document.documentElement.scrollWidth <= innerWidth"), path
    finally:
        page.ask("Emulation.clearDeviceMetricsOverride")


def test_an_experiment_is_read_on_a_narrow_screen(page: Browser, w: World):
    w.catalog.create_experiment("default", ExperimentInput(name="weekly"))
    for name, rewards in (("cheap", [1.0, 0.0]), ("dear", [1.0, 1.0])):
        evaluation(w, name, rewards, 0.5)
    page.ask("Emulation.setDeviceMetricsOverride", width=500, height=740, deviceScaleFactor=1, mobile=True)
    try:
        with served(create_app(w.backend)) as base:
            page.go(base + "/experiments/default/weekly")
            assert page.seen("document.documentElement.scrollWidth <= innerWidth")
            assert page.seen("document.querySelector('.rows.evaluations caption').getBoundingClientRect().right") <= 500
            text = "document.querySelector('.plot text.y')"
            assert page.seen(f"{text}.getScreenCTM().a * parseFloat(getComputedStyle({text}).fontSize)") >= 11
            middle = "(e => e.getBoundingClientRect().top + e.getBoundingClientRect().height / 2)"
            label, field = "document.querySelector('label[for=q]')", "document.querySelector('#q')"
            assert abs(page.seen(f"{middle}({label}) - {middle}({field})")) < 4
    finally:
        page.ask("Emulation.clearDeviceMetricsOverride")


def test_by_keyboard_alone(page: Browser, w: World):
    ended_run(w, 1.0, 1.0, 1.0)
    with served(create_app(w.backend)) as base:
        page.go(base)
        page.press("Tab", TAB)
        assert page.seen("document.activeElement.className") == "skip"
        assert page.seen("document.activeElement.getBoundingClientRect().left") >= 0
        page.press("Enter", ENTER)
        page.until("document.activeElement.id === 'main'")
        page.press("Tab", TAB)
        assert page.seen("document.querySelector('main').contains(document.activeElement)")
        assert page.seen("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_signing_in_and_out_with_a_real_cookie(page: Browser, w: World):
    run = ended_run(w, 1.0, 1.0, 1.0)
    with served(create_app(w.backend, authenticator=Known())) as base:
        page.go(f"{base}/runs/{run.id}")
        page.complaints.clear()  # that the page was answered with 401
        page.seen(
            "document.getElementById('token').value = 'reader'; document.querySelector('.sign-in button').click()"
        )
        page.until(f"document.querySelector('h1')?.textContent === '{run.id}'")
        assert page.seen("location.pathname") == f"/runs/{run.id}"
        assert page.seen("document.cookie") == ""
        answer = "fetch('/apis/evals/v2/workspaces/default/tasks').then((answer) => answer.status)"
        assert page.seen(answer) == 401
        page.seen("[...document.querySelectorAll('button')].find((one) => one.textContent === 'Sign out').click()")
        page.until("document.querySelector('h1')?.textContent === 'Sign in'")
        page.complaints.clear()
