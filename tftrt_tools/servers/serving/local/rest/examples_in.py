"""Classify and Regress requests in JSON to tf.train.Example, with the checks and messages of util/json_tensor.cc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.rest import json_in, value_text

if TYPE_CHECKING:
    from tensorflow.core.example import example_pb2, feature_pb2
    from tensorflow_serving.apis import input_pb2


_INT64 = range(-(2**63), 2**63)


def fill(document: dict[str, Any], message: input_pb2.Input) -> None:
    """Fill `input` of a ClassificationRequest or a RegressionRequest from "examples" and "context".

    Raises: Failure INVALID_ARGUMENT.
    """
    with_context = "context" in document
    if with_context:
        _fill_example(document["context"], message.example_list_with_context.context)
    examples = document.get("examples")
    problem = ""
    if "examples" not in document:
        problem = "When method is classify, key 'examples' is expected and was not found"
    elif not isinstance(examples, list):
        problem = "Expecting 'examples' value to be an list/array"
    elif not examples:
        problem = "'examples' value is an empty array"
    if problem:
        raise failure.invalid(f"JSON Value: {value_text.text(document)} {problem}")
    target = message.example_list_with_context if with_context else message.example_list
    for value in examples or ():
        _fill_example(value, target.examples.add())


def _fill_example(value: object, example: example_pb2.Example) -> None:
    example.SetInParent()
    if not isinstance(value, dict):
        raise failure.invalid(f"Example must be JSON object but got JSON {value_text.type_name(value)}")
    for name, content in value.items():
        feature = example.features.feature[json_in.as_bytes(name).decode("utf-8", "replace")]
        values = content if isinstance(content, list) else [content]
        if not _fill_whole(values, feature):
            for item in values:
                _add(item, name, feature)


def _fill_whole(values: list[Any], feature: feature_pb2.Feature) -> bool:
    """Fill from values that are all of one type and within its range. Returns: whether they were."""
    kinds = set(map(type, values))
    if kinds == {float}:
        feature.float_list.value.extend(json_in.floats(values, np.float32).tolist())
    elif kinds == {int} and min(values) in _INT64 and max(values) in _INT64:
        feature.int64_list.value.extend(values)
    elif kinds == {str}:
        feature.bytes_list.value.extend(map(json_in.as_bytes, values))
    else:
        return False
    return True


def _add(value: object, name: str, feature: feature_pb2.Feature) -> None:
    """Add one value; the first one decides the feature's kind."""
    if value is None or isinstance(value, list) or isinstance(value, dict) and not json_in.is_base64(value):
        raise failure.invalid(f"Feature: {name} has element with unexpected JSON type: {value_text.type_name(value)}")
    if isinstance(value, (str, dict)):
        _expect(feature, "bytes_list", name)
        feature.bytes_list.value.append(
            json_in.as_bytes(value) if isinstance(value, str) else json_in.decode_base64(value)
        )
    elif isinstance(value, float):
        _expect(feature, "float_list", name)
        feature.float_list.value.extend(json_in.floats([value], np.float32).tolist())
    else:
        _expect(feature, "int64_list", name)
        if value not in _INT64:
            raise failure.invalid(f"Feature: {name} has uint64_t element. Only int64_t is supported.")
        assert isinstance(value, int)
        feature.int64_list.value.append(int(value))


def _expect(feature: feature_pb2.Feature, kind: str, name: str) -> None:
    present = feature.WhichOneof("kind")
    if present not in (None, kind):
        raise failure.invalid(
            f"Unexpected element type in feature: {name} expecting type: {present.removesuffix('_list')}"
        )
