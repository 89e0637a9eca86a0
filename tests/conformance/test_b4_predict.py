"""B4: Predict."""

import numpy as np
import pytest

from tests.conformance import models
from tests.conformance.address import assert_refused, predict_request, refusal, tensor

TYPED = {
    "float": "float_val",
    "double": "double_val",
    "half": "half_val",
    "bfloat16": "half_val",
    "int8": "int_val",
    "int16": "int_val",
    "int32": "int_val",
    "int64": "int64_val",
    "uint8": "int_val",
    "uint16": "int_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "bool": "bool_val",
    "string": "string_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
}
ENDLESS = 10**9  # steps of the model `slow`


def _refused(server, model, inputs, code, message=None, *, pattern=None, **options):
    assert_refused(server.prediction.Predict, predict_request(model, inputs, **options), code, message, pattern=pattern)


def _values(dtype):
    import tensorflow as tf

    kind = tf.dtypes.as_dtype(models.DTYPES.get(dtype, "float32"))
    if dtype == "string":
        return np.array([b"", b"plain", "tür".encode(), b"\x00\xff"], object)
    if dtype == "bool":
        return np.array([True, False, True])
    if kind.is_integer:
        return np.array([kind.min, 0, 1, kind.max], kind.as_numpy_dtype)
    if kind.is_complex:
        return np.array([1.5 - 2j, 0, -3j], kind.as_numpy_dtype)
    return np.array([0.1, -2.5, 0, np.inf, -np.inf], kind.as_numpy_dtype)


@pytest.mark.parametrize("dtype", TYPED)
def test_numbers_come_back_in_the_typed_field_and_never_in_tensor_content(server, dtype):
    """B4."""
    import tensorflow as tf

    value = _values(dtype)
    answer = server.predict("dtypes", {"x": tensor(value)}, signature=None if dtype == "float" else dtype).outputs["y"]
    assert answer.tensor_content == b""
    filled = {field.name for field, _ in answer.ListFields()} - {"dtype", "tensor_shape", "version_number"}
    assert filled == {TYPED[dtype]}
    assert tf.make_ndarray(answer).tolist() == value.tolist()
    assert answer.dtype == tf.dtypes.as_dtype(models.DTYPES.get(dtype, "float32")).as_datatype_enum
    assert [dim.size for dim in answer.tensor_shape.dim] == [len(value)]


def test_a_typed_field_holds_every_element_even_when_they_are_equal(server):
    """B4: nothing is compressed, clients read .float_val as it is."""
    answer = server.predict("half_plus_two", {"x": np.full((2, 3), 4, np.float32)}).outputs["y"]
    assert list(answer.float_val) == [4.0] * 6 and [dim.size for dim in answer.tensor_shape.dim] == [2, 3]


def test_an_empty_tensor_comes_back_with_its_shape_and_no_values(server):
    """B4."""
    answer = server.predict("half_plus_two", {"x": np.zeros((0, 3), np.float32)}).outputs["y"]
    assert list(answer.float_val) == [] and [dim.size for dim in answer.tensor_shape.dim] == [0, 3]


def test_a_scalar_comes_back_without_dimensions(server):
    """B4."""
    answer = server.predict("half_plus_two", {"x": np.float32(2)}).outputs["y"]
    assert list(answer.float_val) == [3.0] and not answer.tensor_shape.dim


@pytest.mark.parametrize("dtype", TYPED)
def test_a_request_may_use_the_typed_field(server, dtype):
    """B4: requests may use either form."""
    import tensorflow as tf

    value = _values(dtype)
    first = server.predict("dtypes", {"x": tensor(value)}, signature=None if dtype == "float" else dtype).outputs["y"]
    again = server.predict("dtypes", {"x": first}, signature=None if dtype == "float" else dtype).outputs["y"]
    assert tf.make_ndarray(again).tolist() == value.tolist()


@pytest.mark.parametrize(
    "values, expected", [([7.0], [7.0, 7.0, 7.0]), ([1.0, 2.0], [1.0, 2.0, 2.0]), ([], [0.0, 0.0, 0.0])]
)
def test_a_typed_field_with_too_few_values_is_filled_up_with_the_last(server, values, expected):
    """B4: TensorFlow's reading of a TensorProto; none at all are zeros."""
    proto = tensor(np.zeros(3, np.float32))
    proto.tensor_content = b""
    del proto.float_val[:]
    proto.float_val.extend(values)
    assert list(server.predict("dtypes", {"x": proto}).outputs["y"].float_val) == expected


