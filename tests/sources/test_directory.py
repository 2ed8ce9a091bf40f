"""Reading a suite: every child is a task or is named with file and reason."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from harbor.lint import LintRule, lint_task
from harbor.models.task.task import Task

from harbor_assets.domain.errors import Refused
from harbor_assets.domain.suites import InvalidTask, Suite
from harbor_assets.sources import cache as caching
from harbor_assets.sources import directory
from harbor_assets.sources.cache import StatusCache
from harbor_assets.sources.directory import read_suite
from tests.suites import make
from tests.suites.make import make_task


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "My Suite"
    make_task(root, "good", native_id="tests/good")
    return root


def faults(suite: Suite, name: str) -> dict[str, str]:
    return {fault.file: fault.reason for fault in suite.invalid if fault.name == name}


def only_fault(root: Path, name: str) -> InvalidTask:
    suite = read_suite(root)
    assert [task.native_task_id for task in suite.tasks] == ["tests/good"]
    (fault,) = suite.invalid
    assert fault.name == name
    return fault


def test_what_programs_leave_beside_tasks_is_no_task(root: Path) -> None:
    (root / "__pycache__").mkdir()
    (root / "__pycache__" / "x.pyc").write_bytes(b"x")
    assert read_suite(root).invalid == ()


def test_a_good_suite(root: Path):
    make_task(root, "by-folder", files={"instruction.md": "<!-- SPDX-License-Identifier: X -->\nDo it\n"})
    suite = read_suite(root)
    assert suite.name == "My-Suite"
    assert not suite.invalid
    assert not suite.warnings
    first, second = suite.tasks
    assert (first.stored_name, first.native_task_id, first.instruction) == ("My-Suite-by-folder", "by-folder", "Do it")
    assert second.config["environment"] == {"network_mode": "no-network"}
    assert second.folder == str(root / "good")
    assert read_suite(Path(os.path.relpath(root))) == suite


def test_a_suite_lies_where_its_path_says_whatever_that_holds(tmp_path: Path):
    root = tmp_path / "no\u00a0break \u200d joiner"
    make_task(root, "good\u00a0task", native_id="tests/good")
    suite = read_suite(root)
    assert not suite.invalid
    assert suite.name == "no-break-joiner"
    assert (Path(suite.tasks[0].folder) / "task.toml").exists()


BROKEN = {
    make.bad_toml: ("task.toml", "is not TOML: Expected ']' at the end of a table declaration (at line 1, column 6)"),
    make.bad_value: ("task.toml", "environment.memory_mb = 'lots': Input should be a valid integer"),
    make.no_instruction: ("instruction.md", "is missing"),
    make.no_tests: ("tests/test.sh", "is missing"),
    make.no_environment: ("environment", "is missing"),
    make.link_out: ("tests/secret", "absolute link ('/etc/hostname')"),
    make.unholdable: ("task.toml", "holds ' '"),
}


@pytest.mark.parametrize("maker", BROKEN)
def test_broken_children_are_named_with_file_and_reason(root: Path, maker: Callable[[Path], Path]):
    child = maker(root)
    file, reason = BROKEN[maker]
    fault = only_fault(root, child.name)
    assert fault.file == file
    assert reason in fault.reason


EDITS: dict[str, tuple[dict[str, str | bytes], str, str]] = {
    "not UTF-8": ({"task.toml": b"\xff\xfe"}, "task.toml", "not UTF-8 text (byte 1)"),
    "a byte order mark": ({"task.toml": b"\xef\xbb\xbfx = 1"}, "task.toml", "byte order mark"),
    "TOML 1.1": ({"task.toml": "x = {a = 1,\n b = 2}\n"}, "task.toml", "TOML 1.0"),
    "too deep": ({"task.toml": f"[{'.'.join('a' * 200)}]\n"}, "task.toml", "deeper than 100"),
    "deeper still": ({"task.toml": f"x = {'[' * 5000}{']' * 5000}\n"}, "task.toml", "not TOML"),
    "a number too long": ({"task.toml": f"x = {'9' * 5000}\n"}, "task.toml", "not TOML"),
    "a bad name": ({"task.toml": '[task]\nname = "no-org"\n'}, "task.toml", "task.name = 'no-org'"),
    "no table": ({"task.toml": "task = 1\n"}, "task.toml", "task = 1: "),
    "a wrong choice": ({"task.toml": '[environment]\nnetwork_mode = "some"\n'}, "task.toml", "'allowlist'"),
    "shared with its own environment": (
        {"task.toml": '[verifier]\nenvironment_mode = "shared"\n[verifier.environment]\n'},
        "task.toml",
        "incompatible",
    ),
    "Windows": ({"task.toml": '[environment]\nos = "Windows"\n'}, "task.toml", "only Linux"),
    "a Windows verifier": ({"task.toml": '[verifier.environment]\nos = "windows"\n'}, "task.toml", "only Linux"),
    "Compose": ({"environment/docker-compose.yaml": ""}, "environment/docker-compose.yaml", "not supported yet"),
    "a blank instruction": ({"instruction.md": " \n"}, "instruction.md", "says nothing"),
    "only comments": ({"instruction.md": "<!-- SPDX-x --><!-- y -->\n"}, "instruction.md", "says nothing"),
    "only a canary": ({"instruction.md": "# canary 123\n"}, "instruction.md", "says nothing"),
    "instruction not UTF-8": ({"instruction.md": b"ok \xff"}, "instruction.md", "byte 4"),
    "instruction too large": ({"instruction.md": b"x" * ((1 << 20) + 1)}, "instruction.md", "1,048,577 bytes"),
    "an ignored test": ({"tests/.harborignore": "test.sh\n"}, ".", "excluded by .harborignore: tests/test.sh"),
    "ignore file not UTF-8": ({".gitignore": b"\xff"}, ".", "Harbor does not load it"),
    "README as a folder": ({"README.md/x": ""}, "README.md", "has to be a file"),
    "solution as a file": ({"solution": ""}, "solution", "has to be a folder"),
    "steps without a folder": ({"task.toml": '[[steps]]\nname = "one"\n'}, "steps/one/instruction.md", "is missing"),
    "a step that leaves": ({"task.toml": '[[steps]]\nname = "../x"\n'}, "task.toml", "step names must be"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_faults_inside_a_task(root: Path, edit: str):
    files, file, reason = EDITS[edit]
    make_task(root, "bad", solve=None)
    make.write(root / "bad", files)
    found = {f: r for f, r in faults(read_suite(root), "bad").items() if f == file}
    assert list(found) == [file]
    assert reason in found[file]


def test_no_message_shows_where_the_suite_lies(root: Path):
    for name, (files, _, _) in enumerate(EDITS.values()):
        make_task(root, f"bad-{name}", solve=None)
        make.write(root / f"bad-{name}", files)
    assert not [fault for fault in read_suite(root).invalid if str(root.parent) in fault.reason]


def test_secrets_are_not_quoted(root: Path):
    make_task(root, "bad", toml_extra='\n[environment.env]\nTOKEN = ["s3cr3t"]\nOTHER = 424242\n')
    reasons = " ".join(fault.reason for fault in read_suite(root).invalid)
    assert "environment.env.OTHER" in reasons
    assert "s3cr3t" not in reasons
    assert "424242" not in reasons


def test_every_fault_of_a_child_is_told_up_to_a_limit(root: Path):
    task = make.no_tests(root, "bad")
    (task / "instruction.md").unlink()
    assert set(faults(read_suite(root), "bad")) == {"instruction.md", "tests/test.sh"}
    for number in range(30):
        (task / f"{number:02}:").write_text("")
    told = [fault for fault in read_suite(root).invalid if fault.name == "bad"]
    assert len(told) == 21
    assert told[-1].reason == "has 12 more faults that are not listed"


def test_duplicates_are_both_named(root: Path):
    make.duplicates(root)
    make.duplicates_by_case(root)
    suite = read_suite(root)
    assert suite.invalid_names == ["case-1", "case-2", "twin-1", "twin-2"]
    assert len(suite.tasks) == 1


def test_odd_names_are_fine(tmp_path: Path):
    suite = read_suite(make.odd_names(tmp_path / "suite"))
    assert not suite.invalid
    assert {task.native_task_id for task in suite.tasks} == set(make.ODD_NAMES)


def test_what_lies_beside_the_tasks(root: Path):
    (root / "README.md").write_text("about")
    (root / "linked.md").symlink_to("README.md")
    (root / ".git").mkdir()
    (root / ".hidden").write_text("")
    make_task(root, "task_template")
    suite = read_suite(root)
    assert not suite.invalid
    assert len(suite.tasks) == 1
    assert suite.warnings == ("task_template is skipped: it is where new tasks are copied from, not a task",)


def test_entries_that_cannot_be_tasks_are_named(root: Path, tmp_path: Path):
    (root / "docs").mkdir()
    make_task(tmp_path, "outside")
    (root / "link").symlink_to("../outside")
    (root / "dangling").symlink_to("nowhere")
    (root / "circle").symlink_to("circle")
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    (root / os.fsdecode(b"\xff")).mkdir()
    suite = read_suite(root)
    assert suite.invalid_names == ["\\udcff", "circle", "dangling", "docs", "link", "pipe", "socket"]
    assert "task.toml" in faults(suite, "docs")
    assert "put the task's folder itself here" in faults(suite, "link")["."]


@pytest.mark.parametrize(
    ("make_path", "reason"),
    [
        (lambda root: root / "nowhere", "There is no folder"),
        (lambda root: root / "good" / "task.toml", "is a file"),
        (lambda root: root / "good" / "task.toml" / "x", "is a file"),
        (lambda root: root / "good", "is a single task"),
        (lambda root: (root / ".empty").mkdir() or root / ".empty", "no task folders"),
        (lambda root: (root / "self").symlink_to("self") or root / "self", "cannot be read"),
        (lambda root: root / ("x" * 300), "cannot be read"),
        (lambda root: root / os.fsdecode(b"\xff"), "not a UTF-8 path"),
    ],
)
def test_what_is_no_suite_at_all(root: Path, make_path: Callable[[Path], Path], reason: str):
    with pytest.raises(Refused, match=reason):
        read_suite(make_path(root))


def test_a_single_task_is_answered_with_how_to_name_it(root: Path):
    with pytest.raises(Refused) as refused:
        read_suite(root / "good")
    hint = f"the folder around it, {root}, and choose the task there with --tasks NAME (--list-tasks shows the names)"
    assert hint in str(refused.value)  # the folder's own name need not be one of them


def as_nobody(root: Path) -> str:
    """What an ordinary user is told of `root`; forked, since that user may not be allowed to start this Python."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            try:
                said = "\n".join(map(str, read_suite(root).invalid))
            except Refused as refused:
                said = str(refused)
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        said = answer.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.req_root
def test_what_this_user_may_not_read_is_said_so(root: Path):
    make_task(root, "closed").chmod(0)
    (make_task(root, "half") / "environment").chmod(0)
    (make_task(root, "secret") / "instruction.md").chmod(0)
    (make_task(root, "shut") / "solution" / "solve.sh").chmod(0)
    for folder in root.parents:
        folder.chmod(folder.stat().st_mode | 0o055)
    assert len(read_suite(root).tasks) == 5  # root may; this also imports what the other user may not
    assert as_nobody(root).splitlines() == [
        "closed: .: cannot be read: Permission denied",
        "half: environment: cannot be read: Permission denied",
        "secret: instruction.md: cannot be read: Permission denied",
        "shut: solution/solve.sh: cannot be read: Permission denied",
    ]
    root.chmod(0)
    assert "cannot be read: Permission denied; give it to this user" in as_nobody(root)


