"""Calibration tables and files: read and written without loss, merged, edited, compared, and given to the engines they were made for."""

import dataclasses
import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.calibration_tables import HEADER, WRITTEN, calibration, engine
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration import difference, edit, file, merge, table
from tftrt_tools.tftrt.calibration.file import Calibration
from tftrt_tools.tftrt.calibration.table import Table

MAX = 3.4028234663852886e38  # the largest float32

NAMES = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\r\n"), min_size=1)
SCALES = st.floats(min_value=2**-149, max_value=MAX, width=32)
TABLES = st.dictionaries(st.one_of(NAMES, st.sampled_from("abc")), SCALES).map(lambda scales: Table(HEADER, scales))


def bits(scale):
    return struct.pack(">f", scale)


# TensorRT's text form.


def test_what_tensorrt_wrote_is_read_and_written_back():
    read = table.parse(WRITTEN)
    assert read.text() == WRITTEN
    assert (read.tensorrt, read.major, read.calibrator) == ("8.5.3", 8, "EntropyCalibration2")
    assert read.scales["(Unnamed Layer* 10) [Shuffle]_output"] == struct.unpack(">f", bytes.fromhex("3b25c70c"))[0]
    assert list(read.scales)[0] == "TensorRTInputPH_0" and read.range("TensorRTInputPH_0") == pytest.approx(
        1.01609, rel=1e-5
    )


@given(TABLES)
def test_any_name_and_scale_survive_bit_by_bit(one):
    again = table.parse(one.text())
    assert again.header == one.header and list(again.scales) == list(one.scales)
    assert [bits(scale) for scale in again.scales.values()] == [bits(scale) for scale in one.scales.values()]
    assert Table.from_dict(json.loads(json.dumps(one.to_dict()))) == one


@given(st.floats(min_value=2**-126, max_value=MAX, width=32))
def test_a_range_comes_back_from_its_scale_to_float32s_precision(value):
    one = Table.of_ranges({"x": value}, "8.5.3.1")
    assert one.header == HEADER
    assert one.range("x") == pytest.approx(value, rel=2**-23, abs=127 * 2**-149)


def test_windows_line_ends_a_missing_last_newline_and_capital_digits_are_read():
    assert table.parse(WRITTEN.replace("\n", "\r\n")) == table.parse(WRITTEN.rstrip("\n")) == table.parse(WRITTEN)
    assert table.parse(f"{HEADER}\na: 3C03156F\n").text() == f"{HEADER}\na: 3c03156f\n"


@pytest.mark.parametrize("zero", ["0", "00000000"])
def test_a_tensor_that_was_always_zero_has_no_scale(zero, tmp_path):
    """TensorRT 8.5.3 wrote a bare 0, on an H200, for the initial state of an LSTM."""
    (tmp_path / "text").write_text(f"{HEADER}\na: 3c03156f\n(Unnamed Layer* 31) [Constant]_output: {zero}\n")
    one, zeros = table.read((tmp_path / "text").read_text())
    assert list(one.scales) == ["a"] and zeros == ("(Unnamed Layer* 31) [Constant]_output",)
    (made,) = file.read(tmp_path / "text").engines
    assert made.table == one and made.left_out == ((zeros[0], "zero in all of the data"),)