def test_an_unknown_signature_is_a_failed_precondition(server):
    """B4: in Predict; the other RPCs say INVALID_ARGUMENT for the same fault."""
    _refused(
        server,
        "half_plus_two",
        {"x": [1.0]},
        "FAILED_PRECONDITION",
        'Serving signature key "nosuch" not found.',
        signature="nosuch",
    )


def test_a_model_without_the_default_signature_names_it(server):
    """B4: an empty signature name stands for serving_default, here spelt out."""
    answer = server.predict("dtypes", {"x": [1.0]}, signature="serving_default")
    assert answer.model_spec.signature_name == "serving_default"


def test_the_model_is_checked_before_the_signature(server):
    """B4, order of checks."""
    _refused(server, "nobody", {}, "NOT_FOUND", "Servable not found for request: Latest(nobody)", signature="nosuch")


def test_the_signature_is_checked_before_the_inputs(server):
    """B4, order of checks."""
    _refused(
        server,
        "half_plus_two",
        {},
        "FAILED_PRECONDITION",
        'Serving signature key "nosuch" not found.',
        signature="nosuch",
        output_filter=["nosuch"],
    )


def test_the_inputs_are_checked_before_the_output_filter(server):
    """B4, order of checks."""
    _refused(
        server,
        "half_plus_two",
        {},
        "INVALID_ARGUMENT",
        pattern="input size does not match signature: .*",
        output_filter=["nosuch"],
    )


def test_the_output_filter_is_checked_before_the_run(server):
    """B4, order of checks: this input would fail."""
    _refused(
        server,
        "fragile",
        {"index": tensor([9], np.int32)},
        "INVALID_ARGUMENT",
        output_filter=["nosuch"],
        message="output tensor alias not found in signature: nosuch Outputs expected to be in the set {value}.",
    )


def test_the_method_name_of_a_signature_is_not_checked(server):
    """B4: Predict runs a Classify signature; the check is off by default."""
    from tests.conformance.test_b4_classify_regress import example

    answer = server.predict("examples", {"inputs": tensor([example(0.25).SerializeToString()], object)})
    assert list(answer.outputs["scores"].float_val) == [0.25, 0.75]


def test_more_inputs_than_the_signature_has_are_refused(server):
    """B4."""
    _refused(
        server,
        "half_plus_two",
        {"x": [1.0], "z": [1.0]},
        "INVALID_ARGUMENT",
        "input size does not match signature: 2!=1 len({x,z}) != len({x}). Sent extra: {z}. Missing but required: {}.",
    )


def test_fewer_inputs_than_the_signature_has_are_refused(server):
    """B4: the signature has no defaults."""
    _refused(
        server,
        "several",
        {"b": [[1.0, 2.0]]},
        "INVALID_ARGUMENT",
        "input size does not match signature: 1!=3 len({b}) != len({a,b,c}). Sent extra: {}. Missing but required: {a,c}.",
    )


def test_no_inputs_are_refused(server):
    """B4."""
    _refused(
        server,
        "half_plus_two",
        {},
        "INVALID_ARGUMENT",
        "input size does not match signature: 0!=1 len({}) != len({x}). Sent extra: {}. Missing but required: {x}.",
    )


def test_a_wrong_number_of_inputs_names_the_extra_and_the_missing(server):
    """B4."""
    _refused(
        server,
        "several",
        {"z": [1.0], "a": [[1.0, 2.0]]},
        "INVALID_ARGUMENT",
        "input size does not match signature: 2!=3 len({a,z}) != len({a,b,c}). Sent extra: {z}. Missing but required: {b,c}.",
    )


def test_a_wrong_input_name_reports_the_missing_alias(server):
    """B4: the aliases of the signature are walked, so the missing one is met first."""
    _refused(
        server,
        "half_plus_two",
        {"z": [1.0]},
        "INVALID_ARGUMENT",
        pattern=r"Signature input alias: x\(feed name: [^)]+\) not found in request and no default value provided\. "
        r"Inputs expected to be in the request \{[^}]*\}, or default input alias set: .*",
    )


def test_a_default_fills_an_input_that_was_not_sent(server):
    """B4, signature defaults."""
    assert list(server.predict("defaults", {"a": [1.0]}).outputs["y"].float_val) == [6.0]


def test_an_input_that_was_sent_wins_over_its_default(server):
    """B4, signature defaults."""
    assert list(server.predict("defaults", {"a": [1.0], "b": [2.0]}).outputs["y"].float_val) == [3.0]


def test_an_input_without_a_default_is_required(server):
    """B4, signature defaults."""
    _refused(
        server,
        "defaults",
        {"b": [1.0]},
        "INVALID_ARGUMENT",
        pattern=r"Signature input alias: a\(feed name: [^)]+\) not found in request and no default value provided\. "
        r"Inputs expected to be in the request \{[^}]*\}, or default input alias set: .*b.*",
    )


