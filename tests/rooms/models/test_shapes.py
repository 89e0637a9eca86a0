"""The grammar of --shapes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tftrt_tools.base import errors
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.savedmodel import shapes
from tftrt_tools.models.savedmodel.shapes import InputSpec

IMAGE = InputSpec("x", "float32", (None, 224, 224, 3))
IDS, MASK = InputSpec("ids", "int32", (None, None)), InputSpec("mask", "int32", (None, None))


def calls(flag, signatures):
    return shapes.calls(shapes.parse(flag), signatures)


def test_two_shapes_of_one_input_are_two_calls():
    assert calls("x:1x224x224x3,8x224x224x3", {"s": [IMAGE]}) == {
        "s": [{"x": (1, 224, 224, 3)}, {"x": (8, 224, 224, 3)}]
    }


def test_shapes_of_several_inputs_go_together_in_order():
    got = calls("ids:1x16,8x32;mask:1x16,8x32", {"s": [IDS, MASK]})
    assert got == {"s": [{"ids": (1, 16), "mask": (1, 16)}, {"ids": (8, 32), "mask": (8, 32)}]}


def test_an_unnamed_input_takes_its_static_shape_or_the_batch_size():
    got = calls("x:4x224x224x3", {"s": [IMAGE, InputSpec("w", "float32", (3,)), InputSpec("y", "float32", (None, 2))]})
    assert got == {"s": [{"x": (4, 224, 224, 3), "w": (3,), "y": (4, 2)}]}


def test_a_name_without_signature_speaks_of_every_signature_that_has_it():
    got = calls("x:1x224x224x3", {"a": [IMAGE], "b": [IMAGE], "c": [IDS]})
    assert list(got) == ["a", "b"]


def test_a_signature_picks_one():
    assert list(calls("b/x:1x224x224x3", {"a": [IMAGE], "b": [IMAGE]})) == ["b"]


def test_a_signature_with_slashes_in_its_name():
    assert list(calls("a/b/x:1x224x224x3", {"a/b": [IMAGE]})) == ["a/b"]


def test_scalar():
    assert calls("n:scalar", {"s": [InputSpec("n", "int32", ())]}) == {"s": [{"n": ()}]}


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("", "empty"),
        ("1x2x3", "names no input"),
        (":1x2", "names no input"),
        ("x:1x2;x:3x4", "twice"),
        ("x:", "no shape"),
        ("x:1xtwo", "no shape"),
        ("x:1x-2", "no shape"),
        ("x:0x224x224x3", "dimension of 0"),
        ("x:1x00x224x3", "dimension of 0"),
        ("x:1x2,,3x4", "no shape"),
    ],
)
def test_what_is_no_shape_is_refused_with_an_example(flag, says):
    with pytest.raises(errors.UsageError, match=says) as caught:
        shapes.parse(flag)
    assert "INPUT:1x224x224x3" in caught.value.mend


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("q:1x2", "no input 'q'"),
        ("t/x:1x224x224x3", "no signature 't'"),
        ("x:1x224x224", "refuses x:1x224x224"),
        ("x:1x224x224x4", "refuses"),
    ],
)
def test_what_the_signature_refuses_names_what_it_takes(flag, says):
    with pytest.raises(errors.UsageError, match=says):
        calls(flag, {"s": [IMAGE]})


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(errors.UsageError, match="equally many"):
        calls("ids:1x16,8x32,2x2;mask:1x16,8x32", {"s": [IDS, MASK]})


def test_all_inputs_whose_shapes_are_to_be_given_are_named():
    pictures = InputSpec("pictures", "float32", (None, None, None, 3))
    with pytest.raises(errors.UsageError) as caught:
        drawing.default_shapes("s", [IMAGE, IDS, pictures, InputSpec("any", "float32", None)])
    assert caught.value.mend == "give --data, or --shapes='s/ids:1x…;s/pictures:1x…x…x3;s/any:…'"


def test_an_input_of_unknown_shape_must_be_named():
    with pytest.raises(errors.UsageError, match="unknown dimensions"):
        calls("ids:1x16", {"s": [IDS, MASK]})


@given(st.lists(st.lists(st.integers(1, 4096), min_size=1, max_size=6), min_size=1, max_size=5))
def test_what_is_written_is_read_back(given_shapes):
    flag = "in_put:" + ",".join("x".join(map(str, shape)) for shape in given_shapes)
    assert shapes.parse(flag) == {("", "in_put"): [tuple(shape) for shape in given_shapes]}


@given(
    st.lists(
        st.lists(st.lists(st.integers(1, 99), max_size=4).map(tuple), min_size=3, max_size=3), min_size=1, max_size=4
    )
)
def test_calls_written_as_the_flag_are_those_calls(listed):
    made = [dict(zip(("a", "b", "c"), one, strict=True)) for one in listed]
    specs = [InputSpec(name, "float32", None) for name in made[0]]
    assert calls(shapes.flag_text("s/t", made), {"s/t": specs}) == {"s/t": made}


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_refused_with_a_usage_error(flag):
    try:
        parsed = shapes.parse(flag)
    except errors.UsageError:
        return
    assert all(dim > 0 for found in parsed.values() for shape in found for dim in shape)


def test_a_range_is_its_corners_in_order():
    assert calls("x:max=32x224x224x3,min=1x224x224x3,opt=8x224x224x3", {"s": [IMAGE]}) == {
        "s": [{"x": (1, 224, 224, 3)}, {"x": (8, 224, 224, 3)}, {"x": (32, 224, 224, 3)}]
    }


def test_an_opt_that_is_the_max_needs_no_call_of_its_own():
    assert calls("ids:min=1x16,max=8x32;mask:min=1x16,opt=8x32,max=8x32", {"s": [IDS, MASK]}) == {
        "s": [{"ids": (1, 16), "mask": (1, 16)}, {"ids": (8, 32), "mask": (8, 32)}]
    }


def test_an_input_with_one_shape_may_stand_beside_a_range():
    got = calls("x:min=1x224x224x3,max=4x224x224x3;w:3", {"s": [IMAGE, InputSpec("w", "float32", (3,))]})
    assert [call["w"] for call in got["s"]] == [(3,), (3,)]


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("x:min=1x2", "no max"),
        ("x:max=1x2", "no min"),
        ("x:min=4x2,max=1x2", "larger"),
        ("x:min=1x2,opt=9x2,max=8x2", "larger"),
        ("x:min=1x2,max=1x2x3", "another rank"),
        ("x:min=1x2,max=8x2,4x2", "range"),
        ("x:min=1x2,min=1x2,max=8x2", "range"),
        ("x:min=1x2,max=8x2;y:1x2,2x2", "a list of shapes"),
        ("x:min=,max=8x2", "no shape"),
    ],
)
def test_a_range_that_is_none_is_refused(flag, says):
    with pytest.raises(errors.UsageError, match=says):
        shapes.parse(flag)


def test_a_name_with_a_slash_or_a_colon_is_an_input():
    signatures = {"s": [InputSpec("input/1", "float32", (None, 2)), InputSpec("x:0", "float32", (None, 2))]}
    expected = {"s": [{"input/1": (4, 2), "x:0": (4, 2)}]}
    assert calls("input/1:4x2;x:0:4x2", signatures) == calls("s/input/1:4x2;s/x:0:4x2", signatures) == expected


@pytest.mark.parametrize(
    ("flag", "cause", "mend"),
    [
        (
            "image:1,8,8,1;meta:1,4",
            "image:1,8,8,1 is a list of shapes with one dimension each",
            "dimensions are joined by x, as in image:1x8x8x1",
        ),
        ("image=1x8x8x1", "'image=1x8x8x1' has = behind the input's name", "write : for =, as in image:1x8x8x1"),
        (
            "image=min=1x8x8x1,max=2x8x8x1",
            "has = behind the input's name",
            "write : for =, as in image:min=1x8x8x1,max=2x8x8x1",
        ),
        ("image:[1,8,8,1]", "'[1,8,8,1]' of input 'image' is no shape", "dimensions are joined by x, as in 1x8x8x1"),
        ("image:1*8*8*1", "'1*8*8*1' of input 'image' is no shape", "dimensions are joined by x, as in 1x8x8x1"),
    ],
)
def test_a_shape_in_another_form_is_shown_in_the_right_one(flag, cause, mend):
    known = {"s": [InputSpec("image", "float32", (None, 8, 8, 1)), InputSpec("meta", "float32", (None, 4))]}
    with pytest.raises(errors.UsageError) as caught:
        shapes.calls(shapes.parse(flag), known)
    assert cause in caught.value.cause and caught.value.mend == mend


def test_a_list_of_sizes_of_an_input_with_one_dimension_is_a_list_of_shapes():
    known = {"s": [InputSpec("v", "float32", (None,))]}
    assert shapes.calls(shapes.parse("v:1,8"), known) == {"s": [{"v": (1,)}, {"v": (8,)}]}


@pytest.mark.parametrize("text", ["x", "x:0", "x:min=1", "x:2,3,4;y:1,2", "nothing:1", "x:1x1x1", ""])
def test_a_message_names_the_flag_that_was_typed(text):
    specs = {"serve": [InputSpec("x", "float32", (None,)), InputSpec("y", "float32", (None,))]}
    said = []
    for named in ((), ("--warmup_shapes",)):
        with pytest.raises(errors.UsageError) as raised:
            shapes.calls(shapes.parse(text, *named), specs, *named)
        said.append((raised.value.cause, raised.value.mend))
    assert said[0][0].startswith("--shapes") and "--warmup_shapes" not in said[0][1]
    assert said[1] == tuple(one.replace("--shapes", "--warmup_shapes") for one in said[0])
