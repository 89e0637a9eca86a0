"""The models of the conformance suite, and the configuration files of a server that serves them.

    python -m tests.conformance.models DIR

writes them to DIR and prints the two command lines (without and with batching) of a tensorflow_model_server to point the suite at.
All models are small and deterministic. Each folder DIR/NAME/VERSION is a SavedModel; the docstring of its function says what it does.
"""

import pathlib
import shutil
import sys

DTYPES = {
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "bool": "bool",
    "string": "string",
    "complex64": "complex64",
    "complex128": "complex128",
}
VERSIONS = (1, 2, 3)  # of the model `versions`; 3 is on disk and not configured
LABELS = {"stable": 1, "canary": 2}
MAX_BATCH_SIZE = 4
MAX_ENQUEUED_BATCHES = 2
BATCH_TIMEOUT_MICROS = 300_000  # long enough for two requests that are sent together to meet in one batch
REST_TIMEOUT_MS = 2000

_BATCHING = f"""\
max_batch_size {{ value: {MAX_BATCH_SIZE} }}
batch_timeout_micros {{ value: {BATCH_TIMEOUT_MICROS} }}
max_enqueued_batches {{ value: {MAX_ENQUEUED_BATCHES} }}
num_batch_threads {{ value: 1 }}
allowed_batch_sizes: 2
allowed_batch_sizes: {MAX_BATCH_SIZE}
"""
_MONITORING = "prometheus_config { enable: true }\n"


def half_plus_two(path):
    """x float32, any shape -> y float32, x / 2 + 2."""
    import tensorflow as tf

    _save(path, serving_default=_function(lambda x: {"y": x / 2 + 2}, x=tf.TensorSpec(None, tf.float32)))


def versions(path):
    """x float32 (N) -> y float32 (N), x + the number of the version, which is the folder's name."""
    import tensorflow as tf

    version = float(path.name)
    _save(path, serving_default=_function(lambda x: {"y": x + version}, x=tf.TensorSpec([None], tf.float32)))


def dtypes(path):
    """x -> y, unchanged. serving_default float32 (N), and one signature for each of DTYPES, named by TensorFlow's name for it."""
    import tensorflow as tf

    signatures = {
        name: _function(lambda x: {"y": tf.identity(x)}, x=tf.TensorSpec([None], dtype))
        for name, dtype in DTYPES.items()
    }
    _save(
        path,
        serving_default=_function(lambda x: {"y": tf.identity(x)}, x=tf.TensorSpec([None], tf.float32)),
        **signatures,
    )


def several(path):
    """a, b float32 (N, 2), c int32 (N) -> sum float32 (N, 2), a + b; scaled float32 (N, 2), a * c; count int32 (N), c + 1.

    Signature only_sum: a, b -> sum.
    """
    import tensorflow as tf

    a, b, c = (
        tf.TensorSpec([None, 2], tf.float32),
        tf.TensorSpec([None, 2], tf.float32),
        tf.TensorSpec([None], tf.int32),
    )
    _save(
        path,
        serving_default=_function(
            lambda a, b, c: {"sum": a + b, "scaled": a * tf.cast(c, tf.float32)[:, None], "count": c + 1}, a=a, b=b, c=c
        ),
        only_sum=_function(lambda a, b: {"sum": a + b}, a=a, b=b),
    )


def uneven(path):
    """x float32 (N) -> rows float32 (N), x; more float32 (N + 1), x and a zero. Their 0th dimensions differ."""
    import tensorflow as tf

    _save(
        path,
        serving_default=_function(
            lambda x: {"rows": tf.identity(x), "more": tf.concat([x, [0.0]], 0)}, x=tf.TensorSpec([None], tf.float32)
        ),
    )


def reduced(path):
    """x float32 (N) -> total float32 (1), the sum: the 0th dimension is lost. Signature scalar: total float32 ()."""
    import tensorflow as tf

    x = tf.TensorSpec([None], tf.float32)
    _save(
        path,
        serving_default=_function(lambda x: {"total": tf.reduce_sum(x, 0, keepdims=True)}, x=x),
        scalar=_function(lambda x: {"total": tf.reduce_sum(x)}, x=x),
    )


def texts(path):
    """x string (N) -> text string (N) and raw_bytes string (N), x: over REST the name *_bytes is written in base64."""
    import tensorflow as tf

    _save(
        path,
        serving_default=_function(
            lambda x: {"text": tf.identity(x), "raw_bytes": tf.identity(x)}, x=tf.TensorSpec([None], tf.string)
        ),
    )


