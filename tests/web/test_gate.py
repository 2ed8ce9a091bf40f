"""Who sees which page: the form, its cookie, and the roles of the API."""

import pytest

from tests.interfaces.backends import World
from tests.web.browser import HOSTILE
from tests.web.conftest import Known, Visitor
from tests.web.scenes import ended_run, submit

ORIGIN = {"Origin": "http://test"}


@pytest.fixture
def known() -> Known:
    return Known()


def test_every_page_asks_for_a_token_in_place(w: World, known: Known):
    run = ended_run(w, 1.0, 1.0, 1.0)
    nobody = Visitor(w, known)
    for path in ("/", "/runs", f"/runs/{run.id}", f"/runs/{run.id}/files/summary.json", "/nothing", "/runs/none"):
        page = nobody.see(path, 401)
        assert run.id not in page.html.replace(path, "")
        (back,) = [field for field in page.all("input") if field.get("name") == "back"]
        assert back.get("value") == path
    assert Visitor(w, known, "nonsense").see("/", 401).text.count("This token is not known here") == 1


def test_signing_in_and_out(w: World, known: Known):
    nobody = Visitor(w, known)
    done = nobody.ask("/sign-in", "POST", data={"token": " reader ", "back": "/runs?active=1"}, headers=ORIGIN)
    assert (done.status_code, done.headers["location"]) == (303, "/runs?active=1")
    cookie = done.headers["set-cookie"]
    assert cookie.startswith("harbor_assets_token=reader;")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    tls = {**ORIGIN, "X-Forwarded-Proto": "https"}
    assert "Secure" in nobody.ask("/sign-in", "POST", data={"token": "reader"}, headers=tls).headers["set-cookie"]
    page = Visitor(w, known, "reader").see("/")
    assert "ann" in page.text
    out = Visitor(w, known, "reader").ask("/sign-out", "POST", headers=ORIGIN)
    assert out.status_code == 303
    assert 'harbor_assets_token=""' in out.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": "http://test.evil"}]
)
def test_forms_of_other_sites_are_refused(w: World, known: Known, headers: dict[str, str]):
    for path in ("/sign-in", "/sign-out"):
        answer = Visitor(w, known, "reader").ask(path, "POST", data={"token": "reader"}, headers=headers)
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("token", ["", "nobody", "x" * 5000, "re\nader", HOSTILE, "reader; Path=/; Domain=example.org"])
def test_what_is_no_good_token_is_told_and_never_shown(w: World, known: Known, token: str):
    answer = Visitor(w, known).ask("/sign-in", "POST", data={"token": token, "back": "/runs"}, headers=ORIGIN)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    if len(token) > 10:
        assert token not in answer.text


def test_a_form_larger_than_any_token_is_not_read(w: World, known: Known):
    answer = Visitor(w, known).ask("/sign-in", "POST", content=b"token=" + b"x" * 40_000, headers=ORIGIN)
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "back", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_signing_in_leads_nowhere_else(w: World, known: Known, back: str):
    done = Visitor(w, known).ask("/sign-in", "POST", data={"token": "reader", "back": back}, headers=ORIGIN)
    assert done.headers["location"] == "/"


def test_keys_that_are_away_are_503(w: World, known: Known):
    known.away = True
    page = Visitor(w, known, "reader").see("/", 503)
    assert "The keys cannot be had now" in page.text


def test_a_link_from_elsewhere_comes_back_with_the_cookie(w: World, known: Known):
    nobody = Visitor(w, known)
    again = '<meta http-equiv="refresh" content="0">'
    assert again in nobody.ask("/runs", headers={"Sec-Fetch-Site": "cross-site"}).text
    assert again not in nobody.ask("/runs", headers={"Sec-Fetch-Site": "same-origin"}).text
    assert again not in nobody.ask("/runs").text


def test_the_cookie_is_none_of_the_apis(w: World, known: Known):
    reader = Visitor(w, known, "reader")
    assert reader.ask("/apis/evals/v2/workspaces/default/tasks").status_code == 401
    assert reader.ask("/", headers={"Authorization": "Bearer reader", "Cookie": ""}).status_code == 401
    two = {"Cookie": "harbor_assets_token=nobody; harbor_assets_token=reader"}
    assert Visitor(w, known).ask("/", headers=two).status_code == 200  # the last of one header, as browsers send it


def test_pages_of_a_workspace_need_its_reader(w: World, known: Known):
    run = ended_run(w, 1.0, 1.0, 1.0)
    reader, dan, root = (Visitor(w, known, who) for who in ("reader", "elsewhere", "root"))
    for path in (
        f"/runs/{run.id}",
        f"/runs/{run.id}/tasks/0/trials/1",
        f"/runs/{run.id}/files/",
        f"/runs/{run.id}/log",
    ):
        assert reader.ask(path).status_code == root.ask(path).status_code == 200
        page = dan.see(path, 404)
        absent = dan.see(path.replace(run.id, "run-0000000000000000"), 404)
        assert page.text.replace(run.id, "run-0000000000000000") == absent.text
    for path in ("/?workspace=default", "/runs?workspace=default"):
        assert "does not have the role reader in workspace 'default'" in dan.see(path, 403).text
    assert "other" in dan.see("/").text  # where they begin is their own
    assert "does not have the role" in Visitor(w, known, "nothing").see("/", 403).text
    assert root.ask("/runs?workspace=nowhere").status_code == 200
    assert root.ask("/runs?workspace=a/b").status_code == 404


def test_near_ids_are_told_only_to_who_may_read_all(w: World, known: Known):
    run = submit(w, w.publish("alpha"))
    near = run.id[:-1] + ("0" if run.id[-1] != "0" else "1")
    assert run.id in Visitor(w, known, "root").see(f"/runs/{near}", 404).text
    assert run.id not in Visitor(w, known, "reader").see(f"/runs/{near}", 404).text


def test_style_comes_without_a_token(w: World, known: Known):
    nobody = Visitor(w, known)
    address = nobody.see("/", 401).all("link")[0].get("href")
    assert nobody.ask(address).status_code == 200
