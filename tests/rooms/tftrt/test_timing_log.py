"""How far a build is, from TensorRT's verbose log: the recorded log of an H200, which has no lines of timing, and lines in the form of
TensorRT 8.5's logs around the layers that were recorded."""

import datetime
import gzip
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import ROOT
from tftrt_tools.base.process import native_log, progress
from tftrt_tools.tftrt.conversion import layer_log, pass_log
from tftrt_tools.tftrt.conversion.job import build_progress, timing_log
from tftrt_tools.tftrt.conversion.job.timing_log import TimingLog

RECORDED = gzip.decompress((ROOT / "tests/data/engine_layers.log.gz").read_bytes()).decode()
NAMES = [
    name
    for name in re.findall(r"^Layer\(\w+\): (.+?), Tactic", RECORDED, re.MULTILINE)
    if not name.startswith("Reformatting")
]
START = datetime.datetime(2026, 11, 22, 11, 22, 17, 320251)


def line(seconds, text):
    stamp = START + datetime.timedelta(seconds=seconds)
    return f"{stamp}: I tensorflow/compiler/tf2tensorrt/utils/trt_logger.cc:79] DefaultLogger {text}\n"


def build(profiles=1, layers=20, each=2.0, start=0.0):
    """A build whose layers take `each` seconds."""
    now = start
    lines = [line(now, "After Myelin optimization: 23 layers"), line(now, f"After concat removal: {layers} layers")]
    for profile in range(profiles):
        lines += [
            line(now, f"Constructing optimization profile number {profile} [{profile + 1}/{profiles}]."),
            line(now, "=============== Computing reformatting costs: "),
            line(now, "--------------- Timing Runner: Optimizer Reformat(TensorRTInputPH_0 -> <out>) (Reformat)"),
        ]
        for number in range(layers):
            lines += [
                line(now, "=============== Computing costs for "),
                line(
                    now,
                    "*************** Autotuning format combination: Float(64,1,8,8) -> Float(64,1,8,8) ***************",
                ),
                line(now, f"--------------- Timing Runner: {NAMES[number % len(NAMES)]} (CaskConvolution)"),
                line(now, "Tactic: 0x00000000000003e8 Time: 0.00657"),
                line(now, ">>>>>>>>>>>>>>> Chose Runner Type: CaskConvolution Tactic: 0x0"),
            ]
            now += each
        lines += [
            line(now, f"Formats and tactics selection completed in {each * layers} seconds."),
            line(now, f"After reformat layers: {layers + 4} layers"),
            line(now, "Engine Layer Information:"),
        ]
    return lines


def after(lines):
    log = TimingLog()
    log.feed("".join(lines))
    return log


def until(lines, number, of="Computing costs for"):
    """The lines up to the number-th with these words, and the two behind it."""
    places = [place for place, one in enumerate(lines) if of in one]
    return lines[: places[number - 1] + 3]


def test_the_layer_is_told_with_its_name_and_what_is_left():
    log = after(until(build(), 11))
    assert (
        log.text()
        == f"times layer 11 of at most 20 ({NAMES[10][-60:]}, CaskConvolution); about 20 s left for this engine, if the other layers take as long"
    )
    assert log.left == pytest.approx(20.0)


def test_profiles_count_for_what_is_left():
    log = after(until(build(profiles=2), 25))
    assert log.text().startswith("profile 2 of 2, times layer 5 of at most 20 (") and log.left == pytest.approx(32.0)
    assert (
        after(until(build(profiles=3, layers=100, each=3.0), 51))
        .text()
        .endswith("about 12 min left for this engine, if the other layers take as long")
    )


def test_nothing_is_estimated_from_a_few_layers_or_in_no_time():
    assert after(until(build(), 5)).left is None and "left" not in after(until(build(), 5)).text()
    assert after(until(build(each=0.1), 15)).left is None
    # More layers than the graph was said to have: then the number says nothing.
    more = [one.replace("removal: 20", "removal: 10") for one in until(build(), 15)]
    assert after(more).left is None and after(more).text().startswith("times layer 15 (")


