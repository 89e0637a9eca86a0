"""Records as JSON and back: what is written, what of another version can still be read, what is refused."""

import collections.abc
import dataclasses
import json
import math
import pathlib
import subprocess
import sys
import typing

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine(records.Record):
    name: str
    batch: int = 1
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class Own(records.Record):
    """A class that writes itself otherwise than the converter would."""

    number: int

    def to_dict(self):
        return {"text": str(self.number)}

    @classmethod
    def from_dict(cls, data):
        return cls(int(data["text"]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report(records.Record):
    engines: tuple[Engine, ...]
    shapes: dict[str, tuple[int | None, ...]]
    coverage: float = records.field(digits=2)
    other: Engine | None = records.field(key="other_batch_mode", default=None)
    by_number: dict[int, float] = dataclasses.field(default_factory=dict)
    mode: typing.Literal["one", "two"] | typing.Literal[""] = "one"
    file: pathlib.Path | None = None
    names: frozenset[str] = frozenset()
    own: Own | None = None
    written_too: typing.ClassVar = ("count",)

    @property
    def count(self):
        return len(self.engines)


WHOLE = Report(
    engines=(Engine(name="a", seconds=math.inf), Engine(name="b", batch=2**63 - 513)),
    shapes={"x": (None, 3)},
    coverage=0.25,
    other=Engine(name="c"),
    by_number={3: -math.inf},
    mode="two",
    file=pathlib.Path("/here"),
    names=frozenset("ba"),
    own=Own(7),
)


def test_a_record_comes_back_from_json_as_it_was():
    assert Report.from_dict(json.loads(json.dumps(WHOLE.to_dict(), allow_nan=False))) == WHOLE


def test_what_is_written_is_plain():
    written = WHOLE.to_dict()
    assert written["engines"] == [
        {"name": "a", "batch": 1, "seconds": "inf"},
        {"name": "b", "batch": 2**63 - 513, "seconds": None},
    ]
    assert (
        written["shapes"] == {"x": [None, 3]}
        and written["by_number"] == {"3": "-inf"}
        and written["names"] == ["a", "b"]
    )
    assert written["other_batch_mode"]["name"] == "c" and "other" not in written
    assert written["count"] == 2 and written["own"] == {"text": "7"} and written["file"] == "/here"


def test_numbers_are_rounded_where_they_are_written_alone():
    record = dataclasses.replace(WHOLE, coverage=0.12345)
    assert record.to_dict()["coverage"] == 0.12 and record.coverage == 0.12345


def test_a_file_of_another_version_is_read():
    """Without a field that came later, and with one that this version does not know."""
    assert Engine.from_dict({"name": "a", "colour": "red"}) == Engine(name="a")


@pytest.mark.parametrize(
    "data",
    [
        {},
        [1],
        {"name": 1},
        {"name": "a", "batch": "b"},
        {"name": "a", "batch": 1.5},
        {"name": "a", "batch": True},
        {"name": "a", "seconds": [1]},
    ],
)
def test_what_does_not_fit_is_refused(data):
    with pytest.raises((KeyError, TypeError, ValueError)):
        Engine.from_dict(data)


def test_a_value_that_is_none_of_a_closed_set_is_refused():
    with pytest.raises(ValueError, match="'three' is none of one, two"):
        Report.from_dict(WHOLE.to_dict() | {"mode": "three"})


def test_a_refusal_says_where_the_value_stands():
    written = WHOLE.to_dict()
    with pytest.raises(TypeError, match="^engines: batch: 'x' is no whole number$"):
        Report.from_dict({**written, "engines": [{"name": "a", "batch": "x"}]})
    with pytest.raises(TypeError, match="^other_batch_mode: name: None is no text$"):
        Report.from_dict({**written, "other_batch_mode": {"name": None}})


def test_records_inside_plain_values_are_written_too():
    assert records.plain({"a": (1, [Engine(name="b")]), 2: math.nan}) == {
        "a": [1, [Engine(name="b").to_dict()]],
        "2": "nan",
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document(records.Record):
    """A document whose older form had another name for a field."""

    inside: int
    total: int
    document: typing.ClassVar = "share"
    parts: dict[str, dict[str, float]] = records.field(digits=1, default_factory=dict)
    written_digits: typing.ClassVar = {"share": 3}

    @property
    def share(self):
        return self.inside / self.total

    def to_dict(self):
        return super().to_dict() | {"unit": "ops"}

    @classmethod
    def from_dict(cls, data):
        return super().from_dict({"total": data.get("all"), **data})


def test_a_document_says_first_what_it_is_and_rounds_what_is_only_written():
    written = Document(inside=1, total=3).to_dict()
    assert written == {"kind": "share", "inside": 1, "total": 3, "parts": {}, "share": 0.333, "unit": "ops"}
    assert next(iter(written)) == "kind"
    assert records.plain([Document(inside=1, total=3)]) == [written]


def test_numbers_are_rounded_in_mappings_too():
    parts = {"a": {"x": 0.123, "y": math.inf}}
    assert Document(inside=1, total=3, parts=parts).to_dict()["parts"] == {"a": {"x": 0.1, "y": "inf"}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ordered(Document):
    written_first: typing.ClassVar = ("kind", "share", "total")


def test_keys_that_come_first_are_written_once_and_in_order():
    written = Ordered(inside=1, total=3).to_dict()
    assert (
        list(written) == ["kind", "share", "total", "inside", "parts", "unit"]
        and written == Document(inside=1, total=3).to_dict()
    )


def test_a_form_of_its_own_may_build_on_the_common_one():
    assert Document.from_dict({"inside": 1, "all": 4}) == Document(inside=1, total=4)


@dataclasses.dataclass(frozen=True)
class Sent(records.Record):
    tensors: dict[str, bytes]
    more: tuple[bytes, ...] = ()


def test_bytes_go_through_json():
    sent = Sent({"x": bytes(range(256))}, (b"", b"\0"))
    assert Sent.from_dict(json.loads(json.dumps(sent.to_dict()))) == sent
    for wrong in (3, "not base64!", "abc"):
        with pytest.raises((TypeError, ValueError)):
            Sent.from_dict({"tensors": {"x": wrong}})


JSON = collections.abc.Mapping[str, collections.abc.Sequence[dict[str, list[int | None]]]]


def test_what_json_takes_is_written_and_read_without_cattrs():
    """A child in another environment tells by it that cattrs is missing there."""
    code = (
        "import sys; sys.modules['cattrs'] = None\n"
        "from tests.rooms.base.test_records import JSON\n"
        "from tftrt_tools.base import records\n"
        "value = {'a': [{'b': [1, None]}]}\n"
        "assert records.structured(records.plain(value), JSON) == {'a': ({'b': [1, None]},)}\n"
        "assert records.plain([float('inf')]) == ['inf'] and records.structured(['inf', 1], list[float]) == [float('inf'), 1]\n"
        "assert records.structured(None, type(None)) is records.structured(None, None) is None\n"
        "try:\n    records.plain({'a'})\nexcept ImportError:\n    print('told')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "told\n", done.stderr


@pytest.mark.parametrize(
    "value, kind",
    [(3, None), ("ab", list[str]), (None, collections.abc.Sequence[str]), (["a"], dict[str, str]), ([True], list[int])],
)
def test_what_json_takes_is_checked_as_fields_are(value, kind):
    with pytest.raises(TypeError):
        records.structured(value, kind)
