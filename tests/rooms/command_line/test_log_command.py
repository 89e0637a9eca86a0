"""`tftrt log`: what it prints, its checks and exit codes, what is no log, interrupts, and that a long log needs no more memory than a short one."""

import gzip
import itertools
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tests.log_lines import LINES
from tests.trace_lines import BUILD, ENGINE, NAME, NATIVE, WHY
from tftrt_tools.base import choices
from tftrt_tools.base.logs import known
from tftrt_tools.base.logs.summary import CHECKS

RECORDED = ROOT / "tests/data/logs"
UNKNOWN = "2026-11-24 07:38:26.513333: E tensorflow/new.cc:1] something that nobody has seen\n"
# A line for each check that fails it; the messages of a real log where there is one.
BY_NAME = {message.name: message for message in known.MESSAGES}
FAILING = {
    BY_NAME[name].category: line
    for name, line in reversed(LINES)
    if name in BY_NAME and BY_NAME[name].severity != "note"
} | {
    "conversion": "2026-11-24 07:17:07.4: W tensorflow/segment.cc:1298] TF-TRT will only convert the 20 largest segments. You can change this behavior",
    "request": dict(LINES)["batch_queue_full"],
    "device": "Segmentation fault (core dumped)",
    "error": WHY.replace(
        "Engine retrieval for input shapes: [[4,8,8,1]] failed. Running",
        "Failed to execute engine: INTERNAL: x Retrying with",
    ),
    "unknown": UNKNOWN,
}


