"""B7: REST."""

import base64
import gzip
import json
import math

import pytest

from tests.conformance import models
from tests.conformance.address import assert_rest_refused

ENDLESS = 10**9
HALF = "/v1/models/half_plus_two:predict"


def _refused(answer, message=None, *, pattern=None, status=400):
    assert_rest_refused(answer, status, message, pattern=pattern)


def test_rows_come_back_as_predictions(server):
    """B7."""
    answer = server.rest("POST", HALF, {"instances": [1.0, 2, -3.5]})
    assert (answer.status, answer.json()) == (200, {"predictions": [2.5, 3.0, 0.25]})
    assert answer.headers["content-type"] == "application/json"


def test_columns_come_back_as_outputs(server):
    """B7."""
    assert server.rest("POST", HALF, {"inputs": [[1.0, 2.0]]}).json() == {"outputs": [[2.5, 3.0]]}
    assert server.rest("POST", HALF, {"inputs": {"x": 4.0}}).json() == {"outputs": 4.0}


def test_rows_of_several_inputs_are_objects_and_so_are_the_predictions(server):
    """B7."""
    rows = [{"a": [1.0, 2.0], "b": [3.0, 4.0], "c": 5}, {"b": [0.0, 0.0], "c": -1, "a": [1.0, 1.0]}]
    assert server.rest_predict("several", {"instances": rows}).json() == {
        "predictions": [
            {"sum": [4.0, 6.0], "scaled": [5.0, 10.0], "count": 6},
            {"sum": [1.0, 1.0], "scaled": [-1.0, -1.0], "count": 0},
        ]
    }


def test_columns_of_several_inputs_are_an_object_and_so_are_the_outputs(server):
    """B7."""
    body = {"inputs": {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]], "c": [5]}}
    assert server.rest_predict("several", body).json() == {
        "outputs": {"sum": [[4.0, 6.0]], "scaled": [[5.0, 10.0]], "count": [6]}
    }


def test_a_signature_is_chosen_by_its_name(server):
    """B7."""
    body = {"signature_name": "only_sum", "inputs": {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]]}}
    assert server.rest_predict("several", body).json() == {"outputs": [[4.0, 6.0]]}


@pytest.mark.parametrize("path", ["/", "/v2/models/half_plus_two:predict", "/v1", "/index.html", "/monitoring"])
def test_a_path_that_is_not_under_v1_is_404_without_json(server, path):
    """B7: the HTTP library's own page."""
    for verb in ("GET", "POST"):
        answer = server.rest(verb, path, None if verb == "GET" else "{}")
        assert answer.status == 404 and answer.headers.get("content-type") != "application/json"


@pytest.mark.parametrize(
    "verb, path",
    [
        ("GET", "/v1/"),
        ("GET", "/v1/model/half_plus_two"),
        ("GET", HALF),
        ("POST", "/v1/models/half_plus_two"),
        ("POST", "/v1/models/half_plus_two:explain"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/half_plus_two/:predict"),
        ("POST", "/v1/models/half_plus_two/versions/one:predict"),
        ("POST", "/v1/models/half_plus_two/versions/-1:predict"),
        ("POST", "/v1/models/versions/versions/1/labels/stable:predict"),
        ("POST", "/v1/models/half_plus_two:predict/"),
        ("GET", "/v1/models/half_plus_two/versions/"),
        ("GET", "/v1/models/half_plus_two/meta"),
        ("PUT", HALF),
        ("DELETE", HALF),
    ],
)
def test_a_path_under_v1_without_a_route_or_with_the_wrong_verb_is_malformed(server, verb, path):
    """B7."""
    _refused(server.rest(verb, path, "{}" if verb in ("POST", "PUT") else None), f"Malformed request: {verb} {path}")


def test_multi_inference_has_no_route(server):
    """B7."""
    path = "/v1/models/examples:multi_inference"
    _refused(server.rest("POST", path, {"examples": [{"x": 1.0}]}), f"Malformed request: POST {path}")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/models",
        "/V1/Models",
        "/v1/models/versions/1",
        "/v1/models/versions/1/metadata",
        "/v1/models/labels/stable",
        "/v1/models/labels/stable/metadata",
    ],
)
def test_status_and_metadata_need_a_name(server, path):
    """B7."""
    _refused(server.rest("GET", path), "Missing model name in request.")