def slow(path):
    """steps int64 (N) -> done float32 (N), a sum of max(steps) terms: 10^9 steps last longer than any deadline here."""
    import tensorflow as tf

    def count(steps):
        last = tf.reduce_max(steps)
        _, total = tf.while_loop(
            lambda step, _: step < last,
            lambda step, total: (step + 1, total * 0.5 + 1.0),
            [tf.constant(0, tf.int64), tf.zeros(tf.shape(steps))],
        )
        return {"done": total}

    _save(path, serving_default=_function(count, steps=tf.TensorSpec([None], tf.int64)))


def fragile(path):
    """index int32 (N) -> value float32 (N), taken from a table of three: any other index fails."""
    import tensorflow as tf

    _save(
        path,
        serving_default=_function(
            lambda index: {"value": tf.gather([10.0, 20.0, 30.0], index)}, index=tf.TensorSpec([None], tf.int32)
        ),
    )


def defaults(path):
    """a, b float32 (N) -> y float32 (N), a + b; the signature has the default (5) for b."""
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    vector = tf.TensorSpec([None], tf.float32)
    _save(path, serving_default=_function(lambda a, b: {"y": a + b}, a=vector, b=vector))
    # tf.saved_model.save of 2.14 has no argument for it, the field and the runtime are there.
    file = path / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    for graph in model.meta_graphs:
        graph.signature_def["serving_default"].defaults["b"].CopyFrom(tf.make_tensor_proto([5.0]))
    file.write_bytes(model.SerializeToString())


def examples(path):
    """A TF1 export over serialized tf.Examples with one float feature x (0 when absent).

    serving_default, classify: classes ("yes", "no") and scores (x, 1 - x). classes_only, scores_only: one of them.
    regress: 2 x + 1, shape (N, 1). regress_vector: the same, (N). predict: a Predict signature, examples -> scores.
    predict_like_classify, predict_like_regress: Predict signatures with the names that Classify and Regress look for.
    The rest is wrong on purpose: classify_two_inputs, regress_two_inputs, classify_other_name, regress_other_name (input key),
    classify_no_outputs (other output keys), classify_vector (classes of rank 1), regress_two_columns, regress_other_input.
    """
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default():
        serialized, other = (v1.placeholder(tf.string, [None], name) for name in ("examples", "other"))
        spec = {"x": tf.io.FixedLenFeature([1], tf.float32, [0.0])}
        x = tf.io.parse_example(serialized, spec)["x"]
        tensors = {
            "scores": tf.concat([x, 1 - x], 1),
            "classes": tf.tile(tf.constant([["yes", "no"]]), [tf.shape(x)[0], 1]),
            "outputs": x * 2 + 1,
            "examples": serialized,
            "other": other,
            "other_outputs": tf.io.parse_example(other, spec)["x"],
        }
        with v1.Session() as session:
            builder = v1.saved_model.Builder(str(path))
            builder.add_meta_graph_and_variables(
                session, [tf.saved_model.SERVING], signature_def_map=_example_signatures(tf, tensors)
            )
            builder.save()


def _example_signatures(tf, tensors):
    info = {name: tf.compat.v1.saved_model.build_tensor_info(tensor) for name, tensor in tensors.items()}
    info["vector"] = tf.compat.v1.saved_model.build_tensor_info(tf.squeeze(tensors["outputs"], 1))
    info["class_vector"] = tf.compat.v1.saved_model.build_tensor_info(tensors["classes"][:, 0])

    def signature(method, inputs, outputs):
        return tf.compat.v1.saved_model.build_signature_def(
            {key: info[name] for key, name in inputs.items()},
            {key: info[name] for key, name in outputs.items()},
            f"tensorflow/serving/{method}",
        )

    one, two = {"inputs": "examples"}, {"inputs": "examples", "second": "other"}
    scores, classes, outputs = {"scores": "scores"}, {"classes": "classes"}, {"outputs": "outputs"}
    return {
        "serving_default": signature("classify", one, {**classes, **scores}),
        "classes_only": signature("classify", one, classes),
        "scores_only": signature("classify", one, scores),
        "regress": signature("regress", one, outputs),
        "regress_vector": signature("regress", one, {"outputs": "vector"}),
        "predict": signature("predict", {"examples": "examples"}, scores),
        "predict_like_classify": signature("predict", one, {**classes, **scores}),
        "predict_like_regress": signature("predict", one, outputs),
        "classify_two_inputs": signature("classify", two, scores),
        "regress_two_inputs": signature("regress", two, outputs),
        "classify_other_name": signature("classify", {"examples": "examples"}, scores),
        "regress_other_name": signature("regress", {"examples": "examples"}, outputs),
        "classify_no_outputs": signature("classify", one, {"points": "scores"}),
        "classify_vector": signature("classify", one, {"classes": "class_vector"}),
        "regress_two_columns": signature("regress", one, {"outputs": "scores"}),
        "regress_other_input": signature("regress", {"inputs": "other"}, {"outputs": "other_outputs"}),
    }


