"""A Keras file of another hand runs nothing, imports nothing and reads no other file without consent; a usual one needs no consent."""

import json
import pathlib
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from saved_models import keras_versions
from tests import keras_layers, stacks
from tftrt_tools.base import errors
from tftrt_tools.base.files import archives
from tftrt_tools.models.sources import keras_job
from tftrt_tools.models.sources.job import keras_code, keras_file, keras_names
from tftrt_tools.models.sources.opened import KerasRequest

layers = tf.keras.layers


def plain():
    """A model in which an attack is hidden."""
    inputs = tf.keras.Input((4,), name="x")
    inner = tf.keras.Sequential(
        [layers.InputLayer((4,)), layers.Dense(4, activation="relu", name="dense")], name="inner"
    )
    x = layers.TimeDistributed(layers.Dense(3), name="each")(layers.Reshape((2, 2))(inner(inputs)))
    x = layers.Bidirectional(layers.LSTM(2), name="both")(x)
    # Keras 3's tensors are none of TensorFlow's.
    return tf.keras.Model(inputs, (layers.ReLU() if keras_versions.major() > 2 else tf.nn.relu)(x + 1.0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """{suffix: path} of `plain`."""
    folder = tmp_path_factory.mktemp("plain")
    model = plain()
    for suffix in (".keras", ".h5"):
        model.save(folder / f"model{suffix}")
    return {suffix: folder / f"model{suffix}" for suffix in (".keras", ".h5")}


def changed(source, target, change):
    """The model file `source` with the configuration that change(config) leaves."""
    if source.suffix == ".keras":
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
            for name in old.namelist():
                data = old.read(name)
                new.writestr(name, json.dumps(change(json.loads(data))) if name == "config.json" else data)
        return target
    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+") as file:
        file.attrs["model_config"] = json.dumps(change(json.loads(file.attrs["model_config"])))
    return target


def part(config, name):
    """The configuration of the layer `name`, wherever it lies."""
    if isinstance(config, dict):
        inner = config.get("config")
        if isinstance(inner, dict) and inner.get("name") == name and "class_name" in config:
            return config
        config = list(config.values())
    for one in config if isinstance(config, list) else ():
        found = part(one, name)
        if found:
            return found
    return None


def call_of(symbol, *values, **named):
    """A layer of a TensorFlow function that is called with constants."""
    node = [["_CONSTANT_VALUE", -1, values[0], named]]
    return {
        "class_name": "TFOpLambda",
        "module": "keras.src.layers.core.tf_op_layer",
        "registered_name": "TFOpLambda",
        "name": "call",
        "config": {"name": "call", "trainable": True, "dtype": "float32", "function": symbol},
        "inbound_nodes": node,
    }


def added(layer):
    def change(config):
        config["config"]["layers"].append(layer)
        return config

    return change


def replaced(name, key, value):
    def change(config):
        part(config, name)["config"][key] = value
        return config

    return change


def renamed(name, **names):
    def change(config):
        part(config, name).update(names)
        return config

    return change


EVIL = {"module": "evil_beside", "class_name": "Thing", "registered_name": "Thing", "config": {"name": "thing"}}
FUNCTION = {"module": "evil_beside", "class_name": "function", "registered_name": "function", "config": "thing"}
BYTE_CODE = {"class_name": "__lambda__", "config": {"value": "4wAA"}}
ATTACKS = {
    "writes a file": added(call_of("io.write_file", "FOLDER/RAN", contents="x")),
    "removes a file": added(call_of("io.gfile.remove", "FOLDER/KEPT")),
    "v1 name": added(call_of("compat.v1.gfile.Remove", "FOLDER/KEPT")),
    "loads a library": added(call_of("load_op_library", "FOLDER/evil.so")),
    "loads another model": added(call_of("keras.models.load_model", "FOLDER/other.keras", safe_mode=False)),
    "downloads": added(call_of("keras.utils.get_file", "x", origin="http://127.0.0.1:9/x")),
    "prints to a file": added(call_of("print", "x", output_stream="file://FOLDER/RAN")),
    "an op of the graph": added(
        {
            "class_name": "TensorFlowOpLayer",
            "name": "op",
            "inbound_nodes": [],
            "config": {
                "name": "op",
                "node_def": {"name": "op", "op": "WriteFile", "input": ["a", "b"]},
                "constants": {"0": "FOLDER/RAN", "1": "x"},
            },
        }
    ),
    "a raw op": added(call_of("raw_ops.WriteFile", "FOLDER/RAN", contents="x")),
    "slices": added(call_of("io.write_file", "FOLDER/RAN", contents="x") | {"class_name": "SlicingOpLambda"}),
    "a method": added(
        {
            "class_name": "ClassMethod",
            "name": "m",
            "inbound_nodes": [],
            "config": {"name": "m", "cls_symbol": "io.gfile.GFile", "method_name": "write"},
        }
    ),
    "a member": added(
        {
            "class_name": "InstanceMethod",
            "name": "m",
            "inbound_nodes": [],
            "config": {"name": "m", "attr_name": "__reduce__"},
        }
    ),
    "a module in a layer": renamed("dense", **EVIL),
    "a module as the model": lambda config: config | EVIL,
    "a module in a nested model": replaced("inner", "layers", [EVIL]),
    "a module in a wrapper": replaced("each", "layer", EVIL),
    "a module in a bidirectional": replaced("both", "backward_layer", EVIL),
    "a module as activation": replaced("dense", "activation", FUNCTION),
    "a module as initializer": replaced("dense", "kernel_initializer", EVIL),
    "a module as regularizer": replaced("dense", "kernel_regularizer", EVIL),
    "a module as constraint": replaced("dense", "bias_constraint", EVIL),
    "a module as policy": replaced("dense", "dtype", EVIL),
    "a module of a known name": renamed("dense", module="evil_beside", class_name="Dense", registered_name=None),
    "another registered name": renamed("dense", module="keras.src.utils.data_utils", registered_name="get_file"),
    "a qualified name": renamed("dense", module="keras.src.utils", class_name="data_utils.get_file"),
    "a Python function": replaced(
        "dense",
        "activation",
        {"module": "builtins", "class_name": "function", "config": "exec", "registered_name": "function"},
    ),
    "byte code": replaced("dense", "activation", BYTE_CODE),
    "byte code in a wrapper": replaced(
        "both",
        "layer",
        {
            "class_name": "RNN",
            "config": {
                "cell": {
                    "class_name": "ResidualWrapper",
                    "config": {
                        "residual_fn": "4wAA",
                        "residual_fn_type": "lambda",
                        "residual_fn_module": "x",
                        "cell": {"class_name": "GRUCell", "config": {"units": 2}},
                    },
                }
            },
        },
    ),
    "a nested compile_config": renamed(
        "inner", compile_config={"optimizer": EVIL, "loss": FUNCTION, "metrics": [EVIL]}
    ),
    "a custom_objects of its own": replaced("dense", "custom_objects", {"Dense": EVIL}),
    "a type": replaced(
        "x",
        "type_spec",
        {
            "class_name": "__typespec__",
            "spec_name": "Thing",
            "module": "evil_beside",
            "config": [],
            "registered_name": None,
        },
    ),
    "a file of words": added(
        {
            "class_name": "StringLookup",
            "name": "words",
            "inbound_nodes": [],
            "config": {"name": "words", "vocabulary": "FOLDER/KEPT"},
        }
    ),
    "a layer that loads": added(
        {
            "class_name": "TFSMLayer",
            "module": "keras.layers",
            "name": "l",
            "inbound_nodes": [],
            "config": {"name": "l", "filepath": "FOLDER/other"},
        }
    ),
    "no text as a name": renamed("dense", class_name=["Dense"]),
}


def refused(path, tmp_path, monkeypatch, **options):
    """The error for a file; nothing was written, removed or imported."""
    (tmp_path / "KEPT").write_text("kept")
    (tmp_path / "evil_beside.py").write_text(
        f"open({str(tmp_path / 'RAN')!r}, 'w')\ndef thing(*a): open({str(tmp_path / 'RAN')!r}, 'w')\nThing = Dense = thing\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    request = KerasRequest(source=str(path), output=str(tmp_path / "out"), **options)
    with pytest.raises(errors.UsageError) as told:
        keras_job.job(request)
    assert (tmp_path / "KEPT").exists() and not (tmp_path / "RAN").exists() and not (tmp_path / "out").exists()
    return told.value


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_not_on_the_list_needs_consent(name, suffix, saved, tmp_path, monkeypatch):
    def change(config):
        return json.loads(json.dumps(ATTACKS[name](config)).replace("FOLDER", str(tmp_path)))

    told = refused(changed(saved[suffix], tmp_path / f"model{suffix}", change), tmp_path, monkeypatch)
    assert "--allow_unsafe_deserialization" in told.mend and "run code" in told.cause


@pytest.mark.skipif(keras_versions.major() > 2, reason="Keras 3.15 imports no module of others, whatever is allowed")
def test_the_attack_works_where_it_is_allowed(saved, tmp_path, monkeypatch):
    """Else the tests above would show nothing."""
    path = changed(saved[".keras"], tmp_path / "model.keras", lambda config: config | EVIL | {"module": "evil_now"})
    (tmp_path / "evil_now.py").write_text(f"open({str(tmp_path / 'RAN')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(errors.TftrtError):
        keras_job.job(KerasRequest(source=str(path), output=str(tmp_path / "out"), unsafe=True))
    assert (tmp_path / "RAN").exists()


@pytest.mark.parametrize(
    "names", [{"registered_name": "Other"}, {"registered_name": None}, {"registered_name": "Other>Mine"}]
)
def test_own_classes_do_not_let_others_in(names):
    attack = {"module": "evil_beside", "class_name": "Mine", "config": {}} | names
    assert keras_code.found({"layers": [attack]}, {"Mine", "Package>Mine"}) == [keras_code.Need("evil_beside.Mine")]
    own = {"module": "my_layers", "class_name": "Mine", "registered_name": "Package>Mine", "config": {}}
    assert keras_code.found([own, own | {"registered_name": "Mine"}], {"Mine", "Package>Mine"}) == []


def test_the_top_compile_config_is_not_loaded(saved, tmp_path):
    path = changed(
        saved[".keras"], tmp_path / "model.keras", lambda config: config | {"compile_config": {"loss": EVIL}}
    )
    found = keras_job.job(KerasRequest(source=str(path), output=str(tmp_path / "out")))
    assert found.class_name == "Functional"


def test_a_file_that_is_both_is_read_as_keras_reads_it(saved, tmp_path, monkeypatch):
    """HDF5, with a harmless archive at its end: Keras goes by the name."""
    path = changed(saved[".h5"], tmp_path / "model.h5", ATTACKS["a module in a layer"])
    path.write_bytes(path.read_bytes() + saved[".keras"].read_bytes())
    assert zipfile.is_zipfile(path)
    assert "evil_beside.Thing" in refused(path, tmp_path, monkeypatch).cause


# Models as people save them


def ragged():
    inputs = tf.keras.Input((None,), ragged=True, dtype=tf.int64)
    rows = layers.Embedding(10, 4)(inputs)
    return tf.keras.Model(inputs, layers.Dense(2)(tf.reduce_mean(rows, axis=1)))


def functions():
    inputs = tf.keras.Input((8, 8, 3))
    x = tf.cast(tf.image.resize(inputs, (4, 4)), tf.float32) / 255.0
    x = tf.transpose(tf.nn.relu(tf.concat([x[:, 1:, :, :2], -x[:, 1:, :, :2]], -1)), [0, 2, 1, 3])
    y = tf.reshape(tf.math.exp(x), (-1, 48))
    z = tf.keras.backend.mean(tf.keras.activations.relu(y), axis=1)
    return tf.keras.Model(
        inputs,
        [
            tf.where(y > 0, y, tf.zeros_like(y)),
            tf.split(y, 2, 1)[0],
            tf.one_hot(tf.argmax(y, 1), 3),
            tf.clip_by_value(y, 0.0, 1.0),
            tf.linalg.matmul(y, y, transpose_b=True),
            tf.experimental.numpy.sum(y),
            tf.math.top_k(y, 2).values,
            layers.add([z, z]),
        ],
    )


def wrappers():
    inputs = tf.keras.Input((5, 6))
    x = layers.Bidirectional(layers.LSTM(4, return_sequences=True))(inputs)
    x = layers.TimeDistributed(
        layers.Dense(
            3,
            activation=tf.nn.gelu,
            kernel_regularizer=tf.keras.regularizers.L1L2(0.1),
            kernel_constraint=tf.keras.constraints.MaxNorm(1.0),
        )
    )(x)
    return tf.keras.Model(inputs, layers.RNN([layers.GRUCell(3), layers.LSTMCell(3)])(x))


def words():
    inputs = tf.keras.Input((1,), dtype=tf.string)
    x = layers.Embedding(9, 3)(layers.TextVectorization(vocabulary=["a", "b"], output_sequence_length=4)(inputs))
    return tf.keras.Model(inputs, [x, layers.StringLookup(vocabulary=["c"], output_mode="one_hot")(inputs)])


def compiled():
    inner = tf.keras.Sequential([layers.InputLayer((4,)), layers.Dense(3, activation="swish")])
    inner.compile("adam", tf.keras.losses.Huber(), metrics=["accuracy", tf.keras.metrics.AUC()])
    outer = tf.keras.Sequential(
        [layers.InputLayer((4,)), inner, layers.Activation(tf.nn.leaky_relu), layers.LeakyReLU(0.1)]
    )
    outer.compile(tf.keras.optimizers.AdamW(tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.9)), "mse")
    return outer


def losses():
    inputs = tf.keras.Input((4,))
    model = tf.keras.Model(inputs, layers.Dense(3, dtype=tf.keras.mixed_precision.Policy("mixed_float16"))(inputs))
    model.add_loss(tf.reduce_mean(model.outputs[0]))
    return model


USUAL = {
    **keras_layers.BUILDERS,
    **{one.__name__: one for one in (ragged, functions, wrappers, words, compiled, losses)},
}


# Of Keras 3 TensorFlow's functions, add_loss and ragged inputs make no model, and these layers are the tests' own.
OF_KERAS_2 = {"ragged", "functions", "losses", "conv1d", "einsums"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[stacks.needs_keras_2] if name in OF_KERAS_2 else []) for name in USUAL]
)
def test_usual_models_need_no_consent(name, tmp_path):
    model = USUAL[name]()
    for suffix in (".keras", ".h5"):
        path = tmp_path / f"model{suffix}"
        model.save(path)
        assert keras_code.found(keras_file.read(path).config, ()) == []


def test_a_usual_model_is_loaded_as_before(tmp_path):
    model = compiled() if keras_versions.major() > 2 else functions()
    for suffix in (".keras", ".h5"):
        model.save(tmp_path / f"model{suffix}")
        request = KerasRequest(source=str(tmp_path / f"model{suffix}"), output=str(tmp_path / f"out{suffix}"))
        assert keras_job.job(request).parameters == model.count_params()


# What Keras offers and the list leaves out on purpose: it runs code of the file, or takes columns with functions and files of their own.
LEFT_OUT = {
    "Lambda",
    "add",
    "average",
    "concatenate",
    "deserialize",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "serialize",
    "subtract",
}
# Of these layers Keras 2 has the first alone, and Keras 3 the others: they load models or code of other frameworks.
LAYERS_OF_ONE = ({"DenseFeatures", "experimental"}, {"FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper"})


def test_the_list_has_every_layer_of_this_keras():
    public = {name for name in dir(layers) if not name.startswith("_")} | {"SyncBatchNormalization"}
    assert (
        public - keras_names.LAYERS - set(keras_code._SPECIAL) == LEFT_OUT | LAYERS_OF_ONE[keras_versions.major() > 2]
    )
    functions = (
        tf.keras.activations,
        tf.keras.initializers,
        tf.keras.regularizers,
        tf.keras.constraints,
        tf.keras.losses,
        tf.keras.metrics,
    )
    known = keras_names.OBJECTS | keras_names.FUNCTIONS | keras_names.LAYERS
    left = {name for one in functions for name in dir(one) if not name.startswith("_")} - known
    assert left == ({"experimental"} if keras_versions.major() < 3 else set()) | {
        "deserialize",
        "get",
        "serialize",
        "KLD",
        "MAE",
        "MAPE",
        "MSE",
        "MSLE",
        "Loss",
        "Metric",
        "Reduction",
    }


def test_the_functions_of_the_list_are_of_this_tensorflow_and_touch_no_files():
    from tensorflow.python.util import tf_export

    named = [f"{space}.{name}".lstrip(".") for space, names in keras_names.SYMBOLS.items() for name in names]
    missing = [
        name
        for name in named
        # TensorFlow does not export what Keras 3 has.
        if not (name.startswith("keras.") and keras_versions.major() > 2)
        and not any(tf_export.get_symbol_from_name(prefix + name) for prefix in ("", "compat.v1."))
    ]
    assert missing == []
    words = (
        "file.",
        "_file",
        "load",
        "save",
        ".print",
        "py_func",
        "summary",
        "write",
        "config.",
        "restore",
        "map_fn",
        "map_val",
        "map_flat",
    )
    assert [name for name in named if any(word in name for word in words)] == []


# Weights in other files, and archives that unpack to more than a machine has


def test_weights_in_other_files_are_refused(saved, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(4000))

    def outside(file):
        names = []
        file["model_weights/inner"].visit(names.append)
        (kernel,) = (f"model_weights/inner/{name}" for name in names if name.endswith(("/kernel", "/kernel:0")))
        del file[kernel]
        file.create_dataset(kernel, (4, 4), "f4", external=[(str(secret), 0, 64)])

    def link(file):
        file["model_weights/elsewhere"] = h5py.ExternalLink(str(secret), "/")

    for number, change in enumerate((outside, link)):
        path = tmp_path / f"{number}.h5"
        path.write_bytes(saved[".h5"].read_bytes())
        with h5py.File(path, "r+") as file:
            change(file)
        assert str(secret) in refused(path, tmp_path, monkeypatch).cause


def bombs(saved, folder):
    """Paths of files that hold little and declare much."""
    zeros = bytes(1 << 20)
    for name, compression in (("config.json", zipfile.ZIP_DEFLATED), ("assets/zeros", zipfile.ZIP_DEFLATED)):
        path = folder / f"{name.partition('/')[0]}.keras"
        with zipfile.ZipFile(saved[".keras"]) as old, zipfile.ZipFile(path, "w", compression) as new:
            for one in set(old.namelist()) - {name}:
                new.writestr(one, old.read(one))
            with new.open(name, "w", force_zip64=True) as file:
                for _ in range(40):
                    file.write(zeros)
        yield path
    path = folder / "weights.h5"
    path.write_bytes(saved[".h5"].read_bytes())
    with h5py.File(path, "r+") as file:
        file["model_weights"].create_dataset("huge", (1 << 40,), "f4", chunks=(1 << 20,))
    yield path


def test_files_that_unpack_to_far_more_than_they_hold_are_refused(saved, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_UNPACKED_BYTES", 1 << 24)
    for path in bombs(saved, tmp_path):
        with pytest.raises(errors.TftrtError, match="would unpack to|more than the"):
            keras_file.read(path)


def test_a_damaged_document_in_it_is_told_in_a_line(saved, tmp_path):
    texts = [
        "[" * 100_000,
        "{" * 5000,
        '{"a":' * 3000 + "1" + "}" * 3000,
        "[]",
        "7",
        '"x"',
        "null",
        "{}x",
        '{"class_name": "Functional"}',
        "9" * 10_000,
    ]
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.keras"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("metadata.json", json.dumps({"keras_version": ["3"] if number == 3 else "2.14.0"}))
            archive.writestr("config.json", text)
        with pytest.raises(errors.TftrtError) as told:
            keras_job.job(KerasRequest(source=str(path), output=str(tmp_path / "out")))
        assert "\n" not in told.value.cause and len(told.value.cause) < 700


@pytest.mark.skipif(keras_versions.major() > 2, reason="Keras 3 writes no such metadata")
def test_a_saved_model_with_keras_metadata_is_not_loaded_by_keras(tmp_path):
    """tf.saved_model.load takes the functions of the graph, and never looks at the file that says what Keras would make."""
    from tftrt_tools.models.savedmodel.job import loading

    plain().save(tmp_path / "saved", save_format="tf")
    metadata = tmp_path / "saved/keras_metadata.pb"
    assert metadata.is_file()
    metadata.write_bytes(b"no metadata")
    loaded = loading.load(tmp_path / "saved")
    assert not isinstance(loaded.root, tf.keras.Model)
    assert loading.answers(loaded.root.signatures["serving_default"], {"x": tf.ones((2, 4))})


def test_the_facts_need_no_tensorflow(saved):
    assert keras_file.read(pathlib.Path(saved[".h5"])).keras.startswith(f"{keras_versions.major()}.")
    assert np.ndim(keras_file.read(saved[".keras"]).config["config"]["layers"]) == 1
