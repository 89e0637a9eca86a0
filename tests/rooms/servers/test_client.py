"""The client's bytes against tensorflow-serving-api's and TensorFlow's own, and its parser against bytes that nobody wrote."""

import random
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import empty_pb2, unknown_fields
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2, types_pb2
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2

from tests.conftest import ROOT
from tests.wire_arrays import DTYPES, same, shapes
from tests.wire_arrays import random as random_array
from tftrt_tools.base import errors
from tftrt_tools.base.wire import fields, tensor_bytes
from tftrt_tools.servers import client
from tftrt_tools.servers.client import model_metadata, model_service, protocols, serving_error

FIELDS = {
    "float32": "float_val",
    "float64": "double_val",
    "float16": "half_val",
    "bfloat16": "half_val",
    "int64": "int64_val",
    "bool": "bool_val",
    "uint32": "uint32_val",
    "uint64": "uint64_val",
    "complex64": "scomplex_val",
    "complex128": "dcomplex_val",
    "string": "string_val",
}
texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
arrays = st.tuples(st.sampled_from(DTYPES), shapes, st.integers(0, 2**32)).map(lambda made: quiet(random_array(*made)))


def quiet(array):
    """Without signalling NaN: on its way through a Python float it becomes a quiet one."""
    if array.dtype.kind in "fcV" or array.dtype == ml_dtypes.bfloat16:
        with np.errstate(invalid="ignore"):
            return np.where(array != array, np.array(np.nan, array.dtype), array).astype(array.dtype)
    return array


def tensor_proto(array, content):
    """TensorProto of `array` by the message's own fields."""
    dtype = "string" if array.dtype == object else array.dtype.name
    proto = tensor_pb2.TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum)
    proto.tensor_shape.SetInParent()
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if content and dtype != "string":
        proto.tensor_content = array.tobytes()
        return proto
    flat = array.ravel()
    if dtype in ("float16", "bfloat16"):
        flat = flat.view(np.uint16)
    elif dtype.startswith("complex"):
        flat = flat.view(np.float32 if dtype == "complex64" else np.float64)
    getattr(proto, FIELDS.get(dtype, "int_val")).extend(flat.tolist())
    return proto


def api_request(model, inputs, signature, version, label, outputs, content):
    request = predict_pb2.PredictRequest(output_filter=outputs)
    request.model_spec.name, request.model_spec.signature_name = model, signature
    if version is not None:
        request.model_spec.version.value = version
    elif label:
        request.model_spec.version_label = label
    for alias, array in inputs.items():
        request.inputs[alias].CopyFrom(tensor_proto(array, content))
    return request


versions = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 300))


@settings(max_examples=300, deadline=None)
@given(
    names,
    st.dictionaries(texts, arrays, max_size=5),
    texts,
    versions,
    texts,
    st.lists(texts, max_size=3),
    st.booleans(),
)
@example("m", {}, "", 0, "", [], True)
@example("m", {name: np.float32(1) for name in ("ids", "", "ids_mask", "id", "ä", "a\0")}, "", None, "", [], True)
def test_request_bytes_are_those_of_the_api(model, inputs, signature, version, label, outputs, content):
    if version is not None:
        label = ""
    wanted = api_request(model, inputs, signature, version, label, outputs, content).SerializeToString(
        deterministic=True
    )
    assert client.request_bytes(model, inputs, signature, version, label, outputs, content) == wanted


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype != "string"])
def test_request_bytes_are_those_of_make_tensor_proto(dtype):
    array = quiet(random_array(dtype, (3, 5), 1))
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "m"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(array))
    content = bool(request.inputs["x"].tensor_content)  # it knows tensor_content for some dtypes only
    assert client.request_bytes("m", {"x": array}, content=content) == request.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    "array, plain",
    [
        (np.arange(6, dtype=">f4"), np.arange(6, dtype=np.float32)),
        (np.arange(12, dtype=np.int64).reshape(3, 4).T, np.arange(12, dtype=np.int64).reshape(3, 4).T.copy()),
        (np.arange(12, dtype=np.float32)[::2], np.arange(0, 12, 2, dtype=np.float32)),
        (np.array(["a", "ü"]), np.array([b"a", "ü".encode()], object)),
        (np.array([b"a\x00b", "ü"], object), np.array([b"a\x00b", "ü".encode()], object)),
        ([1, 2], np.array([1, 2])),
        (2.5, np.array(2.5)),
        ("text", np.array(b"text", object)),
    ],
    ids=str,
)
@pytest.mark.parametrize("content", [True, False])
def test_any_array_is_sent_as_the_plain_one(array, plain, content):
    assert (
        client.request_bytes("m", {"x": array}, content=content)
        == api_request("m", {"x": plain}, "", None, "", (), content).SerializeToString()
    )


