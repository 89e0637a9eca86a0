"""Odd graphs through the planner and convert: no traceback, and a line that says why."""

import pytest
import tensorflow as tf

from tests.prepared_models import save
from tests.rooms.models.test_unnamed import saved
from tftrt_tools.tftrt.conversion.job import planner
from tftrt_tools.tftrt.conversion.settings import Settings

v1 = tf.compat.v1
X = tf.TensorSpec((None, 8), name="x")


def _through_a_dataset(x):
    return tf.data.Dataset.from_tensor_slices(x).map(lambda row: row * 2.0).batch(100).get_single_element()


def _called(x):
    inner = tf.function(lambda x: tf.nn.relu(x) * 2.0, jit_compile=True)
    return inner(x) + 1.0


# {name: body of x}.
BODIES = {
    "dataset": _through_a_dataset,
    "numpy": lambda x: tf.numpy_function(lambda one: one, [x], tf.float32),
    "xla": _called,
    "map": lambda x: tf.map_fn(lambda row: tf.nn.relu(row) * 2.0, x),
    "constant": lambda x: tf.ones((2, 3)) * 2.0,
    "loop": lambda x: tf.while_loop(lambda i, _: i < 3, lambda i, one: (i + 1, tf.nn.relu(one) * 2.0), (0, x))[1],
    "case": lambda x: tf.switch_case(
        tf.cast(x[0, 0], tf.int32), [lambda: x * 2.0, lambda: tf.nn.relu(x), lambda: x - 1.0]
    ),
    "rank": lambda x: tf.squeeze(tf.nn.relu(x @ tf.ones((8, 1)))) + 1.0,
}


@pytest.mark.parametrize("name", BODIES)
def test_a_plan_is_made(name, tmp_path):
    function = tf.function(lambda x: {"y": BODIES[name](x)}, input_signature=[X])
    (planned,) = planner.plan(str(save(function, tmp_path / "m")), Settings()).signatures
    assert planned.problem is None and planned.advice.reasons


def test_an_input_of_unknown_rank(tmp_path):
    function = tf.function(lambda x: {"y": tf.nn.relu(x * 2.0) + 1.0}, input_signature=[tf.TensorSpec(None, name="x")])
    (planned,) = planner.plan(str(save(function, tmp_path / "m")), Settings(use_dynamic_shape=True)).signatures
    assert planned.problem is None and not planned.segments


def of_signature(path, x, outputs):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(path), x, outputs)
    return str(path)


def test_a_resource_as_input_is_named(tmp_path):
    with tf.Graph().as_default():
        x, held = v1.placeholder(tf.float32, (None, 8), "x"), v1.placeholder(tf.resource, (), "held")
        y = x @ tf.raw_ops.ReadVariableOp(resource=held, dtype=tf.float32)
        path = of_signature(tmp_path / "m", {"x": x, "held": held}, {"y": y})
    (planned,) = planner.plan(path, Settings()).signatures
    assert (
        "input 'held' of signature 'serving_default' is a resource, which no request holds" in planned.problem["cause"]
    )


def test_a_variable_without_a_value_is_named(tmp_path):
    with tf.Graph().as_default():
        x = v1.placeholder(tf.float32, (None, 8), "x")
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[8, 8], shared_name="never")
        path = of_signature(
            tmp_path / "m", {"x": x}, {"y": x @ tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)}
        )
    (planned,) = planner.plan(path, Settings()).signatures
    assert planned.findings[0].about == "never"


def test_variables_of_references_are_constants(tmp_path):
    path = saved(
        tmp_path / "m", lambda x: tf.nn.softmax(tf.nn.relu(x @ v1.Variable(tf.ones((8, 8)), use_resource=False)) + 1.0)
    )
    assert planner.plan(str(path), Settings()).signatures[0].segments


@pytest.mark.parametrize(
    ("dtype", "said"), [(tf.float64, "TensorRT has no float64 here"), (tf.bfloat16, "TensorRT has no bfloat16 here")]
)
def test_a_type_that_tensorrt_lacks_is_named_with_the_cast(dtype, said, tmp_path, tftrt):
    function = tf.function(
        lambda x: {"y": tf.nn.softmax(tf.nn.relu(x * 2.0) + 1.0)},
        input_signature=[tf.TensorSpec((None, 8), dtype, name="x")],
    )
    path = save(function, tmp_path / "m")
    done = tftrt("convert", f"--model={path}", "--dry_run")
    assert (
        done.returncode == 3
        and said in done.stderr
        and "tf.cast" in done.stderr
        and "--use_dynamic_shape" not in done.stderr
    ), done.stderr
    assert said in " ".join(tftrt("inspect", path).stdout.split())


def test_inspect_says_in_a_line_that_nothing_can_be_converted(tmp_path, tftrt):
    count = tf.Variable(0.0)

    def serve(x):
        count.assign_add(1.0)
        return {"y": x + count}

    module = tf.Module()
    module.count, module.f = count, tf.function(serve, input_signature=[X])
    tf.saved_model.save(module, str(tmp_path / "m"), signatures=module.f)
    done = tftrt("inspect", tmp_path / "m")
    assert (
        "Nothing of it can be converted" in done.stdout
        and "changes variables" in done.stdout
        and "would take" not in done.stdout
    )
    assert tftrt("inspect", tmp_path / "m", "--check").returncode == 3


def test_shapes_that_do_not_go_together_are_refused(tmp_path, tftrt):
    function = tf.function(
        lambda x, y: {"z": tf.nn.softmax(tf.nn.relu(x + y) * 2.0)},
        input_signature=[X, tf.TensorSpec((None, 8), name="y")],
    )
    done = tftrt("inspect", save(function, tmp_path / "m"), "--shapes=x:2x8;y:4x8")
    assert done.returncode == 2 and "refuses x 2x8, y 4x8" in done.stderr and "Traceback" not in done.stderr, (
        done.stderr
    )


def test_what_was_kept_claims_no_rewrite(tmp_path, tftrt):
    dense, filters = tf.ones((8, 8)), tf.ones((3, 3, 3, 4))
    module = tf.Module()
    module.a = tf.function(lambda x: {"y": tf.nn.softmax(tf.nn.relu(x @ dense) @ dense)}, input_signature=[X])
    module.b = tf.function(
        lambda p: {"q": tf.nn.conv2d(p, filters, 1, "SAME", dilations=2)},
        input_signature=[tf.TensorSpec((None, 16, 16, 3), name="p")],
    )
    tf.saved_model.save(module, str(tmp_path / "m"), signatures={"a": module.a, "b": module.b})
    done = tftrt("convert", f"--model={tmp_path / 'm'}", f"--output={tmp_path / 'out'}")
    assert done.returncode == 0 and "dilations" not in done.stdout, done.stdout
    assert "dilations" not in (tmp_path / "out/assets.extra/tftrt/manifest.json").read_text().replace('"dilations_', "")


def test_no_other_size_is_praised_for_a_difference_of_nothing():
    from tftrt_tools.tftrt.conversion import advice
    from tftrt_tools.tftrt.conversion.plan import SizeResult

    sizes = [
        SizeResult(low=1, high=3, engines=2, inside=1000, coverage=0.999, smallest=3),
        SizeResult(low=4, high=500, engines=2, inside=999, coverage=0.998, smallest=4),
        SizeResult(low=501, high=None, engines=0, inside=0, coverage=0.0, smallest=None),
    ]
    (said,) = advice.advise(sizes, Settings(), 0.999, 2, None, ()).reasons
    assert said == "--minimum_segment_size=3 is right."