@pytest.mark.parametrize(
    ("digits", "version"),
    [("8401", "8.4.1"), ("8503", "8.5.3"), ("8601", "8.6.1"), ("7213", "7.2.13"), ("100300", "10.3.0")],
)
def test_the_version_in_the_header(digits, version):
    one = Table(f"TRT-{digits}-EntropyCalibration2", {})
    assert one.tensorrt == version and table.header(version) == one.header


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a: 3c03156f\n", "line 1: 'a: 3c03156f' is no header"),
        ("hello\n", "line 1: 'hello' is no header"),
        ("TRT-85-EntropyCalibration2\n", "line 1"),
        ("TRT-8503-GuessCalibration\n", "line 1: unknown calibrator 'GuessCalibration'"),
        (f"{HEADER}\na: 3c03156f\nb 3c03156f\n", "line 3: 'b 3c03156f' is not"),
        (f"{HEADER}\n\na: 3c03156f\n", "line 2"),
        (f"{HEADER}\na: 3c0315\n", "line 2: '3c0315' is no scale of 'a'"),
        (f"{HEADER}\na: 3c03156f0\n", "line 2"),
        (f"{HEADER}\na: 0.5\n", "line 2: '0.5' is no scale"),
        (f"{HEADER}\n: 3c03156f\n", "line 2: '' is no tensor name"),
        (f"{HEADER}\na: 7fc00000\n", "line 2: the scale of 'a' is nan"),
        (f"{HEADER}\na: 7f800000\n", "line 2: the scale of 'a' is infinite"),
        (f"{HEADER}\na: bf800000\n", "line 2: the scale of 'a' is -1.0"),
        (f"{HEADER}\na: 80000000\n", "line 2: the scale of 'a' is -0.0"),
        (f"{HEADER}\na: 00\n", "line 2: '00' is no scale of 'a'"),
        (f"{HEADER}\na: 3c03156f\nb: 3c03156f\na: 3c03156f\n", "line 4: 'a' has a scale already, in line 2"),
    ],
)
def test_what_is_no_table_is_refused_by_line(text, says):
    with pytest.raises(errors.TftrtError) as caught:
        table.parse(text)
    assert says in caught.value.cause and caught.value.mend and "\n" not in caught.value.cause


@given(
    st.one_of(
        st.text(),
        st.text().map(lambda text: f"{HEADER}\n{text}"),
        st.text("abc: \r\n0123456789TRT-").map(lambda text: f"{HEADER}\n{text}"),
    )
)
def test_no_text_at_all_makes_the_reader_fail_otherwise(text):
    try:
        again = table.parse(text)
    except errors.TftrtError as error:
        assert error.mend and "\n" not in error.cause
    else:
        assert table.parse(again.text()) == again


@pytest.mark.parametrize("scale", [0, -1, math.nan, math.inf, 1e39, 1e-60, None, "1", True, [1], 10**400])
def test_a_scale_that_float32_cannot_hold_as_a_positive_number_is_refused(scale):
    with pytest.raises(errors.TftrtError, match="the scale of 'a'"):
        Table(HEADER, {"a": scale})


@pytest.mark.parametrize("name", ["", "a\nb", "a\r", "\ud800", 7])
def test_a_name_that_a_line_cannot_hold_is_refused(name):
    with pytest.raises(errors.TftrtError, match="tensor name"):
        Table(HEADER, {name: 1.0})


# Calibration files.


def test_a_calibration_file_is_read_as_it_was_written(tmp_path):
    whole = calibration(
        engine(left_out=(("c", "constant"),), ranges={"a": {"min": -1.0, "max": 63.5}}),
        engine("sha256:s2", "E_1", x=0.1),
        provenance=({"step": "edited"},),
    )
    whole.write(tmp_path / "c.json")
    assert file.read(tmp_path / "c.json") == whole


def test_a_table_of_another_tool_is_read_as_one_engine_of_unknown_graph(tmp_path):
    (tmp_path / "t").write_text(WRITTEN)
    read = file.read(tmp_path / "t")
    assert read.tensorrt == "8.5.3" and read.method == "entropy2" and [one.segment for one in read.engines] == [""]
    assert read.engines[0].table.text() == WRITTEN
    read.write(tmp_path / "c.json")
    assert file.read(tmp_path / "c.json") == read


def test_a_converted_model_carries_its_calibration(tmp_path):
    passport.write(tmp_path / "model", passport.CALIBRATION, calibration().to_dict())
    assert file.read(tmp_path / "model") == calibration()


def document(**changed):
    return json.dumps({**calibration().to_dict(), **changed})