@pytest.mark.parametrize(
    "arguments, told",
    [
        ({"inputs": [1]}, "the inputs are a list"),
        ({"inputs": {"x": np.array([None])}}, "input 'x' cannot be sent: it holds objects of type NoneType"),
        ({"inputs": {"x": np.zeros(2, "datetime64[s]")}}, "no TensorProto for dtype datetime64"),
        ({"inputs": {"x": [[1], [2, 3]]}}, "input 'x' cannot"),
        ({"inputs": {1: 1.0}}, "1 is no text"),
        ({"inputs": {"\ud800": 1.0}}, "is no text that can be sent"),
        ({"model": ""}, "the model has no name"),
        ({"model": 5}, "are texts"),
        ({"version": "1"}, "'1' is no version"),
        ({"version": True}, "True is no version"),
        ({"version": 2**63}, "64 bits"),
        ({"version": 1, "label": "stable"}, "version 1 and label 'stable' are both given"),
        ({"outputs": [b"y"]}, "no text"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(arguments, told):
    with pytest.raises(errors.UsageError) as caught:
        client.request_bytes(**{"model": "m", "inputs": {}, **arguments})
    assert told in caught.value.cause and "\n" not in caught.value.cause and caught.value.mend


def test_a_request_beyond_what_protobuf_can_hold_is_refused_before_it_is_made():
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (2**31 - 1,), (1,), writeable=False)
    blocks = {str(number): huge[: 2**29] for number in range(4)}
    with pytest.raises(errors.UsageError, match="no message can have more than 2147483647"):
        client.request_bytes("m", blocks)


# Answers


def response(outputs, content, version=1):
    answer = predict_pb2.PredictResponse()
    answer.model_spec.name, answer.model_spec.signature_name = "m", "serving_default"
    answer.model_spec.version.value = version
    for alias, array in outputs.items():
        answer.outputs[alias].CopyFrom(tensor_proto(array, content))
    return answer


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(texts, arrays, max_size=5), st.booleans(), st.integers(-(2**63), 2**63 - 1))
def test_response_arrays_are_those_of_make_ndarray(outputs, content, version):
    answer = response(outputs, content, version)
    answered, found = client.response_arrays(answer.SerializeToString())
    assert (answered.name, answered.version, answered.signature, answered.label) == (
        "m",
        version,
        "serving_default",
        "",
    )
    assert list(found) == sorted(outputs)
    for alias, proto in answer.outputs.items():
        assert same(found[alias], tf.make_ndarray(proto)) and same(found[alias], outputs[alias])
        assert not found[alias].flags.writeable


@settings(max_examples=100, deadline=None)
@given(arrays)
def test_response_arrays_read_what_tensorflow_itself_writes(array):
    dtype = "string" if array.dtype == object else array.dtype.name
    written = tf.io.serialize_tensor(tf.constant(array, dtype, array.shape)).numpy()
    assert same(tensor_bytes.read(memoryview(written))[0], array)


@pytest.mark.parametrize("count", [63, 64, 65, 66, 1000])
def test_many_strings_are_written_and_read_as_few_are(count):
    array = np.array([b"%d" % number * (number % 100) for number in range(count)], object).reshape(1, count)
    assert (
        client.request_bytes("m", {"x": array})
        == api_request("m", {"x": array}, "", None, "", (), True).SerializeToString()
    )
    answer = response({"y": array, "z": array[:, :3]}, True)
    assert all(
        same(found, tf.make_ndarray(answer.outputs[alias]))
        for alias, found in client.response_arrays(answer.SerializeToString())[1].items()
    )
    answer.outputs["y"].tensor_shape.dim[0].size = 2
    assert same(client.response_arrays(answer.SerializeToString())[1]["y"], tf.make_ndarray(answer.outputs["y"]))
    for damage, told in (
        (lambda proto: proto.ClearField("dtype"), "DataType (is )?0"),
        (lambda proto: proto.tensor_shape.dim.add(size=2**30), "asks for"),
    ):
        damage(answer.outputs["y"])
        with pytest.raises(ValueError, match=told):
            client.response_arrays(answer.SerializeToString())
        answer.outputs["y"].dtype = types_pb2.DT_STRING


def test_numbers_lie_in_the_answer_itself():
    array = np.arange(1000, dtype=np.float32)
    for content in (True, False):
        raw = response({"y": array}, content).SerializeToString()
        found = client.response_arrays(raw)[1]["y"]
        whole = np.frombuffer(raw, np.uint8)
        assert np.shares_memory(found, whole) and same(found, array)


def test_a_shape_that_asks_for_more_than_was_sent_is_filled_up_within_limits():
    def one(size, **values):
        answer = predict_pb2.PredictResponse()
        answer.outputs["y"].CopyFrom(tensor_pb2.TensorProto(dtype=1, tensor_shape={"dim": [{"size": size}]}, **values))
        return answer

    answer = one(1000, float_val=[1, 2])
    assert np.array_equal(
        client.response_arrays(answer.SerializeToString())[1]["y"], tf.make_ndarray(answer.outputs["y"])
    )
    with pytest.raises(ValueError, match="output 'y': the shape asks for 100000000 elements and 1 were sent"):
        client.response_arrays(one(100_000_000, float_val=[1]).SerializeToString())
    many = one(50_000_000, float_val=[1])
    many.outputs["z"].CopyFrom(many.outputs["y"])
    with pytest.raises(ValueError, match="output 'z'"):
        client.response_arrays(many.SerializeToString())


def delimited(field, content):
    return bytes([field << 3 | 2, len(content)]) + content


def test_fields_that_come_twice_count_as_protobuf_counts_them():
    shape = delimited(2, b"\x08\x02"), delimited(2, b"\x08\x01")
    first = delimited(1, b"y") + delimited(2, b"\x08\x03" + delimited(2, shape[0]) + delimited(7, b"\x05"))
    twice = (
        delimited(1, b"x")
        + first
        + delimited(
            2, b"\x08\x09" + delimited(2, shape[1]) + b"\x50\x07" + delimited(10, b"\x08") + b"\x53\x50\x09\x54"
        )
    )
    spec = delimited(2, delimited(1, b"m") + delimited(2, b"\x08\x05") + delimited(4, b"stable"))
    raw = (
        delimited(1, twice)
        + spec
        + delimited(1, delimited(2, b"\x08\x01"))
        + delimited(1, delimited(1, b"y") + delimited(2, b"\x08\x07\x12\x00"))
        + delimited(1, twice)
    )
    parsed = predict_pb2.PredictResponse.FromString(raw)
    answered, found = client.response_arrays(raw)
    assert (
        (answered.name, answered.version, answered.label)
        == ("m", None, parsed.model_spec.version_label)
        == ("m", None, "stable")
    )
    assert sorted(found) == sorted(parsed.outputs) == ["", "y"]
    assert found["y"].tolist() == tf.make_ndarray(parsed.outputs["y"]).tolist() == [[7], [8]]


# Bytes that nobody wrote


def read_or_refuse(raw):
    """What response_arrays makes of it, None where it refuses with a ValueError."""
    try:
        return client.response_arrays(raw)[1]
    except ValueError:
        return None


def check_against_protobuf(raw):
    found = read_or_refuse(raw)
    try:
        parsed = predict_pb2.PredictResponse.FromString(raw)
    except DecodeError:
        return
    if found is None:
        return
    # upb drops an entry of a map that has fields of no meaning besides; protobuf's other readers do not, and of two with one name the last counts.
    assert set(found) >= set(parsed.outputs)
    entries = sum(one.field_number == 1 for one in unknown_fields.UnknownFieldSet(empty_pb2.Empty.FromString(raw)))
    if entries != len(parsed.outputs):
        return
    for alias, proto in parsed.outputs.items():
        array = found[alias]
        if (
            array.dtype == object
            and proto.tensor_content
            or array.dtype.name not in FIELDS
            and not proto.tensor_content
            and proto.int_val
        ):
            continue  # make_ndarray reads no strings there, and refuses int_val beyond the dtype, which TensorFlow cuts off
        try:
            wanted = tf.make_ndarray(proto)
        except (ValueError, TypeError, OverflowError):
            continue
        assert same(quiet(array), quiet(np.asarray(wanted))), proto


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=200))
@example(
    b"\n\x0c\n\0\x12\x08\x08\x01*\4\0\0\x80?\n\x0d*\x010\x12\x08\x08\x01*\4\0\0\0@"
)  # two entries of one name, the second with a strange field
def test_any_bytes_are_read_or_refused(raw):
    check_against_protobuf(raw)


