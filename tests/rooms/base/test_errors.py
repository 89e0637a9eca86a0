"""What is told of TensorFlow's errors, and what an interrupt is."""

import contextlib
import os
import re
import resource
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file, whole_file
from tftrt_tools.models.savedmodel.job import loading


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", ""),
        (" \n ", ""),
        ("one\ntwo", "one"),
        (
            "Incompatible shapes: [2] vs. [3]\n\t [[{{node add}}]] [Op:__inference_f_7]",
            "Incompatible shapes: [2] vs. [3]",
        ),
        ("Incompatible shapes: [2] vs. [3] [[{{node add}}]]", "Incompatible shapes: [2] vs. [3]"),
        (
            "Graph execution error:\n\nDetected at node 'add' defined at (most recent call last):\nNode: 'add'\nbad value",
            "bad value",
        ),
        ("Graph execution error:", "Graph execution error:"),
        ("[[{{node add}}]]", "[[{{node add}}]]"),
        ("x" * 1000, "x" * 300),
        (
            "2 root error(s) found.\n  (0) INVALID_ARGUMENT: Unknown image file format.\n\t [[{{node map/DecodeJpeg}}]]\n  (1) again",
            "INVALID_ARGUMENT: Unknown image file format.",
        ),
    ],
)
def test_the_first_line_says_what_is_wrong(text, told):
    assert errors.first_line(text) == told


@pytest.mark.parametrize("handler", [errors.TftrtError, Exception, (errors.TftrtError, OSError, ValueError)])
def test_who_goes_on_after_an_error_lets_an_interrupt_through(handler):
    with pytest.raises(errors.Interrupted, match="ended by SIGTERM"), contextlib.suppress(handler):
        raise errors.Interrupted("ended by SIGTERM")
    with contextlib.suppress(KeyboardInterrupt):
        raise errors.Interrupted


def test_an_error_of_tensorflow_itself():
    @tf.function
    def add(left, right):
        return left + right

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        add.get_concrete_function(tf.TensorSpec([None]), tf.TensorSpec([None]))(tf.zeros([2]), tf.zeros([3]))
    assert "ncompatible shapes" in loading.first_line(caught.value) and "{{" not in loading.first_line(caught.value)
    assert loading.first_line(IndexError()) == "IndexError"


# A file that becomes larger than it may: the system names none where a write fails.

LARGE = b"x" * (1 << 18)


@contextlib.contextmanager
def no_larger_than(size):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def plain(path):
    plain_file.write_bytes(path, LARGE)


def text(path):
    plain_file.write_text(path, LARGE.decode())


def in_a_block(path):
    with plain_file.naming(path), open(path, "wb") as file:
        file.write(LARGE)


def by_closing(path):
    with plain_file.naming(path), open(path, "wb", buffering=1 << 20) as file:
        file.write(LARGE)


def copied(path):
    path.with_name("source").write_bytes(LARGE)
    with no_larger_than(1 << 16):
        plain_file.copy(path.with_name("source"), path)


def copied_by_hand(path):
    path.with_name("source").write_bytes(LARGE)
    with (
        no_larger_than(1 << 16),
        open(path.with_name("source"), "rb") as source,
        plain_file.naming(path),
        open(path, "wb") as target,
    ):
        shutil.copyfileobj(source, target)


def whole(path):
    whole_file.write_bytes(path, LARGE)


def with_another(path):
    """Of two files that are written together, the one is named that did not fit."""
    with whole_file.replacing(path.with_name("another")) as one, whole_file.replacing(path) as other:
        one.write(b"small")
        other.write(LARGE)


@pytest.mark.parametrize("write", [plain, text, in_a_block, by_closing, copied, copied_by_hand, whole, with_another])
def test_a_file_that_may_not_become_so_large_is_named_with_what_mends_it(write, tmp_path):
    with pytest.raises(OSError) as caught, no_larger_than(1 << 20 if write in (copied, copied_by_hand) else 1 << 16):
        write(tmp_path / "target")
    told = errors.from_os_error(caught.value)
    assert told.cause == f"{tmp_path / 'target'}: File too large" and "`ulimit -f`" in told.mend


def test_a_file_that_is_only_read_is_not_named(tmp_path):
    (tmp_path / "read").write_text("text")
    with pytest.raises(OSError) as caught, open(tmp_path / "read"):
        raise OSError(27, os.strerror(27))
    assert errors.from_os_error(caught.value).cause == "File too large"


def test_an_error_that_names_its_file_keeps_that_name(tmp_path):
    with pytest.raises(OSError) as caught, plain_file.naming(tmp_path / "target"):
        raise OSError(28, os.strerror(28), "another")
    assert errors.from_os_error(caught.value).cause == "another: No space left on device"


def test_a_file_that_is_open_beside_a_connection_that_fails_is_not_named(tmp_path):
    with pytest.raises(OSError) as caught, plain_file.naming(tmp_path / "log"), open(tmp_path / "log", "w") as log:
        print("connecting", file=log)
        raise ConnectionResetError(104, os.strerror(104))
    assert errors.from_os_error(caught.value).cause == "Connection reset by peer"


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("export", "MODEL", "--output=model.onnx"), "model.onnx: File too large"),
        (("export", "MODEL", "--output=model.onnx", "--external_data"), "model.onnx.data: File too large"),
        (("publish", "MODEL", "--base_path=base", "--model_name=m"), "variables.data-00000-of-00001: File too large"),
        (("convert", "--model=MODEL", "--output=made"), "a file of the model cannot be written in "),
    ],
)
def test_commands_say_which_file_may_not_become_so_large(command, named, zoo_model, tmp_path):
    words = [part.replace("MODEL", str(zoo_model("digits_cnn"))) for part in command]
    limited = ["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", sys.executable, "-m", "tftrt_tools", *words]
    done = subprocess.run(
        limited, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=240
    )
    cause, mend = done.stderr.splitlines()
    assert done.returncode == 1 and named in cause and "`ulimit -f`" in mend and not list(tmp_path.iterdir()), (
        done.stderr
    )


def test_nothing_advises_to_install_this_package_from_an_index():
    """No index has its name, so whoever takes it there would own who follows the advice: it is installed from a checkout."""
    advice = re.compile(
        r"(pip3?|uv|pipx|poetry|conda)\b[^\n|;&]*\s['\"]?tftrt[-_]tools\b|(?<![\w/])tftrt[-_]tools\s*(\[[\w,-]+\]|==|>=|~=|@)",
        re.IGNORECASE,
    )
    folders = "tftrt_tools", "docs", "serving", "benchmarks", "saved_models"
    texts = [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    texts += [path for path in ROOT.glob("*") if path.is_file()]
    found = {}
    for path in texts:
        with contextlib.suppress(UnicodeDecodeError):
            found |= {
                f"{path.relative_to(ROOT)}: {line.strip()}": 1
                for line in path.read_text().splitlines()
                if advice.search(line)
            }
    assert list(found) == []
    assert (
        advice.search("pip install 'tftrt-tools[tftrt]'")
        and advice.search("pip install tftrt-tools")
        and not advice.search(errors.install("tftrt"))
    )