@pytest.mark.parametrize(
    ("content", "says", "code"),
    [
        (document()[:200], "ends too early", 1),
        ("{", "ends too early", 1),
        (document() + "}", "damaged", 1),
        ('{"kind": "calibration", "kind": "calibration"}', "'kind' stands there twice", 1),
        (document(schema_version=99), "newer tftrt-tools (schema 99)", 1),
        (document(schema_version=None), "schema_version", 1),
        (document(engines=[{}]), "damaged", 1),
        (document(engines=7), "damaged", 1),
        (document(data=[1]), "damaged", 1),
        (document(data={"warnings": [["x"]]}), "damaged", 1),
        (document(model=None), "model: None is no text", 1),
        ('{"kind": "calibration", "schema_version": 1}', "it has no 'tool'", 1),
        (
            document(engines=[engine(a=0.5).to_dict() | {"left_out": [{"tensor": "a", "reason": "r"}]}]),
            "'a' has a scale and is left out",
            1,
        ),
        (
            document(engines=[engine().to_dict() | {"table": {"header": HEADER, "scales": {"a": 0}}}]),
            "the scale of 'a' is 0",
            1,
        ),
        (document(engines=[engine().to_dict() | {"ranges": {"a": 1}}]), "damaged", 1),
        ('{"kind": "verification"}', "is no calibration file", 2),
        ("[options]", "is no calibration file", 2),
        ("hello", "is no calibration file", 2),
        ("\x89PNG", "is no calibration file", 2),
        ("", "is empty", 1),
        ("TRT-8503-EntropyCalibration2\na: x\n", "line 2: 'x' is no scale", 1),
        ("{" + '"a":{' * 5000, "damaged", 1),
    ],
)
def test_what_is_no_calibration_file_says_what_is_wrong_with_it(tmp_path, content, says, code):
    path = tmp_path / "c.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(errors.TftrtError) as caught:
        file.read(path)
    assert (
        says in caught.value.cause
        and str(path) in caught.value.cause
        and caught.value.mend
        and caught.value.exit_code == code
    )


def test_a_place_without_a_calibration_is_wrong_usage(tmp_path):
    with pytest.raises(errors.UsageError, match="no such file"):
        file.read(tmp_path / "nothing")
    with pytest.raises(errors.UsageError, match=r"holds no assets.extra/tftrt/calibration.json"):
        file.read(tmp_path)


# Which table goes to which engine.


def test_each_engine_gets_the_table_of_its_graph_whatever_it_is_called():
    whole = calibration(engine("sha256:s1", "E_0", a=0.5), engine("sha256:s2", "E_1", x=0.1))
    assert file.for_segments(whole, {"N_7": "sha256:s2", "N_8": "sha256:s1"}, "8.6.1") == {
        "N_7": whole.engines[1],
        "N_8": whole.engines[0],
    }
    assert list(file.for_segments(whole, {"N_7": "sha256:s2"}, "8.5.3")) == ["N_7"]


def test_engines_of_one_graph_share_a_table_only_where_there_is_one():
    same = calibration(engine(name="E_0"), engine(name="E_1"))
    assert file.for_segments(same, {"N": "sha256:s1", "M": "sha256:s1"}, "8.5.3") == {
        "N": same.engines[0],
        "M": same.engines[0],
    }
    differing = calibration(engine(name="E_0", a=0.5), engine(name="E_1", a=0.6))
    with pytest.raises(
        errors.TftrtError, match="N could have 2 tables that differ: its graph is that of E_0, E_1"
    ) as caught:
        file.for_segments(differing, {"N": "sha256:s1"}, "8.5.3")
    assert "merge" in caught.value.mend
    mended = merge.merge([differing], "max", ["c.json"])
    assert file.for_segments(mended, {"N": "sha256:s1"}, "8.5.3")["N"].table.scales == {"a": pytest.approx(0.6)}


