"""The sample models: they build, load back, keep their signatures and tables, and answer differently to different inputs."""

import shutil
import subprocess
import sys

import numpy as np
import pytest

import saved_models
import saved_models.__main__ as command
from tests.zoo import SMALL, built, trained, zoo_inputs, zoo_model  # noqa: F401  (zoo_model is a fixture)
from tests.zoo_signatures import SIGNATURES
from tftrt_tools.models.savedmodel.job import protos


@pytest.fixture(scope="module")
def load(zoo_model):  # noqa: F811
    """A function name -> the loaded SavedModel; each is loaded once."""
    import tensorflow as tf

    loaded = {}

    def get(name):
        if name not in loaded:
            loaded[name] = tf.saved_model.load(str(zoo_model(name)))
        return loaded[name]

    return get


def call(model, signature, inputs):
    import tensorflow as tf

    outputs = model.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
    return {name: value.numpy() for name, value in outputs.items()}


def call_v1(path, signature, inputs):
    """Run a signature the TF1 way, in a session of its own, as TensorFlow Serving does."""
    import tensorflow as tf

    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        meta = v1.saved_model.load(session, [tf.saved_model.SERVING], str(path))
        definition = meta.signature_def[signature]
        feed = {definition.inputs[name].name: value for name, value in inputs.items()}
        return session.run({name: tensor.name for name, tensor in definition.outputs.items()}, feed)


def _described(tensors):
    return {name: (spec.dtype.name, spec.shape.as_list()) for name, spec in tensors.items()}


def test_every_model_is_described_here():
    assert set(SIGNATURES) == set(saved_models.NAMES)
    assert all(saved_models.description(name) for name in saved_models.NAMES)
    assert set(SMALL) <= set(saved_models.NAMES)


@pytest.mark.parametrize("name", saved_models.NAMES)
def test_signatures_have_the_names_types_and_shapes_that_are_promised(load, name):
    found = {
        key: (_described(function.structured_input_signature[1]), _described(function.structured_outputs))
        for key, function in load(name).signatures.items()
    }
    assert found == SIGNATURES[name]


@pytest.mark.parametrize("name", saved_models.NAMES)
def test_outputs_are_finite_and_every_one_depends_on_the_inputs(load, name):
    for signature, inputs in zoo_inputs(name, batch=8).items():
        for output, value in call(load(name), signature, inputs).items():
            assert np.isfinite(value).all(), output
            assert value.std(axis=0).mean() > 0.02, output
            assert len(np.unique(value.reshape(8, -1), axis=0)) > 2, output


@pytest.mark.parametrize("name", saved_models.NAMES)
def test_sample_inputs_are_those_of_the_signatures_and_repeat_with_the_seed(name):
    for batch in (1, 5):
        first, second = zoo_inputs(name, batch, seed=3), zoo_inputs(name, batch, seed=3)
        assert {key: set(inputs) for key, inputs in first.items()} == {
            key: set(io[0]) for key, io in SIGNATURES[name].items()
        }
        for signature, inputs in first.items():
            for key, value in inputs.items():
                dtype, shape = SIGNATURES[name][signature][0][key]
                assert (value.dtype.name, value.ndim, len(value)) == (
                    dtype.replace("string", "object"),
                    len(shape),
                    batch,
                )
                np.testing.assert_array_equal(value, second[signature][key])


# Training digits_cnn is left out: its model is trained once a process, so another would prove nothing.
AGAIN = [name for name in saved_models.NAMES if name != "digits_cnn"]


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """A function name -> the model built once more, after Keras has counted layers of its kinds."""
    import tensorflow as tf

    folder, layers = tmp_path_factory.mktemp("again"), tf.keras.layers

    def get(name):
        if not (folder / name).exists():
            assert [layers.GlobalAveragePooling2D(), layers.Dense(1), layers.Embedding(1, 1), layers.LSTM(1)]
            saved_models.build(name, folder / name, **SMALL.get(name, {}))
        return folder / name

    return get


@pytest.mark.parametrize("name", AGAIN)
def test_building_again_gives_the_same_answers(load, again, name):
    import tensorflow as tf

    rebuilt = tf.saved_model.load(str(again(name)))
    for signature, inputs in zoo_inputs(name, batch=2).items():
        first, second = call(load(name), signature, inputs), call(rebuilt, signature, inputs)
        for output in first:
            np.testing.assert_array_equal(first[output], second[output], err_msg=output)


