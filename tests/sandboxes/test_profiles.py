"""Profiles as an admin writes them."""

from pathlib import Path

import pytest

from harbor_assets.domain.errors import Refused
from harbor_assets.sandboxes.profiles import FolderProfiles, read_profiles

GOOD = """
default: standard
profiles:
  - name: standard
    hosts: ["*"]
    max_cpus: 4
    max_memory_mb: 8192
    requests: {cpu: 50m, memory: 64Mi}
  - name: closed
    description: nothing but the task
"""


def folder(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path


def problems(tmp_path: Path, **files: str) -> list[str]:
    with pytest.raises(Refused) as refused:
        read_profiles(folder(tmp_path, **files))
    return [str(problem) for problem in refused.value.problems]


def test_the_default_is_what_a_request_without_a_name_gets(tmp_path: Path) -> None:
    profiles = FolderProfiles(folder(tmp_path, profiles=GOOD))
    assert profiles.get(None) == profiles.get("standard")
    assert profiles.get(None).requests.cpu == "50m"
    assert profiles.get("closed").hosts == ()
    assert profiles.get("closed").max_disk_mb == 131072


def test_an_unknown_name_is_answered_with_the_valid_ones(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        FolderProfiles(folder(tmp_path, profiles=GOOD)).get("standart")
    assert str(refused.value.problems[0]) == (
        "sandbox profile 'standart': is not known; valid names: closed, standard (the default); did you mean standard?"
    )


def test_one_file_for_each_profile_and_a_single_one_is_the_default(tmp_path: Path) -> None:
    assert read_profiles(folder(tmp_path, a="name: a"))[1] == "a"
    profiles, default = read_profiles(folder(tmp_path, a="name: a", b="name: b\ndefault: b"))
    assert (set(profiles), default) == ({"a", "b"}, "b")


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    said = problems(
        tmp_path,
        a="""
default: nobody
profil: 1
profiles:
  - name: One
  - name: two
    max_cpu: 4
    max_memory_mb: lots
    hosts: ["https://site.test"]
  - name: three
  - name: three
  - three
""",
        b="a: [",
    )
    assert len(said) == 9
    for text in (
        "a.yaml: unknown field 'profil'; a file has `default` and `profiles`",
        "a.yaml, two: max_cpu: is no field; did you mean max_cpus?",
        "a.yaml, two: max_memory_mb: must be a whole number; it is 'lots'",
        "a.yaml, two: hosts: ",
        "a.yaml, One: name: must match",
        "a.yaml, three: the name 'three' is taken by another profile",
        "a.yaml, profile 5: must be a mapping",
        "b.yaml: is not YAML",
        "a.yaml: default: 'nobody' is no profile; there are three",
    ):
        assert any(line.startswith(text) for line in said), (text, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profiles:\n- name: a\n- name: b", "`default:` is missing; name one of a, b"),
        ("name: a\nmax_cpus: 1\nmax_cpus: 2", "the key 'max_cpus' stands twice"),
        ("profiles: {a: {}}", "`profiles` must be a list"),
        ("- a", "must hold `default` and `profiles`, or one profile"),
        ("profiles:\n- description: x", "name: is missing"),
        ("? [a]\n: 1", "is not YAML"),
    ],
)
def test_each_mistake_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert any(said in line for line in problems(tmp_path, a=text))


def test_an_empty_folder_says_what_to_write(tmp_path: Path) -> None:
    assert problems(tmp_path) == [f"{tmp_path}: holds no *.yaml file; write at least one sandbox profile"]


def test_two_defaults_are_refused(tmp_path: Path) -> None:
    assert any(
        "several defaults" in line for line in problems(tmp_path, a="name: a\ndefault: a", b="name: b\ndefault: b")
    )