def test_formats_come_first_and_the_choice_last():
    lines = build()
    assert (
        after(until(lines, 1, "reformatting")[:-1])
        .text()
        .startswith("times changes of format (Optimizer Reformat(TensorRTInputPH_0")
    )
    assert after(lines).text() == "all layers timed"
    assert after(build(profiles=2)).text() == "profile 2 of 2, all layers timed"


def test_the_next_engine_begins_anew():
    log = after([*build(), *until(build(layers=30, start=100.0), 8)])
    assert log.text().startswith("times layer 8 of at most 30 (") and log.left == pytest.approx(46.0)


def test_what_the_log_does_not_tell_is_not_told():
    assert TimingLog().text() == ""
    # Another TensorRT may name the runner alone, as 8.0 does.
    assert (
        after([line(0, "--------------- Timing Runner: conv1 (CaskConvolution)")]).text()
        == "times conv1, CaskConvolution"
    )
    unstamped = [one.partition("DefaultLogger ")[2] for one in until(build(), 15)]
    assert after(unstamped).left is None and "layer 15 of at most 20" in after(unstamped).text()


@given(st.lists(st.integers(0, 3000), max_size=30), st.integers(0, 59))
@settings(max_examples=60, deadline=None)
def test_a_log_read_in_pieces_says_the_same(cuts, lines):
    text = "".join(build(profiles=3)[: lines * 5])
    log, places = TimingLog(), [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    for start, end in zip(places, places[1:], strict=False):
        log.feed(text[start:end])
        log.text()
    assert log.text() == after([text]).text()


def test_the_recorded_log_in_pieces_has_no_layer_that_is_timed():
    log = TimingLog()
    for start in range(0, len(RECORDED), 1000):
        log.feed(RECORDED[start : start + 1000])
        assert log.text() == "" and log.left is None
    # Its last line of that form: the network of the encoder in INT8.
    assert log._layers == 320


def test_the_line_of_a_build_follows_the_log(monkeypatch):
    log = "".join(build())
    written = {"to": 100}
    monkeypatch.setattr(native_log, "after", lambda position: (log[position : written["to"]], written["to"]))
    said = []
    shown = build_progress.Shown()
    with progress.listening(lambda text, done, total: said.append(text)):
        shown.begin("building engine 1 of 2 of s", "with one profile")
        shown.tick(1.0)
        shown.runs(0)
        shown.tick(2.0)
        written["to"] = log.index("Computing costs", len(log) // 2)
        shown.tick(130.0)
    assert said[:2] == [
        "building engine 1 of 2 of s with one profile",
        "building engine 1 of 2 of s with one profile, 2 s",
    ]
    assert said[2].startswith(
        "building engine 1 of 2 of s with one profile, 2 min 10 s: times layer 10 of at most 20 ("
    )


def test_the_log_is_verbose_unless_it_is_kept_and_nobody_asked_for_layers():
    assert layer_log.env(False, True) == pass_log.ENV
    assert all(
        "trt_logger" in layer_log.env(layers, kept)["TF_CPP_VMODULE"]
        for layers, kept in ((False, False), (True, False), (True, True))
    )


@pytest.mark.parametrize("seconds, text", [(20.0, "20 s"), (119.4, "119 s"), (150.0, "2 min"), (3600.0, "60 min")])
def test_durations_are_short(seconds, text):
    assert timing_log._duration(seconds) == text


def test_a_real_build_is_followed_and_what_is_left_is_near_what_it_took():
    """ResNet-50, FP16, three profiles, on an H100 (580.159.04): the lines that say where the build is, and a runner for each layer."""
    text = gzip.decompress((ROOT / "tests/data/logs/resnet50_timing.log.gz").read_bytes()).decode()
    lines = text.splitlines(keepends=True)
    end = max(filter(None, map(timing_log._seconds, lines)))
    log, factors, layers = timing_log.TimingLog(), [], set()
    for line in lines:
        log.feed(line)
        layers |= {int(found[1]) for found in [re.search(r"times layer (\d+) of at most 62", log.text())] if found}
        if log.left and (now := timing_log._seconds(line)) and end - now > 20:
            factors.append(log.left / (end - now))
    assert layers == set(range(1, 63)) and len(factors) > 100
    assert 0.6 < min(factors) and max(factors) < 1.5, (
        "of the seconds that the timing of all profiles really took from there on"
    )
    assert log.text() == "profile 3 of 3, all layers timed"