@settings(max_examples=500, deadline=None)
@given(st.dictionaries(texts, arrays, min_size=1, max_size=3), st.booleans(), st.integers(0, 2**32).map(random.Random))
def test_damaged_answers_are_read_or_refused(outputs, content, rng):
    raw = bytearray(response(outputs, content).SerializeToString())
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(raw))
        kind = rng.randrange(4)
        if kind == 0:
            raw[at] = rng.randrange(256)
        elif kind == 1:
            raw[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del raw[at : at + rng.choice((1, 3))]
        else:
            raw[at:at] = bytes(rng.choices((0, 1, 8, 18, 127, 128, 255), k=rng.choice((1, 9, 10))))
        raw = raw or bytearray(b"\0")
    check_against_protobuf(bytes(raw))


@pytest.mark.parametrize("content", [True, False])
def test_a_cut_answer_is_never_read_as_another(content):
    outputs = {"y": np.arange(40, dtype=np.int64) * 1000, "z": np.array([b"text", b""] * 3, object)}
    answer = response(outputs, content)
    answer.ClearField("model_spec")
    raw = answer.SerializeToString(deterministic=True)
    whole = 0
    for end in range(len(raw)):
        found = read_or_refuse(raw[:end])
        if found is not None:
            whole += 1
            assert all(same(array, outputs[alias]) for alias, array in found.items())
    assert whole == 2  # after nothing at all, and after the first output


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff" * 30,
        b"\x0a\x05ab",
        b"\x0a\xff\xff\xff\xff\x0f",
        b"\x00",
        b"\x0b",
        b"\x0c",
        b"\x0b\x14",
        b"\x0e",
        b"\x0b" * 200,
        b"\x0d\x00",
        delimited(1, delimited(1, b"\xff")),
    ],
)
def test_malformed_messages_are_refused_as_protobuf_refuses_them(raw):
    with pytest.raises(DecodeError):
        predict_pb2.PredictResponse.FromString(raw)
    with pytest.raises(ValueError):
        client.response_arrays(raw)