def test_a_model_may_be_called_metadata(server):
    """B7, derived: a single word after /v1/models/ is a name."""
    _refused(server.rest("GET", "/v1/models/metadata"), "Could not find any versions of model metadata", status=404)


@pytest.mark.parametrize(
    "verb, path",
    [
        ("POST", "/v1/models/half_plus_two/versions/99999999999999999999:predict"),
        ("GET", "/v1/models/half_plus_two/versions/99999999999999999999"),
        ("GET", "/v1/models/half_plus_two/versions/9223372036854775808/metadata"),
    ],
)
def test_a_version_beyond_64_bits_is_400_with_an_empty_body(server, verb, path):
    """B7, derived: the answer is given up before its text is written."""
    answer = server.rest(verb, path, {"instances": [1.0]} if verb == "POST" else None)
    assert (answer.status, answer.body) == (400, b"")


def test_routes_do_not_heed_case_but_methods_do(server):
    """B7: the path is matched without regard to case; the method is then compared as it is, derived."""
    assert server.rest("POST", "/V1/MODELS/half_plus_two:predict", {"instances": [1.0]}).json() == {
        "predictions": [2.5]
    }
    assert server.rest("GET", "/V1/Models/versions/VERSIONS/1").status == 200
    assert server.rest("POST", "/v1/models/Half_Plus_Two:predict", {"instances": [1.0]}).status == 404
    _refused(
        server.rest("POST", "/v1/models/half_plus_two:PREDICT", {"instances": [1.0]}),
        "Malformed request: POST /v1/models/half_plus_two:PREDICT",
    )


def test_names_and_labels_are_unescaped(server):
    """B7."""
    assert server.rest("POST", "/v1/models/half%5Fplus%5ftwo:predict", {"instances": [1.0]}).json() == {
        "predictions": [2.5]
    }
    assert server.rest("POST", "/v1/models/versions/labels/sta%62le:predict", {"instances": [1.0]}).json() == {
        "predictions": [2.0]
    }
    _refused(server.rest("GET", "/v1/models/no%20body"), "Could not find any versions of model no body", status=404)


def test_an_empty_body_is_refused(server):
    """B7."""
    for path in (HALF, "/v1/models/examples:classify", "/v1/models/examples:regress"):
        _refused(server.rest("POST", path, b""), "JSON Parse error: The document is empty")


@pytest.mark.parametrize(
    "body, text, offset",
    [
        ('{"instances": [1.0,]}', "Invalid value.", 19),
        ("{", "Missing a name for object member.", 1),
        ('{"instances" [1.0]}', "Missing a colon after a name of object member.", 13),
        ('{"instances": [1.0]', "Missing a comma or '}' after an object member.", 19),
        ('{"instances": [1.0 2.0]}', "Missing a comma or ']' after an array element.", 19),
        ('{"instances": [1.0]} x', "The document root must not be followed by other values.", 21),
        ('{"instances": ["a', "Missing a closing quotation mark in string.", 17),
        ('{"instances": ["\\u12"]}', "Incorrect hex digit after \\u escape in string.", 16),
        ('{"instances": ["\\q"]}', "Invalid escape character in string.", 16),
        ('{"instances": [1.]}', "Miss fraction part in number.", 17),
        ('{"instances": [1e]}', "Miss exponent in number.", 17),
        ('{"instances": [1e999]}', "Number too big to be stored in double.", 15),
        ("abc", "Invalid value.", 0),
        (" ", "The document is empty.", 1),
    ],
)
def test_bad_json_is_refused_with_rapidjsons_words(server, body, text, offset):
    """B7."""
    _refused(server.rest("POST", HALF, body), f"JSON Parse error: {text} at offset: {offset}")