def test_an_unknown_input_beside_a_default_is_refused(server):
    """B4: the default filled the hole, the name sent is left over."""
    _refused(
        server,
        "defaults",
        {"a": [1.0], "z": [1.0]},
        "INVALID_ARGUMENT",
        pattern=r"Inputs contains invalid name\. Used request inputs: .*, request input: .*",
    )


def test_more_inputs_than_a_signature_with_defaults_has_are_refused(server):
    """B4."""
    _refused(
        server,
        "defaults",
        {"a": [1.0], "b": [1.0], "z": [1.0]},
        "INVALID_ARGUMENT",
        "input size does not match signature: 3!=2 len({a,b,z}) != len({a,b}). Sent extra: {z}. Missing but required: {}.",
    )


@pytest.mark.parametrize("size", [0, 3, 7, 9, 400])
def test_content_that_does_not_fit_shape_and_dtype_is_a_parsing_error(server, size):
    """B4: shape (2) of float32 needs eight bytes; none at all would be zeros, which the typed fields show."""
    proto = tensor(np.zeros(2, np.float32))
    proto.tensor_content = bytes(size)
    if size == 0:
        assert list(server.predict("dtypes", {"x": proto}).outputs["y"].float_val) == [0.0, 0.0]
    else:
        _refused(server, "dtypes", {"x": proto}, "INVALID_ARGUMENT", "tensor parsing error: x")


def test_a_typed_field_with_too_many_values_is_cut(server):
    """B4: TensorFlow's reading of a TensorProto."""
    proto = tensor(np.zeros(2, np.float32))
    proto.tensor_content = b""
    proto.float_val.extend([1.0, 2.0, 3.0])
    assert list(server.predict("dtypes", {"x": proto}).outputs["y"].float_val) == [1.0, 2.0]


def test_an_unknown_rank_is_overlooked(server):
    """B4: TensorFlow's reading of a TensorProto goes by the dimensions that are there."""
    proto = tensor(np.ones(2, np.float32))
    proto.tensor_shape.unknown_rank = True
    assert list(server.predict("dtypes", {"x": proto}).outputs["y"].float_val) == [1.0, 1.0]


def test_the_content_of_an_empty_tensor_is_overlooked(server):
    """B4: TensorFlow's reading of a TensorProto."""
    proto = tensor(np.ones(2, np.float32))
    proto.tensor_shape.dim[0].size = 0
    answer = server.predict("dtypes", {"x": proto}).outputs["y"]
    assert list(answer.float_val) == [] and [dim.size for dim in answer.tensor_shape.dim] == [0]


def test_half_a_complex_number_is_overlooked(server):
    """B4: TensorFlow's reading of a TensorProto; what is left fills the rest."""
    proto = tensor(np.zeros(2, np.complex64))
    proto.tensor_content = b""
    del proto.scomplex_val[:]
    proto.scomplex_val.extend([1.0, 2.0, 3.0])
    assert list(server.predict("dtypes", {"x": proto}, signature="complex64").outputs["y"].scomplex_val) == [
        1.0,
        2.0,
        1.0,
        2.0,
    ]


def test_a_bool_that_is_neither_0_nor_1_is_a_parsing_error(server):
    """B4: as content."""
    proto = tensor(np.array([True, False]))
    proto.tensor_content = b"\x01\x02"
    _refused(server, "dtypes", {"x": proto}, "INVALID_ARGUMENT", "tensor parsing error: x", signature="bool")


@pytest.mark.parametrize(
    "damage", ["invalid dtype", "reference dtype", "negative dimension", "overflowing shape", "no dtype"]
)
def test_a_tensor_that_is_none_is_a_parsing_error(server, damage):
    """B4."""
    proto = tensor(np.zeros(2, np.float32))
    if damage == "invalid dtype":
        proto.dtype = 7777
    elif damage == "negative dimension":
        proto.tensor_shape.dim[0].size = -2
    elif damage == "reference dtype":
        proto.dtype = 101
    elif damage == "overflowing shape":
        proto.tensor_shape.dim[0].size = 2**62
        proto.tensor_shape.dim.add(size=2**62)
    else:
        proto.dtype = 0
    _refused(server, "dtypes", {"x": proto}, "INVALID_ARGUMENT", "tensor parsing error: x")


def test_an_unknown_output_is_refused_with_the_known_ones(server):
    """B4."""
    _refused(
        server,
        "several",
        _three(),
        "INVALID_ARGUMENT",
        output_filter=["sum", "nosuch"],
        message="output tensor alias not found in signature: nosuch Outputs expected to be in the set {count,scaled,sum}.",
    )


