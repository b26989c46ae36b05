"""Path names, MS-MQMQ 2.1.1, one test per sentence of the grammar."""

import pytest

from qm.names import (
    NameVersion,
    PathKind,
    PathName,
    PathNameError,
    parse_path_name,
    path_name_key,
    path_name_text,
)

V1, V2, V4 = NameVersion.MSMQ_1_0, NameVersion.MSMQ_2_0, NameVersion.MSMQ_4_0

# What the literal grammar admits in a computer name and the profile does not, since it would move
# the border to the queue name or break a multiple-element name.
COMPUTER_BARRED = set('\\/;,"')
NEVER = [chr(code) for code in range(0x21)] + ["\x80", "\xe9", "\u0131", "\u20ac"]


def is_path(text: str, version: NameVersion = V4) -> bool:
    try:
        parse_path_name(text, version)
    except PathNameError as error:
        if error.code != 0xC00E0014:
            raise
        return False
    return True


def refusal(text: str) -> str:
    with pytest.raises(PathNameError) as caught:
        parse_path_name(text)
    return caught.value.reason


@pytest.fixture(autouse=True)
def _what_all_rows_stand_on() -> None:
    """Prefixes, limits and versions: the rows of this section share them."""
    longest = f"{'c' * 256}\\private$\\{'q' * 124};{'s' * 32}"
    assert path_name_text(parse_path_name(longest)) == longest
    assert str(len(longest)) in refusal(longest + "s")
    assert refusal("q") == "'q' has no computer; write computer\\queue"
    assert refusal("\\q") == "the computer name is empty"
    assert refusal("c\\") == "the queue name is empty"
    assert refusal("c\\q;") == "the subqueue name is empty"
    assert refusal(f"c\\q;{'s' * 33}") == "the subqueue name has 33 characters; 32 are allowed"
    assert parse_path_name("c\\q") == PathName("c", "q", PathKind.PUBLIC, None, journal=False)
    assert parse_path_name("c\\q;JOURNAL") == PathName("c", "q", journal=True)
    for version in NameVersion:
        assert is_path("c\\a+b", version) == (version is V1)
        assert is_path("c\\q;s", version) == (version is V4)


@pytest.mark.spec("MQ-2.1.1-01")
def test_a_path_name_has_one_of_three_forms() -> None:
    assert parse_path_name("host\\queue") == PathName("host", "queue", PathKind.PUBLIC)
    assert parse_path_name("host\\private$\\queue") == PathName("host", "queue", PathKind.PRIVATE)
    assert parse_path_name("host\\system$;queue") == PathName("host", "queue", PathKind.SYSTEM)
    for text in ("host\\queue", "host\\private$\\queue", "host\\system$;queue"):
        assert path_name_text(parse_path_name(text)) == text
    for text in ("queue", "", "host", "host\\", "\\queue", "host\\private$\\", "host\\system$;"):
        assert not is_path(text)
    # The words that introduce the other two are no names of public queues.
    for text in ("host\\private$", "host\\system$", "host\\PRIVATE$;s", "host\\System$\\queue"):
        assert not is_path(text)


@pytest.mark.spec("MQ-2.1.1-02")
def test_the_computer_part_has_1_to_256_visible_characters() -> None:
    for code in range(0x21, 0x7F):
        text = f"a{chr(code)}b\\q"
        if chr(code) in COMPUTER_BARRED:
            assert not is_path(text) or parse_path_name(text).computer == "a"
        else:
            assert parse_path_name(text).computer == f"a{chr(code)}b"
    for character in [*NEVER, "\x7f"]:
        assert not is_path(f"a{character}b\\q")
    assert parse_path_name("c\\q").computer == "c"
    assert parse_path_name("c" * 256 + "\\q").computer == "c" * 256
    assert not is_path("c" * 257 + "\\q")