def test_unknown_keys_are_warnings_as_harbor_lint_finds_them_and_faults_when_strict(root: Path):
    extra = '\n[enviroment]\nx = 1\n[metadata]\nanything = 1\n[[steps]]\nnam = "x"\n'
    bad = make.misspelt(root)
    task = make_task(root, "also", toml_extra=extra.partition("[[steps]]")[0])
    suite = read_suite(root)
    assert not suite.invalid
    for listed in suite.listing():
        folder = {"tests/misspelt": bad, "also": task, "tests/good": root / "good"}[listed.native_task_id]
        by_lint = lint_task(folder, selected_rules={LintRule.UNKNOWN_CONFIG_FIELD})
        assert list(listed.warnings) == [finding.message for finding in by_lint]
    assert "Did you mean 'environment'?" in suite.tasks[0].warnings[0]
    strict = read_suite(root, strict=True)
    assert strict.invalid_names == ["also", "misspelt"]


def test_what_image_uploads_write_back_is_known(root: Path):
    table = '\n[{}]\nbuilt_content_hash = "abc"\nimage_sha256 = "sha256:0"\n'
    task = make_task(root, "uploaded", environment={"built_content_hash": "abc", "image_sha256": "sha256:0"})
    with (task / "task.toml").open("a") as file:
        file.write(table.format("verifier.environment"))
    make_task(root, "elsewhere", toml_extra=table.format("agent.x"))
    suite = read_suite(root)
    assert {task.native_task_id: len(task.warnings) for task in suite.tasks} == {
        "elsewhere": 1,
        "tests/good": 0,
        "uploaded": 0,
    }


