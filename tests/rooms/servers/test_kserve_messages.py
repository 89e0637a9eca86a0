"""KServe's messages, held against protobuf's own reading of them; answers that nobody has checked."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire_arrays import same
from tftrt_tools.base import errors
from tftrt_tools.base.wire import messages
from tftrt_tools.servers.client import protocols
from tftrt_tools.servers.client.kserve import (
    config_messages,
    datatypes,
    infer_messages,
    metadata_messages,
    repository_messages,
    statistics_messages,
)
from tftrt_tools.servers.client.model_service import VersionStatus
from tftrt_tools.servers.client.model_spec import ModelSpec
from tftrt_tools.studies.bench import counted

# grpc_service.proto of triton-inference-server/common.
_PROTO = messages.classes(
    "tests/kserve.proto",
    "inference",
    {
        "Tensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "[int64]")},
        "Wanted": {"name": (1, "string")},
        "ModelInferRequest": {
            "model_name": (1, "string"),
            "model_version": (2, "string"),
            "inputs": (5, "[.Tensor]"),
            "outputs": (6, "[.Wanted]"),
            "raw_input_contents": (7, "[bytes]"),
        },
        "ModelInferResponse": {
            "model_name": (1, "string"),
            "model_version": (2, "string"),
            "outputs": (5, "[.Tensor]"),
            "raw_output_contents": (6, "[bytes]"),
        },
        "ModelMetadataResponse": {
            "name": (1, "string"),
            "versions": (2, "[string]"),
            "platform": (3, "string"),
            "inputs": (4, "[.Tensor]"),
            "outputs": (5, "[.Tensor]"),
        },
        "ModelIndex": {
            "name": (1, "string"),
            "version": (2, "string"),
            "state": (3, "string"),
            "reason": (4, "string"),
        },
        "RepositoryIndexResponse": {"models": (1, "[.ModelIndex]")},
        "Duration": {"count": (1, "uint64"), "ns": (2, "uint64")},
        "Parts": {
            "success": (1, ".Duration"),
            "fail": (2, ".Duration"),
            "queue": (3, ".Duration"),
            "compute_infer": (5, ".Duration"),
        },
        "Batch": {"batch_size": (1, "uint64"), "compute_infer": (3, ".Duration")},
        "ModelStatistics": {
            "name": (1, "string"),
            "version": (2, "string"),
            "inference_count": (4, "uint64"),
            "execution_count": (5, "uint64"),
            "inference_stats": (6, ".Parts"),
            "batch_stats": (7, "[.Batch]"),
        },
        "Group": {"name": (1, "string"), "kind": (4, "int32")},
        "Transactions": {"decoupled": (1, "bool")},
        "ModelConfig": {
            "name": (1, "string"),
            "instance_group": (7, "[.Group]"),
            "backend": (17, "string"),
            "model_transaction_policy": (19, ".Transactions"),
        },
        "ModelConfigResponse": {"config": (1, ".ModelConfig")},
        "ModelStatisticsResponse": {"model_stats": (1, "[.ModelStatistics]")},
    },
)
DTYPES = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BF16": ml_dtypes.bfloat16,
}


@pytest.mark.parametrize("name, dtype", DTYPES.items())
def test_numbers_go_as_their_bytes(name, dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    read = _PROTO["ModelInferRequest"].FromString(
        infer_messages.request_bytes("m", {"x": array, "s": array[0, 0]}, version=7, outputs="y")
    )
    assert (read.model_name, read.model_version, [one.name for one in read.outputs]) == ("m", "7", ["y"])
    assert [(one.name, one.datatype, list(one.shape)) for one in read.inputs] == [("x", name, [2, 3]), ("s", name, [])]
    assert list(read.raw_input_contents) == [array.tobytes(), array[0, 0].tobytes()]
    answer = _PROTO["ModelInferResponse"](
        model_name="m",
        model_version="3",
        outputs=[{"name": "y", "datatype": name, "shape": [2, 3]}],
        raw_output_contents=[array.tobytes()],
    )
    model, arrays = infer_messages.response_arrays(answer.SerializeToString())
    assert model == ModelSpec("m", 3, signature="serving_default") and same(arrays["y"], array)


def test_texts_go_with_their_lengths():
    texts = np.array([["ä", "bcd"], ["", "e"]])
    read = _PROTO["ModelInferRequest"].FromString(infer_messages.request_bytes("m", {"t": texts}))
    (content,) = read.raw_input_contents
    assert content == b"\2\0\0\0\xc3\xa4\3\0\0\0bcd\0\0\0\0\1\0\0\0e" and list(read.inputs[0].shape) == [2, 2]
    found = datatypes.array("BYTES", (2, 2), memoryview(content))
    assert found.tolist() == [["ä".encode(), b"bcd"], [b"", b"e"]]
    for damaged in (content[:-1], content + b"\1", content + b"\0\0\0\0"):
        with pytest.raises(ValueError, match=r"text|shape"):
            datatypes.array("BYTES", (2, 2), memoryview(damaged))


def test_an_array_of_another_byte_order_or_with_gaps_is_sent_right():
    array = np.arange(12, dtype=">f4").reshape(3, 4)[:, ::2]
    read = _PROTO["ModelInferRequest"].FromString(infer_messages.request_bytes("m", {"x": array}))
    assert np.frombuffer(read.raw_input_contents[0], "<f4").tolist() == array.ravel().tolist()


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("", {}), "has no name"),
        (("m", {"x": 1j}), "'x' cannot be sent"),
        (("m", [1]), "the inputs are a list"),
        (("m", {"x": [object()]}), "objects of type object"),
        (("m", {}, "classify"), "signature 'classify'"),
        (("m", {}, "", None, "stable"), "no version labels"),
        (("m", {}, "", 1 << 70), "is no version"),
    ],
)
def test_what_triton_cannot_be_asked_is_refused_before_it_is_sent(arguments, told):
    with pytest.raises(errors.UsageError, match=told) as caught:
        infer_messages.request_bytes(*arguments)
    assert caught.value.mend


@pytest.mark.parametrize(
    "outputs, contents, told",
    [
        ([], [b"x"], "0 outputs and the contents of 1"),
        ([{"name": "y", "datatype": "FP32", "shape": [2]}], [b"1234"], "4 bytes were sent"),
        ([{"name": "y", "datatype": "FP8", "shape": [1]}], [b"1"], "no type 'FP8'"),
        ([{"name": "y", "datatype": "FP32", "shape": [-1]}], [b""], "negative"),
    ],
)
def test_an_answer_that_does_not_fit_together_is_damaged(outputs, contents, told):
    with pytest.raises(ValueError, match=told):
        infer_messages.response_arrays(
            _PROTO["ModelInferResponse"](outputs=outputs, raw_output_contents=contents).SerializeToString()
        )


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(raw):
    for read in (
        infer_messages.response_arrays,
        lambda one: metadata_messages.read(one, None),
        metadata_messages.read_ready,
        repository_messages.read_index,
        statistics_messages.read,
    ):
        try:
            read(raw)
        except ValueError:
            pass


def test_metadata_has_one_signature_and_the_version_that_answers():
    raw = _PROTO["ModelMetadataResponse"](
        name="m",
        versions=["9", "10"],
        platform="tensorrt_plan",
        inputs=[{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        outputs=[{"name": "t", "datatype": "BYTES", "shape": [-1]}],
    ).SerializeToString()
    found = metadata_messages.read(raw, None)
    assert found.model == ModelSpec("m", 10) and metadata_messages.read(raw, 9).model == ModelSpec("m", 9)
    one = found["serving_default"]
    assert (one.inputs["x"].text(), one.outputs["t"].text(), one.method) == (
        "float32[?,4]",
        "string[?]",
        "tensorrt_plan",
    )


def test_the_index_tells_failures_from_versions_that_were_unloaded():
    raw = _PROTO["RepositoryIndexResponse"](
        models=[
            {"name": "m", "version": "2", "state": "READY"},
            {"name": "m", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
            {"name": "n", "version": "1", "state": "UNAVAILABLE", "reason": "no plan"},
            {"name": "o"},
        ]
    ).SerializeToString()
    assert [one.status() for one in repository_messages.read_index(raw)] == [
        VersionStatus(2, "AVAILABLE"),
        VersionStatus(1, "END"),
        VersionStatus(1, "END", "UNAVAILABLE", "no plan"),
        VersionStatus(0, "UNKNOWN"),
    ]


def counts(version, success, executions, rows, batches):
    return {
        "name": "m",
        "version": version,
        "inference_count": rows,
        "execution_count": executions,
        "inference_stats": {
            "success": {"count": success, "ns": success * 3_000_000},
            "fail": {"count": 1},
            "queue": {"count": success, "ns": success * 1_000_000},
            "compute_infer": {"count": success, "ns": success * 500_000},
        },
        "batch_stats": [{"batch_size": size, "compute_infer": {"count": count}} for size, count in batches.items()],
    }


def test_statistics_between_two_reads_are_the_measurements_own():
    def read(*models):
        return statistics_messages.read(_PROTO["ModelStatisticsResponse"](model_stats=models).SerializeToString())

    before = read(counts("1", 10, 5, 20, {4: 5}), counts("2", 100, 100, 100, {1: 100}))
    after = read(counts("1", 30, 10, 60, {4: 5, 8: 5}), counts("2", 8, 8, 8, {1: 8}))
    found = counted.Triton(None, "m", None).between(before, after)
    assert found.requests == {"OK": 28, "failed": 1}, "version 2 was loaded anew and counts from 0"
    assert (found.request_ms, found.queuing_ms, found.runtime_ms) == (3.0, 1.0, 0.5)
    assert (found.input_rows, found.processed_rows, found.batches) == (48 / 28, 48 / 13, {"8": 5, "1": 8})
    assert "28 OK, 1 failed, mean 3.000 ms in the server" in found.text() and "3.7 rows a batch" in found.text()


def test_the_scheme_of_an_address_names_the_protocol():
    assert (
        protocols.of("triton://here:8001") is protocols.TRITON
        and protocols.of("here:8500") is protocols.TENSORFLOW_SERVING
    )


@given(st.lists(st.integers(0, 9), max_size=3), st.booleans(), st.text(max_size=9))
def test_a_configuration_is_read_as_protobuf_reads_it(kinds, decoupled, backend):
    answer = _PROTO["ModelConfigResponse"](
        config={
            "name": "m",
            "instance_group": [{"name": "a", "kind": one} for one in kinds],
            "backend": backend,
            "model_transaction_policy": {"decoupled": decoupled},
        }
    )
    found = config_messages.read(answer.SerializeToString())
    names = ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")
    assert found.kinds == tuple(names[one] if one < 4 else str(one) for one in kinds)
    assert (found.decoupled, found.backend, found.on_cpu) == (decoupled, backend, set(kinds) == {2})
