"""Reading a Dockerfile: words, lines, instructions, and what they mean. Expected values are Docker's own."""

import shutil
import string
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbor_assets.sandboxes.process.dockerfile import MAX_BYTES, DockerfileUnsupported, parse
from harbor_assets.sandboxes.process.dockerwords import WordError, expand, marker, raw_words, unquote
from harbor_assets.sandboxes.process.recipe import DEFAULT_PATH, SCRIPT, Copy, Recipe, Run, Workdir, recipe


def read(text: str) -> Recipe:
    return recipe(parse(text.encode()), machine="x86_64")


def steps(text: str) -> tuple:
    return read("FROM x\n" + text).steps


def run(text: str) -> Run:
    (step,) = (step for step in steps(text) if isinstance(step, Run))
    return step


def copy(text: str) -> Copy:
    (step,) = (step for step in steps(text) if isinstance(step, Copy))
    return step


ENV = {"foo": "bar", "empty": "", "path": "/a/b", "q": "a b"}


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("plain", "plain"),
        ("$foo", "bar"),
        ("${foo}", "bar"),
        ("$foo-x", "bar-x"),
        ("${foo}x", "barx"),
        ("$unset", ""),
        ("${unset:-dflt}", "dflt"),
        ("${empty:-dflt}", "dflt"),
        ("${empty-dflt}", ""),
        ("${unset-dflt}", "dflt"),
        ("${foo:-dflt}", "bar"),
        ("${foo:+yes}", "yes"),
        ("${empty:+yes}", ""),
        ("${empty+yes}", "yes"),
        ("${unset:+yes}", ""),
        ("${unset:-${foo}}", "bar"),
        ("${unset:-$unset}", ""),
        ("${unset:-'a }b'}", "a }b"),
        ("${foo:?must be there}", "bar"),
        ("\\$foo", "$foo"),
        ("'$foo'", "$foo"),
        ('"$foo"', "bar"),
        ('"\\$foo"', "$foo"),
        ('"a\\"b"', 'a"b'),
        ('"a\\nb"', "a\\nb"),
        ("a\\nb", "anb"),
        ("'a\\nb'", "a\\nb"),
        ("'it'\"'\"'s'", "it's"),
        ("a\\ b", "a b"),
        ("$", "$"),
        ("$ x", "$ x"),
        ("$$", ""),
        ("$1x", "x"),
        ("100%", "100%"),
        ("${foo}${foo}", "barbar"),
        ("tail\\", "tail"),
        ('"tail\\"', None),
        ("'open", None),
        ('"open', None),
        ("${foo", None),
        ("${", None),
        ("${}", None),
        ("${:-x}", None),
        ("${foo:-x", None),
        ("${foo:x}", None),
        ("${foo#b}", None),
        ("${unset:?must be there}", None),
        ("${empty:?}", None),
    ],
)
def test_words_are_expanded_as_docker_does(word: str, value: str | None) -> None:
    if value is None:
        with pytest.raises(WordError):
            expand(word, ENV)
    else:
        assert expand(word, ENV) == value


def test_a_required_variable_says_why() -> None:
    with pytest.raises(WordError, match="unset: must be there"):
        expand("${unset:?must be there}", ENV)


def test_the_escape_character_can_be_a_backtick() -> None:
    assert expand("C:\\x`$foo", ENV, escape="`") == "C:\\x$foo"


def test_names_without_a_value_are_told() -> None:
    unset: list[str] = []
    assert expand("$a ${b} $foo ${c:-d} $a", ENV, unset=unset) == "  bar d "
    assert unset == ["a", "b"]


text = st.text(st.sampled_from(string.ascii_letters + string.digits + " \t'\"\\${}:-+?<>#|&;*.=/_äß"), max_size=40)


@given(text)
def test_a_single_quoted_text_is_itself(value: str) -> None:
    quoted = "'" + value.replace("'", "'\"'\"'") + "'"
    assert expand(quoted, ENV) == value
    assert unquote(quoted) == value


@given(text)
def test_an_escaped_text_is_itself(value: str) -> None:
    assert expand("".join("\\" + char for char in value), ENV) == value


@given(text)
def test_any_text_is_expanded_or_refused(value: str) -> None:
    try:
        expand(value, ENV)
    except WordError:
        assert set(value) & set("'\"$")


