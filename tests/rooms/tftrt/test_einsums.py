"""Einsum as TF-TRT takes it: without an ellipsis, and as a product in implicit batch mode; with the same answers."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.prepared_models import answers, compared, in_one_engine, original, prepared
from tftrt_tools.models.savedmodel.job import einsums, equation
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings


def weights(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("f4")


# Layers of Keras and of others, {equation: (shape of the data, of the weights)}.
WITH_WEIGHTS = {
    "abc,cd->abd": ((None, 5, 4), (4, 3)),
    "abc,cde->abde": ((None, 5, 4), (4, 2, 3)),
    "abcd,cde->abe": ((None, 5, 2, 4), (2, 4, 3)),
    "bi,ij->bj": ((None, 4), (4, 3)),
    "bij,ik->bkj": ((None, 5, 4), (5, 3)),
    "btd,d->bt": ((None, 5, 4), (4,)),
    "bnf,nfo->bno": ((None, 5, 4), (5, 4, 3)),
    "bhwc,hkc->bhwk": ((None, 5, 6, 4), (5, 3, 4)),
    "BTNH,NHD->BTD": ((None, 5, 2, 4), (2, 4, 3)),
    "nctkv,kvw->nctw": ((None, 2, 3, 4, 5), (4, 5, 6)),
    "...a,ab->...b": ((None, 5, 4), (4, 3)),
}
# Of two tensors that come from one, {equation: (shapes of their rows)}.
OF_TENSORS = {
    "bij,bjk->bik": ((5, 12), (12, 5)),
    "bij,bkj->bik": ((5, 12), (5, 12)),
    "aecd,abcd->acbe": ((5, 3, 4), (5, 3, 4)),
    "acbe,aecd->abcd": ((3, 5, 4), (4, 3, 5)),
    "bij,bij->bi": ((5, 12), (5, 12)),
    "...ij,...jk->...ik": ((5, 3, 4), (5, 4, 3)),
}


def of_tensors(text):
    first, second = OF_TENSORS[text]
    return lambda x: tf.einsum(text, tf.reshape(x, [-1, *first]), tf.reshape(x * 2.0 - 1.0, [-1, *second]))


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("text", WITH_WEIGHTS)
def test_a_product_with_weights_is_in_the_engine(text, dynamic, tmp_path):
    data, shape = WITH_WEIGHTS[text]
    frozen, done = in_one_engine(lambda x: tf.einsum(text, x, weights(*shape)), [data], tmp_path / "m", dynamic)
    # With dynamic shapes TF-TRT takes it as it is.
    assert len(frozen.preparation.einsums) == (not dynamic or "." in text)
    assert len(done.engines) == 1 and not done.native_ops


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("text", OF_TENSORS)
def test_a_product_of_tensors_is_in_the_engine(text, dynamic, tmp_path):
    frozen, done = in_one_engine(of_tensors(text), [(None, 60)], tmp_path / "m", dynamic)
    assert len(frozen.preparation.einsums) == (not dynamic or "." in text)
    assert len(done.engines) == 1 and not done.native_ops


def test_attention_of_keras_is_in_one_engine_in_implicit_batch_mode(tmp_path):
    layers = tf.keras.layers
    inputs = tf.keras.Input((6, 8), name="x")
    x = layers.EinsumDense("abc,cd->abd", (6, 8), activation="relu")(inputs)
    x = layers.MultiHeadAttention(2, 4)(x, x) + x
    x = layers.EinsumDense("abc,cd->abd", (6, 3), activation="relu")(x)
    tf.saved_model.save(tf.keras.Model(inputs, x), str(tmp_path / "m"))
    frozen = prepared(tmp_path / "m")
    done = graph_pass.run(frozen, Settings())
    assert len(frozen.preparation.einsums) == stacks.here().einsums and len(done.engines) == 1 and not done.native_ops
    data = np.random.default_rng(0).normal(size=(3, 6, 8)).astype("f4")
    signature = tf.saved_model.load(str(tmp_path / "m")).signatures["serving_default"]
    np.testing.assert_allclose(answers(frozen, data)[0], original(signature, data), rtol=1e-4, atol=1e-5)


def test_a_product_behind_products_of_matrices_is_in_the_engine(tmp_path):
    """As Keras 3 writes an attention: with weights of one matrix as large as the batch is not."""

    def body(x):
        query, key = (
            tf.reshape(tf.raw_ops.BatchMatMulV2(x=x, y=weights(1, 8, 8)), (-1, 6, 2, 4)) + one for one in (1.0, 2.0)
        )
        return tf.einsum("BTNH,BSNH->BNTS", query, key)

    frozen, done = in_one_engine(body, [(None, 6, 8)], tmp_path / "m", dynamic=False)
    assert len(frozen.preparation.einsums) == 1 and len(done.engines) == 1 and not done.native_ops


LEFT = {
    "two batches that may differ": ("bij,bjk->bik", [(None, 5, 4), (None, 4, 3)]),
    "an outer product": ("bi,j->bij", [(None, 5), (4,)]),
    "one operand": ("bij->bji", [(None, 5, 4)]),
    "a result without rows": ("bij,jk->ik", [(None, 5, 4), (4, 3)]),
    "rows that are summed": ("bij,bik->ijk", [(None, 5, 4), (None, 5, 3)]),
    "a number for each row": ("bi,i->b", [(None, 5), (5,)]),
    "open sizes that become one": ("abc,cde->abde", [(None, None, 4), (4, 2, 3)]),
}


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay_in_implicit_batch_mode_and_are_told(kind, tmp_path):
    text, shapes = LEFT[kind]
    body = lambda *tensors: tf.einsum(  # noqa: E731
        text, *(x if None in shape else weights(*shape) for x, shape in itertools.zip_longest(tensors, shapes))
    )
    frozen, done = in_one_engine(body, [shape for shape in shapes if None in shape], tmp_path / "m", dynamic=False)
    assert not frozen.preparation.einsums and done.native_ops["Einsum"] == 1
    ((_, reason),) = frozen.preparation.outside
    assert "implicit batch mode" in reason


def test_an_ellipsis_that_may_repeat_a_size_stays_with_dynamic_shapes_and_is_told(tmp_path):
    frozen, done = in_one_engine(
        lambda x, y: tf.einsum("...ij,...kj->k...i", x, y), [(None, 5, 4), (None, 3, 4)], tmp_path / "m"
    )
    assert done.native_ops == {"Einsum": 1}
    ((_, reason),) = frozen.preparation.outside
    assert "with an ellipsis" in reason


def test_what_the_user_keeps_stays(tmp_path):
    data, shape = WITH_WEIGHTS["abc,cd->abd"]
    frozen, done = in_one_engine(
        lambda x: tf.einsum("abc,cd->abd", x, weights(*shape)),
        [data],
        tmp_path / "m",
        False,
        keep_native_nodes=".*Einsum",
    )
    assert not frozen.preparation.einsums and done.native_ops == {"Einsum": 1}


@pytest.mark.parametrize(
    "sizes", [((2, 1), (2, 3)), ((1, 3), (2, 1)), ((2, 3), (2, 3)), ((0, 3), (0, 3)), ((3,), (2, 3))]
)
@pytest.mark.parametrize("turned", [False, True])
def test_a_product_with_an_ellipsis_repeats_what_einsum_repeats(sizes, turned):
    text = "...ji,...jk->...ik" if turned else "...ij,...kj->...ik"
    shapes = [(*front, 5, 4) if not turned else (*front, 4, 5) for front in sizes]
    x, y = (np.random.default_rng(seed).normal(size=shape).astype("f4") for seed, shape in enumerate(shapes))
    written, ((expected, found),) = compared(
        lambda a, b: tf.einsum(text, a, b), [[None] * len(shape) for shape in shapes], einsums.rewrite, [x, y]
    )
    assert len(written) == 1
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def random_equation(rng):
    """An equation of two operands with the rows in front, and the sizes of its letters."""
    letters = [chr(ord("a") + number) for number in rng.permutation(26)]
    batch, left, right, summed = ([letters.pop() for _ in range(rng.integers(low, 3))] for low in (0, 0, 0, 1))
    rows, with_weights = letters.pop(), bool(rng.random() < 0.6)
    first = [rows, *rng.permutation([*batch, *left, *summed])]
    second = [*([] if with_weights else [rows]), *rng.permutation([*batch, *right, *summed])]
    result = [rows, *rng.permutation([*batch, *left, *right])]
    sizes = {letter: int(rng.integers(1, 5)) for letter in {*first, *second}}
    return ["".join(one) for one in (first, second, result)], rows, with_weights, sizes


@pytest.mark.parametrize("seed", range(80))
def test_random_products_answer_the_same(seed):
    rng = np.random.default_rng(seed)
    (first, second, result), rows, with_weights, sizes = random_equation(rng)
    shapes = [[sizes[letter] for letter in one] for one in (first, second)]
    x, y = (rng.normal(size=shape).astype("f4") for shape in shapes)
    open_shape = [None if letter == rows else sizes[letter] for letter in first]
    whole = int(np.prod(shapes[1][1:]))
    if with_weights:
        turn = seed % 2 == 0
        text, operands = (
            (f"{second},{first}->{result}", (lambda x: (y, x)))
            if turn
            else (f"{first},{second}->{result}", lambda x: (x, y))
        )
        body, kinds, feed = (lambda x: tf.einsum(text, *operands(x))), [open_shape], [x]
    else:
        # Rows of both come from one input.
        text = f"{first},{second}->{result}"
        cut = (
            lambda both: (  # noqa: E731
                tf.reshape(both[:, :-whole], [-1, *shapes[0][1:]]),
                tf.reshape(both[:, -whole:], [-1, *shapes[1][1:]]),
            )
        )
        y = rng.normal(size=(shapes[0][0], *shapes[1][1:])).astype("f4")
        feed = [np.concatenate([one.reshape(len(x), -1) for one in (x, y)], 1)]
        body, kinds = (lambda both: tf.einsum(text, *cut(both))), [(None, feed[0].shape[1])]
    written, answered = compared(
        body, kinds, lambda graph_def: einsums.rewrite(graph_def, explicit=False), feed, [feed[0][:0]]
    )
    assert len(written) == (len(result) > 1)
    for expected, found in answered:
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def of_shared_weights(count=3):
    """A graph of products with two matrices; the second is returned as well."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 5, 64), "x")
        matrices = [tf.identity(tf.constant(weights(64, 64)), name=f"w{number}") for number in range(2)]
        for _ in range(count):
            for one in matrices:
                x = tf.einsum("abc,dc->abd", x, one)
        tf.identity(x, name="y")
    return graph.as_graph_def()


