"""The local server's Classify, Regress, MultiInference and GetModelMetadata, on a real SavedModel with their signatures."""

import types

import grpc
import numpy as np
import pytest

from tftrt_tools.serving.local import classify, examples, metadata, multi_inference, regress
from tftrt_tools.serving.local.failure import Failure

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
            info = {alias: v1.saved_model.build_tensor_info(tensor) for alias, tensor in (inputs or {"inputs": serialized}).items()}
            return v1.saved_model.build_signature_def(
                info, {alias: v1.saved_model.build_tensor_info(tensor) for alias, tensor in outputs.items()}, method)

        both = {"classes": classes, "scores": scores}
        signatures = {
            "serving_default": signature(classify.METHOD, both),
            "labels": signature(classify.METHOD, {"classes": classes}),
            "scores": signature(classify.METHOD, {"scores": scores}),
            "regress": signature(regress.METHOD, {"outputs": column}),
            "flat_regress": signature(regress.METHOD, {"outputs": tf.squeeze(column, 1)}),
            "predict": signature("tensorflow/serving/predict", both),
            "two_inputs": signature(classify.METHOD, both, {"inputs": serialized, "other": other}),
            "other_alias": signature(classify.METHOD, both, {"x": serialized}),
            "three_outputs": signature(classify.METHOD, {**both, "more": column}),
            "no_classes": signature(classify.METHOD, {"more": column}),
            "other_input": signature(regress.METHOD, {"outputs": column}, {"inputs": other}),
            "flat_scores": signature(classify.METHOD, {"scores": tf.squeeze(column, 1)}),
            "double_scores": signature(classify.METHOD, {"scores": tf.cast(scores, tf.float64)}),
            "float_classes": signature(classify.METHOD, {"classes": scores}),
            "one_row": signature(classify.METHOD, {"scores": scores[:1]}),
            "fewer_scores": signature(classify.METHOD, {"classes": classes, "scores": scores[:, :2]}),
            "wide": signature(regress.METHOD, {"outputs": scores}),
            "one_value": signature(regress.METHOD, {"outputs": column[:1]}),
            "integers": signature(regress.METHOD, {"outputs": tf.cast(column, tf.int32)}),
            "named_otherwise": signature(regress.METHOD, {"value": column}),
        }
        builder = v1.saved_model.Builder(str(path))
        builder.add_meta_graph_and_variables(session, ["serve"], signatures)
        builder.save()
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("examples_model") / "7")


@pytest.fixture
def servable(model):
    one = SavedModelServable(model)
    yield one
    one.close()


def example(*values, feature="x"):
    import tensorflow as tf

    return tf.train.Example(features=tf.train.Features(feature={feature: tf.train.Feature(float_list=tf.train.FloatList(value=values))}))


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


class TestInput:

    def test_context_is_merged_into_each_example_and_the_examples_own_features_win(self):
        import tensorflow as tf
        from tensorflow_serving.apis import input_pb2

        given = input_pb2.Input()
        given.example_list_with_context.context.CopyFrom(example(9, 9))
        given.example_list_with_context.context.MergeFrom(example(5, feature="shared"))
        given.example_list_with_context.examples.extend([example(1, 2), example(3, feature="own")])
        first, second = (tf.train.Example.FromString(row).features.feature for row in examples.serialized(given))
        assert list(first["x"].float_list.value) == [1, 2] and list(first["shared"].float_list.value) == [5]
        assert list(second["x"].float_list.value) == [9, 9] and list(second["own"].float_list.value) == [3]

    @pytest.mark.parametrize("kind", ["", "example_list", "example_list_with_context"])
    def test_input_without_examples_is_refused(self, servable, kind):
        request = classification()
        request.ClearField("input")
        if kind:
            getattr(request.input, kind).SetInParent()
        assert refused(classify.classify, servable, request) == "Input is empty."
        assert not servable.runs

    def test_context_reaches_the_graph(self, servable):
        request = classification()
        request.input.example_list_with_context.context.CopyFrom(example(1, 2))
        request.input.example_list_with_context.examples.add()
        answer = classify.classify(servable, request)
        assert [one.score for one in answer.result.classifications[0].classes] == [2, 2, 5]