def test_a_repeated_output_is_refused(server):
    """B4."""
    _refused(
        server,
        "several",
        _three(),
        "INVALID_ARGUMENT",
        "duplicate output tensor alias: sum",
        output_filter=["sum", "count", "sum"],
    )


def _three():
    return {"a": [[1.0, 2.0]], "b": [[3.0, 4.0]], "c": tensor([5], np.int32)}


def test_without_an_output_filter_every_output_comes(server):
    """B4."""
    outputs = server.predict("several", _three()).outputs
    assert list(outputs["sum"].float_val) == [4.0, 6.0] and list(outputs["scaled"].float_val) == [5.0, 10.0]
    assert list(outputs["count"].int_val) == [6] and len(outputs) == 3


def test_with_an_output_filter_only_those_come(server):
    """B4."""
    outputs = server.predict("several", _three(), output_filter=["count"]).outputs
    assert list(outputs) == ["count"] and list(outputs["count"].int_val) == [6]


@pytest.mark.parametrize("dtype, name", [(np.int32, "int32"), (np.float64, "double"), (object, "string")])
def test_a_wrong_dtype_is_refused_by_the_session(server, dtype, name):
    """B4: no check of the server's own."""
    proto = tensor([b"1"] if dtype is object else [1], dtype)
    _refused(
        server,
        "half_plus_two",
        {"x": proto},
        "INVALID_ARGUMENT",
        pattern=rf"Expects arg\[\d+\] to be float but {name} is provided",
    )


def test_a_wrong_shape_is_refused_by_the_first_op_that_dislikes_it(server):
    """B4: no check of the server's own; the message is the op's."""
    _refused(
        server,
        "several",
        {**_three(), "a": [[1.0, 2.0, 3.0]]},
        "INVALID_ARGUMENT",
        pattern=r".*Incompatible shapes: \[1,3\] vs\. \[1,2\].*",
    )


def test_a_failing_op_answers_with_its_own_message(server):
    """B4."""
    _refused(
        server,
        "fragile",
        {"index": tensor([0, 7], np.int32)},
        "INVALID_ARGUMENT",
        pattern=r".*indices\[1\] = 7 is not in \[0, 3\).*",
    )


def test_a_failed_request_leaves_the_model_serving(server):
    """B4."""
    for _ in range(3):
        refusal(server.prediction.Predict, predict_request("fragile", {"index": tensor([7], np.int32)}))
    assert list(server.predict("fragile", {"index": tensor([2, 0], np.int32)}).outputs["value"].float_val) == [
        30.0,
        10.0,
    ]


def test_a_deadline_that_passes_while_running_ends_the_run(server):
    """B4: the deadline becomes the run's timeout, so the model is free again at once and for as many requests as come."""
    for _ in range(4):
        code, _ = refusal(
            server.prediction.Predict, predict_request("slow", {"steps": tensor([ENDLESS], np.int64)}), timeout=0.3
        )
        assert code == "DEADLINE_EXCEEDED"
    assert list(server.predict("slow", {"steps": tensor([1], np.int64)}).outputs["done"].float_val) == [1.0]


def test_a_long_message_is_cut_over_grpc(server):
    """1,024 characters and a mark; over REST it is whole (B7)."""
    code, message = refusal(
        server.prediction.Predict, predict_request("dtypes", {"x": [1.0]}, output_filter=["A" * 5000])
    )
    whole = "output tensor alias not found in signature: " + "A" * 5000
    assert (code, message) == ("INVALID_ARGUMENT", whole[:1024] + "...TRUNCATED")


def test_a_message_of_the_limit_is_not_cut(server):
    """1,024 characters are whole, 1,025 are not."""
    room = 1024 - len('Serving signature key "" not found.')
    for extra, cut in ((0, False), (1, True)):
        name = "s" * (room + extra)
        whole = f'Serving signature key "{name}" not found.'
        _refused(
            server,
            "dtypes",
            {"x": [1.0]},
            "FAILED_PRECONDITION",
            whole[:1024] + "...TRUNCATED" if cut else whole,
            signature=name,
        )


def test_messages_larger_than_the_clients_default_are_taken_and_given(server):
    """The server has no limit below 2 GiB: 8 MiB in and out."""
    value = np.arange(2 << 20, dtype=np.float32)
    answer = server.predict("half_plus_two", {"x": value}).outputs["y"]
    assert np.array_equal(np.asarray(answer.float_val, np.float32), value / 2 + 2)
