"""What travels in a fleet, without Ray: it arrives as it was or not at all, and nobody holds more of it than a chunk."""

import dataclasses
import os
import pathlib
import resource
import signal
import subprocess
import tempfile
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftrt_tools.base import errors
from tftrt_tools.fleet import content

CHUNK = 1 << 20


def folder(path):
    (path / "sub" / "empty").mkdir(parents=True)
    (path / "a.pb").write_bytes(b"model")
    (path / "sub" / "b").write_bytes(b"\0" * 70000)
    return path


def sent(packed, change=lambda data: data, chunk_bytes=1000):
    """A handle on what was sent in chunks, and changed on the way."""
    data = change(b"".join(content.chunks(packed, chunk_bytes)))
    return dataclasses.replace(packed, pieces=lambda: iter([data[:700], data[700:]]))


def test_a_folder_arrives_as_it_was_under_any_name(tmp_path):
    packed = content.pack(folder(tmp_path / "model"))
    there = content.unpack(content.kept(sent(packed)), tmp_path / "elsewhere" / "copy")
    assert sorted(str(one.relative_to(there)) for one in there.rglob("*")) == ["a.pb", "sub", "sub/b", "sub/empty"]
    assert (there / "sub" / "b").read_bytes() == b"\0" * 70000
    assert content.pack(there).digest == packed.digest


def test_a_digest_is_that_of_a_tar_without_times_and_owners(tmp_path):
    """What earlier versions and others wrote down compares with it."""
    packed = content.pack(folder(tmp_path / "model"))
    assert packed.digest == "sha256:38cb2570281e4ade78d24a8c812d7aca65698fe264f01fd03d9ec0e7d69c5405"
    whole = tmp_path / "whole.tar"
    whole.write_bytes(b"".join(content.chunks(packed)))
    told = subprocess.run(["tar", "-tf", whole], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == ["./", "a.pb", "sub/", "sub/b", "sub/empty/"]


def test_a_file_arrives_with_its_suffix(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"onnx")
    packed = content.pack(tmp_path / "model.onnx")
    assert packed.name == "model.onnx"
    assert content.unpack(sent(packed), tmp_path / "there" / packed.name).read_bytes() == b"onnx"


@given(st.lists(st.binary(max_size=3000), max_size=4), st.integers(1, 5000))
def test_chunks_have_the_size_that_was_asked_for_and_are_the_whole(files, chunk_bytes):
    with tempfile.TemporaryDirectory() as top:
        for number, data in enumerate(files):
            pathlib.Path(top, str(number)).write_bytes(data)
        packed = content.pack(top)
        found = [bytes(one) for one in content.chunks(packed, chunk_bytes)]
        assert all(len(one) == chunk_bytes for one in found[:-1]) and 0 < len(found[-1]) <= chunk_bytes
        assert content.digest(b"".join(found)) == packed.digest


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-1] + b"x",
        lambda data: data[:-1000],
        lambda data: data[:10],
        lambda data: b"",
        lambda data: data[:600] + b"x" + data[601:],
        lambda data: data.replace(b"model", b"maked"),
        lambda data: data.replace(b"a.pb", b"b.pb"),
        lambda data: data + data,
    ],
)
def test_what_changed_on_the_way_leaves_nothing(tmp_path, change):
    broken = sent(content.pack(folder(tmp_path / "model")), change)
    with pytest.raises(content.Broken, match="did not arrive whole"):
        content.unpack(broken, tmp_path / "there")
    assert not (tmp_path / "there").exists()
    with pytest.raises(content.Broken, match="did not arrive whole"):
        content.kept(broken)
    # An empty folder that was there stays one.
    (tmp_path / "stage").mkdir()
    with pytest.raises(content.Broken):
        content.unpack(broken, tmp_path / "stage")
    assert not list((tmp_path / "stage").iterdir())


