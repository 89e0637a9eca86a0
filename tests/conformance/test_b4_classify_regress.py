"""B4: Classify, Regress and MultiInference."""

import pytest

from tests.conformance.address import assert_refused, assert_rest_refused, spec

CLASSIFY, REGRESS, PREDICT = (f"tensorflow/serving/{name}" for name in ("classify", "regress", "predict"))


def example(x=None):
    """tf.Example with the float feature x, or without it."""
    import tensorflow as tf

    answer = tf.train.Example()
    if x is not None:
        answer.features.feature["x"].float_list.value.append(x)
    return answer


def _request(kind, signature=None, values=(0.25,), model="examples", context=None):
    from tensorflow_serving.apis import classification_pb2, regression_pb2

    request = {"Classify": classification_pb2.ClassificationRequest, "Regress": regression_pb2.RegressionRequest}[
        kind
    ]()
    request.model_spec.CopyFrom(spec(model, signature=signature))
    _fill(request.input, values, context)
    return request


def _fill(target, values, context=None):
    if context is not None:
        target.example_list_with_context.context.CopyFrom(context)
        target.example_list_with_context.examples.extend(example(value) for value in values)
    elif values is not None:
        target.example_list.examples.extend(example(value) for value in values)


def _tasks(*tasks, values=(0.25,)):
    """MultiInferenceRequest of (model, signature, method) each."""
    from tensorflow_serving.apis import inference_pb2

    request = inference_pb2.MultiInferenceRequest()
    for model, signature, method in tasks:
        request.tasks.add(model_spec=spec(model, signature=signature), method_name=method)
    _fill(request.input, values)
    return request


def _classes(classifications):
    return [[(each.label, each.score) for each in row.classes] for row in classifications]


def _refused(server, kind, code, message=None, *, pattern=None, **options):
    assert_refused(getattr(server.prediction, kind), _request(kind, **options), code, message, pattern=pattern)


def test_classify_pairs_labels_and_scores_for_each_example(server):
    """B4."""
    answer = server.prediction.Classify(_request("Classify", values=(0.25, 1.0)), timeout=30)
    assert _classes(answer.result.classifications) == [[("yes", 0.25), ("no", 0.75)], [("yes", 1.0), ("no", 0.0)]]
    assert answer.model_spec == spec("examples", 1, signature="serving_default")


def test_classify_leaves_the_score_out_where_there_are_only_classes(server):
    """B4."""
    answer = server.prediction.Classify(_request("Classify", "classes_only"), timeout=30)
    assert _classes(answer.result.classifications) == [[("yes", 0.0), ("no", 0.0)]]


def test_classify_leaves_the_label_out_where_there_are_only_scores(server):
    """B4."""
    answer = server.prediction.Classify(_request("Classify", "scores_only"), timeout=30)
    assert _classes(answer.result.classifications) == [[("", 0.25), ("", 0.75)]]


@pytest.mark.parametrize("signature", ["regress", "regress_vector"])
def test_regress_answers_one_value_for_each_example(server, signature):
    """B4: outputs of shape (N) and (N, 1)."""
    answer = server.prediction.Regress(_request("Regress", signature, values=(0.25, 1.0)), timeout=30)
    assert [each.value for each in answer.result.regressions] == [1.5, 3.0]
    assert answer.model_spec == spec("examples", 1, signature=signature)


def test_the_context_is_merged_into_every_example(server):
    """B4: its features are those of the examples that lack them, the examples' own win."""
    request = _request("Regress", "regress", values=(None, 1.0), context=example(0.5))
    assert [each.value for each in server.prediction.Regress(request, timeout=30).result.regressions] == [2.0, 3.0]


@pytest.mark.parametrize("kind", ["Classify", "Regress"])
def test_an_unknown_signature_is_an_invalid_argument(server, kind):
    """B4: FAILED_PRECONDITION in Predict, INVALID_ARGUMENT here."""
    _refused(server, kind, "INVALID_ARGUMENT", "No signature was found with the name: nosuch", signature="nosuch")


def test_a_signature_of_another_method_is_taken_where_its_names_fit(server):
    """B4: method names are not checked unless the server is told to."""
    classified = server.prediction.Classify(_request("Classify", "predict_like_classify"), timeout=30)
    assert _classes(classified.result.classifications) == [[("yes", 0.25), ("no", 0.75)]]
    regressed = server.prediction.Regress(_request("Regress", "predict_like_regress"), timeout=30)
    assert [each.value for each in regressed.result.regressions] == [1.5]


def test_a_signature_of_another_method_is_refused_for_its_names(server):
    """B4: without the check of method names it is the names that do not fit."""
    _refused(
        server,
        "Classify",
        "INVALID_ARGUMENT",
        pattern="Expected classification signature outputs to contain at least one of .*",
        signature="regress",
    )
    _refused(
        server,
        "Classify",
        "INVALID_ARGUMENT",
        pattern="No classification inputs found in SignatureDef: .*",
        signature="predict",
    )
    _refused(server, "Regress", "INVALID_ARGUMENT", "Expected one output Tensor.", signature="serving_default")
    _refused(
        server,
        "Regress",
        "INVALID_ARGUMENT",
        pattern="No regression outputs found in SignatureDef: .*",
        signature="scores_only",
    )