@given(text)
def test_raw_words_lose_nothing_but_blanks(value: str) -> None:
    words = list(raw_words(value))
    squeezed = "".join(value.split())
    assert "".join("".join(word for word, _ in words).split()) == squeezed
    assert all(value[:end].endswith(word) for word, end in words)


@pytest.mark.skipif(not shutil.which("sh"), reason="needs a shell to compare with")
@pytest.mark.parametrize(
    "word", ["'a b'\"c d\"e\\ f", '"x\\"y\\$z"', "a'b'c", "\\'q\\'", '"$V"', "${V}", "${V:-d}", "${W:-d}", "${V:+s}"]
)
def test_where_a_shell_says_the_same_it_is_the_same(word: str) -> None:
    out = subprocess.run(["sh", "-c", f"printf %s {word}"], env={"V": "v"}, capture_output=True, text=True, check=True)
    assert expand(word, {"V": "v"}) == out.stdout


@pytest.mark.parametrize(
    ("word", "name", "expands", "chomps"),
    [
        ("<<EOF", "EOF", True, False),
        ("<<-EOF", "EOF", True, True),
        ("<<'EOF'", "EOF", False, False),
        ('<<"EOF"', "EOF", False, False),
        ("<<E'O'F", "EOF", False, False),
        ("3<<EOF", "EOF", True, False),
        ("<< EOF", "EOF", True, False),
        ("<<$EOF", "$EOF", True, False),
    ],
)
def test_here_documents_are_recognised(word: str, name: str, expands: bool, chomps: bool) -> None:
    found = marker(word)
    assert found is not None
    assert (found.name, found.expand, found.chomp) == (name, expands, chomps)


@pytest.mark.parametrize("word", ["<<", "<<<EOF", "a<<EOF", "<EOF", "$((1<<3))", "''<<EOF", "<<''"])
def test_what_only_looks_like_a_here_document(word: str) -> None:
    assert marker(word) is None


def test_lines_comments_and_continuations() -> None:
    file = parse(
        b"\xef\xbb\xbf# syntax=docker/dockerfile:1\r\n"
        b"  # a comment\r\n"
        b"from x\r\n"
        b"\r\n"
        b"RUN one \\\r\n"
        b"  # not here\r\n"
        b"\r\n"
        b"    two \\   \r\n"
        b"    three\\\\\r\n"
        b"\tLabel a=b\n"
    )
    words = [(found.line, found.word, found.rest) for found in file.instructions]
    assert words == [(3, "FROM", "x"), (5, "RUN", "one     two     three\\\\"), (10, "LABEL", "a=b")]


def test_the_escape_directive_changes_continuations_too() -> None:
    file = parse(b"# escape=`\nFROM x\nRUN dir C:\\ `\n  && echo\n")
    assert file.escape == "`"
    assert file.instructions[1].rest == "dir C:\\   && echo"