@pytest.mark.parametrize(
    ("version", "barred"), [(V1, "\\;"), (V2, '\\;"+,'), (V4, '\\;"+,')], ids=str
)
@pytest.mark.spec("MQ-2.1.1-03", "MQ-2.1.1-04")
def test_the_characters_and_length_of_a_queue_name(version: NameVersion, barred: str) -> None:
    for code in range(0x21, 0x80):
        for text in (f"h\\a{chr(code)}b", f"h\\private$\\a{chr(code)}b"):
            legal = chr(code) not in barred
            # Behind a semicolon a subqueue follows where there are any.
            if chr(code) == ";" and version is V4:
                assert parse_path_name(text, version).queue == "a"
            else:
                assert is_path(text, version) == legal
                if legal:
                    path = parse_path_name(text, version)
                    assert path.queue == f"a{chr(code)}b"
                    assert path_name_text(path, version) == text
    for outside in ("\x20", "\x80"):
        for text in (f"h\\a{outside}b", f"h\\private$\\a{outside}b"):
            assert not is_path(text, version)
    assert parse_path_name("h\\" + "q" * 124, version).queue == "q" * 124
    assert not is_path("h\\" + "q" * 125, version)
    assert not is_path("h\\", version)


@pytest.mark.spec("MQ-2.1.1-05", "MQ-2.1.1-06")
def test_a_queue_name_may_go_on_with_a_subqueue() -> None:
    path = parse_path_name(f"h\\private$\\{'q' * 124};{'s' * 32}")
    assert (path.queue, path.subqueue) == ("q" * 124, "s" * 32)
    assert path_name_text(path) == f"h\\private$\\{'q' * 124};{'s' * 32}"
    assert parse_path_name("h\\q;s").subqueue == "s"
    assert parse_path_name("h\\q").subqueue is None
    for code in range(0x21, 0x80):
        legal = chr(code) not in '\\;"+,'
        assert is_path(f"h\\q;a{chr(code)}b") == legal
        assert is_path(f"h\\a{chr(code)}b;s") == legal
        if legal:
            assert parse_path_name(f"h\\q;a{chr(code)}b").subqueue == f"a{chr(code)}b"
    for text in ("h\\q;", f"h\\q;{'s' * 33}", "h\\q;s;t", f"h\\{'q' * 125};s"):
        assert not is_path(text)


@pytest.mark.parametrize("version", [V1, V2, V4])
@pytest.mark.spec("MQ-2.1.1-07")
def test_spaces_controls_and_other_scripts_are_outside_and_del_is_inside(
    version: NameVersion,
) -> None:
    for character in NEVER:
        assert not is_path(f"h\\a{character}b", version)
        assert not is_path(f"h\\private$\\a{character}b", version)
        assert not is_path(f"h\\system$;a{character}b", version)
    assert parse_path_name("h\\a\x7fb", version).queue == "a\x7fb"


@pytest.mark.spec("MQ-2.1.1-08")
def test_prefixes_are_joined_by_their_own_sign_in_either_case() -> None:
    for prefix in ("private$", "PRIVATE$", "Private$"):
        path = parse_path_name(f"h\\{prefix}\\q")
        assert (path.kind, path.queue) == (PathKind.PRIVATE, "q")
        assert path_name_text(path) == "h\\private$\\q"
        assert path_name_key(path) == "h\\private$\\q"
    for prefix in ("system$", "SYSTEM$", "System$"):
        path = parse_path_name(f"h\\{prefix};journal")
        assert (path.kind, path.queue) == (PathKind.SYSTEM, "journal")
        assert path_name_text(path) == "h\\system$;journal"
    for text in ("h\\private$;q", "h\\system$\\journal", "h\\private$", "h\\system$"):
        assert not is_path(text)


@pytest.mark.spec("MQ-2.1.1-09")
def test_a_subqueue_needs_version_4() -> None:
    assert parse_path_name("h\\q;s", V4).subqueue == "s"
    for version in (V1, V2):
        for text in ("h\\q;s", "h\\private$\\q;s"):
            assert not is_path(text, version)
        assert parse_path_name("h\\q", version) == PathName("h", "q")
