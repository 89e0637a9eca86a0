"""The head of a line: when, how important, from whom. Each program writes it in a way of its own; what encloses it (Docker, Kubernetes,
journald) tells processes apart.

Forms: TensorFlow 2.14.1, TensorFlow Serving and the development server; absl and glog (newer TensorFlow, Triton); trtexec and TensorRT's
Python logger (7 to 10); Python's logging; ONNX Runtime. Seen in real logs, those of TensorFlow and TensorRT's Python logger here.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tftrt_tools.base.choices import LogLevel
from tftrt_tools.base.files import documents

_LEVELS: dict[str | None, LogLevel] = {
    "V": "V",
    "D": "V",
    "I": "I",
    "W": "W",
    "E": "E",
    "F": "F",
    "C": "F",
    "VERBOSE": "V",
    "DEBUG": "V",
    "INFO": "I",
    "WARNING": "W",
    "WARN": "W",
    "ERROR": "E",
    "INTERNAL_ERROR": "F",
    "F_ERROR": "F",
    "CRITICAL": "F",
    "FATAL": "F",
}
_PLACES = ("time", "level", "thread", "place", "trt", "text")


def _form(pattern: str) -> re.Pattern[str]:
    """A pattern for one form of heads. Places that the form does not have never match."""
    return re.compile(
        pattern + "".join(f"(?P<{name}>(?!))?" for name in _PLACES if f"<{name}>" not in pattern), re.DOTALL
    )


# 2026-11-22 11:22:13.391623: I 4711 tensorflow/…/trt_engine_op.cc:1115] text
_TENSORFLOW = _form(
    r"(?P<time>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?): (?P<level>[IWEFV]) (?: *(?P<thread>\d+) )?"
    r"(?:(?P<place>\S+:\d+)\] ?)?(?P<text>.*)"
)
# 2023-08-21 17:24:59.358624197 [W:onnxruntime:Default, tensorrt_execution_provider.h:75 log] text
_ONNX_RUNTIME = _form(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+) \[(?P<level>[VIWEF]):onnxruntime:[^,\]]*, (?P<place>[^\] ]+:\d+)"
    r"[^\]]*\] (?P<text>.*)"
)
# [09/19/2022-11:36:03] [TRT] [W] text; [09/19/2022-11:36:03] [W] [TRT] text; [W] [TRT] text; [W] text
_TRTEXEC = _form(
    r"(?:\[(?P<time>(?:\d\d/\d\d/\d{4}-)?\d\d:\d\d:\d\d)\] )?(?P<trt>\[TRT\] )?\[(?P<level>[IWEFV])\] ?(?P<text>.*)"
)
# [TensorRT] VERBOSE: text
_TENSORRT_7 = _form(r"(?P<trt>\[TensorRT\]) (?P<level>[A-Z_]+): (?P<text>.*)")
# [TRT]    text, of a logger without levels
_BARE = _form(r"(?P<trt>\[TRT\])\s+(?P<text>.*)")
# I1122 11:22:13.391623 4711 file.cc:12] text; I0000 00:00:1712345678.123456 4711 file.cc:12] text
_ABSL = _form(r"(?P<level>[IWEF])(?P<time>\d{4} [\d:]+\.\d+) +(?P<thread>\d+) (?P<place>\S+:\d+)\] ?(?P<text>.*)")
# WARNING:tensorflow:text; ERROR: [TRT]: text
_NAMED = _form(
    r"(?P<level>DEBUG|VERBOSE|INFO|WARNING|ERROR|INTERNAL_ERROR|F_ERROR|CRITICAL|FATAL):(?:[\w.]+:| )(?P<text>.*)"
)
# Forms by the first letter of a line.
_FORMS = {
    **dict.fromkeys("0123456789", (_TENSORFLOW, _ONNX_RUNTIME)),
    "[": (_TRTEXEC, _TENSORRT_7, _BARE),
    **dict.fromkeys("IWEF", (_ABSL, _NAMED)),
    **dict.fromkeys("DVC", (_NAMED,)),
}
# What encloses a line, by its first letter: kubectl logs --prefix; Kubernetes' files and docker logs --timestamps; Docker Compose; journald
# and syslog.
_POD = re.compile(r"\[(pod/[^\]]+)\] ")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?()")
_COMPOSE = re.compile(r"([\w.-]+) +\| ?")
_JOURNAL = re.compile(r"[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (\S+ [\w./@-]+(?:\[\d+\])?): ")
_AROUND = {**dict.fromkeys("0123456789", (_STAMP, _COMPOSE)), "[": (_POD,)}
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TENSORRT = re.compile(r"DefaultLogger |\[TRT\]:? +|\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d +[A-Z_]+\] ")
# TF-TRT puts it before its warnings; it says nothing.
_WARNING = "TF-TRT Warning: "
# A second head in the middle of a line: two processes wrote at once.
_INSIDE = re.compile(r"(?<=.)(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: [IWEF] )")
# absl may write all seconds since 1970.
_TIME = re.compile(r"(?:(\d{4})-(\d\d)-(\d\d)[ T]|(\d\d)/(\d\d)/(\d{4})-|\d{4} )?(\d\d):(\d\d):(\d{1,12}(?:\.\d+)?)$")
# The most digits of a count or a size: 64 bits have no more.
_MOST_DIGITS = 20


class Head(NamedTuple):
    """A line, taken apart."""

    # The time as the line writes it, "" for none.
    time: str
    level: LogLevel
    # The number of a process or a thread, "" for none.
    thread: str
    # The file and line in the program's source, "" for none.
    place: str
    # Whether TensorRT wrote the line.
    tensorrt: bool
    # The text behind the head.
    text: str


def split(line: str) -> tuple[str, str]:
    """(who wrote it by what encloses the line, "" for unknown; the line without that)."""
    if "\x1b" in line:
        line = _COLOURS.sub("", line)
    if line.startswith('{"log":'):
        # A file of Docker's json-file driver.
        try:
            # An escape can stand for half a character, which no output takes.
            line = str(documents.parse(line)["log"]).rstrip("\n").encode(errors="replace").decode()
        except documents.MISREAD:
            return "", line
    who: list[str] = []
    while line[4:5] != "-" or line[10:11] != " ":
        matched = next(
            (match for form in _AROUND.get(line[:1], (_COMPOSE, _JOURNAL)) if (match := form.match(line))), None
        )
        if matched is None:
            break
        who += filter(None, [matched[1]])
        line = line[matched.end() :]
    return " ".join(who), line


def parts(line: str) -> list[str]:
    """The line, or its parts where it holds several messages of TensorFlow."""
    return _INSIDE.split(line) if line.count("] ") > 1 and line.count(": ") > 1 else [line]


def read(line: str) -> Head | None:
    """Take a line apart. Returns: None for a line without a head: it belongs to what stands before it, or is of another program."""
    matched = next((match for form in _FORMS.get(line[:1], ()) if (match := form.match(line))), None)
    if matched is None:
        return None
    time, level, thread, place, trt, text = matched.group(*_PLACES)
    text, tensorrt = text.removeprefix(_WARNING), trt is not None
    while inner := _TENSORRT.match(text):
        text, tensorrt = text[inner.end() :], True
    return Head(time or "", _LEVELS.get(level, ""), thread or "", place or "", tensorrt, text)


def whole(text: str) -> int:
    """The whole number in a text, a count or a size; 0 where a damaged line has something else there."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0


def seconds(time: str) -> float | None:
    """Seconds since a fixed moment, for differences of times of one program. Returns: None for a time that cannot be read."""
    match = _TIME.match(time)
    if match is None:
        return None
    year, month, day, american_month, american_day, american_year, hour, minute, second = match.groups()
    days = 0
    if year or american_year:
        import datetime

        try:
            days = datetime.date(
                int(year or american_year), int(month or american_month), int(day or american_day)
            ).toordinal()
        except ValueError:  # a damaged line
            return None
    return days * 86400.0 + int(hour) * 3600 + int(minute) * 60 + float(second)
