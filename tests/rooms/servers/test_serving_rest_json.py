"""JSON of the REST API: requests to arrays, results to text."""

import json
import math
import struct

import numpy as np
import pytest
import rapidjson
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import rest_model
from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.rest import decimals, json_in, json_out, parse, value_text


def arrays(body, **dtypes):
    """Decode a Predict request. dtypes: alias=dtype of the signature's inputs."""
    document = parse.parse(body if isinstance(body, bytes) else body.encode())
    json_in.signature_name(document)
    return json_in.tensors(document, dict(rest_model.signature(dtypes or {"x": "float"}).inputs))


def refusal(body, **dtypes):
    """(status, message) of a refused request."""
    with pytest.raises(failure.Failure) as caught:
        arrays(body, **dtypes)
    return caught.value.http, caught.value.message


PARSE = {
    b"": "JSON Parse error: The document is empty",
    b" ": "JSON Parse error: The document is empty. at offset: 1",
    b"instances = [1, 2]": "JSON Parse error: Invalid value. at offset: 0",
    b'\xef\xbb\xbf{"a"}': "JSON Parse error: Missing a colon after a name of object member. at offset: 7",
    b'{"a":1,}': "JSON Parse error: Missing a name for object member. at offset: 7",
    b'{"\xff\xfe":1,}': "JSON Parse error: Missing a name for object member. at offset: 8",
    b'{"a":1e999}': "JSON Parse error: Number too big to be stored in double. at offset: 5",
    b"[1]": "JSON Value: [\n    1\n] Is not object",
    b"1.5": "JSON Value: 1.5 Is not object",
}


@pytest.mark.parametrize("body", PARSE)
def test_a_body_that_is_no_json_object_is_named_with_its_offset(body):
    with pytest.raises(failure.Failure) as caught:
        parse.parse(body)
    assert caught.value.message == PARSE[body] and caught.value.http == 400


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"instances":' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        b'{"s":"' + b"]" * 9000 + b'","instances":' + b"[" * 5000,
    ],
)
def test_deep_nesting_is_refused_before_it_overflows_the_stack(body):
    with pytest.raises(failure.Failure, match="nested deeper than 500 levels"):
        parse.parse(body)


class _Counted(bytes):
    """Counts the bytes that `find` and slices look at."""

    work = 0

    def find(self, sub, start):
        at = super().find(sub, start)
        _Counted.work += (len(self) if at < 0 else at + 1) - start
        return at

    def __getitem__(self, part):
        found = super().__getitem__(part)
        _Counted.work += len(found)
        return found


@pytest.mark.parametrize("text", [b'"\\', b'\\"', b'"', b"\\", b'""', b'"a":[', b'"a\\\\"[', b'["\\"'])
def test_text_outside_strings_is_found_in_one_pass(text):
    """Twice the text is twice the work: a parser that begins again at each quote blocks all other calls for minutes."""
    works = []
    for count in (20_000, 40_000):
        _Counted.work = 0
        assert len(list(parse.bare(_Counted(b"[" * 501 + text * count)))) <= count + 1
        works.append(_Counted.work)
        assert works[-1] <= 3 * len(text * count) + 2000
    assert works[1] <= 2.1 * works[0]


@given(st.text(alphabet='"\\[]{}a:', max_size=40))
def test_what_is_outside_strings(text):
    """As the simplest reader sees it, byte by byte."""
    inside = escaped = False
    expected = ""
    for one in text:
        if inside:
            inside, escaped = escaped or one != '"', one == "\\" and not escaped
        elif one == '"':
            inside = True
        else:
            expected += one
    assert b"".join(parse.bare(text.encode())) == expected.encode()


def test_brackets_in_strings_and_long_shallow_lists_are_not_depth():
    document = parse.parse(b'{"s":"' + b"[" * 9000 + b'\\"[","instances":[' + b"[1]," * 9000 + b"[2]]}")
    assert len(document["instances"]) == 9001


def test_bytes_that_are_no_utf8_reach_the_model_as_they_are():
    rows, found = arrays(b'{"instances": ["\xff\xfe\xc3\xa9", "\xf4\x8f\xbf\xbf"]}', x="string")
    assert found["x"].tolist() == [b"\xff\xfe\xc3\xa9", b"\xf4\x8f\xbf\xbf"]
    assert (
        json_out.outputs({"t": found["x"]}, rows)
        == b'{\n    "predictions": ["\xff\xfe\xc3\xa9", "\xf4\x8f\xbf\xbf"\n    ]\n}'
    )


