"""Select and DivNoNan: written with SelectV2, with the same answers."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import compared, in_one_engine, odd_values, prepared, save
from tftrt_tools.models.savedmodel.job import chosen
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

select = tf.raw_ops.Select
# {what: (shapes, body)}.
SELECTS = {
    "of rows": ([(None, 4)], lambda x: select(condition=x[:, 0] > x[:, 1], x=x, y=x * 3.0)),
    "of rows of pictures": (
        [(None, 3, 4, 2)],
        lambda x: select(condition=(x[:, 0, 0, 0] > 1.0) & (x[:, 1, 1, 0] < 3.0), x=x, y=tf.zeros_like(x)),
    ),
    "of unequal rows": (
        [(None, 4)],
        lambda x: select(condition=tf.not_equal(x[:, 0], 2.0) & (x[:, 1] > 1.0), x=x, y=tf.where(x > 2.0, x, 3.0)),
    ),
    "of one condition": ([(None, 4)], lambda x: select(condition=tf.reduce_max(x) > 2.0, x=x, y=x * 3.0)),
}
DIVISIONS = {
    "of two tensors": ([(None, 4), (None, 4)], tf.math.divide_no_nan),
    "repeated": ([(None, 3, 4), (None, 3, 1)], tf.math.divide_no_nan),
    "by a number": ([(None, 4)], lambda x: tf.math.divide_no_nan(x, 3.0)),
    "by numbers": ([(None, 4)], lambda x: tf.math.divide_no_nan(x, np.arange(1, 5, dtype="f4"))),
    "of a number": ([(None, 4)], lambda x: tf.math.divide_no_nan(3.0, x)),
}
MASKS = {
    "unequal": ([(None, 4)], lambda x: tf.where(tf.not_equal(x, 1.0), x, 3.0)),
    "unequal tensors": ([(None, 4), (None, 1)], lambda x, y: tf.where(x != y, x, 3.0)),
    "a number of a mask": ([(None, 4)], lambda x: x * tf.cast(x > 2.0, tf.float32)),
}
LARGE = {"f4": (3e38, 1e38, np.inf, 1e37), "f2": (6e4, 2e4, np.inf, 1e4)}
LEFT = {
    "rows of two inputs": ([(None, 4), (None, 4)], lambda x, y: select(condition=x[:, 0] > 1.0, x=y, y=y * 2.0)),
    "operands of two inputs": ([(None, 4), (None, 4)], lambda x, y: select(condition=x[:, 0] > 1.0, x=x, y=y)),
    "operands of two ranks": ([(None, None, None), (None, None)], lambda x, y: tf.math.divide_no_nan(x, y)),
    "by zeros": ([(None, 4)], lambda x: tf.math.divide_no_nan(x, [1.0, 0.0, 2.0, 3.0])),
    "by a number without a reciprocal": ([(None, 4)], lambda x: tf.math.divide_no_nan(x, 1e-40)),
}


@pytest.mark.parametrize("kind", [*SELECTS, *DIVISIONS])
def test_it_is_in_the_engine_with_dynamic_shapes(kind, tmp_path):
    shapes, body = (SELECTS | DIVISIONS)[kind]
    frozen, done = in_one_engine(body, shapes, tmp_path / "m")
    assert frozen.preparation.chosen and len(done.engines) == 1 and not done.native_ops
    frozen, done = in_one_engine(body, shapes, tmp_path / "n", dynamic=False)
    if kind.startswith("by "):
        assert len(frozen.preparation.chosen) == 1 and not done.native_ops
    else:
        op = "Select" if kind in SELECTS else "DivNoNan"
        assert not frozen.preparation.chosen and done.native_ops[op] == 1
        assert chosen.REASONS[op] in [reason for _, reason in frozen.preparation.outside]


@pytest.mark.parametrize("kind", MASKS)
def test_a_mask_is_in_the_engine_with_dynamic_shapes(kind, tmp_path):
    shapes, body = MASKS[kind]
    frozen, done = in_one_engine(body, shapes, tmp_path / "m")
    assert len(frozen.preparation.chosen) == 1 and len(done.engines) == 1 and not done.native_ops
    frozen, done = in_one_engine(body, shapes, tmp_path / "n", dynamic=False)
    assert not frozen.preparation.chosen and {"NotEqual", "Cast"} & done.native_ops.keys()


@pytest.mark.parametrize("dtype", ["f4", "f2", "i4"])
@pytest.mark.parametrize("seed", range(10))
def test_random_masks_answer_the_same_bit_for_bit(seed, dtype):
    rng = np.random.default_rng(seed)
    shape = [int(size) for size in rng.integers(1, 6, rng.integers(1, 4))]
    other = [1 if rng.random() < 0.5 else size for size in shape]
    x, y = (rng.integers(0, 3, one).astype(dtype) for one in (shape, other))
    if dtype != "i4":
        x, y = (np.where(rng.random(one.shape) < 0.2, np.nan, one).astype(dtype) for one in (x, y))
    written, answered = compared(
        lambda x, y: tf.cast(tf.not_equal(x, y), tf.float16 if seed % 2 else tf.float32),
        [([None, *one[1:]], tf.as_dtype(x.dtype)) for one in (shape, other)],
        chosen.rewrite,
        [x, y],
        [x[:0], y[:1]],
    )
    assert len(written) == 2
    for expected, found in answered:
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("kind", LEFT)
def test_others_stay_as_they_are_and_are_told(kind, tmp_path):
    shapes, body = LEFT[kind]
    frozen, done = in_one_engine(body, shapes, tmp_path / "m")
    (op,) = {"Select", "DivNoNan"} & done.native_ops.keys()
    assert not frozen.preparation.chosen and (op == "Select") == ("inputs" in kind)
    assert chosen.REASONS[op] in [reason for _, reason in frozen.preparation.outside]


def test_a_condition_that_is_an_input_gets_its_axes_in_tensorflow(tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((7, 4)), tf.TensorSpec((7,), tf.bool)])
    def serve(x, c):
        x = tf.nn.relu(x) * 2.0 + 1.0
        return {"y": tf.nn.relu(select(condition=c, x=x, y=tf.nn.relu(x - 3.0))) + 1.0}

    frozen = prepared(save(serve, tmp_path / "m"), use_dynamic_shape=True)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert len(frozen.preparation.chosen) == 1 and len(done.engines) == 1 and done.native_ops == {"ExpandDims": 1}


@pytest.mark.parametrize(
    "body",
    [
        lambda x: select(condition=x[:, 0] > 1.0, x=x, y=x * 3.0),
        lambda x: tf.where((x[:, 0] > 1.0)[:, None], x, x * 3.0),
    ],
    ids=["select", "new axis"],
)
@pytest.mark.parametrize("kept", [{"keep_native_nodes": ".*Greater"}, {"keep_native_ops": ("Greater",)}], ids=str)
def test_a_comparison_that_the_user_keeps_is_computed_in_tensorflow(body, kept, tmp_path):
    _, done = in_one_engine(body, [(None, 4)], tmp_path / "m", **kept)
    assert done.native_ops["Greater"] == 1 and not any("Greater" in engine.ops for engine in done.engines)
    (comparison,) = [node for node in done.graph_def.node if node.op == "Greater"]
    assert any(comparison.name in node.input for node in done.graph_def.node)


def test_what_the_user_keeps_stays(tmp_path):
    frozen, done = in_one_engine(*DIVISIONS["of two tensors"][::-1], tmp_path / "m", keep_native_nodes=".*div_no_nan")
    assert not frozen.preparation.chosen and done.native_ops == {"DivNoNan": 1}


@pytest.mark.parametrize("seed", range(40))
def test_random_quotients_answer_the_same(seed):
    rng = np.random.default_rng(seed)
    shape = [int(size) for size in rng.integers(1, 6, rng.integers(1, 4))]
    other = [1 if rng.random() < 0.3 else size for size in shape][rng.integers(0, 2) if len(shape) > 1 else 0 :]
    x, y = odd_values(rng, shape), odd_values(rng, other)
    constant = seed % 4 == 0 and y.all() and np.isfinite(y).all()
    open_shapes = [[None, *shape[1:]], [None, *other[1:]]]
    empty = [np.zeros([0, *shape[1:]], "f4"), np.zeros([1, *other[1:]], "f4")]
    if constant:
        written, answered = compared(lambda x: tf.math.divide_no_nan(x, y), open_shapes[:1], chosen.rewrite, [x])
    else:
        written, answered = compared(tf.math.divide_no_nan, open_shapes, chosen.rewrite, [x, y], empty)
    assert len(written) == 1
    for expected, found in answered:
        # TensorFlow multiplies by the reciprocal of a constant.
        np.testing.assert_allclose(found, expected, rtol=3e-7 if constant else 0)


@pytest.mark.parametrize(
    ("dtype", "divisor"), [(dtype, divisor) for dtype, divisors in LARGE.items() for divisor in divisors]
)
def test_a_divisor_whose_reciprocal_is_denormal_or_zero_stays(dtype, divisor):
    x = np.array([[1, 5, divisor, -divisor, np.inf, np.nan, 0]], dtype)
    written, ((expected, found),) = compared(
        lambda x: tf.math.divide_no_nan(x, np.array(divisor, dtype)),
        [((None, 7), tf.as_dtype(x.dtype))],
        chosen.rewrite,
        [x],
    )
    assert len(written) == (divisor == LARGE[dtype][-1])
    np.testing.assert_allclose(found, expected, rtol=1e-3 if dtype == "f2" else 3e-7)


@pytest.mark.parametrize("seed", range(40))
def test_random_choices_answer_the_same_bit_for_bit(seed):
    rng = np.random.default_rng(seed)
    shape = [int(size) for size in rng.integers(1, 6, rng.integers(2, 5))]
    x = odd_values(rng, shape)

    def body(x):
        rows = tf.reshape(x, [-1, int(np.prod(shape[1:]))])
        kinds = [
            lambda: rows[:, 0] > rows[:, -1],
            lambda: tf.reduce_max(x) > 0.5,
            lambda: ~((rows[:, 0] > 0.0) | (rows[:, -1] < 0.2)),
            lambda: tf.math.is_nan(rows[:, 0]),
            lambda: tf.equal(rows[:, 0], 0.0),
            lambda: tf.not_equal(rows[:, 0], rows[:, -1]),
        ]
        condition = kinds[seed % len(kinds)]()
        return select(condition=condition, x=x, y=[x * 2.0, tf.zeros_like(x), -x][seed // 6 % 3])

    written, answered = compared(body, [[None, *shape[1:]]], chosen.rewrite, [x], [x[:0]])
    assert len([name for name in written if "compared" not in name and "NotEqual" not in name]) == 1
    for expected, found in answered:
        np.testing.assert_array_equal(found, expected)


def test_convert_and_inspect_say_what_is_written_and_why_others_stay(tftrt, tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 6), name="x")])
    def serve(x):
        x = tf.nn.relu(x) * 2.0 + 1.0
        y = tf.nn.relu(tf.cumsum(tf.math.divide_no_nan(x, x[:, ::-1])[:, tf.newaxis], 2)) + tf.gather_nd(x, [[0], [0]])
        z = tf.math.divide_no_nan(tf.einsum("...i,ij->...j", y, np.ones((6, 4), "f4")), [1.0, 0.0, 2.0, 3.0])
        return {"y": tf.nn.relu(z * 3.0) + 1.0}

    path = save(serve, tmp_path / "m")
    done = tftrt("convert", f"--model={path}", f"--output={tmp_path / 'out'}", "--use_dynamic_shape")
    assert done.returncode == 0, done.stderr
    for line in (
        "1 slice with a new axis written as ExpandDims: TF-TRT takes none",
        "1 cumulative sum written as additions of moved parts: TF-TRT knows no Cumsum",
        "1 GatherNd written as GatherV2: TF-TRT knows no GatherNd",
        "1 Einsum written otherwise: TF-TRT takes none with an ellipsis, and none in implicit batch mode",
        "1 node of Select, DivNoNan, NotEqual or Cast written with SelectV2, RealDiv or Equal: TF-TRT refuses the op",
    ):
        assert f"serving_default: {line}" in done.stdout
    done = tftrt("inspect", path, "--use_dynamic_shape")
    assert done.returncode == 0 and chosen.REASONS["DivNoNan"] in " ".join(done.stdout.split()), done.stdout
    done = tftrt("verify", path, tmp_path / "out", "--shapes=x:4x6")
    assert done.returncode == 0, done.stdout + done.stderr


def test_int8_leaves_what_no_table_can_name(tmp_path):
    body, shapes = (lambda x: tf.math.divide_no_nan(x + 1.0, x * 2.0) + tf.cumsum(x * 3.0, 1)), [(None, 4)]
    frozen, done = in_one_engine(body, shapes, tmp_path / "m")
    assert frozen.preparation.chosen and frozen.preparation.cumulated and not done.native_ops
    frozen, done = in_one_engine(body, shapes, tmp_path / "n", precision_mode="INT8")
    assert not frozen.preparation.chosen and not frozen.preparation.cumulated
    assert done.native_ops == {"DivNoNan": 1, "Cumsum": 1}
    assert all("no INT8 table can name" in reason for _, reason in frozen.preparation.outside)
    assert len(frozen.preparation.outside) == 2