@pytest.mark.parametrize("name", AGAIN)
def test_names_do_not_depend_on_what_the_process_built_before(zoo_model, again, name):  # noqa: F811
    first, second = (protos.meta_graph(protos.read(path)).graph_def for path in (zoo_model(name), again(name)))
    # The functions' own names are numbered through the process, and nothing is read from them.
    names = [
        sorted(
            node.name
            for function in one.library.function
            for node in function.node_def
            if "signature" not in function.signature.name
        )
        for one in (first, second)
    ]
    assert names[0] == names[1]


@pytest.mark.parametrize("name", ["ranker", "tf1_export", "digits_cnn"])
def test_a_v1_session_gives_the_same_answers_from_a_moved_copy(load, zoo_model, tmp_path, name):  # noqa: F811
    moved = shutil.copytree(zoo_model(name), tmp_path / "moved")
    for signature, inputs in zoo_inputs(name, batch=6).items():
        expected, found = call(load(name), signature, inputs), call_v1(moved, signature, inputs)
        assert set(found) == set(expected)
        for output in expected:
            np.testing.assert_allclose(found[output], expected[output], rtol=1e-5, atol=1e-5, err_msg=output)


def test_no_model_stores_a_float_wider_or_narrower_than_float32(zoo_model):  # noqa: F811
    import tensorflow as tf

    for name in saved_models.NAMES:
        variables = tf.train.list_variables(str(zoo_model(name) / "variables/variables"))
        reader = tf.train.load_checkpoint(str(zoo_model(name) / "variables/variables"))
        types = {reader.get_variable_to_dtype_map()[key] for key, _ in variables}
        assert {kind for kind in types if kind.is_floating} == {tf.float32}, name


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_random_classifiers_tell_images_apart(load, name):
    logits = call(load(name), "serving_default", zoo_inputs(name, batch=24)["serving_default"])["logits"]
    assert len(set(logits.argmax(axis=1))) >= 10


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_random_classifiers_do_not_amplify_rounding_errors(load, name):
    image = zoo_inputs(name, batch=16)["serving_default"]["image"]
    exact = call(load(name), "serving_default", {"image": image})["logits"]
    rounded = call(load(name), "serving_default", {"image": image.astype(np.float16).astype(np.float32)})["logits"]
    assert np.abs(rounded - exact).max() < 0.05 * exact.std()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_classifiers_of_full_size_tell_images_apart(tmp_path, name):
    import tensorflow as tf

    inputs = zoo_inputs(name, batch=12, size=224)["serving_default"]
    model = tf.saved_model.load(str(built(tmp_path, name)))
    logits = call(model, "serving_default", inputs)["logits"]
    assert logits.shape == (12, 1000)
    assert len(set(logits.argmax(axis=1))) >= 6


def test_digits_are_recognised_on_images_that_training_never_saw(load):
    from saved_models import digits_cnn

    images, labels = digits_cnn.held_back()
    trained_on, _ = digits_cnn.training_images()
    assert (images.shape, labels.shape, len(trained_on)) == ((400, 8, 8, 1), (400,), 1397)
    probabilities = call(load("digits_cnn"), "serving_default", {"image": images})["probabilities"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert (probabilities.argmax(axis=1) == labels).mean() > 0.97


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_digits_keras_files_hold_the_model_of_the_savedmodel(tmp_path_factory, suffix):
    import tensorflow as tf

    from saved_models import digits_cnn

    folder = trained(tmp_path_factory)
    keras = tf.keras.models.load_model(folder / f"model{suffix}")
    images, _ = digits_cnn.held_back()
    exported = call(tf.saved_model.load(str(folder / "digits_cnn")), "serving_default", {"image": images})[
        "probabilities"
    ]
    np.testing.assert_allclose(keras.predict(images, verbose=0), exported, atol=1e-5)


def test_digits_refuses_a_file_that_keras_could_not_tell(tmp_path):
    from saved_models import digits_cnn

    with pytest.raises(ValueError, match=r"ends in \.keras, \.h5"):
        digits_cnn.write_keras(tmp_path / "digits.pb")


def test_padding_does_not_change_what_bert_says_of_the_tokens(load):
    inputs = zoo_inputs("bert_encoder", batch=3, length=16)["serving_default"]
    inputs["input_mask"][:, 10:] = 0
    short = {name: value[:, :10] for name, value in inputs.items()}
    padded, plain = (call(load("bert_encoder"), "serving_default", x) for x in (inputs, short))
    np.testing.assert_allclose(padded["sequence_output"][:, :10], plain["sequence_output"], atol=1e-4)
    np.testing.assert_allclose(padded["pooled_output"], plain["pooled_output"], atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(9, 9), (33, 47), (96, 64)])