@pytest.mark.parametrize(
    ("whole", "segments", "says"),
    [
        (
            calibration(),
            {"N": "sha256:s1", "M": "sha256:other"},
            "M has no table: its graph is sha256:other, and the table was made for another graph",
        ),
        (calibration(engine("")), {"N": "sha256:s1", "M": "sha256:s2"}, "N has no table"),
        (calibration(engine(""), engine("")), {"N": "sha256:s1"}, "N has no table"),
        (
            calibration(engine(header="TRT-7213-EntropyCalibration2")),
            {"N": "sha256:s1"},
            "the table of N is of TensorRT 7.2.13, and here it is 8.5.3",
        ),
        (calibration(engine(header="TRT-8503-MinMaxCalibration")), {"N": "sha256:s1"}, "MinMaxCalibration"),
    ],
)
def test_an_engine_without_its_table_is_an_error_that_names_it(whole, segments, says):
    with pytest.raises(errors.TftrtError) as caught:
        file.for_segments(whole, segments, "8.5.3")
    assert says in caught.value.cause and caught.value.mend


def test_a_table_for_another_graph_and_another_tensorrt_may_be_that_of_another_keras():
    def mend(tensorrt):
        with pytest.raises(errors.TftrtError, match="made for another graph") as caught:
            file.for_segments(calibration(), {"N": "sha256:other"}, tensorrt)
        return caught.value.mend

    assert "model.export('DIR')" in mend("8.6.1") and "another Keras" not in mend("8.5.3")


def test_a_plain_table_serves_a_model_with_one_engine():
    plain = file.of_table(table.parse(WRITTEN))
    assert file.for_segments(plain, {"N": "sha256:s1"}, "8.5.3") == {"N": plain.engines[0]}


# Merging.


@given(TABLES, st.sampled_from(sorted(merge.HOW)))
def test_merging_a_table_with_itself_changes_nothing(one, how):
    assert (
        merge.merge_tables([one], how)
        == merge.merge_tables([one, one], how)
        == merge.merge_tables([one, one, one], how)
        == one
    )


@given(TABLES, TABLES, st.sampled_from(["max", "min", "mean", "median"]))
def test_the_order_of_merging_does_not_matter(one, other, how):
    assert merge.merge_tables([one, other], how) == merge.merge_tables([other, one], how)


@given(TABLES, TABLES, TABLES, st.sampled_from(["max", "min", "first"]))
def test_how_merging_is_grouped_does_not_matter(a, b, c, how):
    grouped = merge.merge_tables([merge.merge_tables([a, b], how), c], how)
    assert (
        grouped == merge.merge_tables([a, merge.merge_tables([b, c], how)], how) == merge.merge_tables([a, b, c], how)
    )


@given(TABLES, TABLES, st.sampled_from(sorted(merge.HOW)))
def test_a_merged_scale_lies_between_those_it_was_made_of(one, other, how):
    for name, scale in merge.merge_tables([one, other], how).scales.items():
        given_ = [each.scales[name] for each in (one, other) if name in each.scales]
        assert min(given_) <= scale <= max(given_)


@pytest.mark.parametrize(("how", "scale"), [("max", 4.0), ("min", 0.5), ("mean", 2.5), ("median", 3.0), ("first", 3.0)])
def test_what_becomes_of_three_scales(how, scale):
    merged = merge.merge_tables([Table(HEADER, {"x": value}) for value in (3.0, 0.5, 4.0)], how)
    assert merged.scales == {"x": scale}