ACCEPTED = [
    ('{"instances": [1, 2.5, NaN, -Infinity]}', "float", np.array([1, 2.5, np.nan, -np.inf], np.float32)),
    ('{"instances": [[1, 2], [3, 4]]}', "float", np.array([[1, 2], [3, 4]], np.float32)),
    ('{"inputs": 3}', "float", np.float32(3)),
    ('{"inputs": [[1e-3]]}', "double", np.array([[1e-3]])),
    ('{"inputs": {"x": [1], "other": "ignored"}, "more": {}}', "float", np.array([1], np.float32)),
    ('{"instances": [[], []]}', "float", np.zeros((2, 0), np.float32)),
    ('{"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}', "int32", np.array([[1, 2], [3, 4]], np.int32)),
    ('{"instances": [-9223372036854775808, 9223372036854775807]}', "int64", np.array([-(2**63), 2**63 - 1])),
    ('{"instances": [18446744073709551615]}', "uint64", np.array([2**64 - 1], np.uint64)),
    ('{"instances": [300, -1]}', "uint8", np.array([44, 255], np.uint8)),
    ('{"instances": [16777217, -9223372036854775808]}', "float", np.array([2**24, -(2**63)], np.float32)),
    ('{"instances": [9007199254740993, 18446744073709551615]}', "double", np.array([2.0**53, 2.0**64])),
    ('{"instances": [{"x": 16777217}]}', "float", np.array([2**24], np.float32)),
    ('{"inputs": [1.0, 1e39, -1e300, 1e-40, -1e-40]}', "float", np.array([1, np.inf, -np.inf, 0, -0.0], np.float32)),
    ('{"instances": [1e39]}', "float", np.array([np.inf], np.float32)),
    ('{"instances": [1e-320, 1e-300, -1e-310]}', "double", np.array([0, 1e-300, -0.0])),
    ('{"instances": [1], "instances": [2]}', "float", np.array([1], np.float32)),
    ('{"inputs": {"x": [1], "y": 3, "x": [2]}}', "float", np.array([1], np.float32)),
    ('{"instances": [{"x": 1, "x": 2}, {"x": 3, "x": NaN}]}', "float", np.array([1, 3], np.float32)),
    ('{"inputs": ["a:b", "\\":\\\\"], "inputs": 1, "k\\"": 2}', "string", np.array([b"a:b", b'":\\'], object)),
    ('{"inputs": [18446744073709551616, 1e2], "inputs": 1}', "double", np.array([2.0**64, 100])),
    ('{"instances": [true, false]}', "bool", np.array([True, False])),
    ('{"inputs": []}', "half", np.zeros(0, np.float16)),
    (
        '{"instances": ["é", {"b64": "/w=="}, {"b64": "/w"}]}',
        "string",
        np.array(["é".encode(), b"\xff", b"\xff"], object),
    ),
    ('{"inputs": {"b64": "aGkh"}}', "string", np.array(b"hi!", object)),
]


@pytest.mark.parametrize("body, dtype, expected", ACCEPTED)
def test_values_become_an_array_of_the_signatures_dtype(body, dtype, expected):
    found = arrays(body, x=dtype)[1]["x"]
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    if found.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