def log(*arguments, stdin=None, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "tftrt_tools", "log", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def assert_told(done, code, says):
    """One line of cause and one of mend on stderr, behind the tables on stdout."""
    assert (
        done.returncode == code
        and says in done.stderr
        and "Traceback" not in done.stderr
        and len(done.stderr.splitlines()) == 2
    ), done.stderr


def plain(text):
    return re.sub(r"\s+", " ", text)


def test_a_fallback_is_told_with_its_meaning_and_mend():
    done = run_tftrt("log", RECORDED / "fallback.log.gz", "--fail_on=fallback")
    assert done.returncode == 3 and "fallback: no_engine_fits (5×)" in done.stderr
    said = plain(done.stdout)
    for words in (
        "17 lines",
        "warning, fallback: no engine fits (line",
        "TRTEngineOp_65d45f244b_0_0",
        "at least 5",
        "warned of [[4,8,8,1]] (5)",
        "TF-TRT stops warning after five a process",
        "17 of 17 warnings and errors are known",
    ):
        assert words in said, words


def test_of_several_logs_the_one_with_the_line_is_named():
    shown = run_tftrt("log", RECORDED / "conversion.log.gz", RECORDED / "fallback.log.gz").stdout
    assert re.search(r"no engine fits \(line.*\n? +13 of fallback\.log\.gz\)", shown)


def test_what_a_conversion_left_is_shown_with_the_reasons():
    shown = run_tftrt("log", RECORDED / "conversion.log.gz", "--notes", "--top=3").stdout
    assert re.search(r"Left in TensorFlow, \d+ more \(--top\)", shown) and re.search(
        r" 6 +Log1p +Op type Log1p is not supported\.", shown
    )
    assert "Left in TensorFlow" not in run_tftrt("log", RECORDED / "conversion.log.gz").stdout


def test_layers_and_notes_are_shown_when_asked_for(tmp_path):
    short = plain(run_tftrt("log", RECORDED / "build_fp16.log.gz").stdout)
    done = run_tftrt(
        "log", RECORDED / "build_fp16.log.gz", "--layers", "--notes", "--top=1", f"--json={tmp_path / 'log.json'}"
    )
    long = plain(done.stdout)
    assert (
        done.returncode == 0
        and "13 fusions of layers" in short
        and "Formats and tactics selection: 48.8 s, 3 times" in short
    )
    for words in (
        "Layers that were timed, 1 more (--top)",
        "Runners",
        "Layers of built engines",
        "ConvScaleFusion 4",
        "note, machine: numa unknown",
        "12 in FP32",
    ):
        assert words in long and words not in short, words
    written = json.loads((tmp_path / "log.json").read_text())
    assert (
        written["kind"] == "log"
        and written["engines"]["builds"][0]["outcome"] == "built"
        and len(written["builder"]["layers"]) == 2
    )


def test_several_logs_are_one(tmp_path):
    (tmp_path / "a").write_text(WHY + NATIVE)
    (tmp_path / "b").write_text(NATIVE + ENGINE)
    done = run_tftrt("log", tmp_path / "a", tmp_path / "b", "--json=-")
    (engine,) = json.loads(done.stdout)["engines"]["engines"]
    assert (engine["name"], engine["native_runs"], engine["runs"]) == (NAME, 2, 1) and "a: 2 lines" in done.stderr


@pytest.mark.parametrize("packed", [False, True])
def test_stdin_is_a_log(packed):
    done = log(
        "-", "--fail_on=fallback", stdin=gzip.compress((WHY + NATIVE).encode()) if packed else (WHY + NATIVE).encode()
    )
    assert (
        done.returncode == 3 and b"stdin: 2 lines" in done.stdout and f"{NAME} ran natively 1×".encode() in done.stderr
    )


def test_there_is_a_line_for_each_check():
    assert set(FAILING) == set(CHECKS) and set(choices.LOG_CATEGORIES) < set(CHECKS)


@pytest.mark.parametrize("check", CHECKS)
def test_each_check_fails_for_its_messages_alone(check, tmp_path):
    (tmp_path / "bad").write_text(FAILING[check].strip() + "\n")
    (tmp_path / "good").write_text(BUILD + ENGINE)
    assert_told(run_tftrt("log", tmp_path / "bad", f"--fail_on={check}"), 3, f"{check}: ")
    assert run_tftrt("log", tmp_path / "good", f"--fail_on={check}").returncode == 0
    others = [one for one in CHECKS if one not in (check, "error", "unknown")]
    if check not in ("error", "load", "version"):
        assert run_tftrt("log", tmp_path / "bad", f"--fail_on={','.join(others)}").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("x", "--fail_on=falback"), "did you mean fallback?"),
        (("x", "--fail_on=FALLBACK"), "did you mean fallback?"),
        (("x", "--fail_on="), "--fail_on is empty, so nothing would be checked"),
        (("x", "--fail_on=fallback,weather"), "--fail_on=weather: there is no such kind"),
        ((), "no file given"),
        (("-", "-"), "stdin can be read once"),
        (("no.log",), "no.log: there is no such file"),
        ((".",), ". is a directory"),
        (("--top=0", "x"), "top"),
    ],
)
def test_wrong_usage_is_one_line_with_its_mend(arguments, says, tmp_path):
    done = log(*arguments, cwd=tmp_path, stdin=b"")
    assert done.returncode == 2 and says in done.stderr.decode() and b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"", 1, "is empty"),
        (b"\n\n", 1, "no line of"),
        (b"a shopping list\nmilk\n", 1, "no line of"),
        (bytes(range(256)) * 40, 2, "is no text, so it is no log"),
        (b"\x0a\x00\x12\x07serving\x00" * 300, 2, "is no text"),
        (gzip.compress(b"milk\n" * 1000, mtime=0)[:25], 1, "gzip"),
        (gzip.compress(b"x" * 9000, mtime=0)[:12], 1, "gzip"),
        (b"\x1f\x8b\x08 no gzip at all", 1, "damaged gzip"),
        (b"\x28\xb5\x2f\xfd....", 2, "is a zstd archive"),
        (b"BZh91AY", 2, "is a bzip2 archive"),
        (b"PK\x03\x04....", 2, "is a zip archive"),
        (b"\xfd7zXZ\x00..", 2, "is an xz archive"),
    ],
)
def test_what_is_no_log_is_one_line_with_its_mend(content, code, says, tmp_path):
    (tmp_path / "a.log").write_bytes(content)
    assert_clear(run_tftrt("log", tmp_path / "a.log"), code, says)


@pytest.mark.parametrize("content", [b"", b"milk\n"])
def test_a_quiet_piece_of_a_log_can_be_allowed(content):
    assert log("-", "--allow_empty", "--fail_on=fallback", stdin=content).returncode == 0


@pytest.mark.parametrize("packed", [False, True])
def test_a_program_and_a_model_are_no_logs(packed, zoo_model, tmp_path):
    for path in (sys.executable, f"{zoo_model('ranker')}/saved_model.pb"):
        content = pathlib.Path(path).read_bytes()[:100_000]
        (tmp_path / "a.log").write_bytes(gzip.compress(content) if packed else content)
        assert_clear(run_tftrt("log", tmp_path / "a.log"), 2, "is no text, so it is no log")