@pytest.mark.parametrize("body", ["[1.0]", "1", '"text"', "null", "true"])
def test_json_that_is_no_object_is_refused(server, body):
    """B7."""
    _refused(server.rest("POST", HALF, body), pattern="JSON Value: .* Is not object")


def test_neither_inputs_nor_instances_is_refused(server):
    """B7."""
    for body in ({}, {"signature_name": "serving_default"}, {"examples": [1.0]}):
        _refused(server.rest("POST", HALF, body), "Missing 'inputs' or 'instances' key")


def test_both_inputs_and_instances_are_refused(server):
    """B7."""
    _refused(
        server.rest("POST", HALF, {"inputs": [1.0], "instances": [1.0]}),
        pattern="JSON Value: .* Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ?",
    )


@pytest.mark.parametrize(
    "instances, pattern",
    [
        (5, "JSON Value: .* Expecting 'instances' to be an list/array"),
        ([], "JSON Value: .* No values in 'instances' array"),
    ],
)
def test_instances_have_to_be_a_list_with_something_in_it(server, instances, pattern):
    """B7."""
    _refused(server.rest("POST", HALF, {"instances": instances}), pattern=pattern)


def test_the_signature_name_has_to_be_text(server):
    """B7."""
    _refused(
        server.rest("POST", HALF, {"signature_name": 5, "instances": [1.0]}),
        pattern=r"JSON Value: .* not formatted correctly\. 'signature_name' key must be a string value\.",
    )


def test_an_unknown_signature_is_refused_while_the_json_is_read(server):
    """B7: the look-up for decoding comes first, so it is not Predict's FAILED_PRECONDITION; and a long text is whole over REST."""
    for name in ("nosuch", "A" * 5000):
        _refused(
            server.rest("POST", HALF, {"signature_name": name, "instances": ["wrong"]}),
            f'Serving signature name: "{name}" not found in signature def',
        )


@pytest.mark.parametrize(
    "value, text, kind",
    [("a", '"a"', "String"), (True, "true", "True"), (None, "null", "Null"), (False, "false", "False")],
)
def test_a_wrong_json_type_is_refused(server, value, text, kind):
    """B7."""
    message = f"JSON Value: {text} Type: {kind} is not of expected type: float"
    _refused(server.rest("POST", HALF, {"inputs": [value]}), message)
    _refused(
        server.rest("POST", HALF, {"instances": [value]}),
        f"Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: {message}",
    )


def test_an_object_is_no_number(server):
    """B7."""
    _refused(
        server.rest("POST", HALF, {"inputs": {"x": [{"y": 1}]}}),
        pattern="JSON Value: .* Type: Object is not of expected type: float",
    )


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("int32", 1.5),
        ("int32", 2**31),
        ("int64", 2**63),
        ("uint32", -1),
        ("uint64", -1),
        ("bool", 1),
        ("string", 1),
        ("double", "1"),
    ],
)
def test_a_number_that_is_none_of_its_dtype_is_refused(server, dtype, value):
    """B7."""
    answer = server.rest_predict("dtypes", {"signature_name": dtype, "inputs": [value]})
    _refused(answer, pattern=rf"JSON Value: .* Type: (Number|String) is not of expected type: {dtype}")


@pytest.mark.parametrize("form, answered", [("inputs", "outputs"), ("instances", "predictions")])
def test_a_number_that_a_float_cannot_hold_is_rounded(server, form, answered):
    """B7, and the corrections: nothing is checked for precision."""
    answer = server.rest("POST", HALF, {form: [16777217]})
    assert answer.status == 200 and answer.json() == {answered: [16777216 / 2 + 2]}
    answer = server.rest("POST", HALF, f'{{"{form}": [1e39, -1e300]}}')
    assert answer.status == 200 and answer.json() == {answered: [float("inf"), float("-inf")]}
    answer = server.rest_predict(
        "dtypes", f'{{"signature_name": "double", "{form}": [9007199254740993, 18446744073709551615, 1e-320]}}'
    )
    assert answer.status == 200 and answer.json() == {answered: [2.0**53, 2.0**64, 0.0]}


