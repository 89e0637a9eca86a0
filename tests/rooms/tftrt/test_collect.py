"""Ranges collected on a CPU from the tensors inside the engines."""

import dataclasses
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import graph_pb2

from tests import stacks
from tests.engine_models import Recurrent
from tests.zoo import zoo_inputs
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.savedmodel.job import inline
from tftrt_tools.tftrt.calibration.job import collect
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.conversion.job import prepare
from tftrt_tools.tftrt.conversion.settings import Settings


@dataclasses.dataclass(frozen=True)
class Inlined:
    root: object
    frozen: object
    graph_def: object
    tensors: dict
    computed: list


@pytest.fixture(scope="module")
def inlined(zoo_model):
    """A function (model, signature) -> Inlined."""
    known = {}

    def get(name, signature="serving_default"):
        if (name, signature) not in known:
            root = tf.saved_model.load(str(zoo_model(name)))
            settings = Settings(use_dynamic_shape=name == "lstm_tagger")
            frozen, result = prepare.passed(signature, root.signatures[signature], settings)
            graph_def, tensors = inline.inline_segments(result.graph_def)
            constants = {node.name for node in graph_def.node if node.op == "Const"}
            # On a CPU an op of batch normalization leaves its last outputs as the memory was.
            unset = {
                f"{node.name}:{port}"
                for node in graph_def.node
                if node.op.startswith("FusedBatchNorm")
                for port in range(3, 6)
            }
            computed = sorted(
                {
                    outer
                    for inner in tensors.values()
                    for outer in inner.values()
                    if outer.split(":")[0] not in constants and outer not in unset
                }
            )
            known[name, signature] = Inlined(root, frozen, graph_def, tensors, computed)
        return known[name, signature]

    return get


def batches(name, count, signature="serving_default"):
    return [zoo_inputs(name, seed=seed)[signature] for seed in range(count)]


def fetched(one, names, batch):
    """The values of `names` by a plain run of the inlined graph."""

    def imported():
        tf.graph_util.import_graph_def(one.graph_def, name="")

    module = tf.compat.v1.wrap_function(imported, [])
    inputs = [tf.constant(batch[name]) for name in sorted(batch)]
    return [tensor.numpy() for tensor in module.prune(one.frozen.inputs, names)(*inputs)]


def state(histogram):
    return {**vars(histogram), "counts": histogram.counts.tolist()}


def assert_alike(got, expected, name):
    """Equal but for the last bits: what else is asked for decides which ops TensorFlow fuses."""
    assert got.count == expected.count, name
    for attribute in ("minimum", "maximum", "range"):
        np.testing.assert_allclose(
            getattr(got, attribute), getattr(expected, attribute), rtol=1e-5, atol=1e-6, err_msg=name
        )
    assert np.abs(np.cumsum(got.counts - expected.counts)).max() <= max(3, 0.01 * got.count), name


def test_the_counts_are_those_of_the_fetched_tensors(inlined):
    one = inlined("digits_cnn")
    names = [name for name in one.computed if name not in one.frozen.inputs and name.endswith(":0")]
    got = collect.collect(one.frozen, one.graph_def, names, batches("digits_cnn", 3))
    assert set(got) == set(names)
    expected = {name: Histogram() for name in names}
    for batch in batches("digits_cnn", 3):
        for name, values in zip(names, fetched(one, names, batch), strict=True):
            expected[name].add(values)
    for name in names:
        assert_alike(got[name], expected[name], name)


def test_an_input_is_counted_too(inlined):
    one = inlined("digits_cnn")
    got = collect.collect(one.frozen, one.graph_def, one.frozen.inputs, batches("digits_cnn", 2))
    expected = Histogram()
    for batch in batches("digits_cnn", 2):
        expected.add(batch["image"])
    assert state(got["image:0"]) == state(expected)


def test_all_tensors_at_once_are_counted_as_one_at_a_time(inlined):
    one = inlined("digits_cnn")
    together = collect.collect(one.frozen, one.graph_def, one.computed, batches("digits_cnn", 1))
    assert len(together) >= 15
    for name in one.computed[::4]:
        alone = collect.collect(one.frozen, one.graph_def, [name], batches("digits_cnn", 1))
        assert_alike(alone[name], together[name], name)


def test_two_batches_are_counted_as_the_sum_of_each(inlined):
    one = inlined("digits_cnn")
    first, second = batches("digits_cnn", 2)
    both = collect.collect(one.frozen, one.graph_def, one.computed, [first, second])
    apart = [collect.collect(one.frozen, one.graph_def, one.computed, [batch]) for batch in (first, second)]
    for name in one.computed:
        total = Histogram()
        for part in apart:
            total.merge(part[name])
        assert_alike(both[name], total, name)