def test_values_that_json_does_not_have_become_text_and_are_told(root: Path):
    make_task(
        root, "dated", agent={}, toml_extra="\n[metadata]\nday = 2026-01-02\nat = 2026-01-02T03:04:05Z\nx = [nan]\n"
    )
    task = read_suite(root).tasks[0]
    assert task.config["metadata"] == {"day": "2026-01-02", "at": "2026-01-02T03:04:05+00:00", "x": ["nan"]}
    assert task.warnings == ("metadata.x[0] is nan; it is stored as text",)


def test_tasks_in_steps_and_with_a_verifier_of_their_own_are_valid(root: Path):
    steps = make_task(root, "steps", toml_extra='\n[[steps]]\nname = "one"\n')
    (steps / "instruction.md").unlink()
    make.write(steps, {"steps/one/instruction.md": "First\n"})
    own = make_task(root, "own", verifier={"environment_mode": "separate"})
    (own / "tests" / "Dockerfile").write_text("FROM scratch\n")
    (own / "tests" / "test.sh").unlink()
    image = make_task(root, "image", dockerfile=None, environment={"docker_image": "debian:12"})
    suite = read_suite(root)
    assert not suite.invalid
    assert {task.native_task_id: task.instruction for task in suite.tasks}["steps"] == "steps"
    for folder in (steps, own, image):
        Task(folder)


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "_RACY_NS", -(10**18))