def test_the_segmenter_labels_every_pixel_of_images_of_any_size(load, height, width):
    inputs = zoo_inputs("dynamic_segmenter", batch=2, height=height, width=width)["serving_default"]
    labels = call(load("dynamic_segmenter"), "serving_default", inputs)["class_logits"]
    assert labels.shape == (2, height, width, 6)


def _ops(model, signature="serving_default"):
    """Op types of a signature's graph and of the functions that it may call."""
    graph = model.signatures[signature].graph.as_graph_def()
    return {node.op for nodes in (graph.node, *(f.node_def for f in graph.library.function)) for node in nodes}


@pytest.mark.parametrize(("name", "native"), [("dynamic_segmenter", {"MirrorPad"}), ("ranker", {"Log1p", "MulNoNan"})])
def test_ops_that_have_to_stay_native_are_there_and_have_no_converter(load, name, native):
    from tensorflow.compiler.tf2tensorrt import _pywrap_py_utils

    assert native <= _ops(load(name))
    assert native & set(_pywrap_py_utils.get_registered_op_converters()) == set()


def test_ranker_looks_names_up_in_its_vocabulary_files_after_prep(load, zoo_model):  # noqa: F811
    import tensorflow as tf

    assets = {path.name for path in (zoo_model("ranker") / "assets").iterdir()}
    assert assets == {"users.txt", "items.txt"}
    names = ["item_0", "ITEM_299", "  item_7 ", "a name that is in no vocabulary"]
    prices = np.full(4, 100, np.int32)
    index = call(load("ranker"), "item_embedding", {"item": np.array(names, object), "price_cents": prices})[
        "item_index"
    ]
    assert index[:3].tolist() == [0, 299, 7]
    assert 300 <= index[3] < 304
    assert load("ranker").prep(tf.constant(["  User_1 "])).numpy().tolist() == [b"user_1"]


def test_large_integers_matter_digit_for_digit_in_the_ranker(load):
    inputs = zoo_inputs("ranker", batch=4)["serving_default"]
    inputs = {name: np.repeat(value[:1], 4, axis=0) for name, value in inputs.items()}
    inputs["price_cents"] = np.array([2048, 2049, 99999, 100000], np.int32)
    inputs["visits"] = np.array([[2048, 0, 0, 0], [2049, 0, 0, 0], [99999, 1, 0, 0], [100000, 1, 0, 0]], np.int32)
    outputs = call(load("ranker"), "serving_default", inputs)
    sigmoid = 1.0 / (1.0 + np.exp(-outputs["score"].astype(np.float64)))
    np.testing.assert_allclose(outputs["expected_revenue"], sigmoid * inputs["price_cents"], rtol=1e-5)
    assert outputs["total_visits"].tolist() == [2048, 2049, 100000, 100001]
    assert "Cast" in _ops(load("ranker"))


def test_sample_inputs_of_the_ranker_hold_the_large_integers():
    inputs = zoo_inputs("ranker", batch=4)["serving_default"]
    assert {2049, 100000} <= set(inputs["visits"].flat)
    assert {2049, 100000} <= set(inputs["price_cents"].flat)


def test_the_tf1_export_is_one_variables_are_references_and_the_table_comes_from_the_main_op(load, zoo_model):  # noqa: F811
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((zoo_model("tf1_export") / "saved_model.pb").read_bytes())
    (meta,) = saved.meta_graphs
    assert not meta.HasField("object_graph_def")
    assert {"VariableV2", "HashTableV2"} <= {node.op for node in meta.graph_def.node}
    assert "saved_model_main_op" in meta.collection_def
    inputs = zoo_inputs("tf1_export", batch=3)["serving_default"]
    inputs["colour"] = np.array(["red", "grey", "mauve"], object)
    assert call(load("tf1_export"), "serving_default", inputs)["colour_index"].tolist() == [0, 5, -1]


