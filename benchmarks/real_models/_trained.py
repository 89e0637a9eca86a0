"""Makers of the SavedModels whose trained weights a package of the index ships. Each runs in an environment that has TensorFlow.

A maker takes the unpacked packages' folder and the path to write; it returns the rows that the model is judged and calibrated on, by
input, and their classes or None.
"""

import importlib
import importlib.util
import json
import pathlib
import shutil
import sys
import types

import numpy as np

from benchmarks.real_models import _rows

ROWS = 200


def basic_pitch(packages: pathlib.Path, target: pathlib.Path):
    """Notes of music; the SavedModel as it was shipped. A window is 43844 samples at 22050 Hz."""
    shutil.copytree(packages / "basic-pitch" / "basic_pitch" / "saved_models" / "icassp_2022" / "nmp", target)
    return {"input_2": _rows.music(ROWS, 43844, 22050)[..., None]}, None


def guesslang(packages: pathlib.Path, target: pathlib.Path):
    """The programming language of a text; the SavedModel as it was shipped: strings, hashed lookups, three signatures."""
    shutil.copytree(packages / "guesslang" / "guesslang" / "data" / "model", target)
    texts = _rows.sources(ROWS)
    return {"predict/content": texts, "serving_default/inputs": texts, "classification/inputs": texts}, None


def fer(packages: pathlib.Path, target: pathlib.Path):
    """Emotions of faces, written by Keras 2.0.5; exported with `model.export`, which writes two signatures of one function."""
    _load(packages / "fer" / "fer" / "data" / "emotion_model.hdf5").export(str(target))
    return {"input_1": _rows.faces(packages / "scikit-image", 64) * 2 - 1}, None


def deepcut(packages: pathlib.Path, target: pathlib.Path):
    """Where Thai words begin: twelve parallel convolutions. Rows: words of the package's own list, joined; classes: where they begin."""
    _import(packages / "deepcut", package="deepcut")  # its __init__ imports pandas
    utils = importlib.import_module("deepcut.utils")
    network = importlib.import_module("deepcut.model").get_convo_nn2()
    network.load_weights(packages / "deepcut" / "deepcut" / "weight" / "cnn_without_ne_ab.h5")
    network.save(str(target))
    words = sorted(importlib.import_module("deepcut.stop_words").THAI_STOP_WORDS)
    chosen = [words[index] for index in np.random.default_rng(0).integers(0, len(words), ROWS)]
    characters, kinds = utils.create_feature_array("".join(chosen), n_pad=21)
    begins = np.concatenate([[1] + [0] * (len(word) - 1) for word in chosen])
    names = [one.name.split(":")[0] for one in network.inputs]
    return dict(zip(names, (characters.astype(np.float32), kinds.astype(np.float32)), strict=True)), begins


def deeplc(packages: pathlib.Path, target: pathlib.Path):
    """Retention times of peptides: four inputs, written by Keras 2.10."""
    from tensorflow import keras

    leaky = {
        "<lambda>": lambda x: keras.activations.relu(x, alpha=0.1, max_value=20.0)
    }  # the package's own, kept as a name alone
    folder = packages / "deeplc" / "deeplc" / "mods"
    network = _load(folder / "full_hc_PXD005573_mcp_8c22d89667368f2f02ad996469ba157e.hdf5", custom_objects=leaky)
    network.save(str(target))
    return dict(zip((one.name.split(":")[0] for one in network.inputs), _rows.peptides(ROWS), strict=True)), None


def dgaintel(packages: pathlib.Path, target: pathlib.Path):
    """Is a domain's name chosen or generated: an LSTM."""
    network = _load(packages / "dgaintel" / "dgaintel" / "domain_classifier_model.h5")
    network.save(str(target))
    names, classes = _rows.domains(ROWS)
    letters = "-.0123456789_abcdefghijklmnopqrstuvwxyz"
    codes = np.zeros((ROWS, 82), np.int32)
    for row, name in zip(codes, names, strict=True):
        row[: len(name)] = [letters.index(letter) for letter in name]
    return {"domain_input": codes}, classes


def textgenrnn(packages: pathlib.Path, target: pathlib.Path):
    """The next character of a text: two LSTMs with attention; weights without a network, which the package's code builds."""
    folder = packages / "textgenrnn" / "textgenrnn"
    package = types.ModuleType("textgenrnn")  # its __init__ imports what Keras no longer has
    package.__path__ = [str(folder)]
    sys.modules["textgenrnn"] = package
    built = importlib.import_module("textgenrnn.model").textgenrnn_model
    letters = json.loads((folder / "textgenrnn_vocab.json").read_text())
    settings = {"rnn_layers": 2, "rnn_size": 128, "rnn_bidirectional": False, "max_length": 40, "dim_embeddings": 100}
    network = built(len(letters) + 1, settings, weights_path=folder / "textgenrnn_weights.hdf5")
    network.save(str(target))
    codes = np.array([[letters.get(letter, 0) for letter in text[:40]] for text in _rows.prose(ROWS, 41)], np.float32)
    return {"input": codes}, None