class TestClassify:

    def test_labels_and_scores_of_each_example(self, servable):
        answer = classify.classify(servable, classification((1, 2), (0, 1)), timeout_ms=90)
        found = [[(one.label.encode(), one.score) for one in row.classes] for row in answer.result.classifications]
        assert found == [list(zip(LABELS, row, strict=True)) for row in (np.array([[1, 2], [0, 1]], np.float32) @ WEIGHTS).tolist()]
        assert servable.runs[0][2] == 90 and len(servable.runs) == 1

    def test_answer_names_model_version_and_signature(self, servable):
        spec = classify.classify(servable, classification((1, 2), model="asked")).model_spec
        assert (spec.name, spec.version.value, spec.signature_name) == ("asked", 7, "serving_default")
        assert classify.classify(servable, classification((1, 2), signature="scores")).model_spec.signature_name == "scores"

    def test_labels_alone_and_scores_alone(self, servable):
        labels = classify.classify(servable, classification((1, 2), signature="labels")).result.classifications[0].classes
        assert [(one.label.encode(), one.score) for one in labels] == [(label, 0) for label in LABELS]
        scores = classify.classify(servable, classification((1, 2), signature="scores")).result.classifications[0].classes
        assert [(one.label, one.score) for one in scores] == [("", 2), ("", 2), ("", 5)]

    @pytest.mark.parametrize("signature, message", [
        ("none", "No signature was found with the name: none"),
        ("two_inputs", "Expected one input Tensor."),
        ("three_outputs", "Expected one or two output Tensors, found 3"),
        ("flat_scores", "Expected Tensor shape: [batch_size num_classes] but got [2]"),
        ("double_scores", "Expected scores Tensor of DT_FLOAT. Got: DT_DOUBLE"),
        ("float_classes", "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
        ("one_row", "Expected scores output batch size of 2. Got: 1"),
        ("fewer_scores", "Tensors class and score should match in dim_size(1). Got 3 vs. 2"),
    ])
    def test_unfit_signatures(self, servable, signature, message):
        assert refused(classify.classify, servable, classification((1, 2), (3, 4), signature=signature)) == message

    @pytest.mark.parametrize("signature, start", [
        ("other_alias", "No classification inputs found in SignatureDef: inputs {"),
        ("no_classes", 'Expected classification signature outputs to contain at least one of "classes" or "scores". Signature was: inputs {'),
    ])
    def test_unfit_aliases(self, servable, signature, start):
        assert refused(classify.classify, servable, classification((1, 2), signature=signature)).startswith(start)

    def test_method_name_counts_only_where_it_is_checked(self, servable):
        request = classification((1, 2), signature="predict")
        assert classify.classify(servable, request).result.classifications
        assert refused(classify.classify, servable, request, check_method_name=True) == (
            "Expected classification signature method_name to be tensorflow/serving/classify. Was: tensorflow/serving/predict")


class TestRegress:

    @pytest.mark.parametrize("signature", ["regress", "flat_regress"])
    def test_value_of_each_example(self, servable, signature):
        answer = regress.regress(servable, regression((1, 2), (0, 1.5), signature=signature))
        assert [one.value for one in answer.result.regressions] == [3, 1.5]
        assert (answer.model_spec.version.value, answer.model_spec.signature_name) == (7, signature)

    @pytest.mark.parametrize("signature, message", [
        ("none", "No signature was found with the name: none"),
        ("two_inputs", "Expected one input Tensor."),
        ("serving_default", "Expected one output Tensor."),
        ("wide", "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [2,3]"),
        ("one_value", "Input batch size did not match output batch size: 2 vs. 1"),
        ("integers", "Expected output Tensor of DT_FLOAT.  Got: DT_INT32"),
    ])
    def test_unfit_signatures(self, servable, signature, message):
        assert refused(regress.regress, servable, regression((1, 2), (3, 4), signature=signature)) == message

    def test_unfit_alias(self, servable):
        message = refused(regress.regress, servable, regression((1, 2), signature="named_otherwise"))
        assert message.startswith("No regression outputs found in SignatureDef: inputs {")

    def test_method_name_counts_only_where_it_is_checked(self, servable):
        assert "Expected regression signature method_name to be tensorflow/serving/regress. Was: tensorflow/serving/classify" == refused(
            regress.regress, servable, regression((1, 2), signature="labels"), check_method_name=True)


class TestMultiInference:

    def test_all_tasks_in_one_run(self, servable):
        answer = multi_inference.multi_inference(servable, tasks(("regress", regress.METHOD), ("", classify.METHOD)))
        assert len(servable.runs) == 1
        value, classes = answer.results
        assert [one.value for one in value.regression_result.regressions] == [3]
        assert [one.score for one in classes.classification_result.classifications[0].classes] == [2, 2, 5]
        assert [(one.model_spec.name, one.model_spec.version.value, one.model_spec.signature_name) for one in answer.results] == [
            ("m", 7, "regress"), ("m", 7, "serving_default")]

    def test_same_answers_as_the_single_calls(self, servable):
        rows = ((1, 2), (3, 4))
        both = multi_inference.multi_inference(servable, tasks(("scores", classify.METHOD), ("regress", regress.METHOD), rows=rows)).results
        assert both[0].classification_result == classify.classify(servable, classification(*rows, signature="scores")).result
        assert both[1].regression_result == regress.regress(servable, regression(*rows)).result

    @pytest.mark.parametrize("wanted, message", [
        ([("regress", regress.METHOD, "")], "Found ModelSpec with an empty model name."),
        ([("regress", regress.METHOD), ("labels", classify.METHOD, "n")],
         "All ModelSpecs in a MultiInferenceRequest must access the same model name."),
        ([("", classify.METHOD), ("serving_default", classify.METHOD)], "Duplicate evaluation of signature: serving_default"),
        ([("none", classify.METHOD)], "Requested signature not found in model graph: none"),
        ([("regress", regress.METHOD), ("other_input", regress.METHOD)], "Input tensor must be the same for all Signatures."),
        ([("labels", regress.METHOD)], "No regression outputs found in SignatureDef: "),
        ([("wide", regress.METHOD)], "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [1,3]"),
    ])
    def test_unfit_tasks(self, servable, wanted, message):
        assert refused(multi_inference.multi_inference, servable, tasks(*wanted)).startswith(message)

    def test_unknown_method(self, servable):
        request = tasks(("predict", "tensorflow/serving/predict"))
        message = refused(multi_inference.multi_inference, servable, request, code=grpc.StatusCode.UNIMPLEMENTED)
        assert message == "Unsupported signature method_name: tensorflow/serving/predict"

    def test_empty_input(self, servable):
        assert refused(multi_inference.multi_inference, servable, tasks(("regress", regress.METHOD), rows=())) == "Input is empty."

    def test_first_task_chooses_the_servable(self):
        assert multi_inference.model_spec(tasks(("a", "", "first"), ("b", "", "second"))).name == "first"
        assert not multi_inference.model_spec(tasks()).name


class TestMetadata:

    def request(self, *fields):
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        request.model_spec.name = "m"
        return request

    def test_all_signatures_in_one_any(self, servable):
        from tensorflow_serving.apis import get_model_metadata_pb2

        answer = metadata.metadata(servable, self.request("signature_def", "signature_def"))
        assert (answer.model_spec.name, answer.model_spec.version.value, answer.model_spec.signature_name) == ("m", 7, "")
        assert list(answer.metadata) == ["signature_def"]
        found = get_model_metadata_pb2.SignatureDefMap()
        assert answer.metadata["signature_def"].type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        assert answer.metadata["signature_def"].Unpack(found)
        assert dict(found.signature_def) == servable.signatures

    def test_refused_requests(self):
        from tensorflow_serving.apis import get_model_metadata_pb2

        nobody = types.SimpleNamespace()  # refused before the model is looked at
        assert refused(metadata.metadata, nobody, self.request()) == "GetModelMetadataRequest must specify at least one metadata_field"
        assert refused(metadata.metadata, nobody, self.request("signature_def", "graph")) == "Metadata field graph is not supported"
        assert refused(metadata.check, get_model_metadata_pb2.GetModelMetadataRequest()) == "Missing ModelSpec"