@pytest.mark.usefixtures("at_rest")
def test_unchanged_tasks_are_not_opened_again(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make.misspelt(root)
    make.no_tests(root)
    with StatusCache(tmp_path / "status.db") as cache:
        first = read_suite(root, cache=cache)
    opened: list[Path] = []
    check = directory.check_folder
    monkeypatch.setattr(directory, "check_folder", lambda seen: opened.append(seen.folder) or check(seen))
    with StatusCache(tmp_path / "status.db") as cache:
        assert read_suite(root, cache=cache) == first
        assert opened == []
        (root / "no-tests" / "tests").mkdir()
        (root / "no-tests" / "tests" / "test.sh").write_text("exit 0")
        assert not read_suite(root, cache=cache).invalid
        assert opened == [root / "no-tests"]
    with StatusCache(tmp_path / "status.db", rehash=True) as cache:
        read_suite(root, cache=cache)
        assert len(opened) == 4


@pytest.mark.usefixtures("at_rest")
def test_a_cached_suite_is_read_without_importing_harbor(root: Path, tmp_path: Path):
    with StatusCache(tmp_path / "status.db") as cache:
        read_suite(root, cache=cache)
    program = (
        "import sys, pathlib\n"
        "from harbor_assets.sources import cache, directory\n"
        "cache._RACY_NS = -(10**18)\n"
        "known = cache.StatusCache(pathlib.Path(sys.argv[2]))\n"
        "assert len(directory.read_suite(pathlib.Path(sys.argv[1]), cache=known).tasks) == 1\n"
        "print([name for name in ('harbor', 'dagster', 'sqlalchemy', 'httpx') if name in sys.modules])\n"
    )
    command = [sys.executable, "-c", program, str(root), str(tmp_path / "status.db")]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.usefixtures("at_rest")
def test_a_cached_answer_of_another_shape_is_not_believed(root: Path, tmp_path: Path):
    with StatusCache(tmp_path / "status.db") as cache:
        cache.put(directory.scan(root / "good"), "checked", '{"name": "good"}')
        assert len(read_suite(root, cache=cache).tasks) == 1