def test_groups_are_passed_over():
    assert list(fields.walk(memoryview(b"\x0b\x08\x01\x13\x14\x0c\x10\x05"))) == [(2, fields.VARINT, 5)]


@pytest.mark.parametrize(
    "sizes",
    [[2**62] * 20, [2**62, 2**62, 0], [1] * 60, [0] * 300, [-1]],
    ids=lambda sizes: f"{sizes[0]} {len(sizes)} times",
)
def test_impossible_shapes_are_refused(sizes):
    answer = predict_pb2.PredictResponse()
    answer.outputs["y"].CopyFrom(
        tensor_pb2.TensorProto(dtype=1, tensor_shape={"dim": [{"size": size} for size in sizes]}, float_val=[1])
    )
    with pytest.raises(ValueError):
        client.response_arrays(answer.SerializeToString())


# Metadata, status, settings


def metadata_response():
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.model_spec.name = "m"
    answer.model_spec.version.value = 7
    listed = get_model_metadata_pb2.SignatureDefMap()
    one = listed.signature_def["serving_default"]
    one.method_name = "tensorflow/serving/predict"
    for alias, dtype, sizes in (
        ("x", types_pb2.DT_FLOAT, (-1, 3)),
        ("text", types_pb2.DT_STRING, ()),
        ("odd", types_pb2.DT_RESOURCE, ()),
    ):
        info = one.inputs[alias]
        info.name, info.dtype = f"{alias}:0", dtype
        info.tensor_shape.SetInParent()
        for size in sizes:
            info.tensor_shape.dim.add(size=size)
    one.outputs["y"].tensor_shape.unknown_rank = True
    one.outputs["y"].dtype = types_pb2.DT_BFLOAT16
    answer.metadata["signature_def"].Pack(listed)
    return answer.SerializeToString()


def test_metadata_is_typed():
    found = model_metadata.read(metadata_response())
    assert found.model == client.ModelSpec("m", 7)
    one = found["serving_default"]
    assert one.method == "tensorflow/serving/predict" and one.outputs == {"y": client.TensorSpec("bfloat16", None)}
    assert one.inputs == {
        "odd": client.TensorSpec("DataType 20", (), "odd:0"),
        "text": client.TensorSpec("string", (), "text:0"),
        "x": client.TensorSpec("float32", (None, 3), "x:0"),
    }
    assert one.inputs["x"].text() == "float32[?,3]" and one.outputs["y"].text() == "bfloat16[…]"


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100), st.integers(0, 200), st.integers(0, 20))
def test_damaged_metadata_and_states_are_read_or_refused(noise, at, gone):
    raw = metadata_response()
    for reader in (model_metadata.read, model_service.read_status, model_service.read_reload):
        for damaged in (noise, raw[:at] + noise + raw[at + gone :]):
            try:
                reader(damaged)
            except ValueError:
                pass


