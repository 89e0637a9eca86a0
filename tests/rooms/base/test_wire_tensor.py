"""wire.tensor against TensorFlow's own conversions, property by property."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow.core.framework import tensor_pb2

from tests.wire_arrays import DTYPES, random, same, shapes
from tftrt_tools.base.wire import tensor, varints


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DTYPES), shapes, st.integers(0, 2**32), st.booleans())
def test_what_is_encoded_is_what_tensorflow_reads_and_what_is_decoded_again(dtype, shape, seed, content):
    array = random(dtype, shape, seed)
    message = tensor_pb2.TensorProto.FromString(b"".join(tensor.encode(array, content)))
    assert message.dtype == tf.as_dtype(dtype).as_datatype_enum
    assert bool(message.tensor_content) == bool(content and dtype != "string" and array.size)
    assert same(tensor.decode(message), array)
    read = tf.io.parse_tensor(message.SerializeToString(), tf.as_dtype(dtype)).numpy()
    assert same(np.asarray(read, array.dtype), array)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DTYPES), shapes, st.integers(0, 2**32))
def test_what_tensorflow_writes_is_read(dtype, shape, seed):
    array = random(dtype, shape, seed)
    # On its way through a Python float a signalling NaN becomes a quiet one.
    if dtype.startswith(("float", "bfloat", "complex")):
        array = np.where(array != array, np.array(np.nan, array.dtype), array)
    assert same(tensor.decode(tf.make_tensor_proto(array, dtype, shape)), array)
    written = tensor_pb2.TensorProto.FromString(tf.io.serialize_tensor(tf.constant(array, dtype, shape)).numpy())
    assert same(tensor.decode(written), array)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=20))
def test_varints_are_those_of_protobuf(longs, ints):
    message = tensor_pb2.TensorProto(int64_val=longs, int_val=ints)
    assert varints.encode(np.array(longs, np.int64)) in (b"", tensor._packed(message, 10))
    assert varints.encode(np.array(ints, np.int32)) in (b"", tensor._packed(message, 7))
    assert varints.decode(tensor._packed(message, 10)).astype(np.int64).tolist() == longs
    assert varints.decode(tensor._packed(message, 7)).astype(np.int32).tolist() == ints


def proto(dtype="float32", shape=(), **fields):
    message = tensor_pb2.TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum, **fields)
    for size in shape:
        message.tensor_shape.dim.add(size=size)
    return message


def test_the_last_value_stands_for_those_that_follow_and_no_value_is_zero():
    assert tensor.decode(proto(shape=(2, 2), float_val=[1, 2])).tolist() == [[1, 2], [2, 2]]
    assert tensor.decode(proto("int64", (3,))).tolist() == [0, 0, 0]
    assert tensor.decode(proto("string", (2,), string_val=[b"a"])).tolist() == [b"a", b"a"]
    assert tensor.decode(proto("string", (1,))).tolist() == [b""]


@pytest.mark.parametrize(
    "message",
    [
        proto(shape=(2,), tensor_content=b"abc"),
        proto(shape=(-1,), float_val=[1]),
        proto(shape=(2**40, 2**40), float_val=[1]),
        tensor_pb2.TensorProto(dtype=0),
        tensor_pb2.TensorProto(dtype=20),
        proto("string", (2,), tensor_content=b"\x05abc"),
        proto("bool", (2,), tensor_content=b"\x01\x02"),
    ],
)
def test_what_does_not_go_together_is_refused(message):
    with pytest.raises(ValueError):
        tensor.decode(message)


def test_what_tensorflow_overlooks_is_overlooked():
    assert tensor.decode(proto(shape=(0,), tensor_content=b"abc")).shape == (0,)
    assert tensor.decode(tensor_pb2.TensorProto(dtype=1, float_val=[2.0], tensor_shape={"unknown_rank": True})) == 2.0
    assert tensor.decode(proto("complex64", (2,), scomplex_val=[1, 2, 3])).tolist() == [1 + 2j, 1 + 2j]


def test_a_dtype_without_a_tensor_proto_is_refused():
    with pytest.raises(ValueError, match="datetime64"):
        tensor.encode(np.zeros(2, "datetime64[s]"))


def test_large_content_is_not_copied():
    message = proto(shape=(1000,), tensor_content=np.arange(1000, dtype=np.float32).tobytes())
    assert not tensor.decode(message).flags.writeable and tensor.decode(message).base is not None