DOCUMENT = '{\n    "instances": %s\n}'
REFUSED = [
    (
        '{"signature_name": 3}',
        "float",
        'JSON Value: {\n    "signature_name": 3\n} not formatted correctly. '
        "'signature_name' key must be a string value.",
    ),
    ("{}", "float", "Missing 'inputs' or 'instances' key"),
    (
        '{"instances": [1], "inputs": 1}',
        "float",
        'JSON Value: {\n    "instances": [\n        1\n    ],\n    "inputs": 1\n} Not formatted correctly expecting only one of'
        " 'inputs' or 'instances' keys to exist ",
    ),
    ('{"instances": 1}', "float", f"JSON Value: {DOCUMENT % 1} Expecting 'instances' to be an list/array"),
    ('{"instances": []}', "float", f"JSON Value: {DOCUMENT % '[]'} No values in 'instances' array"),
    ('{"inputs": "a"}', "float", 'JSON Value: "a" Type: String is not of expected type: float'),
    ('{"inputs": [1.5]}', "int32", "JSON Value: 1.5 Type: Number is not of expected type: int32"),
    ('{"inputs": [null]}', "string", "JSON Value: null Type: Null is not of expected type: string"),
    ('{"inputs": [true]}', "float", "JSON Value: true Type: True is not of expected type: float"),
    ('{"inputs": [0]}', "bool", "JSON Value: 0 Type: Number is not of expected type: bool"),
    (
        '{"inputs": [{"b64": "aa", "c": NaN}]}',
        "float",
        'JSON Value: {\n    "b64": "aa",\n    "c":  Type: Object is not of expected type: float',
    ),
    (
        '{"inputs": [{"b65": "aa"}]}',
        "string",
        'JSON Value: {\n    "b65": "aa"\n} not formatted correctly for base64 data',
    ),
    ('{"inputs": [{"b64": "a"}]}', "string", "Unable to base64 decode"),
    ('{"inputs": [{"b64": "aaa=="}]}', "string", "Unable to base64 decode"),
    ('{"inputs": [2147483648]}', "int32", "JSON Value: 2147483648 Type: Number is not of expected type: int32"),
    (
        '{"inputs": [9223372036854775808]}',
        "int64",
        "JSON Value: 9223372036854775808 Type: Number is not of expected type: int64",
    ),
    ('{"inputs": [-1]}', "uint64", "JSON Value: -1 Type: Number is not of expected type: uint64"),
    (
        '{"inputs": [{"b65": [18446744073709551616, 9223372036854775808.0, 1e-320, 0.1, 1e21, 1e22]}]}',
        "string",
        'JSON Value: {\n    "b65": [\n        18446744073709553000.0,\n        9223372036854776000.0,\n        0.0,\n        0.1,\n        '
        "1e21,\n        1e22\n    ]\n} not formatted correctly for base64 data",
    ),
    ('{"inputs": [[1], [2, 3]]}', "float", "Encountered list at unexpected size: 2 at level: 1 expected size: 1"),
    ('{"inputs": [1, [2]]}', "float", "Encountered list at unexpected level: 1 expected < 1"),
    (
        '{"inputs": [[1], 2]}',
        "float",
        "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
    ),
    (
        '{"instances": [[1], [2, 3]]}',
        "float",
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 1 but got: 2",
    ),
    (
        '{"instances": [[[1, 2]], [[1], [2]]]}',
        "float",
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape [1,2] but got: [2,1]",
    ),
    (
        '{"instances": [1, "x"]}',
        "float",
        "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT:"
        ' JSON Value: "x" Type: String is not of expected type: float',
    ),
    (
        '{"instances": [{"x": 1}, {"x": "a"}]}',
        "float",
        "Failed to process element: 1 key: x of 'instances' list. Error: INVALID_ARGUMENT:"
        ' JSON Value: "a" Type: String is not of expected type: float',
    ),
    (
        '{"instances": [{"x": 1, "z": 1}]}',
        "float",
        "Failed to process element: 0 key: z of 'instances' list. Error: INVALID_ARGUMENT:"
        " JSON object: does not have named input: z",
    ),
    ('{"instances": [{"x": 1}, 2]}', "float", "Expecting object but got list at item 1 of input list"),
    ('{"instances": [1, {"x": 2}]}', "float", "Expecting value/list but got object at item 1 of input list"),
    (
        '{"instances": [1.5]}',
        "half",
        "Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED:"
        " Conversion of JSON Value: 1.5 to type: half",
    ),
]


@pytest.mark.parametrize("body, dtype, message", REFUSED)
def test_what_does_not_fit_is_refused_in_the_servers_words(body, dtype, message):
    assert refusal(body, x=dtype) == (400, message)


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "complex64"])
def test_a_dtype_that_json_cannot_carry_is_not_implemented(dtype):
    assert refusal('{"inputs": [[1.5]]}', x=dtype) == (501, f"Conversion of JSON Value: 1.5 to type: {dtype}")


def test_several_inputs_must_be_named_and_all_there():
    two = {"a": "float", "b": "float"}
    assert refusal('{"instances": [1]}', **two)[1].startswith(
        "instances is a plain list, but expecting list of objects"
    )
    assert refusal('{"inputs": [1]}', **two)[1].startswith("inputs is a plain value/list, but expecting an object")
    assert refusal('{"inputs": {"a": 1}}', **two) == (400, "Missing named input: b in 'inputs' object.")
    assert refusal('{"instances": [{"a": 1}]}', **two) == (
        400,
        "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"a\": 1\n} keys must be equal to: a,b",
    )
    found = arrays('{"instances": [{"a": 1, "b": [2]}, {"b": [4], "a": 3}]}', **two)[1]
    assert found["a"].tolist() == [1, 3] and found["b"].tolist() == [[2], [4]]


def test_a_signature_without_inputs_cannot_be_called():
    with pytest.raises(failure.Failure, match="Failed to get input map for signature: DEFAULT"):
        json_in.tensors({"instances": [1]}, {})