def test_links_arrive_as_what_they_lead_to_and_one_that_leads_nowhere_is_told(tmp_path):
    (folder(tmp_path / "model") / "link").symlink_to("a.pb")
    os.link(tmp_path / "model" / "a.pb", tmp_path / "model" / "same")
    os.mkfifo(tmp_path / "model" / "pipe")
    there = content.unpack(content.pack(tmp_path / "model"), tmp_path / "there")
    assert (there / "link").read_bytes() == (there / "same").read_bytes() == b"model"
    assert not (there / "link").is_symlink() and not (there / "pipe").exists()
    (tmp_path / "model" / "nowhere").symlink_to("nothing")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        content.pack(tmp_path / "model")


def test_a_folder_behind_a_link_arrives_and_one_that_leads_back_ends(tmp_path):
    model = tmp_path / "model"
    (model / "real").mkdir(parents=True)
    (model / "real" / "one").write_text("1")
    (model / "variables").symlink_to("real")
    (model / "real" / "back").symlink_to("..")
    sent = content.pack(model)
    came = content.unpack(sent, tmp_path / "came")
    assert (came / "variables" / "one").read_text() == (came / "real" / "one").read_text() == "1"
    (model / "real" / "one").write_text("2")
    assert content.pack(model).digest != sent.digest


def test_a_name_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "aa.a").write_bytes(b"x")
    data = b"".join(content.chunks(content.pack(tmp_path / "model"))).replace(b"aa.a", b"../a")
    # Its own sum is right.
    at = data.index(b"../a")
    header = bytearray(data[at : at + 512])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    packed = content.Packed("sha256:", "model", lambda: iter([data[:at] + bytes(header) + data[at + 512 :]]))
    with pytest.raises(content.Broken, match="holds '../a', which is no plain file"):
        content.unpack(packed, tmp_path / "there")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["model"]


def test_a_model_that_changes_while_it_is_sent_is_told(tmp_path):
    packed = content.pack(folder(tmp_path / "model"))
    (tmp_path / "model" / "a.pb").write_bytes(b"MODEL")
    with pytest.raises(errors.TftrtError, match="model changed while it was sent"):
        list(content.chunks(packed))


def test_a_file_that_becomes_shorter_is_told(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"x" * (3 * CHUNK))
    pieces = iter(content.pack(path).pieces())
    next(pieces), next(pieces)
    os.truncate(path, 2 * CHUNK)
    with pytest.raises(OSError, match="became shorter while it was read"):
        list(pieces)


def test_what_is_kept_has_no_name_and_can_be_read_again(tmp_path):
    packed = content.kept(content.pack(folder(tmp_path / "model")), tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]
    for name in "ab":
        assert (content.unpack(packed, tmp_path / name) / "a.pb").read_bytes() == b"model"


def test_a_disk_that_is_full_for_a_model_names_its_file_and_nothing_is_left(tmp_path):
    """The limit of a file's size stands for it."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "w").write_bytes(b"x" * (3 * CHUNK))
    packed = content.pack(tmp_path / "model")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 * CHUNK, before[1]))
        with pytest.raises(OSError, match="File too large") as raised:
            content.unpack(packed, tmp_path / "there")
        with pytest.raises(OSError, match="File too large") as without_name:
            content.kept(packed, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert raised.value.filename == str(tmp_path / "there" / "w") and without_name.value.filename == str(tmp_path)
    assert [one.name for one in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def held():
    """The most bytes that Python held meanwhile."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


def test_no_more_than_a_chunk_is_held(tmp_path, held):
    path, chunk_bytes = tmp_path / "large.bin", 8 * CHUNK
    with open(path, "wb") as file:
        file.truncate(6 * chunk_bytes)
    packed = content.pack(path)
    assert held() < 4 * CHUNK
    count = sum(map(bool, content.chunks(packed, chunk_bytes)))
    # The pieces of a chunk that grows come on top of it.
    assert count == 7 and held() < chunk_bytes + 4 * CHUNK
    tracemalloc.reset_peak()
    content.unpack(content.kept(packed, tmp_path), tmp_path / "there")
    assert held() < chunk_bytes + 4 * CHUNK and (tmp_path / "there").stat().st_size == 6 * chunk_bytes