def test_the_first_of_two_values_of_a_key_counts(server):
    """Corrections."""
    assert server.rest("POST", HALF, '{"instances": [2], "instances": [4]}').json() == {"predictions": [3.0]}
    assert server.rest("POST", HALF, '{"inputs": {"x": [2], "x": [4]}}').json() == {"outputs": [3.0]}


def test_a_double_in_an_error_has_rapidjsons_digits(server):
    """Corrections."""
    _refused(
        server.rest("POST", HALF, '{"inputs": {"x": [{"y": 18446744073709551616}]}}'),
        'JSON Value: {\n    "y": 18446744073709553000.0\n} Type: Object is not of expected type: float',
    )


def test_options_with_a_body_gets_an_empty_page(server):
    """Corrections."""
    answer = server.rest("OPTIONS", HALF, '{"instances": [1]}')
    assert (answer.status, answer.body) == (400, b"") and answer.headers["content-type"] == "text/html"


@pytest.mark.parametrize(
    "value, message",
    [
        ([[1, 2], [1]], "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ([1, [2]], "Encountered list at unexpected level: 1 expected < 1"),
        ([[1], 2], "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
    ],
)
def test_a_ragged_column_is_refused(server, value, message):
    """B7."""
    _refused(server.rest("POST", HALF, {"inputs": value}), message)


@pytest.mark.parametrize(
    "rows, element, message",
    [
        ([[[1, 2], [1]]], 0, "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ([[1, 2], [1]], 1, "Expecting tensor size: 2 but got: 1"),
        ([[[1, 2]], [[1], [2]]], 1, "Expecting shape [1,2] but got: [2,1]"),
    ],
)
def test_a_ragged_row_is_refused_with_its_number(server, rows, element, message):
    """B7."""
    _refused(
        server.rest("POST", HALF, {"instances": rows}),
        f"Failed to process element: {element} of 'instances' list. Error: INVALID_ARGUMENT: {message}",
    )


def test_a_ragged_row_of_an_object_is_refused_with_its_number_and_key(server):
    """B7."""
    rows = [{"a": [1, 2], "b": [3, 4], "c": 1}, {"a": [1, 2], "b": [3], "c": 1}]
    _refused(
        server.rest_predict("several", {"instances": rows}),
        "Failed to process element: 1 key: b of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 2 but got: 1",
    )


@pytest.mark.parametrize(
    "row, pattern",
    [
        (
            {"a": [1, 2], "b": [3, 4]},
            r"Failed to process element: 0 of 'instances' list\. JSON object: .* keys must be equal to: a,b,c",
        ),
        (
            {"a": [1, 2], "b": [3, 4], "c": 1, "z": 1},
            r"Failed to process element: 0 key: z of 'instances' list\. Error: INVALID_ARGUMENT: JSON object: does not have named input: z",
        ),
    ],
)
def test_a_row_has_every_input_and_no_other(server, row, pattern):
    """B7."""
    _refused(server.rest_predict("several", {"instances": [row]}), pattern=pattern)


def test_rows_are_all_objects_or_none(server):
    """B7."""
    _refused(
        server.rest("POST", HALF, {"instances": [{"x": 1.0}, 1.0]}),
        "Expecting object but got list at item 1 of input list",
    )
    _refused(
        server.rest("POST", HALF, {"instances": [1.0, {"x": 1.0}]}),
        "Expecting value/list but got object at item 1 of input list",
    )


def test_plain_rows_and_columns_are_for_one_input_only(server):
    """B7."""
    _refused(
        server.rest_predict("several", {"instances": [[1.0, 2.0]]}),
        "instances is a plain list, but expecting list of objects as "
        "multiple input tensors required as per tensorinfo_map",
    )
    _refused(
        server.rest_predict("several", {"inputs": [[1.0, 2.0]]}),
        "inputs is a plain value/list, but expecting an object as "
        "multiple input tensors required as per tensorinfo_map",
    )


def test_a_missing_column_is_refused(server):
    """B7."""
    _refused(
        server.rest_predict("several", {"inputs": {"a": [[1, 2]], "b": [[3, 4]]}}),
        "Missing named input: c in 'inputs' object.",
    )


def test_an_extra_column_is_ignored(server):
    """B7: the signature's inputs are walked, not the object's keys."""
    assert server.rest("POST", HALF, {"inputs": {"x": [1.0], "z": [1.0]}}).json() == {"outputs": [2.5]}


def test_signature_defaults_cannot_be_used(server):
    """B7: rows want all keys, columns name the missing one."""
    _refused(server.rest_predict("defaults", {"inputs": {"a": [1.0]}}), "Missing named input: b in 'inputs' object.")
    _refused(
        server.rest_predict("defaults", {"instances": [{"a": 1.0}]}),
        pattern=r"Failed to process element: 0 of 'instances' list\. JSON object: .* keys must be equal to: a,b",
    )


@pytest.mark.parametrize("dtype", ["half", "bfloat16", "complex64", "complex128"])
def test_a_dtype_that_json_does_not_carry_is_501(server, dtype):
    """B7; as rows the same text is inside an INVALID_ARGUMENT."""
    answer = server.rest_predict("dtypes", {"signature_name": dtype, "inputs": [1.5]})
    _refused(answer, f"Conversion of JSON Value: 1.5 to type: {dtype}", status=501)
    _refused(
        server.rest_predict("dtypes", {"signature_name": dtype, "instances": [1.5]}),
        "Failed to process element: 0 of 'instances' list. "
        f"Error: UNIMPLEMENTED: Conversion of JSON Value: 1.5 to type: {dtype}",
    )


@pytest.mark.parametrize(
    "dtype, values",
    [
        ("double", [0.1, -2.5, 1e300]),
        ("int8", [-128, 127]),
        ("int16", [-32768, 32767]),
        ("int32", [-(2**31), 2**31 - 1]),
        ("uint8", [0, 255]),
        ("int64", [-(2**63), 2**63 - 1]),
        ("uint32", [0, 2**32 - 1]),
        ("uint64", [0, 2**64 - 1]),
        ("bool", [True, False]),
        ("string", ["", "tür", "\x00"]),
    ],
)
def test_the_other_dtypes_go_through_json_unchanged(server, dtype, values):
    """B7."""
    assert server.rest_predict("dtypes", {"signature_name": dtype, "inputs": values}).json() == {"outputs": values}
    assert server.rest_predict("dtypes", {"signature_name": dtype, "instances": values}).json() == {
        "predictions": values
    }


@pytest.mark.parametrize(
    "value, text",
    [
        (3, "3.0"),
        (0.1, "0.1"),
        (-0.5, "-0.5"),
        (1 / 3, "0.333333343"),
        (9000000, "9e+06"),
        (0.00003, "3e-05"),
        (16777215, "16777215.0"),
        (0, "0.0"),
        (1e10, "1e+10"),
        (123456, "123456.0"),
        (1234567, "1234567.0"),
    ],
)
def test_a_float_is_written_with_as_many_digits_as_it_needs(server, value, text):
    """B7: six digits where they read back the same, nine otherwise, and always a point or an exponent."""
    answer = server.rest_predict("dtypes", {"inputs": [value]})
    assert json.loads(answer.body, parse_float=str, parse_int=str) == {"outputs": [text]}


def test_nan_and_infinity_are_taken_and_given(server):
    """B7: as the tokens NaN, Infinity and -Infinity, which Python's json reads too."""
    answer = server.rest("POST", HALF, '{"instances": [NaN, Infinity, -Infinity, Inf]}')
    values = answer.json()["predictions"]
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf, math.inf]
    for token in (b"NaN", b"Infinity", b"-Infinity"):
        assert token in answer.body


def test_base64_is_read_as_bytes(server):
    """B7."""
    packed = {"b64": base64.b64encode(b"\x00\xffraw").decode()}
    for body, key in (({"instances": [packed]}, "predictions"), ({"inputs": [packed]}, "outputs")):
        body = {**body, "signature_name": "serving_default"}
        answer = json.loads(server.rest_predict("texts", body).body.decode("utf-8", "replace"))[key]
        assert (answer[0] if key == "predictions" else answer)["raw_bytes"] in (packed, [packed])


def test_an_output_named_bytes_is_written_in_base64(server):
    """B7: by the end of its name."""
    assert server.rest_predict("texts", {"instances": ["plain"]}).json() == {
        "predictions": [{"text": "plain", "raw_bytes": {"b64": base64.b64encode(b"plain").decode()}}]
    }


@pytest.mark.parametrize(
    "value, pattern",
    [
        ({"b64": 5}, "JSON Value: .* not formatted correctly for base64 data"),
        ({"b64": "a", "c": 1}, "JSON Value: .* not formatted correctly for base64 data"),
        ({"b64": "***"}, "Unable to base64 decode"),
    ],
)
def test_bad_base64_is_refused(server, value, pattern):
    """B7."""
    _refused(server.rest_predict("texts", {"inputs": {"x": [value]}}), pattern=pattern)


def test_rows_need_outputs_of_one_batch_size(server):
    """B7: columns do not."""
    _refused(
        server.rest_predict("uneven", {"instances": [1.0, 2.0]}),
        pattern=r"Tensor name: (more has inconsistent batch size: 3 expecting: 2|"
        r"rows has inconsistent batch size: 2 expecting: 3)",
    )
    assert server.rest_predict("uneven", {"inputs": [1.0, 2.0]}).json() == {
        "outputs": {"rows": [1.0, 2.0], "more": [1.0, 2.0, 0.0]}
    }


def test_rows_need_outputs_with_a_dimension(server):
    """B7: columns do not."""
    _refused(
        server.rest_predict("reduced", {"signature_name": "scalar", "instances": [1.0, 2.0]}),
        pattern="Tensor name: total has no shape information ?",
    )
    assert server.rest_predict("reduced", {"signature_name": "scalar", "inputs": [1.0, 2.0]}).json() == {"outputs": 3.0}


def test_gzip_bodies_are_unpacked(server):
    """B7."""
    body = gzip.compress(json.dumps({"instances": [1.0] * 1000}).encode())
    answer = server.rest("POST", HALF, body, {"Content-Encoding": "gzip"})
    assert (answer.status, answer.json()) == (200, {"predictions": [2.5] * 1000})


def test_a_large_body_is_taken(server):
    """B7: 8 MB of JSON."""
    body = json.dumps({"inputs": [0.125] * 1_000_000})
    answer = server.rest("POST", HALF, body, timeout=60)
    assert answer.status == 200 and answer.json()["outputs"] == [2.0625] * 1_000_000


def test_a_failing_op_is_400_with_the_whole_message(server):
    """B7: INVALID_ARGUMENT."""
    _refused(server.rest_predict("fragile", {"instances": [7]}), pattern=r".*indices\[0\] = 7 is not in \[0, 3\).*")


def test_the_rest_timeout_is_504(server):
    """B7: --rest_api_timeout_in_ms of the flags in models.py."""
    _refused(
        server.rest_predict("slow", {"instances": [ENDLESS]}, timeout=10 * models.REST_TIMEOUT_MS / 1000),
        "Timed out waiting for notification",
        status=504,
    )


CODES = {
    "OK": 200,
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "DATA_LOSS": 500,
}


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_http_status(code):
    """B7, in process: most codes cannot be provoked from outside. 400, 404, 501 and 504 are met above, 429 and 503 in B8."""
    import grpc

    from tftrt_tools.servers.serving.local.failure import Failure

    assert Failure(grpc.StatusCode[code], "text").http == CODES[code]


def test_metrics_are_served_beside_the_api(server):
    """B7: where the server was configured to; B10 has their content."""
    answer = server.rest("GET", "/monitoring/prometheus/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain")