@pytest.mark.parametrize(
    "kind, word, method, signature, was",
    [
        ("Classify", "classification", CLASSIFY, "regress", REGRESS),
        ("Classify", "classification", CLASSIFY, "predict_like_classify", PREDICT),
        ("Regress", "regression", REGRESS, None, CLASSIFY),
        ("Regress", "regression", REGRESS, "predict_like_regress", PREDICT),
    ],
)
def test_with_the_check_of_method_names_a_signature_of_another_method_is_refused(
    batching, kind, word, method, signature, was
):
    """B4: --enable_signature_method_name_check, which the server with batching was started with."""
    _refused(
        batching,
        kind,
        "INVALID_ARGUMENT",
        f"Expected {word} signature method_name to be {method}. Was: {was}",
        signature=signature,
    )


def test_with_the_check_of_method_names_multi_inference_refuses_another_method(batching):
    """B4."""
    assert_refused(
        batching.prediction.MultiInference,
        _tasks(("examples", "regress", CLASSIFY)),
        "INVALID_ARGUMENT",
        f"Expected classification signature method_name to be {CLASSIFY}. Was: {REGRESS}",
    )


@pytest.mark.parametrize("kind, signature", [("Classify", "classify_two_inputs"), ("Regress", "regress_two_inputs")])
def test_a_signature_with_two_inputs_is_refused(server, kind, signature):
    """B4: not exactly one input."""
    _refused(server, kind, "INVALID_ARGUMENT", "Expected one input Tensor.", signature=signature)


@pytest.mark.parametrize(
    "kind, signature, word",
    [("Classify", "classify_other_name", "classification"), ("Regress", "regress_other_name", "regression")],
)
def test_a_signature_whose_input_is_not_called_inputs_is_refused(server, kind, signature, word):
    """B4."""
    _refused(
        server, kind, "INVALID_ARGUMENT", pattern=f"No {word} inputs found in SignatureDef: .*", signature=signature
    )


def test_a_classification_needs_classes_or_scores(server):
    """B4."""
    _refused(
        server,
        "Classify",
        "INVALID_ARGUMENT",
        signature="classify_no_outputs",
        pattern='Expected classification signature outputs to contain at least one of "classes" or "scores". Signature was: .*',
    )


def test_classes_have_to_be_a_matrix(server):
    """B4."""
    _refused(
        server,
        "Classify",
        "INVALID_ARGUMENT",
        r"Expected Tensor shape: [batch_size num_classes] but got [1]",
        signature="classify_vector",
    )


def test_a_regression_has_one_column(server):
    """B4."""
    _refused(
        server,
        "Regress",
        "INVALID_ARGUMENT",
        signature="regress_two_columns",
        message="Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [1,2]",
    )


@pytest.mark.parametrize("kind, signature", [("Classify", None), ("Regress", "regress")])
@pytest.mark.parametrize("form", ["unset", "empty list", "empty list with context"])
def test_an_empty_input_is_refused(server, kind, signature, form):
    """B4."""
    options = {
        "unset": {"values": None},
        "empty list": {"values": ()},
        "empty list with context": {"values": (), "context": example(1.0)},
    }
    request = _request(kind, signature, **options[form])
    if form == "empty list":
        request.input.example_list.SetInParent()
    assert_refused(getattr(server.prediction, kind), request, "INVALID_ARGUMENT", "Input is empty.")


def test_multi_inference_answers_every_task_in_order(server):
    """B4: from one run."""
    request = _tasks(
        ("examples", "regress", REGRESS),
        ("examples", None, CLASSIFY),
        ("examples", "regress_vector", REGRESS),
        values=(0.25, 1.0),
    )
    answer = server.prediction.MultiInference(request, timeout=30)
    assert [each.WhichOneof("result") for each in answer.results] == [
        "regression_result",
        "classification_result",
        "regression_result",
    ]
    assert [each.value for each in answer.results[0].regression_result.regressions] == [1.5, 3.0]
    assert _classes(answer.results[1].classification_result.classifications) == [
        [("yes", 0.25), ("no", 0.75)],
        [("yes", 1.0), ("no", 0.0)],
    ]
    assert [each.model_spec for each in answer.results] == [
        spec("examples", 1, signature=name) for name in ("regress", "serving_default", "regress_vector")
    ]


def test_multi_inference_of_signatures_with_different_inputs_is_answered(server):
    """B4: each input tensor is fed the examples."""
    request = _tasks(("examples", "regress", REGRESS), ("examples", "regress_other_input", REGRESS), values=(0.25, 1.0))
    answer = server.prediction.MultiInference(request, timeout=30)
    assert [each.WhichOneof("result") for each in answer.results] == ["regression_result"] * 2
    for task, result in zip(request.tasks, answer.results, strict=True):
        alone = server.prediction.MultiInference(
            _tasks(("examples", task.model_spec.signature_name, REGRESS), values=(0.25, 1.0)), timeout=30
        )
        assert result == alone.results[0]