BUILDERS = {
    builder.__name__: builder
    for builder in (half_plus_two, versions, dtypes, several, uneven, reduced, texts, slow, fragile, defaults, examples)
}


def build(folder):
    """Write the models and models.config, batching.config (without labels), batching_parameters.txt, monitoring.config."""
    folder = pathlib.Path(folder).absolute()
    for name, builder in BUILDERS.items():
        for version in VERSIONS if name == "versions" else (1,):
            path = folder / name / str(version)
            shutil.rmtree(path, ignore_errors=True)
            path.parent.mkdir(parents=True, exist_ok=True)
            builder(path)
    (folder / "models.config").write_text(config_text(folder, LABELS))
    (folder / "batching.config").write_text(config_text(folder, {}))
    (folder / "batching_parameters.txt").write_text(_BATCHING)
    (folder / "monitoring.config").write_text(_MONITORING)


def built_once(tmp_path_factory):
    """The folder of the models of this test session, built by the first that asks; safe between the workers of pytest-xdist."""
    from tests import zoo

    folder = zoo.common(tmp_path_factory) / "conformance"
    with zoo.lock(folder.with_name(".conformance.lock")):
        if not (folder / "monitoring.config").exists():  # the last file that is written
            build(folder)
    return folder


def config(folder, labels):
    """The ModelServerConfig of all models. labels: {label: version} of the model `versions`."""
    from tensorflow_serving.config import model_server_config_pb2

    answer = model_server_config_pb2.ModelServerConfig()
    for name in BUILDERS:
        entry = answer.model_config_list.config.add(
            name=name, base_path=str(pathlib.Path(folder).absolute() / name), model_platform="tensorflow"
        )
        if name == "versions":
            entry.model_version_policy.specific.versions.extend([1, 2])
            for label, version in labels.items():
                entry.version_labels[label] = version
    return answer


def config_text(folder, labels):
    from google.protobuf import text_format

    return text_format.MessageToString(config(folder, labels))


def flags(folder, batching):
    """The flags of a server of these models, less its ports."""
    folder = pathlib.Path(folder).absolute()
    common = [
        f"--monitoring_config_file={folder / 'monitoring.config'}",
        f"--rest_api_timeout_in_ms={REST_TIMEOUT_MS}",
        "--max_num_load_retries=0",
        "--file_system_poll_wait_seconds=1",
        "--grpc_max_threads=64",
    ]  # by default four for each core; the tests have more calls at once
    if batching:
        return [
            f"--model_config_file={folder / 'batching.config'}",
            "--enable_batching=true",
            "--enable_signature_method_name_check=true",
            f"--batching_parameters_file={folder / 'batching_parameters.txt'}",
            *common,
        ]
    return [
        f"--model_config_file={folder / 'models.config'}",
        "--allow_version_labels_for_unavailable_models=true",
        *common,
    ]


def _function(function, **specs):
    import tensorflow as tf

    return tf.function(function).get_concrete_function(
        **{name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    )


def _save(path, **signatures):
    import tensorflow as tf

    tf.saved_model.save(tf.Module(), str(path), signatures=signatures)


def main(arguments):
    if len(arguments) != 1:
        raise SystemExit("usage: python -m tests.conformance.models DIR")
    build(arguments[0])
    for batching, port in ((False, 8500), (True, 8510)):
        print(
            f"tensorflow_model_server --port={port} --rest_api_port={port + 1} "
            + " ".join(flags(arguments[0], batching))
        )
    print(
        f"pytest tests/conformance --server=HOST:8500 --rest=HOST:8501 --batching_server=HOST:8510 --batching_rest=HOST:8511"
        f" --models={pathlib.Path(arguments[0]).absolute()}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
