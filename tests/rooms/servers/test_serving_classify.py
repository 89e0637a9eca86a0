"""The local server's Classify, Regress, MultiInference and GetModelMetadata, on a real SavedModel with their signatures."""

import types

import grpc
import numpy as np
import pytest

from tests.classify_requests import (
    LABELS,
    WEIGHTS,
    SavedModelServable,
    classification,
    example,
    export,
    refused,
    regression,
    tasks,
)
from tftrt_tools.servers.serving.local import classify_api, examples, metadata_api, multi_inference_api, regress_api


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return export(tmp_path_factory.mktemp("examples_model") / "7")


@pytest.fixture
def servable(model):
    one = SavedModelServable(model)
    yield one
    one.close()


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
        assert refused(classify_api.classify, servable, request) == "Input is empty."
        assert not servable.runs

    def test_context_reaches_the_graph(self, servable):
        request = classification()
        request.input.example_list_with_context.context.CopyFrom(example(1, 2))
        request.input.example_list_with_context.examples.add()
        answer = classify_api.classify(servable, request)
        assert [one.score for one in answer.result.classifications[0].classes] == [2, 2, 5]


class TestClassify:
    def test_labels_and_scores_of_each_example(self, servable):
        answer = classify_api.classify(servable, classification((1, 2), (0, 1)), timeout_ms=90)
        found = [[(one.label.encode(), one.score) for one in row.classes] for row in answer.result.classifications]
        assert found == [
            list(zip(LABELS, row, strict=True)) for row in (np.array([[1, 2], [0, 1]], np.float32) @ WEIGHTS).tolist()
        ]
        assert servable.runs[0][2] == 90 and len(servable.runs) == 1

    def test_answer_names_model_version_and_signature(self, servable):
        spec = classify_api.classify(servable, classification((1, 2), model="asked")).model_spec
        assert (spec.name, spec.version.value, spec.signature_name) == ("asked", 7, "serving_default")
        assert (
            classify_api.classify(servable, classification((1, 2), signature="scores")).model_spec.signature_name
            == "scores"
        )

    def test_labels_alone_and_scores_alone(self, servable):
        labels = (
            classify_api.classify(servable, classification((1, 2), signature="labels"))
            .result.classifications[0]
            .classes
        )
        assert [(one.label.encode(), one.score) for one in labels] == [(label, 0) for label in LABELS]
        scores = (
            classify_api.classify(servable, classification((1, 2), signature="scores"))
            .result.classifications[0]
            .classes
        )
        assert [(one.label, one.score) for one in scores] == [("", 2), ("", 2), ("", 5)]

    @pytest.mark.parametrize(
        "signature, message",
        [
            ("none", "No signature was found with the name: none"),
            ("two_inputs", "Expected one input Tensor."),
            ("three_outputs", "Expected one or two output Tensors, found 3"),
            ("flat_scores", "Expected Tensor shape: [batch_size num_classes] but got [2]"),
            ("double_scores", "Expected scores Tensor of DT_FLOAT. Got: DT_DOUBLE"),
            ("float_classes", "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
            ("one_row", "Expected scores output batch size of 2. Got: 1"),
            ("fewer_scores", "Tensors class and score should match in dim_size(1). Got 3 vs. 2"),
        ],
    )
    def test_unfit_signatures(self, servable, signature, message):
        assert refused(classify_api.classify, servable, classification((1, 2), (3, 4), signature=signature)) == message

    @pytest.mark.parametrize(
        "signature, start",
        [
            ("other_alias", "No classification inputs found in SignatureDef: inputs {"),
            (
                "no_classes",
                'Expected classification signature outputs to contain at least one of "classes" or "scores". Signature was: inputs {',
            ),
        ],
    )
    def test_unfit_aliases(self, servable, signature, start):
        assert refused(classify_api.classify, servable, classification((1, 2), signature=signature)).startswith(start)

    def test_method_name_counts_only_where_it_is_checked(self, servable):
        request = classification((1, 2), signature="predict")
        assert classify_api.classify(servable, request).result.classifications
        assert refused(classify_api.classify, servable, request, check_method_name=True) == (
            "Expected classification signature method_name to be tensorflow/serving/classify. Was: tensorflow/serving/predict"
        )


class TestRegress:
    @pytest.mark.parametrize("signature", ["regress", "flat_regress"])
    def test_value_of_each_example(self, servable, signature):
        answer = regress_api.regress(servable, regression((1, 2), (0, 1.5), signature=signature))
        assert [one.value for one in answer.result.regressions] == [3, 1.5]
        assert (answer.model_spec.version.value, answer.model_spec.signature_name) == (7, signature)

    @pytest.mark.parametrize(
        "signature, message",
        [
            ("none", "No signature was found with the name: none"),
            ("two_inputs", "Expected one input Tensor."),
            ("serving_default", "Expected one output Tensor."),
            ("wide", "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [2,3]"),
            ("one_value", "Input batch size did not match output batch size: 2 vs. 1"),
            ("integers", "Expected output Tensor of DT_FLOAT.  Got: DT_INT32"),
        ],
    )
    def test_unfit_signatures(self, servable, signature, message):
        assert refused(regress_api.regress, servable, regression((1, 2), (3, 4), signature=signature)) == message

    def test_unfit_alias(self, servable):
        message = refused(regress_api.regress, servable, regression((1, 2), signature="named_otherwise"))
        assert message.startswith("No regression outputs found in SignatureDef: inputs {")

    def test_method_name_counts_only_where_it_is_checked(self, servable):
        assert (
            "Expected regression signature method_name to be tensorflow/serving/regress. Was: tensorflow/serving/classify"
            == refused(regress_api.regress, servable, regression((1, 2), signature="labels"), check_method_name=True)
        )


class TestMultiInference:
    def test_all_tasks_in_one_run(self, servable):
        answer = multi_inference_api.multi_inference(
            servable, tasks(("regress", regress_api.METHOD), ("", classify_api.METHOD))
        )
        assert len(servable.runs) == 1
        value, classes = answer.results
        assert [one.value for one in value.regression_result.regressions] == [3]
        assert [one.score for one in classes.classification_result.classifications[0].classes] == [2, 2, 5]
        assert [
            (one.model_spec.name, one.model_spec.version.value, one.model_spec.signature_name) for one in answer.results
        ] == [("m", 7, "regress"), ("m", 7, "serving_default")]

    def test_same_answers_as_the_single_calls(self, servable):
        rows = ((1, 2), (3, 4))
        both = multi_inference_api.multi_inference(
            servable, tasks(("scores", classify_api.METHOD), ("regress", regress_api.METHOD), rows=rows)
        ).results
        assert (
            both[0].classification_result
            == classify_api.classify(servable, classification(*rows, signature="scores")).result
        )
        assert both[1].regression_result == regress_api.regress(servable, regression(*rows)).result

    @pytest.mark.parametrize(
        "wanted, message",
        [
            ([("regress", regress_api.METHOD, "")], "Found ModelSpec with an empty model name."),
            (
                [("regress", regress_api.METHOD), ("labels", classify_api.METHOD, "n")],
                "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
            ),
            (
                [("", classify_api.METHOD), ("serving_default", classify_api.METHOD)],
                "Duplicate evaluation of signature: serving_default",
            ),
            ([("none", classify_api.METHOD)], "Requested signature not found in model graph: none"),
            ([("labels", regress_api.METHOD)], "No regression outputs found in SignatureDef: "),
            (
                [("wide", regress_api.METHOD)],
                "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [1,3]",
            ),
        ],
    )
    def test_unfit_tasks(self, servable, wanted, message):
        assert refused(multi_inference_api.multi_inference, servable, tasks(*wanted)).startswith(message)

    def test_unknown_method(self, servable):
        request = tasks(("predict", "tensorflow/serving/predict"))
        message = refused(multi_inference_api.multi_inference, servable, request, code=grpc.StatusCode.UNIMPLEMENTED)
        assert message == "Unsupported signature method_name: tensorflow/serving/predict"

    def test_empty_input(self, servable):
        assert (
            refused(multi_inference_api.multi_inference, servable, tasks(("regress", regress_api.METHOD), rows=()))
            == "Input is empty."
        )

    def test_first_task_chooses_the_servable(self):
        assert multi_inference_api.model_spec(tasks(("a", "", "first"), ("b", "", "second"))).name == "first"
        assert not multi_inference_api.model_spec(tasks()).name


class TestMetadata:
    def request(self, *fields):
        from tensorflow_serving.apis import get_model_metadata_pb2

        request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=fields)
        request.model_spec.name = "m"
        return request

    def test_all_signatures_in_one_any(self, servable):
        from tensorflow_serving.apis import get_model_metadata_pb2

        answer = metadata_api.metadata(servable, self.request("signature_def", "signature_def"))
        assert (answer.model_spec.name, answer.model_spec.version.value, answer.model_spec.signature_name) == (
            "m",
            7,
            "",
        )
        assert list(answer.metadata) == ["signature_def"]
        found = get_model_metadata_pb2.SignatureDefMap()
        assert answer.metadata["signature_def"].type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
        assert answer.metadata["signature_def"].Unpack(found)
        assert dict(found.signature_def) == servable.signatures

    def test_refused_requests(self):
        from tensorflow_serving.apis import get_model_metadata_pb2

        nobody = types.SimpleNamespace()  # refused before the model is looked at
        assert (
            refused(metadata_api.metadata, nobody, self.request())
            == "GetModelMetadataRequest must specify at least one metadata_field"
        )
        assert (
            refused(metadata_api.metadata, nobody, self.request("signature_def", "graph"))
            == "Metadata field graph is not supported"
        )
        assert refused(metadata_api.check, get_model_metadata_pb2.GetModelMetadataRequest()) == "Missing ModelSpec"