def test_metadata_request_is_that_of_the_api():
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name, request.model_spec.version_label = "m", "stable"
    assert model_metadata.request(client.ModelSpec("m", label="stable")) == request.SerializeToString(
        deterministic=True
    )


@pytest.mark.parametrize(
    "arguments, told",
    [
        ({"address": "http://here"}, "no address of a TensorFlow Serving's gRPC port"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"retries": 5}, "retries is 5"),
        ({"compression": "zip"}, "no compression 'zip'"),
        ({"tls": client.Tls(root="/no/such.pem")}, "/no/such.pem"),
        ({"tls": client.Tls(certificate="a.pem")}, "needs its key"),
        ({"tls": client.Tls(root=str(ROOT / "setup.cfg"))}, "is no PEM file"),
    ],
)
@pytest.mark.parametrize("kind", [client.Client, client.AsyncClient])
def test_bad_settings_are_refused_in_one_line(kind, arguments, told):
    with pytest.raises(errors.UsageError) as caught:
        kind(**{"address": "127.0.0.1:1", **arguments})
    assert told in caught.value.cause and caught.value.mend


@pytest.mark.parametrize(
    "config, told",
    [
        ("model_config_lst {}", "line 1: ModelServerConfig has no field"),
        (5, "cannot be a int"),
        (ROOT / "no.config", "No such file"),
        (str(ROOT / "no.config"), "No such file"),
    ],
)
def test_a_bad_configuration_is_refused_in_one_line(config, told):
    with client.Client("127.0.0.1:1") as one, pytest.raises(errors.TftrtError) as caught:
        one.reload(config)
    assert told in caught.value.cause


def test_connection_refused_is_one_clear_line():
    with client.Client("127.0.0.1:1", retries=0) as one, pytest.raises(client.ServingError) as caught:
        one.predict("m", {"x": [1.0]})
    assert str(caught.value) == "no server at 127.0.0.1:1: Connection refused" and caught.value.code == "UNAVAILABLE"


def test_a_closed_client_says_so():
    one = client.Client("127.0.0.1:1")
    one.close()
    with pytest.raises(errors.UsageError, match="the client is closed"):
        one.status("m")


def test_a_server_without_a_thread_left_is_told_with_its_flag():
    """The words of a real tensorflow_model_server 2.14.1 whose gRPC threads were all at work."""
    error = serving_error.of(
        "RESOURCE_EXHAUSTED", "Server Threadpool Exhausted", "here:8500", 1, protocols.TENSORFLOW_SERVING
    )
    assert "no thread left" in error.cause and "--grpc_max_threads" in error.mend
    assert (
        serving_error.of(
            "RESOURCE_EXHAUSTED", "Received message larger than max", "here:8500", 1, protocols.TENSORFLOW_SERVING
        ).mend
        == ""
    )


def test_the_texts_of_a_server_stay_whole_in_the_message():
    error = serving_error.of("INVALID_ARGUMENT", "a\n  b", "here:8500", 1, protocols.TENSORFLOW_SERVING)
    assert (error.message, str(error), error.exit_code) == ("a\n  b", "here:8500 says INVALID_ARGUMENT: a b", 1)


def test_it_loads_no_tensorflow_even_after_requests_and_answers():
    script = """
import sys, numpy, asyncio
from tftrt_tools.servers import client
assert "grpc" not in sys.modules, "gRPC is for those who connect"
client.response_arrays(client.request_bytes("m", {"x": numpy.zeros(3)})[:0])
with client.Client("127.0.0.1:1", retries=0) as one:
    for call in (lambda: one.predict("m", {"x": [1.0]}), lambda: one.metadata("m"), lambda: one.status("m"),
                 lambda: one.reload("model_config_list { config { name: 'm' base_path: '/m' model_platform: 'tensorflow' } }")):
        try:
            call()
        except client.ServingError as error:
            assert error.code == "UNAVAILABLE", error
        else:
            raise SystemExit("answered")
async def main():
    async with client.AsyncClient("127.0.0.1:1", retries=0) as one:
        try:
            await one.status("m")
        except client.ServingError as error:
            print(error)
asyncio.run(main())
assert "tensorflow" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0 and done.stdout == "no server at 127.0.0.1:1: Connection refused\n", done.stderr