def test_merging_keeps_where_everything_came_from():
    a = calibration(engine(a=0.5, ranges={"a": {"min": -1.0, "max": 2.0}}))
    b = calibration(
        engine(a=0.7, ranges={"a": {"min": 0.0, "max": 5.0}}),
        method="max",
        data={**a.data, "digest": "sha256:bb", "source": "b.npz", "samples": 5, "warnings": ["few"], "rows": ["r2"]},
    )
    merged = merge.merge([a, b], "max", ["a.json", "b.json"])
    assert merged.method == "merged" and merged.model == "/m" and merged.engines[0].engine == "E_0"
    assert merged.engines[0].ranges == {"a": {"min": -1.0, "max": 5.0}}
    assert merged.data["samples"] == 15 and merged.data["warnings"] == ["few"] and merged.data["rows"] == ["r1", "r2"]
    assert merged.data["source"] == "a.npz, b.npz" and merged.data["digest"] == "" and merged.data["batch_size"] == 5
    (step,) = merged.provenance
    assert step["how"] == "max" and [(one["source"], one["method"]) for one in step["sources"]] == [
        ("a.json", "entropy"),
        ("b.json", "max"),
    ]
    assert [one["data"]["samples"] for one in step["sources"]] == [10, 5]
    again = merge.merge([merged, a], "max", ["ab.json", "a.json"])
    assert again.data["samples"] == 25 and any("more than once" in text for text in again.data["warnings"])
    assert Calibration.from_dict(json.loads(json.dumps(again.to_dict()))) == again


def test_samples_are_not_counted_where_one_does_not_say():
    unknown = calibration(data={})
    assert merge.merge([calibration(), unknown], "max", ["a", "b"]).data["samples"] is None


def test_a_tensor_that_was_left_out_stays_out_unless_the_first_decides():
    a, b = calibration(engine(a=0.5, b=0.5)), calibration(engine(a=0.5, left_out=(("b", "removed by hand"),)))
    for sources in ((a, b), (b, a)):
        merged = merge.merge(list(sources), "max", ["x", "y"]).engines[0]
        assert merged.table.scales == {"a": 0.5} and merged.left_out == (("b", "removed by hand"),)
    assert merge.merge([a, b], "first", ["x", "y"]).engines[0].table.scales == {"a": 0.5, "b": 0.5}
    assert merge.merge([b, a], "first", ["x", "y"]).engines[0].left_out == (("b", "removed by hand"),)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (engine("sha256:s2"), "different graphs"),
        (engine(header="TRT-7213-EntropyCalibration2"), "different TensorRT cannot be merged: 7.2.13 and 8.5.3"),
        (engine(header="TRT-8503-MinMaxCalibration"), "EntropyCalibration2 and MinMaxCalibration"),
    ],
)
def test_what_does_not_go_together_is_not_merged(other, says):
    with pytest.raises(errors.TftrtError) as caught:
        merge.merge([calibration(), calibration(other)], "max", ["a.json", "b.json"])
    assert says in caught.value.cause and caught.value.mend


def test_plain_tables_are_merged_where_they_have_the_same_tensors():
    one, other = (file.of_table(Table(HEADER, scales)) for scales in ({"a": 1.0}, {"a": 2.0}))
    assert merge.merge([one, other], "max", ["a", "b"]).engines[0].table.scales == {"a": 2.0}
    with pytest.raises(errors.TftrtError, match="only one of them has 'b'"):
        merge.merge([one, file.of_table(Table(HEADER, {"a": 1.0, "b": 1.0}))], "max", ["a", "b"])


def test_the_newest_header_of_one_major_version_stands_over_a_merged_table():
    tables = [Table("TRT-8401-EntropyCalibration2", {"a": 1.0}), Table(HEADER, {"a": 1.0})]
    assert merge.merge_tables(tables, "max").tensorrt == merge.merge_tables(tables[::-1], "max").tensorrt == "8.5.3"


# Editing.


def edited(whole, engine_name=None, **what):
    done = edit.edit(
        whole,
        edit.Edits.parse(what.get("remove", []), what.get("set_", []), what.get("scale", [])),
        "c.json",
        engine_name,
    )
    return done.calibration, done.changes