def test_more_dimensions_than_numpy_has_are_refused():
    body = '{"inputs": ' + "[" * 40 + "1" + "]" * 40 + "}"
    assert refusal(body)[1] == "JSON value of 40 dimensions, and the local server takes at most 32"


_leaves = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-300, 300),
    st.floats(),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.just({"b64": "aGk="}),
    st.sampled_from([2**24, 2**53, 2**31, -(2**31), 1e39, -1e39]),
)
_shapes = st.lists(st.integers(0, 3), max_size=3)


@st.composite
def nested(draw):
    """Mostly regular lists of mostly one kind of value, with now and then one that does not belong."""
    kind = draw(
        st.sampled_from([st.integers(-300, 300), st.floats(width=32), st.booleans(), st.text(max_size=3), _leaves])
    )

    def build(shape):
        if draw(st.integers(0, 30)) == 0:
            return draw(_leaves)
        return [build(shape[1:]) for _ in range(shape[0])] if shape else draw(kind)

    return build(draw(_shapes))


@settings(max_examples=400, deadline=None)
@given(nested(), st.sampled_from(["float", "double", "int32", "int64", "uint8", "uint64", "bool", "string", "half"]))
def test_the_fast_way_gives_what_the_walk_gives_and_takes_nothing_else(value, dtype):
    fast = json_in.dense(value, dtype)
    if fast is None:
        return
    slow = json_in.walk(value, dtype)
    assert fast.dtype == slow.dtype and fast.shape == slow.shape
    np.testing.assert_array_equal(fast, slow)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.one_of(st.integers(-(2**63), 2**64 - 1), st.booleans(), st.none(), st.text(max_size=5)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
        max_leaves=12,
    )
)
def test_values_in_messages_are_printed_as_rapidjson_prints_them(value):
    assert value_text.text(value) == rapidjson.dumps(value, indent=4, ensure_ascii=False)


@pytest.mark.parametrize(
    "value, text",
    [
        (1e30, "1e30"),
        (1.5e-7, "1.5e-7"),
        (1e20, "100000000000000000000.0"),
        (1e21, "1e21"),
        (12.25, "12.25"),
        (0.001, "0.001"),
        (-0.0, "-0.0"),
        (1e-6, "0.000001"),
        (5e-324, "0.0"),
    ],
)
def test_doubles_inside_a_value_are_printed_in_rapidjsons_notation(value, text):
    assert value_text.text([value]) == f"[\n    {text}\n]"


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(st.floats(width=32), st.integers(-(10**8), 10**8).map(float)), max_size=20))
def test_floats_read_back_and_are_no_longer_than_they_must_be(values):
    for value, text in zip(np.array(values, np.float32), decimals.texts(np.array(values, np.float32)), strict=True):
        if not np.isfinite(value):
            assert text in ("NaN", "Infinity", "-Infinity") and (math.isnan(value) or float(text) == value)
            continue
        assert np.float32(text) == value and math.copysign(1, float(text)) == math.copysign(1, value)
        assert "." in text or "e" in text
        short = f"{value:.6g}"
        if np.float32(short) == value:
            assert text in (short, short + ".0")
        else:
            assert text.removesuffix(".0") == f"{float(value):.9g}"


@pytest.mark.parametrize("dtype, digits", [(np.float32, 9), (np.float64, 17)])
def test_many_numbers_are_written_as_one_by_one(dtype, digits):
    rng = np.random.default_rng(3)
    scales = 10.0 ** rng.integers(-37, 37, 5000)
    values = np.concatenate(
        [
            rng.normal(size=5000) * scales,
            [float(f"{value:.6g}") for value in rng.normal(size=5000) * scales],
            10.0 ** np.arange(-37, 38),
            999999.5 * 10.0 ** np.arange(-37, 32),
        ]
    ).astype(dtype)
    values = np.concatenate([values, np.nextafter(values, dtype(0)), -np.nextafter(values, dtype(np.inf))])
    for value, text in zip(values, decimals.texts(values), strict=True):
        short = f"{value:.6g}"
        assert text.removesuffix(".0") == (short if dtype(short) == value else f"{float(value):.{digits}g}")


def test_numbers_are_written_as_the_server_writes_them():
    assert decimals.texts(np.array([0.2, 1 / 3, 2, 9000000, 3e-5, -0.0, 123456.78], np.float32)) == [
        "0.2",
        "0.333333343",
        "2.0",
        "9e+06",
        "3e-05",
        "-0.0",
        "123456.781",
    ]
    assert decimals.texts(np.array([1 / 3, 0.1, 1e300])) == ["0.33333333333333331", "0.1", "1e+300"]