def test_tensors_that_only_pass_values_on_share_a_histogram(inlined):
    one = inlined("digits_cnn")
    (tensors,) = one.tensors.values()
    pool, flat, relu = (
        next(outer for inner, outer in tensors.items() if re.search(f"/{stacks.node(name)}:0$", inner))
        for name in (f"pool/{stacks.POOL}", "flatten/Reshape", "conv2/Relu")
    )
    got = collect.collect(one.frozen, one.graph_def, [pool, flat, relu], batches("digits_cnn", 1))
    assert got[pool] is got[flat] and got[pool] is not got[relu]
    alone = collect.collect(one.frozen, one.graph_def, [flat], batches("digits_cnn", 1))
    assert state(alone[flat]) == state(got[pool])


def test_a_model_with_lookup_tables(inlined):
    one = inlined("ranker")
    assert one.frozen.captures
    got = collect.collect(one.frozen, one.graph_def, one.computed, batches("ranker", 2))
    assert got and all(histogram.count for histogram in got.values())
    assert any(histogram.absmax > 0 for histogram in got.values())


def test_what_runs_in_a_loop_is_counted_in_every_iteration():
    model = Recurrent()
    frozen, result = prepare.passed(
        "serving_default", model.__call__.get_concrete_function(), Settings(use_dynamic_shape=True)
    )
    graph_def, tensors = inline.inline_segments(result.graph_def)
    names = [outer for inner in tensors.values() for outer in inner.values() if "/while/MatMul" in outer]
    batch = {"x": np.random.default_rng(1).normal(size=(2, 5, 8)).astype("f4")}
    got = collect.collect(frozen, graph_def, names, [batch])
    assert names and [got[name].count for name in names] == [2 * 5 * 8] * len(names)


@pytest.mark.parametrize("name", ["bert_encoder", "dynamic_segmenter", "tf1_export", "mobilenet_v2"])
def test_every_tensor_in_the_engines_of_a_sample_model_is_counted(name, inlined):
    one = inlined(name)
    names = [name for name in one.computed if name.endswith(":0")]  # a FusedBatchNormV3 has empty ones, too
    got = collect.collect(one.frozen, one.graph_def, names, batches(name, 1))
    assert len(got) >= len(names) / 2 and all(histogram.count for histogram in got.values())


def test_integers_are_left_out(inlined):
    one = inlined("ranker")
    got = collect.collect(one.frozen, one.graph_def, ["visits:0", "user_features:0"], batches("ranker", 1))
    assert list(got) == ["user_features:0"]


@pytest.mark.parametrize(("value", "says"), [(np.nan, "NaN"), (np.inf, "infinity|NaN")])
def test_what_is_not_finite_names_node_and_batch(value, says, inlined):
    one = inlined("digits_cnn")
    good, bad = batches("digits_cnn", 2)
    bad["image"] = bad["image"].copy()
    bad["image"].flat[0] = value
    node = stacks.node(stacks.here().first)
    name = next(name for name in one.computed if re.search(f"/{node}:0$", name))
    with pytest.raises(errors.TftrtError, match=f"/{node} gives ({says}) for calibration batch 2"):
        collect.collect(one.frozen, one.graph_def, [name], [good, bad])


def test_a_tensor_that_is_always_zero_is_reported(inlined):
    one = inlined("digits_cnn")
    zero = {"image": np.zeros_like(batches("digits_cnn", 1)[0]["image"])}
    got = collect.collect(one.frozen, one.graph_def, one.computed, [zero])
    assert got["image:0"].absmax == 0
    assert all(got[name].absmax for name in got if name.endswith("Softmax:0"))
    assert Histogram().absmax == 0


def test_a_model_that_fails_on_the_data_is_no_traceback(inlined):
    one = inlined("bert_encoder")
    (batch,) = batches("bert_encoder", 1)
    ids = next(name for name in batch if "id" in name)
    batch[ids] = np.full_like(batch[ids], 10**6)
    with pytest.raises(errors.TftrtError, match="calibration batch 1"):
        collect.collect(one.frozen, one.graph_def, one.computed, [batch])


def test_the_given_graph_is_left_as_it_is_and_progress_is_said(inlined):
    one, said = inlined("digits_cnn"), []
    before = graph_pb2.GraphDef.FromString(one.graph_def.SerializeToString())
    with progress.listening(lambda *words: said.append(words[0])):
        collect.collect(one.frozen, one.graph_def, one.computed, batches("digits_cnn", 2))
    assert before == one.graph_def
    assert [text for text in said if "batch 2" in text]
