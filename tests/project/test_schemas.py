"""docs/schemas/: they are what the code writes, and they refuse something else. Real results are held against them in the tests of their
commands and of docs/new_version.md."""

import dataclasses
import json
import typing

import jsonschema
import pytest

from docs.tools import schemas
from tests.fleet_results import kind, result
from tests.regress_results import regression
from tftrt_tools.base import records
from tftrt_tools.studies.regression import comparison


def schema(name):
    return json.loads((schemas.FOLDER / f"{name}.json").read_text())


def test_the_schemas_are_what_the_commands_write():
    there = {path.name: path.read_text() for path in schemas.FOLDER.iterdir()}
    assert there == schemas.texts(), "docs/schemas is stale: run `python -m docs.tools.schemas`"
    for text in there.values():
        jsonschema.Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("name", ["fleet_build", "regression"])
def test_a_result_fits_and_one_that_lacks_a_key_or_has_another_type_does_not(name):
    done = (
        result(kind("T4"), kind("L4", status="died", output="", cause="it went"))
        if name == "fleet_build"
        else regression()
    )
    document = json.loads(done.to_json())
    jsonschema.validate(document, schema(name))
    for key in schema(name)["required"]:
        for broken in ({k: v for k, v in document.items() if k != key}, document | {key: object()}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(broken, schema(name))
    jsonschema.validate(document | {"later": 1}, schema(name))


@pytest.mark.parametrize("ended", ["", "interrupted"])
@pytest.mark.parametrize("changes", [{}, {"ratio": 1.2}, {"noise": 0.4}])
def test_each_outcome_of_regress_fits(changes, ended):
    done = regression(**changes, ended=ended)
    document = json.loads(done.to_json())
    jsonschema.validate(document, schema("regression"))
    assert (document["outcome"] == comparison.ENDED) == bool(ended)


@dataclasses.dataclass(frozen=True)
class Inner(records.Record):
    name: str
    found: typing.Any = None


@dataclasses.dataclass(frozen=True)
class Everything(records.Record):
    text: str
    flag: bool
    word: typing.Literal["a", "b"]
    maybe: int | None
    ratio: float = records.field(key="share", default=0.5)
    inner: Inner = Inner("x")
    several: tuple[Inner, ...] = ()
    named: typing.Mapping[str, int] = dataclasses.field(default_factory=dict)
    document: typing.ClassVar[str] = "everything"
    written_too: typing.ClassVar[tuple[str, ...]] = ("length",)

    @property
    def length(self) -> int:
        return len(self.several)


def test_a_record_is_described_by_its_annotations():
    described = schemas.of_record(Everything)
    done = Everything("t", True, "a", None, float("inf"), several=(Inner("y", [1]),), named={"z": 1})
    jsonschema.validate(done.to_dict(), described)
    for key, value in [
        ("kind", "else"), ("text", 1), ("flag", 1), ("word", "c"), ("maybe", "1"), ("share", "1"), ("inner", {}),
        ("several", [{"name": 1, "found": None}]), ("named", {"z": "1"}), ("length", "1"),
    ]:  # fmt: skip
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(done.to_dict() | {key: value}, described)