def mtcnn_pnet(packages: pathlib.Path, target: pathlib.Path):
    """Where faces may be: a network of convolutions alone for pictures of any size."""
    _mtcnn(packages, target, "pnet", (None, None, None, 3))
    return {"image": _normal(_rows.crops(packages / "scikit-image", 48, 96))}, None


def mtcnn_rnet(packages: pathlib.Path, target: pathlib.Path):
    """Which of the places are faces."""
    _mtcnn(packages, target, "rnet", (None, 24, 24, 3))
    return {"image": _rows.faces(packages / "scikit-image", 24, 3) * 2 - 1}, None


def mtcnn_onet(packages: pathlib.Path, target: pathlib.Path):
    """Faces, their boxes and landmarks."""
    _mtcnn(packages, target, "onet", (None, 48, 48, 3))
    return {"image": _rows.faces(packages / "scikit-image", 48, 3) * 2 - 1}, None


def musicnn(packages: pathlib.Path, target: pathlib.Path):
    """Tags of music, MTT_musicnn: a checkpoint of TensorFlow 1, exported as an alias of its placeholder."""
    _musicnn(packages, target, "MTT_musicnn", switch=False)
    return {"spectrogram": _rows.mel_music(ROWS, 187, 96)}, None


def musicnn_vgg(packages: pathlib.Path, target: pathlib.Path):
    """Tags of music, MTT_vgg: a checkpoint of TensorFlow 1 whose placeholder `is_training` became an input."""
    _musicnn(packages, target, "MTT_vgg", switch=True)
    return {"spectrogram": _rows.mel_music(48, 187, 96), "is_training": np.array(False)}, None


def spliceai(packages: pathlib.Path, target: pathlib.Path):
    """Where genes are spliced: 32 convolutions, most of them dilated, over DNA of any length; written by Keras 2.0.5."""
    _load(packages / "spliceai" / "spliceai" / "models" / "spliceai1.h5").save(str(target))
    return {"input_1": _rows.bases(32, 11000)}, None


def nakdimon(packages: pathlib.Path, target: pathlib.Path):
    """Points for Hebrew letters: two bidirectional LSTMs, three outputs; rows are random letters."""
    _load(packages / "nakdimon" / "nakdimon" / "Nakdimon.h5").save(str(target))
    return {"input_1": np.random.default_rng(0).integers(1, 40, (64, 80)).astype(np.float32)}, None


def _musicnn(packages, target, name, switch):
    import tensorflow as tf

    _import(packages / "musicnn", package="musicnn")  # its __init__ imports librosa
    settings, networks = (importlib.import_module(f"musicnn.{module}") for module in ("configuration", "models"))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        with tf.name_scope("model"):
            patches = tf.compat.v1.placeholder(tf.float32, [None, 187, settings.N_MELS])
            training = tf.compat.v1.placeholder_with_default(False, []) if switch else False
            tags = tf.nn.sigmoid(networks.define_model(patches, training, name, len(settings.MTT_LABELS))[0])
        tf.compat.v1.train.Saver().restore(session, str(packages / "musicnn" / "musicnn" / name) + "/")
        inputs = {"spectrogram": patches} | ({"is_training": training} if switch else {})
        tf.compat.v1.saved_model.simple_save(session, str(target), inputs, {"tags": tags})


def _mtcnn(packages, target, name, shape):
    import joblib
    import tensorflow as tf

    _import(packages / "mtcnn", package="mtcnn")
    network = getattr(
        importlib.import_module(f"mtcnn.network.{name}"), {"pnet": "PNet", "rnet": "RNet", "onet": "ONet"}[name]
    )()
    network.build()
    network.set_weights(joblib.load(packages / "mtcnn" / "mtcnn" / "assets" / "weights" / f"{name}.lz4"))
    called = tf.function(
        lambda image: _named(name, network(image)), input_signature=[tf.TensorSpec(shape, tf.float32, "image")]
    )
    tf.saved_model.save(network, str(target), signatures={"serving_default": called})


def _named(name, answers):
    return dict(zip(("boxes", "landmarks", "scores") if name == "onet" else ("boxes", "scores"), answers, strict=True))


def _normal(pictures):
    return (pictures.astype(np.float32) - 127.5) / 127.5


def _load(path, **options):
    import tensorflow as tf

    return tf.keras.models.load_model(path, compile=False, **options)


def _import(folder, package=None):
    """Let `import` find what lies in `folder`; with `package`, without running that package's __init__."""
    sys.path.insert(0, str(folder))
    if package:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [str(folder / package)]