def test_a_gzip_log_that_ends_in_the_middle_is_told_behind_what_it_says(tmp_path):
    lines = "".join(f"{WHY.strip()}{os.urandom(8).hex()}\n" for _ in range(5000))
    packed = gzip.compress(lines.encode())
    (tmp_path / "a.gz").write_bytes(packed[: len(packed) * 2 // 3])
    done = run_tftrt("log", tmp_path / "a.gz")
    assert_told(done, 1, "ends in the middle, behind line")
    assert "no engine fits" in done.stdout and "its end is missing" in done.stdout
    assert run_tftrt("log", tmp_path / "a.gz", "--fail_on=fallback").returncode == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_a_stream_with_what_it_said(number, tmp_path):
    """As with `docker logs --follow NAME | tftrt log -`; the last warning, whose end has not come, counts as well."""
    started = subprocess.Popen(
        [sys.executable, "-m", "tftrt_tools", "log", "-", f"--json={tmp_path / 'log.json'}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with started:
        # So much that the pipe is full until the command has read.
        started.stdin.write((NATIVE * 3 + WHY) * 2000)
        started.stdin.flush()
        started.send_signal(number)
        said, told = started.stdout.read(), started.stderr.read()
        started.stdin.close()
    assert started.returncode == 1 and "Traceback" not in told, told
    cause, mend = told.splitlines()
    assert re.fullmatch(r"tftrt: error: interrupted after \d+ lines", cause) and "what is said above" in mend
    assert "no engine fits" in said and json.loads((tmp_path / "log.json").read_text())["interrupted"] is True


def generated(count):
    """A verbose log whose layers, engines, unknown errors, missing ranges and writers are all different."""
    head = "2026-11-24 07:44:{:02d}.{:06d}: {} {:7d} tensorflow/compiler/tf2tensorrt/{}] "
    for number in range(count):
        time = number // 1000 % 60, number % 1_000_000
        yield (
            head.format(*time, "I", number, "utils/trt_logger.cc:79")
            + f"DefaultLogger --------------- Timing Runner: {'layer' * 60}{number} (Cask)\n"
        )
        yield (
            head.format(*time, "I", number, "utils/trt_logger.cc:79")
            + f"DefaultLogger Tactic: 0x{number:016x} Time: 0.0{number % 97}\n"
        )
        yield head.format(*time, "W", number, "kernels/trt_engine_op.cc:959") + (
            f"TF-TRT Warning: Engine retrieval for input shapes: [[{number},8]] failed. Running native segment for TRTEngineOp_{number}_0\n"
        )
        yield (
            head.format(*time, "I", number, "kernels/trt_engine_op.cc:1")
            + f"Building a new TensorRT engine for E_{number} with input shapes: [[{number}]]\n"
        )
        yield head.format(*time, "W", number, "utils/trt_logger.cc:83") + (
            f"DefaultLogger Missing scale and zero-point for tensor t{number}, expect fall back to non-int8 implementation\n"
        )
        yield (
            head.format(*time, "E", number, f"new{'n' * 200}.cc:{number}")
            + f"{'word' * 50} number{number}x of its kind\n"
        )
        yield f"  at place {number} {'x' * 300}\n"


@pytest.mark.slow
def test_a_long_log_needs_no_more_memory_than_a_short_one(tmp_path):
    """Not even one in which everything is new: tables are bounded, and say how much they left out."""
    code = (
        "import resource, sys; from tftrt_tools.command_line import cli; cli.main(['log', sys.argv[1], '--json=' + sys.argv[2]]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    peaks, found = [], []
    for count in (7_500, 30_000):
        with gzip.open(tmp_path / "a.gz", "wt", compresslevel=1) as file:
            file.writelines(generated(count))
        done = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "a.gz", tmp_path / "log.json"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        peaks.append(int(done.stderr) / 1024)
        found.append(json.loads((tmp_path / "log.json").read_text()))
    assert peaks[1] < peaks[0] + 20, peaks
    long = found[1]
    assert (
        long["logs"][0]["lines"] == 7 * 30_000
        and len(long["builder"]["layers"]) < 6000
        and long["builder"]["left_out"] > 0
    )
    assert (
        long["engines"]["left_out"] > 0
        and long["unknown_left_out"] > 0
        and long["unknown_count"] == 30_000
        and len(long["unknown"]) <= 1000
    )
    (missing,) = (one for one in long["findings"] if one["name"] == "tensor_without_range")
    assert missing["count"] == 30_000 == sum(missing["subjects"].values()) + missing["subjects_left_out"]
    assert sum(long["context"]["sources"].values()) + long["context"]["sources_left_out"] == 6 * 30_000


def test_every_line_of_the_recorded_logs_is_known():
    for path in itertools.chain(RECORDED.glob("*.gz"), [ROOT / "tests/data/engine_layers.log.gz"]):
        assert run_tftrt("log", path, "--fail_on=unknown", "--json=-").returncode == 0, path