MULTI = {
    "two models": (
        [("examples", None, CLASSIFY), ("half_plus_two", None, REGRESS)],
        "INVALID_ARGUMENT",
        "All ModelSpecs in a MultiInferenceRequest must access the same model name.",
    ),
    "an empty model name after the first": (
        [("examples", None, CLASSIFY), ("", None, REGRESS)],
        "INVALID_ARGUMENT",
        "Found ModelSpec with an empty model name.",
    ),
    "a signature twice": (
        [("examples", None, CLASSIFY), ("examples", "serving_default", CLASSIFY)],
        "INVALID_ARGUMENT",
        "Duplicate evaluation of signature: serving_default",
    ),
    "an unknown signature": (
        [("examples", "nosuch", CLASSIFY)],
        "INVALID_ARGUMENT",
        "Requested signature not found in model graph: nosuch",
    ),
    "an unknown method": (
        [("examples", None, "tensorflow/serving/predict")],
        "UNIMPLEMENTED",
        "Unsupported signature method_name: tensorflow/serving/predict",
    ),
    "no method": ([("examples", None, "")], "UNIMPLEMENTED", "Unsupported signature method_name: "),
    "another method than the signature's": (
        [("examples", None, REGRESS)],
        "INVALID_ARGUMENT",
        "Expected one output Tensor.",
    ),
}


@pytest.mark.parametrize("fault", MULTI)
def test_multi_inference_is_refused_with(server, fault):
    """B4: all tasks of one model, no signature twice, only classify and regress."""
    tasks, code, message = MULTI[fault]
    assert_refused(server.prediction.MultiInference, _tasks(*tasks), code, message)


def test_multi_inference_of_an_empty_input_is_refused(server):
    """B4."""
    assert_refused(
        server.prediction.MultiInference,
        _tasks(("examples", None, CLASSIFY), values=None),
        "INVALID_ARGUMENT",
        "Input is empty.",
    )


def test_over_rest_classify_answers_pairs(server):
    """B4, REST: a list of [label, score] for each example."""
    answer = server.rest("POST", "/v1/models/examples:classify", {"examples": [{"x": 0.25}, {"x": 1.0}]})
    assert (answer.status, answer.json()) == (
        200,
        {"results": [[["yes", 0.25], ["no", 0.75]], [["yes", 1.0], ["no", 0.0]]]},
    )


def test_over_rest_regress_answers_numbers(server):
    """B4, REST."""
    answer = server.rest(
        "POST", "/v1/models/examples:regress", {"signature_name": "regress", "examples": [{"x": [0.25]}, {}]}
    )
    assert (answer.status, answer.json()) == (200, {"results": [1.5, 1.0]})


def test_over_rest_a_context_is_merged(server):
    """B4, REST."""
    body = {"signature_name": "regress", "context": {"x": 0.5}, "examples": [{}, {"x": 1.0}]}
    assert server.rest("POST", "/v1/models/examples:regress", body).json() == {"results": [2.0, 3.0]}


def test_over_rest_an_unknown_signature_is_400(server):
    """B4, REST."""
    answer = server.rest("POST", "/v1/models/examples:classify", {"signature_name": "nosuch", "examples": [{"x": 1.0}]})
    assert_rest_refused(answer, 400, "No signature was found with the name: nosuch")


REST = {
    "no examples key": (
        {"instances": [1.0]},
        r"JSON Value: .* When method is classify, key 'examples' is expected and was not found",
    ),
    "examples that are no list": (
        {"examples": {"x": 1.0}},
        r"JSON Value: .* Expecting 'examples' value to be an list/array",
    ),
    "an empty list": ({"examples": []}, r"JSON Value: .* 'examples' value is an empty array"),
    "an example that is no object": ({"examples": [1.0]}, r"Example must be JSON object but got JSON Number"),
    "a null": ({"examples": [{"x": None}]}, r"Feature: x has element with unexpected JSON type: Null"),
    "a list in a list": ({"examples": [{"x": [[1.0]]}]}, r"Feature: x has element with unexpected JSON type: Array"),
    "an object that is not base64": (
        {"examples": [{"x": {"y": 1}}]},
        r"Feature: x has element with unexpected JSON type: Object",
    ),
    "two types in one feature": (
        {"examples": [{"x": [1.0, "a"]}]},
        r"Unexpected element type in feature: x expecting type: float",
    ),
}


@pytest.mark.parametrize("fault", REST)
def test_over_rest_an_example_is_refused_for(server, fault):
    """B4, REST."""
    body, pattern = REST[fault]
    assert_rest_refused(server.rest("POST", "/v1/models/examples:classify", body), 400, pattern=pattern)