def test_rows_of_one_output_stand_without_its_name():
    assert json_out.outputs({"y": np.array([[1, 2], [3, 4]], np.float32)}, rows=True) == (
        b'{\n    "predictions": [[1.0, 2.0], [3.0, 4.0]\n    ]\n}'
    )
    assert json_out.outputs({"y": np.zeros((0, 3), np.float32)}, rows=True) == b'{\n    "predictions": []\n}'
    assert (
        json_out.outputs({"y": np.zeros((2, 0), np.float32)}, rows=True) == b'{\n    "predictions": [[], []\n    ]\n}'
    )


def test_rows_of_several_outputs_are_objects():
    found = json_out.outputs({"b": np.array([True, False]), "a": np.array([[2**53 + 1], [-1]])}, rows=True)
    assert found.decode() == (
        '{\n    "predictions": [\n        {\n            "a": [9007199254740993],\n            "b": true\n        },\n'
        '        {\n            "a": [-1],\n            "b": false\n        }\n    ]\n}'
    )


def test_strings_are_utf8_and_those_of_an_output_named_bytes_are_base64():
    values = np.array([b'a"\\\n\x01/', b"\xff"], object)
    assert (
        json_out.outputs({"t": values}, rows=True) == b'{\n    "predictions": ["a\\"\\\\\\n\\u0001/", "\xff"\n    ]\n}'
    )
    found = json_out.outputs({"t_bytes": values}, rows=True)
    assert [row["b64"] for row in json.loads(found)["predictions"]] == ["YSJcCgEv", "/w=="]
    assert found == (
        b'{\n    "predictions": [{\n            "b64": "YSJcCgEv"\n        }, {\n            "b64": "/w=="\n        }\n    ]\n}'
    )


@settings(max_examples=100, deadline=None)
@given(_shapes, st.sampled_from([np.int32, np.uint64, bool, object]), st.integers(1, 2))
def test_the_column_form_is_laid_out_as_rapidjson_lays_it_out(shape, dtype, count):
    values = np.arange(int(np.prod(shape))).reshape(shape)
    made = (
        np.array([b"%d" % value for value in values.ravel()], object).reshape(shape)
        if dtype is object
        else values.astype(dtype)
    )
    plain = (
        np.vectorize(bytes.decode, otypes=[object])(made).tolist() if dtype is object and made.size else made.tolist()
    )
    if count == 1:
        assert json_out.outputs({"y": made}, rows=False).decode() == rapidjson.dumps({"outputs": plain}, indent=4)
    else:
        assert json_out.outputs({"z": made, "a": made}, rows=False).decode() == rapidjson.dumps(
            {"outputs": {"a": plain, "z": plain}}, indent=4
        )


def test_base64_in_the_column_form_is_laid_out_as_rapidjson_lays_it_out():
    made = np.array([[b"x"]], object)
    assert json_out.outputs({"y_bytes": made}, rows=False).decode() == rapidjson.dumps(
        {"outputs": [[{"b64": "eA=="}]]}, indent=4
    )
    assert json_out.outputs({"y_bytes": made, "z": np.int32(1)}, rows=False).decode() == rapidjson.dumps(
        {"outputs": {"y_bytes": [[{"b64": "eA=="}]], "z": 1}}, indent=4
    )


@pytest.mark.parametrize(
    "outputs, message",
    [
        ({}, "Cannot convert empty tensor map to JSON"),
        ({"y": np.float32(1)}, "Tensor name: y has no shape information "),
        ({"p": np.zeros(3), "q": np.zeros(2)}, "Tensor name: q has inconsistent batch size: 2 expecting: 3"),
        ({"y": np.zeros(1, np.float16)}, "Failed to write JSON value for tensor type: half"),
    ],
)
def test_outputs_that_json_cannot_hold_are_refused(outputs, message):
    with pytest.raises(failure.Failure) as caught:
        json_out.outputs(outputs, rows=True)
    assert caught.value.message == message


def test_a_float_tensor_survives_both_ways_bit_by_bit():
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 3000, dtype=np.uint32).view(np.float32)
    image = bits[np.isfinite(bits) & (np.abs(bits) >= np.finfo(np.float32).tiny)][:1500].reshape(1, 25, 20, 3)
    body = b'{"instances": ' + json_out.outputs({"y": image}, rows=True)[len('{\n    "predictions": ') :]
    assert arrays(body)[1]["x"].tobytes() == image.tobytes()
    assert struct.unpack("<f", arrays('{"inputs": 1e-45}')[1]["x"].tobytes())[0] == 0, (
        "the server's threads flush what is denormal"
    )
