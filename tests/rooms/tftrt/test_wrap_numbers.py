"""`tftrt wrap` around models that take no pictures: fewer bytes a number, smaller answers."""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.command_line import assert_clear
from tests.wrapped import answers, served
from tests.zoo import zoo_inputs


def wrap(tftrt, model, output, *flags):
    done = tftrt("wrap", model, f"--output={output}", "--json=-", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["signatures"]


@pytest.fixture(scope="module")
def embedding(tmp_path_factory):
    """ids int32[N, T] from a table of 40000 rows -> logits[N, T, 5] and their mean."""
    rng, path = np.random.default_rng(0), tmp_path_factory.mktemp("numbers") / "model"

    class Model(tf.Module):
        def __init__(self):
            self.table = tf.Variable(rng.normal(size=(40000, 5)).astype(np.float32))

        @tf.function(
            input_signature=[
                tf.TensorSpec((None, None), tf.int32, "ids"),
                tf.TensorSpec((None, 1, 5), tf.float32, "bias"),
            ]
        )
        def __call__(self, ids, bias):
            logits = tf.gather(self.table, ids) + bias
            return {"logits": logits, "mean": tf.reduce_mean(logits, (1, 2))}

    module = Model()
    tf.saved_model.save(module, str(path), signatures=module.__call__)
    return path


def test_ids_and_floats_in_two_bytes_are_answered_as_in_four(tftrt, embedding, tmp_path):
    (one,) = wrap(
        tftrt, embedding, tmp_path / "wrapped", "--input_types=uint16,float16", "--output_types=logits:float16"
    )
    assert one["form"] == "same" and one["types"] == {"ids": "uint16", "bias": "float16"}
    rng = np.random.default_rng(1)
    ids, bias = rng.integers(0, 40000, (3, 4)), rng.normal(size=(3, 1, 5)).astype(np.float16)
    wanted = answers(embedding, "serving_default", ids=ids.astype(np.int32), bias=bias.astype(np.float32))
    for ask in (answers, served):
        given = ask(tmp_path / "wrapped", "same", ids=ids.astype(np.uint16), bias=bias)
        assert given["logits"].dtype == np.float16
        np.testing.assert_array_equal(given["logits"], wanted["logits"].astype(np.float16))
        np.testing.assert_array_equal(given["mean"], wanted["mean"])
    done = tftrt("verify", embedding, tmp_path / "wrapped", "--shapes=ids:2x7")
    assert done.returncode == 0 and "same/logits" in done.stdout, done.stdout + done.stderr


def test_outputs_are_left_out_and_the_last_axis_has_the_classes(tftrt, embedding, tmp_path):
    wrap(
        tftrt,
        embedding,
        tmp_path / "wrapped",
        "--argmax",
        "--scores_output=logits",
        "--keep_outputs=logits",
        "--names=tags",
    )
    ids, bias = np.arange(8, dtype=np.int32).reshape(2, 4), np.zeros((2, 1, 5), np.float32)
    given = served(tmp_path / "wrapped", "tags", ids=ids, bias=bias)
    assert given.keys() == {"classes"} and given["classes"].dtype == np.int32
    np.testing.assert_array_equal(
        given["classes"], served(embedding, "serving_default", ids=ids, bias=bias)["logits"].argmax(-1)
    )
    wrap(tftrt, embedding, tmp_path / "less", "--keep_outputs=mean")
    assert served(tmp_path / "less", "same", ids=ids, bias=bias).keys() == {"mean"}


def test_a_type_that_does_not_fit_is_refused(tftrt, embedding, zoo_model, tmp_path):
    for flags, says in (
        (("--input_types=ids:int16",), "'ids' selects from a table of 40000 rows, and int16 ends at 32767"),
        (("--input_types=int8",), "'int8' is no dtype that numbers are narrowed to"),
        (("--input_types=x:int16",), "--input_types: no input 'x'"),
        (("--input_types=ids:float16",), "float16 is no narrower form of ids"),
        (("--output_types=mean:uint16",), "uint16 is no narrower form of mean"),
        (("--output_types=x:float16",), "--output_types: no output 'x'"),
        (("--argmax", "--scores_output=mean"), "needs an output with a float for each"),
    ):
        assert_clear(tftrt("wrap", embedding, f"--output={tmp_path / 'output'}", *flags), 2, says)
        assert not (tmp_path / "output").exists()


def test_a_model_of_many_inputs(tftrt, zoo_model, tmp_path):
    wrap(tftrt, zoo_model("ranker"), tmp_path / "wrapped", "--input_types=int16,float16", "--output_types=bfloat16")
    # In range: the logarithm of a negative count is NaN.
    inputs = {
        name: array % 1000 if array.dtype.kind == "i" else array
        for name, array in zoo_inputs("ranker")["serving_default"].items()
    }
    small = {
        name: array.astype({"i": np.int16, "f": np.float16}.get(array.dtype.kind, array.dtype))
        for name, array in inputs.items()
    }
    wanted = served(
        zoo_model("ranker"),
        "serving_default",
        **{name: array.astype(inputs[name].dtype) for name, array in small.items()},
    )
    given = served(tmp_path / "wrapped", "same", **small)
    assert given.keys() == wanted.keys()
    for name, array in wanted.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(given[name].astype(np.float32), array, rtol=0.01)
        else:
            np.testing.assert_array_equal(given[name], array)
    done = tftrt("verify", zoo_model("ranker"), tmp_path / "wrapped")
    assert done.returncode == 0 and "item_embedding/item_embedding" in done.stdout, done.stdout + done.stderr


def test_token_ids_of_a_transformer(tftrt, zoo_model, tmp_path):
    wrap(tftrt, zoo_model("bert_encoder"), tmp_path / "wrapped", "--input_types=uint16", "--output_types=float16")
    done = tftrt("verify", zoo_model("bert_encoder"), tmp_path / "wrapped", "--shapes=input_ids:2x16;input_mask:2x16")
    assert done.returncode == 0, done.stdout + done.stderr
