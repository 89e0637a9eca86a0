"""Resizes of pictures: written as products where TF-TRT refuses them or computes them wrongly, and left where sizes are open."""

import numpy as np
import pytest
import tensorflow as tf

from tests.prepared_models import answers, prepared, save
from tftrt_tools.command_line.commands import _output
from tftrt_tools.models.savedmodel.job import inferred, resized, unbuildable
from tftrt_tools.tftrt.conversion.job import graph_pass
from tftrt_tools.tftrt.conversion.settings import Settings

FILTERS = np.random.default_rng(0).normal(size=(3, 3, 3, 4)).astype("f4")
BEHIND = np.random.default_rng(1).normal(size=(3, 3, 4, 3)).astype("f4")
PLAIN, CORNERS, CENTERS = {}, {"align_corners": True}, {"half_pixel_centers": True}
# (op, attributes) of what TF-TRT refuses or computes wrongly for sizes that are no multiples.
WRITTEN = [
    ("ResizeBilinear", PLAIN),
    ("ResizeBilinear", CENTERS),
    ("ResizeBicubic", PLAIN),
    ("ResizeBicubic", CORNERS),
    ("ResizeBicubic", CENTERS),
    ("ResizeArea", PLAIN),
    ("ResizeArea", CORNERS),
    ("ResizeNearestNeighbor", CORNERS),
    ("ResizeNearestNeighbor", CENTERS),
]
IDS = [f"{op}-{'-'.join(attributes) or 'plain'}" for op, attributes in WRITTEN]