def test_each_edit_changes_its_tensors_and_no_other():
    whole = calibration(engine(**{"m/conv": 1.0, "m/relu": 2.0, "m/add": 4.0, "m/x=y": 8.0}))
    changed, changes = edited(whole, remove=["m/c.*"], set_=["m/x=y=254"], scale=[".*/relu=1.5"])
    assert changed.engines[0].table.scales == {"m/relu": 3.0, "m/add": 4.0, "m/x=y": 2.0}
    assert changed.engines[0].left_out == (("m/conv", "removed by hand"),)
    assert {one.tensor: (one.before, one.after) for one in changes} == {
        "m/conv": (127.0, None),
        "m/relu": (254.0, 381.0),
        "m/x=y": (1016.0, 254.0),
    }
    assert (
        changed.method == "edited"
        and changed.provenance[-1]["method"] == "entropy"
        and len(changed.provenance[-1]["changes"]) == 3
    )
    assert Calibration.from_dict(json.loads(json.dumps(changed.to_dict()))) == changed


def test_a_tensor_that_was_removed_comes_back_when_it_is_set():
    removed, _ = edited(calibration(), remove=["a"])
    back, changes = edited(removed, set_=["a=127"])
    assert back.engines[0].table.scales["a"] == 1.0 and back.engines[0].left_out == () and changes[0].before is None
    assert [step["step"] for step in back.provenance] == ["edited", "edited"]


def test_a_numbered_tensor_that_keeps_the_old_range_of_another_is_told():
    shuffled, other = "(Unnamed Layer* 3) [Shuffle]_output", "(Unnamed Layer* 4) [Constant]_output"
    whole = calibration(engine(**{"m/relu": 2.0, "m/add": 2.0, shuffled: 2.0, other: 3.0}))

    def warnings(**what):
        edits = edit.Edits.parse(what.get("remove", []), what.get("set_", []), what.get("scale", []))
        return edit.edit(whole, edits, "c.json").warnings

    (told,) = warnings(set_=["m/relu=6"])
    assert told.startswith(f"{shuffled} had the range of m/relu and keeps it: --set='{shuffled}=6'")
    assert (
        warnings(set_=["m/relu=6", f"{shuffled}=6"])
        == ()
        == warnings(remove=["m/relu"])
        == warnings(set_=[f"{shuffled}=6"])
    )
    assert len(warnings(scale=["m/.*=2"])) == 2


def test_one_engine_is_edited_where_one_is_named():
    whole = calibration(engine(name="E_0"), engine("sha256:s2", "E_1"))
    changed, _ = edited(whole, "E_1", scale=["a=2"])
    assert [one.table.scales["a"] for one in changed.engines] == [0.5, 1.0]
    everywhere, _ = edited(whole, scale=["a=2"])
    assert [one.table.scales["a"] for one in everywhere.engines] == [1.0, 1.0]


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ({}, "nothing to change"),
        ({"remove": ["z"]}, "--remove=z matches no tensor"),
        ({"remove": ["("]}, "no regular expression"),
        ({"scale": ["z=2"]}, "--scale=z matches no tensor"),
        ({"set_": ["z=2"]}, "no such tensor"),
        ({"set_": ["a"]}, "NAME=RANGE"),
        ({"set_": ["=2"]}, "NAME=RANGE"),
        ({"set_": ["a=0"]}, "NAME=RANGE"),
        ({"set_": ["a=nan"]}, "NAME=RANGE"),
        ({"set_": ["a=inf"]}, "NAME=RANGE"),
        ({"scale": ["a=-2"]}, "REGEX=FACTOR"),
        ({"scale": ["a=two"]}, "REGEX=FACTOR"),
        ({"scale": ["a=1e300"]}, "gives a a range of"),
        ({"scale": ["a=1e-300"]}, "gives a a range of"),
        ({"remove": [".*"]}, "no tensor of E_0 would remain"),
        ({"remove": ["a"], "set_": ["a=1"]}, "both change a"),
    ],
)
def test_an_edit_that_cannot_be_meant_is_wrong_usage(what, says):
    with pytest.raises(errors.UsageError) as caught:
        edited(calibration(), **what)
    assert says in caught.value.cause and caught.value.mend


# Comparing.


