"""Where the sandbox works, why not elsewhere, and which machine this is."""

from pathlib import Path

import pytest

from harbor_assets.sandboxes.process import host
from harbor_assets.sandboxes.process.host import check, fingerprint
from harbor_assets.sandboxes.process.rights import privileged


def test_this_machine(home: Path) -> None:
    found = check(home)
    assert found.ok, (found.reason, found.next_step)
    assert found.mode == ("root" if privileged() else "user")
    assert found.shared_network == bool(found.notes)
    assert list((home / "sandboxes").glob("*")) == []


@pytest.mark.parametrize("place", ["/opt/harbor", "/var/lib/harbor", "/usr/local/x", "/etc", "/", "/tmp/../opt/x"])
def test_a_home_that_tasks_would_see_is_refused(place: str) -> None:
    found = check(Path(place))
    assert not found.ok
    assert "folder that tasks are shown" in (found.reason or "")
    assert "HARBOR_ASSETS_HOME" in (found.next_step or "")
    assert not Path("/opt/harbor").exists()


def test_a_link_into_a_shown_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to("/opt/elsewhere")
    assert not check(tmp_path / "home").ok


def test_other_systems(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.sys, "platform", "darwin")
    found = check(home)
    assert not found.ok
    assert "Linux" in (found.reason or "")


@pytest.mark.req_root
def test_root_of_a_plain_container(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has", lambda _: False)
    found = check(home)
    assert not found.ok
    assert "CAP_SYS_ADMIN" in (found.reason or "")
    assert "--privileged" in (found.next_step or "")


def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = check(tmp_path / "file")
    assert not found.ok
    assert found.next_step


@pytest.mark.req_root
def test_a_container_whose_root_is_an_overlay(home: Path) -> None:
    """Its own overlay cannot be the upper folder of another."""
    from harbor_assets.sandboxes.process.inside import calls

    from .own_machine import in_own_machine

    def work() -> None:
        base = home / "container"
        for name in ("lower", "upper", "work", "root"):
            (base / name).mkdir(parents=True)
        options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        calls.mount("overlay", str(base / "root"), "overlay", 0, options)
        found = check(base / "root" / "home")
        calls.detach(str(base / "root"))
        assert not found.ok
        assert "overlay" in (found.reason or "")
        assert "local disk" in (found.next_step or "")

    in_own_machine(work)
    from harbor_assets.sandboxes.process.inside.keeper import remove_tree

    remove_tree(str(home / "container"))


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ("user namespace", "user namespaces"),
        ("overlay", "overlay"),
        ("attributes", "extended attributes"),
        ("folder", "cannot be written"),
        ("proc", "proc"),
        ("", "namespaces"),
    ],
)
def test_every_refusal_has_a_reason_and_a_next_step(step: str, words: str, home: Path) -> None:
    reason, next_step = host._explain(step, "Operation not permitted", home)
    assert words in reason
    assert "Operation not permitted" in reason
    assert next_step.endswith(".")


@pytest.mark.req_root
def test_without_nat_trials_share_the_network(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.nat, "problem", lambda: "no nf_tables")
    found = check(home)
    assert (found.ok, found.shared_network) == (True, True)
    assert "no nf_tables" in found.notes[0]


def test_fingerprint_is_stable() -> None:
    first = fingerprint()
    assert len(first) == 64
    host._fingerprint.cache_clear()
    assert fingerprint() == first


def test_fingerprint_follows_packages_and_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    monkeypatch.setattr(host, "_DPKG", str(status))
    monkeypatch.setattr(host, "_PACKAGE_DATABASES", (str(status),))
    package = (
        "Package: {}\nStatus: install ok installed\nArchitecture: all\nVersion: {}\nDescription: text\n more: text\n"
    )

    def now(*packages: tuple[str, str]) -> str:
        status.write_text("\n".join(package.format(*p) for p in packages))
        host._fingerprint.cache_clear()
        return fingerprint()

    base = now(("a", "1"), ("b", "2"))
    assert now(("b", "2"), ("a", "1")) == base  # not the order in which they came
    assert now(("a", "1"), ("b", "3")) != base
    assert now(("a", "1")) != base
    passwd = tmp_path / "passwd"
    passwd.write_text("user:x:1000:1000::/:/bin/sh\n")
    monkeypatch.setattr(host, "_IDENTITY", (str(passwd),))
    assert now(("a", "1"), ("b", "2")) != base
