"""Classify and Regress: a servable of a SavedModel, and requests to it."""

import grpc
import numpy as np
import pytest

from tftrt_tools.servers.serving.local import classify_api, regress_api
from tftrt_tools.servers.serving.local.failure import Failure

LABELS = [b"cold", b"warm", b"hot"]
WEIGHTS = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], np.float32)


class SavedModelServable:
    """A SavedModel behind the interface of the server's servables; counts its runs."""

    def __init__(self, path, name="m", version=7):
        import tensorflow as tf

        self.name, self.version, self.path, self.runs = name, version, str(path), []
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            self.signatures = dict(tf.compat.v1.saved_model.load(self._session, ["serve"], self.path).signature_def)

    def run(self, feeds, fetches, timeout_ms=0):
        self.runs.append(({name: array.shape for name, array in feeds.items()}, tuple(fetches), timeout_ms))
        return self._session.run(list(fetches), {name: array for name, array in feeds.items()})

    def close(self):
        self._session.close()


def export(path):
    """A SavedModel whose signatures read tf.train.Examples with the feature x of 2 floats, fit and unfit ones."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        serialized = v1.placeholder(tf.string, [None], "examples")
        other = v1.placeholder(tf.string, [None], "other")
        x = tf.io.parse_example(serialized, {"x": tf.io.FixedLenFeature([2], tf.float32)})["x"]
        scores = tf.matmul(x, tf.constant(WEIGHTS))
        classes = tf.tile(tf.constant([LABELS]), [tf.shape(x)[0], 1])
        column = tf.reduce_sum(x, 1, keepdims=True)

        def signature(method, outputs, inputs=None):
            info = {
                alias: v1.saved_model.build_tensor_info(tensor)
                for alias, tensor in (inputs or {"inputs": serialized}).items()
            }
            return v1.saved_model.build_signature_def(
                info, {alias: v1.saved_model.build_tensor_info(tensor) for alias, tensor in outputs.items()}, method
            )

        both = {"classes": classes, "scores": scores}
        signatures = {
            "serving_default": signature(classify_api.METHOD, both),
            "labels": signature(classify_api.METHOD, {"classes": classes}),
            "scores": signature(classify_api.METHOD, {"scores": scores}),
            "regress": signature(regress_api.METHOD, {"outputs": column}),
            "flat_regress": signature(regress_api.METHOD, {"outputs": tf.squeeze(column, 1)}),
            "predict": signature("tensorflow/serving/predict", both),
            "two_inputs": signature(classify_api.METHOD, both, {"inputs": serialized, "other": other}),
            "other_alias": signature(classify_api.METHOD, both, {"x": serialized}),
            "three_outputs": signature(classify_api.METHOD, {**both, "more": column}),
            "no_classes": signature(classify_api.METHOD, {"more": column}),
            "other_input": signature(regress_api.METHOD, {"outputs": column}, {"inputs": other}),
            "flat_scores": signature(classify_api.METHOD, {"scores": tf.squeeze(column, 1)}),
            "double_scores": signature(classify_api.METHOD, {"scores": tf.cast(scores, tf.float64)}),
            "float_classes": signature(classify_api.METHOD, {"classes": scores}),
            "one_row": signature(classify_api.METHOD, {"scores": scores[:1]}),
            "fewer_scores": signature(classify_api.METHOD, {"classes": classes, "scores": scores[:, :2]}),
            "wide": signature(regress_api.METHOD, {"outputs": scores}),
            "one_value": signature(regress_api.METHOD, {"outputs": column[:1]}),
            "integers": signature(regress_api.METHOD, {"outputs": tf.cast(column, tf.int32)}),
            "named_otherwise": signature(regress_api.METHOD, {"value": column}),
        }
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return path


def example(*values, feature="x"):
    import tensorflow as tf

    return tf.train.Example(
        features=tf.train.Features(feature={feature: tf.train.Feature(float_list=tf.train.FloatList(value=values))})
    )


def classification(*rows, signature="", model="m"):
    from tensorflow_serving.apis import classification_pb2

    request = classification_pb2.ClassificationRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    request.input.example_list.examples.extend(example(*row) for row in rows)
    return request


def regression(*rows, signature="regress"):
    from tensorflow_serving.apis import regression_pb2

    request = regression_pb2.RegressionRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", signature
    request.input.example_list.examples.extend(example(*row) for row in rows)
    return request


def tasks(*wanted, rows=((1, 2),)):
    """A MultiInferenceRequest. Args: wanted: (signature, method) or (signature, method, model)."""
    from tensorflow_serving.apis import inference_pb2

    request = inference_pb2.MultiInferenceRequest()
    for signature, method, *model in wanted:
        task = request.tasks.add(method_name=method)
        task.model_spec.name, task.model_spec.signature_name = model[0] if model else "m", signature
    request.input.example_list.examples.extend(example(*row) for row in rows)
    return request


def refused(function, *arguments, code=grpc.StatusCode.INVALID_ARGUMENT, **named):
    """The message of the Failure that a call raises."""
    with pytest.raises(Failure) as caught:
        function(*arguments, **named)
    assert caught.value.code is code
    return caught.value.message