def test_the_summary_is_its_formulas():
    scales = [1.0, 2.0, 4.0, 8.0, 0.5]
    a, b = (
        {f"t{number}": scale * factor for number, (scale, factor) in enumerate(zip(scales, factors, strict=True))}
        for factors in ([1] * 5, [1, 2, 4, 1, 0.125])
    )
    found = difference.compare(calibration(engine(**a)), calibration(engine(**b)))
    logs = [0.0, 1.0, 2.0, 0.0, -3.0]
    assert found.summary.tensors == 5 and found.summary.equal == 2 and not found.equal
    assert found.summary.median == 1.0 and found.summary.worst.tensor == "t4" and found.summary.worst.ratio == 0.125
    assert found.summary.spread == pytest.approx(math.sqrt(sum(one**2 for one in logs) / 5))
    assert found.summary.p5 == pytest.approx(2**-2.4) and found.summary.p95 == pytest.approx(2**1.8)


@given(TABLES)
def test_a_calibration_equals_itself(one):
    found = difference.compare(file.of_table(one), file.of_table(one))
    assert found.equal and not found.notes and all(each.ratio == 1 for each in found.tensors)
    json.dumps(found.to_dict(), allow_nan=False)


@given(TABLES, TABLES)
def test_two_calibrations_are_equal_where_their_tables_are(one, other):
    assert difference.compare(file.of_table(one), file.of_table(other)).equal == (one == other)


def test_engines_are_paired_by_graph_then_by_name_then_alone():
    a = calibration(engine("sha256:s1", "E_0"), engine("sha256:s2", "E_1"))
    b = calibration(engine("sha256:s2", "F_1"), engine("sha256:s1", "F_0"))
    assert difference.compare(a, b).equal
    by_name = difference.compare(
        calibration(engine("sha256:s1", "E_0")), calibration(engine("sha256:s3", "E_0"), engine("sha256:s4", "E_1"))
    )
    assert not by_name.equal and by_name.notes == (
        "E_0: engines of one name, made for different graphs",
        "E_1: only in B",
    )
    alone = difference.compare(
        calibration(engine("sha256:s1", "E_0")), file.of_table(Table(HEADER, {"a": 0.5, "b": 0.25}))
    )
    assert alone.equal


def test_numbers_of_layers_are_compared_where_both_tables_number_alike():
    """Builds of other shapes have other layers: a number stands for another tensor there."""
    shuffled, constant, other = (
        "(Unnamed Layer* 3) [Shuffle]_output",
        "(Unnamed Layer* 4) [Constant]_output",
        "(Unnamed Layer* 5) [Constant]_output",
    )
    a, b = (
        calibration(engine(**{"m/x": 1.0, shuffled: 2.0, constant: 3.0})),
        calibration(engine(**{"m/x": 1.0, shuffled: 9.0, other: 3.0})),
    )
    found = difference.compare(a, b, "old", "new")
    assert [one.tensor for one in found.tensors] == ["m/x"] and found.summary.tensors == 1 and not found.equal
    assert "2 tensors in old and 2 in new are named after layers' numbers, and are not compared" in found.notes[0]
    part = calibration(engine(**{"m/x": 1.0, shuffled: 9.0}))
    assert not difference.compare(a, part).notes and difference.compare(a, part).summary.tensors == 2
    elsewhere = calibration(engine(left_out=((shuffled, "zero"), (constant, "zero")), **{"m/x": 1.0}))
    assert not difference.compare(a, elsewhere).notes


def test_another_header_makes_tables_different():
    other = calibration(
        dataclasses.replace(engine(), table=Table("TRT-8401-EntropyCalibration2", {"a": 0.5, "b": 0.25}))
    )
    found = difference.compare(calibration(), other)
    assert not found.equal and "TRT-8401-EntropyCalibration2 in B" in found.notes[0]


def test_tables_without_a_common_tensor_have_no_summary():
    found = difference.compare(calibration(engine(a=1.0)), calibration(engine(b=1.0)))
    assert found.summary is None and [(one.a, one.b) for one in found.tensors] == [(1.0, None), (None, 1.0)]