def test_importing_the_registry_and_every_builder_needs_neither_tensorflow_nor_scikit_learn():
    code = (
        "import sys, saved_models\nfor name in saved_models.NAMES: saved_models.builder(name)\n"
        "print(sorted({'tensorflow', 'sklearn'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout == "[]\n"


def test_the_command_lists_every_model(capsys):
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(saved_models.NAMES)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--output"),
        (["ranker"], "--output"),
        (["--output=x"], "name the models"),
        (["rankr", "--output=x"], "no model 'rankr'; there are: digits_cnn"),
    ],
)
def test_the_command_says_what_is_missing(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        command.main(arguments)
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_builds_what_is_missing_and_leaves_the_rest_alone(capsys, tmp_path):
    import tensorflow as tf

    (tmp_path / ".dynamic_segmenter.partial").mkdir()  # as an interrupted build leaves it
    arguments = ["dynamic_segmenter", "ranker", f"--output={tmp_path}"]
    assert command.main(arguments) == 0
    assert capsys.readouterr().out.count("built in") == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dynamic_segmenter", "ranker"]
    assert set(tf.saved_model.load(str(tmp_path / "ranker")).signatures) == set(SIGNATURES["ranker"])
    before = (tmp_path / "ranker/saved_model.pb").stat().st_mtime_ns
    assert command.main(arguments) == 0
    assert capsys.readouterr().out.count("left alone") == 2
    assert (tmp_path / "ranker/saved_model.pb").stat().st_mtime_ns == before


@pytest.fixture(scope="module")
def spread():
    """(Keras model, held-back images, labels, activations on training images) of the small spread_cnn."""
    from saved_models import spread_cnn
    from tests import int8_simulation

    model = spread_cnn.fit(**SMALL["spread_cnn"])
    images, labels = spread_cnn.held_back()
    return model, images, labels, int8_simulation.activations(model, spread_cnn.training_images()[0][:256])


@pytest.mark.parametrize("percentile", [100.0, 99.99])
def test_plain_int8_breaks_spread_cnn_and_one_block_kept_in_float_mends_it(spread, percentile):
    from saved_models import spread_cnn
    from tests import int8_simulation

    model, images, labels, found = spread
    scales = int8_simulation.scales(found, percentile)
    answers = {
        "float": model(images, training=False).numpy(),
        "int8": int8_simulation.run(model, images, scales),
        "mixed": int8_simulation.run(model, images, scales, keep=spread_cnn.SPREAD_LAYERS),
    }
    accuracy = {name: (answer.argmax(axis=1) == labels).mean() for name, answer in answers.items()}
    assert accuracy["float"] >= 0.95
    assert accuracy["int8"] < 0.5
    assert accuracy["mixed"] >= accuracy["float"] - 0.01


def test_no_single_scale_saves_the_spread_block(spread):
    """Neither rounding small channels to zero nor cutting large ones off is harmless: both carry the signal."""
    from tests import int8_simulation

    model, images, labels, found = spread
    scales = int8_simulation.scales(found)
    for power in range(0, 17, 4):
        cut = {
            name: scale / 2**power if name.startswith(("spread_expand", "spread_depthwise")) else scale
            for name, scale in scales.items()
        }
        assert (int8_simulation.run(model, images, cut).argmax(axis=1) == labels).mean() < 0.8, power


def test_the_spread_does_not_change_the_float_function_and_fits_into_half(spread):
    from saved_models import spread_cnn

    model, images, labels, found = spread
    even = spread_cnn.fit(**SMALL["spread_cnn"], spread=0)
    np.testing.assert_array_equal(model.predict(images, verbose=0), even.predict(images, verbose=0))
    for name in ("spread_expand_relu", "spread_depthwise_relu"):
        largest = found[name].max(axis=(0, 1, 2))
        assert largest.max() / largest.min() > 2**14
        assert largest.max() < 65504 / 8 and largest.min() > 2.0**-14 * 8
