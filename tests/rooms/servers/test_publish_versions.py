"""Version directories: the server's own rule, the next number, what is refused."""

import pytest

from tftrt_tools.base import errors
from tftrt_tools.servers.serving import version_directories


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("1", 1),
        ("0", 0),
        ("007", 7),
        ("-3", -3),
        (" 12 ", 12),
        ("\t5\n", 5),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("", None),
        ("+1", None),
        ("1.0", None),
        ("1e3", None),
        ("0x1", None),
        ("1 2", None),
        ("v1", None),
        (".1", None),
        ("- 1", None),
        (str(2**63), None),
        (str(-(2**63) - 1), None),
        ("٣", None),
        ("1\u00a0", None),
        (".tftrt-publish-00000001", None),
        (".tftrt-publish.lock", None),
    ],
)
def test_a_name_is_a_version_where_the_server_parses_it_as_an_int64(name, number):
    assert version_directories.parse(name) == number


def test_versions_are_listed_by_number_and_files_count_as_for_the_server(tmp_path):
    for name in ("10", "9", "-1", "notes", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "11").write_text("a file")
    assert [(one.number, one.path.name) for one in version_directories.listing(tmp_path)] == [
        (-1, "-1"),
        (9, "9"),
        (10, "10"),
        (11, "11"),
    ]
    assert (version_directories.latest(tmp_path), version_directories.following(tmp_path)) == (11, 12)


def test_of_two_names_for_one_number_the_last_by_bytes_is_listed(tmp_path):
    for name in ("7", "007"):
        (tmp_path / name).mkdir()
    assert [one.path.name for one in version_directories.listing(tmp_path)] == ["7"]


def test_the_first_version_is_1(tmp_path):
    assert version_directories.following(tmp_path) == version_directories.following(tmp_path / "missing") == 1
    (tmp_path / "-5").mkdir()
    assert version_directories.following(tmp_path) == 1 and version_directories.latest(tmp_path / "missing") is None


def test_after_the_largest_int64_comes_nothing(tmp_path):
    (tmp_path / str(version_directories.LARGEST)).mkdir()
    with pytest.raises(errors.TftrtError, match="no larger number"):
        version_directories.following(tmp_path)


@pytest.mark.parametrize(
    ("number", "allow", "words"),
    [
        (0, False, "from 1 to"),
        (-1, True, "from 1 to"),
        (2**63, False, "from 1 to"),
        (5, True, "version 5 exists"),
        (3, False, "smaller than version 5"),
    ],
)
def test_numbers_that_cannot_be_published_or_would_not_be_served(number, allow, words, tmp_path):
    (tmp_path / "5").mkdir()
    with pytest.raises(errors.UsageError, match=words):
        version_directories.check(tmp_path, number, allow)


@pytest.mark.parametrize(("number", "allow"), [(6, False), (100, False), (3, True)])
def test_numbers_that_can(number, allow, tmp_path):
    (tmp_path / "5").mkdir()
    version_directories.check(tmp_path, number, allow)
