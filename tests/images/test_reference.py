import pytest

from harbor_assets.images.reference import Reference, parse

D = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("busybox", Reference("docker.io", "library/busybox", None, None)),
        ("busybox:1", Reference("docker.io", "library/busybox", "1", None)),
        ("org/name:v1.2", Reference("docker.io", "org/name", "v1.2", None)),
        ("docker.io/busybox", Reference("docker.io", "library/busybox", None, None)),
        ("index.docker.io/org/x", Reference("docker.io", "org/x", None, None)),
        ("localhost/x", Reference("localhost", "x", None, None)),
        ("registry.test:5000/a/b__c:T", Reference("registry.test:5000", "a/b__c", "T", None)),
        ("ghcr.io/a/b@" + D, Reference("ghcr.io", "a/b", None, D)),
        ("ghcr.io/a/b:1@" + D, Reference("ghcr.io", "a/b", "1", D)),
    ],
)
def test_names_are_read_as_docker_reads_them(text: str, found: Reference) -> None:
    assert parse(text) == found
    assert parse(str(found)).asked == found.asked


@pytest.mark.parametrize(
    "text", ["", "Upper", "a:", "a b", "a@sha256:12", "https://a/b", "a/../b", "-a", "a" * 2000, "a\n", "a:b:c/d"]
)
def test_what_is_no_name_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(ValueError, match="no image's name"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "familiar"),
    [
        ("docker.io/library/busybox:latest", "busybox"),
        ("busybox:1", "busybox:1"),
        ("org/name", "org/name"),
        ("docker.io/library/a/b", "library/a/b"),
        ("ghcr.io/library/x:1@" + D, "ghcr.io/library/x:1@" + D),
    ],
)
def test_a_familiar_name_means_the_same(text: str, familiar: str) -> None:
    assert parse(text).familiar == familiar
    assert parse(familiar).asked == parse(text).asked
    assert parse(familiar).name == parse(text).name