def run(graph_def, *fetched):
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    return tf.compat.v1.Session(graph=graph).run(fetched, {"x:0": weights(2, 5, 64) / 64})


def test_weights_that_several_products_read_are_one_constant_and_the_former_go():
    before = of_shared_weights()
    graph_def = of_shared_weights()
    assert len(einsums.rewrite(graph_def, explicit=False, fetched={"w1"})) == 6
    # The second matrix is there twice, for it is returned.
    assert graph_def.ByteSize() < before.ByteSize() + 1.1 * 64 * 64 * 4
    for expected, found in zip(run(before, "y:0", "w1:0"), run(graph_def, "y:0", "w1:0"), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("matrices", "written"), [(0.5, 0), (1, 4), (2, 6)])
def test_products_stay_whose_weights_have_no_room(matrices, written):
    graph_def = of_shared_weights()
    room = int(matrices * 64 * 64 * 4)
    assert len(einsums.rewrite(graph_def, explicit=False, room=room)) == written
    assert graph_def.ByteSize() < of_shared_weights().ByteSize() + room + 20000


@pytest.mark.parametrize("text", ["ab,Bc->ac", "ab,bc->ac", "aB,Bc->ac"])
def test_a_letter_of_the_other_case_is_another_letter(text):
    x, y = weights(5, 3), weights(3, 2)
    written, ((expected, found),) = compared(
        lambda x: tf.raw_ops.Einsum(inputs=[x, y], equation=text),
        [(None, 3)],
        lambda graph_def: einsums.rewrite(graph_def, explicit=False),
        [x],
    )
    assert len(written) == (text != "ab,Bc->ac")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# In x[..., :1, :] of two axes the ellipsis stands for none.
@pytest.mark.parametrize(("shape", "whole"), [((3, 4), False), ((3, 1, 4), True)])
def test_a_slice_with_an_ellipsis_in_front_may_take_some_rows(shape, whole):
    written, ((expected, found),) = compared(
        lambda x: tf.einsum("...i,...i->...i", x, x[..., :1, :]),
        [(None, *shape[1:])],
        einsums.rewrite,
        [weights(*shape)],
    )
    assert len(written) == whole
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_equations_are_spelled_out():
    assert equation.spelled("...ab,...b->...a", (4, 3)) == ("cdab,cdb->cda", [2, 2])
    assert equation.spelled("...a,ab->...b", (3, 2)) == ("cda,ab->cdb", [2, 0])
    assert equation.spelled("...a,...b->...ab", (3, 2)) is None and equation.spelled("...a->a", (2,)) is None
    assert equation.spelled("ab,bc->ac", (2, 2)) == ("ab,bc->ac", [0, 0])