def model(op, attributes, size, path, sizes=(10, 14)):
    """A convolution, a resize to `size` (or what a function of the picture gives) and a convolution."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, *sizes, 3), name="x")])
    def serve(x):
        h = tf.nn.relu(tf.nn.conv2d(x, FILTERS, 2, "SAME"))
        to = size(h) if callable(size) else size
        h = getattr(tf.raw_ops, op)(images=h, size=to, name="resize", **attributes)
        return {"y": tf.nn.relu(tf.nn.conv2d(h, BEHIND, 1, "SAME"))}

    return save(serve, path)


def original(path, x):
    return tf.saved_model.load(str(path)).signatures["serving_default"](x=tf.constant(x))["y"].numpy()


# Of 5 x 7 pixels: larger, smaller, larger and smaller, one side kept, multiples, one pixel.
@pytest.mark.parametrize("size", [(12, 9), (3, 2), (8, 4), (5, 20), (15, 13), (1, 1)], ids=str)
@pytest.mark.parametrize(("op", "attributes"), WRITTEN, ids=IDS)
def test_a_resize_becomes_products_of_the_same_answers(op, attributes, size, tmp_path):
    path = model(op, attributes, size, tmp_path / "m")
    frozen = prepared(path)
    (written,) = frozen.preparation.resized
    assert (written.type, written.before, written.behind) == (op, (5, 7), size)
    done = graph_pass.run(frozen, Settings())
    assert len(done.engines) == 1 and not done.native_ops
    said = _output.prepared(frozen.preparation)
    assert any(("as GatherV2" in line) == (op == resized.NEAREST) and "resize" in line for line in said)
    # Not of no rows: TensorFlow's convolution of them forgets their sizes on a CPU, and a product reads these.
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, 10, 14, 3)).astype("f4")
        np.testing.assert_allclose(answers(frozen, x)[0], original(path, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [True, False])
def test_a_unet_goes_into_one_engine_in_both_modes(dynamic, tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 16, 16, 3), name="x")])
    def serve(x):
        down = tf.nn.relu(tf.nn.conv2d(x, FILTERS, 1, "SAME"))
        deep = tf.nn.max_pool2d(down, 4, 4, "SAME")
        for _ in range(2):
            deep = tf.image.resize(deep, [2 * deep.shape[1], 2 * deep.shape[2]])
        return {"y": tf.nn.conv2d(tf.concat([down, deep], -1), np.concatenate([BEHIND, BEHIND], 2), 1, "SAME")}

    frozen = prepared(save(serve, tmp_path / "m"), use_dynamic_shape=dynamic)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=dynamic))
    assert len(frozen.preparation.resized) == 2 and len(done.engines) == 1 and not done.native_ops


def test_resizes_of_the_same_sizes_share_their_weights(tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 6, 6, 3), name="x")])
    def serve(x):
        return {"y": tf.image.resize(x, [9, 9]) + tf.image.resize(2.0 * x, [9, 9])}

    first, second = prepared(save(serve, tmp_path / "m")).preparation.resized
    assert first.added_bytes == 2 * 4 * 6 * 9 and second.added_bytes == 0


def test_a_resize_to_the_same_size_is_no_product(tmp_path):
    path = model("ResizeBilinear", CENTERS, (5, 7), tmp_path / "m")
    frozen = prepared(path)
    assert not {"BatchMatMulV2", "ResizeBilinear", "Transpose"} & {node.op for node in frozen.graph_def.node}
    x = np.random.default_rng(0).normal(size=(2, 10, 14, 3)).astype("f4")
    np.testing.assert_allclose(answers(frozen, x)[0], original(path, x), rtol=1e-5, atol=1e-5)


def doubled(h):
    return tf.shape(h)[1:3] * 2


def of_the_whole(h):
    return tf.shape(h)[1:3] + 3


def half_as_much_again(h):
    return tf.cast(tf.cast(tf.shape(h)[1:3], tf.float32) * 1.5, tf.int32)


LEFT = {
    "bilinear with align_corners": ("ResizeBilinear", CORNERS, (8, 9), (10, 14)),
    "nearest": ("ResizeNearestNeighbor", PLAIN, (8, 9), (10, 14)),
    "each pixel repeated": ("ResizeNearestNeighbor", CENTERS, (10, 21), (10, 14)),
    "each pixel repeated, open sizes": ("ResizeNearestNeighbor", CENTERS, doubled, (None, None)),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_an_engine_computes_rightly_stays_a_resize_in_it(name, tmp_path):
    op, attributes, size, sizes = LEFT[name]
    frozen = prepared(model(op, attributes, size, tmp_path / "m", sizes), use_dynamic_shape=True)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert not frozen.preparation.resized and not frozen.preparation.kept_resizes
    assert len(done.engines) == 1 and op not in done.native_ops


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        (CENTERS, of_the_whole),
        (CENTERS, half_as_much_again),
        (CORNERS, doubled),
        (CENTERS, lambda h: tf.shape(h)[2:0:-1] * 2),
    ],
    ids=["no multiple", "no whole multiple", "align_corners", "sides exchanged"],
)
def test_an_open_nearest_resize_that_an_engine_may_get_wrong_stays_in_tensorflow(attributes, size, tmp_path):
    path = model("ResizeNearestNeighbor", attributes, size, tmp_path / "m", (None, None))
    frozen = prepared(path, use_dynamic_shape=True)
    done = graph_pass.run(frozen, Settings(use_dynamic_shape=True))
    assert len(frozen.preparation.kept_resizes) == 1 and done.native_ops["ResizeNearestNeighbor"] == 1
    (left,) = [one for one in done.left_out if one.op == "ResizeNearestNeighbor"]
    assert left.reason == resized.REASON
    assert any("kept in TensorFlow" in line for line in _output.prepared(frozen.preparation))


@pytest.mark.parametrize("dtype", [tf.uint8, tf.int32])
def test_a_nearest_resize_of_whole_numbers_needs_no_keeping(dtype, tmp_path):
    """TF-TRT takes none."""

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 6, 6, 3), dtype, name="x")])
    def serve(x):
        small = tf.raw_ops.ResizeNearestNeighbor(images=x, size=[5, 5], **CENTERS)
        return {"y": tf.nn.relu(tf.nn.conv2d(tf.cast(small, tf.float32), FILTERS, 1, "SAME"))}

    settings = {"use_dynamic_shape": True, "minimum_segment_size": 1}
    frozen = prepared(save(serve, tmp_path / "m"), **settings)
    assert not frozen.preparation.kept_resizes
    assert graph_pass.run(frozen, Settings(**settings)).native_ops["ResizeNearestNeighbor"] == 1


def test_a_resize_that_the_user_keeps_stays(tmp_path):
    path = model("ResizeBilinear", CENTERS, (8, 9), tmp_path / "m")
    frozen = prepared(path, keep_native_nodes=".*resize.*")
    assert not frozen.preparation.resized
    assert graph_pass.run(frozen, Settings(keep_native_nodes=".*resize.*")).native_ops["ResizeBilinear"] == 1


def test_a_resize_in_a_loop_stays(tmp_path):
    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, 6, 6, 3), name="x")])
    def serve(x):
        def body(step, h):
            small = tf.image.resize(h, [4, 4])
            return step + 1, tf.image.resize(small, [6, 6], method="nearest") + 1.0

        return {"y": tf.while_loop(lambda step, h: step < tf.shape(x)[0], body, (0, x))[1]}

    frozen = prepared(save(serve, tmp_path / "m"))
    assert not frozen.preparation.resized and len(frozen.preparation.kept_resizes) == 1


def test_weights_that_would_be_too_large_are_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(resized, "_MOST_BYTES", 100)
    assert not prepared(model("ResizeBilinear", CENTERS, (8, 9), tmp_path / "m")).preparation.resized


def test_names_that_the_graph_has_already_are_not_taken_twice():
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 6, 6, 3), "x")
        tf.raw_ops.ResizeBilinear(images=x, size=[9, 8], name="resize")
        tf.identity(x, name="resize/rows")
        tf.identity(x, name="resize/order")
    graph_def = graph.as_graph_def()
    assert resized.rewrite(graph_def)[0]
    assert len({node.name for node in graph_def.node}) == len(graph_def.node)
    assert inferred.shapes(graph_def).get_tensor_by_name("resize:0").shape.as_list() == [None, 9, 8, 3]


@pytest.mark.parametrize(("attributes", "wrong"), [(CENTERS, True), (CORNERS, True), (PLAIN, False)])
def test_an_engine_that_takes_other_pixels_is_named(attributes, wrong, tmp_path, monkeypatch):
    """As in a model that was converted before these resizes were written otherwise."""
    monkeypatch.setattr(resized, "rewrite", lambda *_: ((), ()))
    frozen = prepared(model(resized.NEAREST, attributes, (8, 9), tmp_path / "m"))
    findings = unbuildable.find(graph_pass.run(frozen, Settings()).graph_def)
    assert [one.text.startswith("its answers would be wrong: TF-TRT ignores half_pixel") for one in findings] == [
        True
    ] * wrong
    # An engine that was built disproves nothing here.
    assert unbuildable.standing(findings, {one.about for one in findings}) == findings