def test_a_directive_after_a_comment_is_a_comment() -> None:
    assert parse(b"# hello\n# escape=`\nFROM x\n").escape == "\\"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no instructions"),
        (b"# only\n", "no instructions"),
        (b"# escape=x\nFROM x\n", "line 1"),
        (b"# escape=`\n# escape=`\nFROM x\n", "only once"),
        (b"FROM x\nRUN <<EOF\nnever\n", "line 2.*never ends"),
        (b"FROM \xff\n", "UTF-8"),
        (b"FROM x\0\n", "NUL"),
        (b"FROM x\n" + b"#" * MAX_BYTES, "bytes"),
        (b'FROM x\nRUN ["a", 1]\n', "line 2.*strings only"),
        (b"FROM x\nCOPY --chown='a b c\n", "line 2.*never closes"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(data: bytes, why: str) -> None:
    with pytest.raises(DockerfileUnsupported, match=why):
        parse(data)


@given(
    st.lists(st.sampled_from(["FROM a", "RUN b \\", "  c", "# d", "", "COPY <<X /y", "X", "ENV q='", "\\"]), max_size=8)
)
def test_any_lines_are_parsed_or_refused(lines: list[str]) -> None:
    try:
        file = parse("\n".join(lines).encode())
        recipe(file, machine="x86_64")
    except DockerfileUnsupported as error:
        assert str(error)
    else:
        assert file.instructions[0].word == "FROM"


deep = "[" * 100_000


def test_a_deep_array_is_shell_words() -> None:
    assert parse(f"FROM x\nRUN {deep}\n".encode()).instructions[1].array is None


# What instructions mean


def test_from_is_kept_for_the_record() -> None:
    found = read("ARG TAG=12\nFROM --platform=linux/amd64 debian:${TAG}-slim AS base\nARG TAG\nRUN x\n")
    assert found.base == "debian:12-slim"
    assert found.steps[0].env["TAG"] == "12"  # type: ignore[union-attr]


def test_arguments_before_from_are_unknown_after_it() -> None:
    found = read("ARG A=1\nFROM x\nENV B=$A\n")
    assert found.env == {"B": ""}
    assert any("$A is not set" in note for note in found.notes)


def test_the_platform_is_known_where_it_is_asked_for() -> None:
    step = run("ARG TARGETARCH\nARG TARGETPLATFORM\nRUN x")
    assert (step.env["TARGETARCH"], step.env["TARGETPLATFORM"]) == ("amd64", "linux/amd64")
    assert "TARGETARCH" not in run("RUN x").env


def test_env_in_both_forms_with_quotes_and_the_values_before() -> None:
    found = read(
        'FROM x\nENV A=1 B=\'two words\' C=three\\ words D="$A"\nENV A=2 E=$A\nENV F the rest is  "it"\nENV G=\n'
    )
    assert found.env == {
        "A": "2", "B": "two words", "C": "three words", "D": "", "E": "1", "F": "the rest is  it", "G": ""
    }  # fmt: skip


def test_path_starts_from_dockers() -> None:
    assert read("FROM x\nENV PATH=/opt/bin:$PATH\n").env["PATH"] == f"/opt/bin:{DEFAULT_PATH}"


def test_arguments_reach_commands_but_not_the_sandbox() -> None:
    found = read("FROM x\nARG V=1\nENV W=$V\nRUN x\n")
    (step,) = found.steps
    assert isinstance(step, Run)
    assert (step.env["V"], step.env["W"]) == ("1", "1")
    assert found.env == {"W": "1"}


def test_workdir_is_relative_to_the_last() -> None:
    found = read("FROM x\nWORKDIR /a\nWORKDIR b/../c\nENV D=d\nWORKDIR $D/\nRUN x\nWORKDIR ../../../../..\n")
    assert [step.path for step in found.steps if isinstance(step, Workdir)] == ["/a", "/a/c", "/a/c/d", "/"]
    assert [step.cwd for step in found.steps if isinstance(step, Run)] == ["/a/c/d"]
    assert found.cwd == "/"


def test_user_holds_for_what_follows() -> None:
    found = read("FROM x\nRUN a\nARG WHO=app\nUSER $WHO:staff\nRUN b\nWORKDIR /w\n")
    users = [step.owner if isinstance(step, Workdir) else step.user for step in found.steps]  # type: ignore[union-attr]
    assert users == [None, "app:staff", "app:staff"]
    assert found.user == "app:staff"


def test_run_in_shell_and_array_form() -> None:
    assert run("RUN echo $HOME 'x'").argv == ("/bin/sh", "-c", "echo $HOME 'x'")
    assert run('RUN ["echo", "$HOME"]').argv == ("echo", "$HOME")
    assert run("RUN [ -f x ]").argv == ("/bin/sh", "-c", "[ -f x ]")
    assert run('SHELL ["/bin/bash", "-ec"]\nRUN x').argv == ("/bin/bash", "-ec", "x")


def test_run_with_here_documents() -> None:
    assert run("RUN <<EOF\none\n  # two\nEOF\n").argv[-1] == "one\n  # two\n"
    assert run("RUN <<-EOF\n\tone\n\tEOF\n").argv[-1] == "one\n"
    assert run("RUN cat <<A >x && cat <<'B'\n1\nA\n$2\nB\n").argv[-1] == "cat <<A >x && cat <<'B'\n1\nA\n$2\nB"
    script = run("RUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF\n")
    assert script.argv == ("/bin/sh", "-c", SCRIPT)
    assert script.script == "#!/usr/bin/env python3\nprint(1)\n"


def test_run_flags() -> None:
    step = run("RUN --mount=type=cache,target=/var/cache/apt --mount=type=tmpfs,dst=tmp --network=none apt")
    assert step.argv[-1] == "apt"
    assert step.folders == ("/var/cache/apt", "/tmp")
    assert not step.network
    notes = read("FROM x\nRUN --mount=type=cache,target=/c y\n").notes
    assert any("cache mount is left out" in note for note in notes)


def test_copy_in_its_forms() -> None:
    assert copy("WORKDIR /app\nCOPY a b/ ../x").target == "/x/"
    step = copy('ENV D=dir\nCOPY --chown=me:us --chmod=0750 --link ["a b", "./c", "/${D}/"]')
    assert (step.sources, step.target, step.owner, step.mode) == (("a b", "c"), "/dir/", "me:us", 0o750)
    assert copy("WORKDIR /app\nCOPY . .").target == "/app/"
    assert copy("WORKDIR /app\nCOPY x y").target == "/app/y"
    assert copy("COPY x /").target == "/"
    assert copy("COPY /abs/x /y").sources == ("abs/x",)
    assert copy("COPY a/../b /y").sources == ("b",)


def test_copy_of_here_documents() -> None:
    step = copy("ENV A=1\nCOPY <<one <<'two' file /d\nA=$A \"q\" \\$A\none\nA=$A\ntwo\n")
    assert step.contents == (("one", 'A=1 "q" $A\n'), ("two", "A=$A\n"))
    assert (step.sources, step.target) == (("file",), "/d/")


def test_only_add_unpacks() -> None:
    assert copy("ADD x.tar /").unpack
    assert not copy("ADD --unpack=false x.tar /").unpack
    assert not copy("COPY x.tar /").unpack


def test_what_is_ignored_is_told() -> None:
    ignored = ["CMD x", "ENTRYPOINT x", "EXPOSE 80", "LABEL a=b", "VOLUME /x", "HEALTHCHECK NONE", "STOPSIGNAL 9"]
    ignored += ["MAINTAINER me", "ONBUILD RUN <<EOF\nx\nEOF"]
    found = read("FROM x\n" + "\n".join(ignored) + "\n")
    assert found.steps == ()
    assert [note.split()[0] for note in found.notes] == [line.split()[0] for line in ignored]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("FROM y", "line 2, FROM y: a second FROM"),
        ("COPY --from=build /x /y", "--from=build.*another image or stage"),
        ("ADD https://example.org/x /y", "'https://example.org/x' is not in the context"),
        ("ADD git@example.org:a/b.git /y", "not in the context"),
        ("COPY ../x /y", "'../x' leaves the context"),
        ("COPY a/../../x /y", "leaves the context"),
        ("COPY $NOPE /y", "a source is empty"),
        ("COPY only", "at least one source and a target"),
        ("COPY --parents a /y", "--parents is not supported"),
        ("COPY --chmod=u+x a /y", "octal"),
        ("COPY --chmod=17777 a /y", "octal"),
        ("RUN --mount=type=secret,id=x y", "no secret is given"),
        ("RUN --mount=type=ssh y", "no ssh is given"),
        ("RUN --mount=source=a,target=/b y", "type bind is not supported"),
        ("RUN --security=insecure y", "--security=insecure is not supported"),
        ("RUN []", "an empty list"),
        ("RUN", "it says nothing"),
        ("SHELL bash", "JSON array"),
        ("ENV A", "'A' has no value"),
        ("ENV A=1 B", "'B' has no '='"),
        ("ENV A='open", "never closes"),
        ("WORKDIR ${X#y}", "only -, \\+"),
        ("RNU x", "'RNU' is no instruction. Did you mean RUN"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(lines: str, why: str) -> None:
    with pytest.raises(DockerfileUnsupported, match=why):
        read(f"FROM x\n{lines}\n")


@pytest.mark.parametrize("text", ["RUN x\nFROM x\n", "ARG A=1\n", "FROM\n", "FROM a b\n", "FROM $X\n"])
def test_from_must_stand_first_and_name_an_image(text: str) -> None:
    with pytest.raises(DockerfileUnsupported):
        read(text)
