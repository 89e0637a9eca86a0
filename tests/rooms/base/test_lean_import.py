"""TensorFlow without Keras, in a child: faster to import, and Keras is there for whoever needs it."""

import sys

import pytest

from tests import stacks
from tftrt_tools.base.process import child

PACKAGES = ("keras", "scipy", "h5py")


def work(request):
    """What the child does in these tests."""
    if "model" in request:
        return _saved_again(request["model"], request["output"])
    import tensorflow as tf

    before = [name for name in PACKAGES if name in sys.modules]
    import tensorflow.keras.layers as by_name  # as a user's own layers do

    return {
        "before": before,
        "after": [name for name in PACKAGES if name in sys.modules],
        "same": by_name.Dense is tf.keras.layers.Dense,
        "h5": tf.keras.Sequential([by_name.Dense(2, input_shape=(3,))]).save(request["file"], save_format="h5"),
    }


def _saved_again(model, output):
    import tensorflow as tf

    from tftrt_tools.models.savedmodel.job import loading

    root = loading.load(model).root
    tf.saved_model.save(root, output, signatures=dict(root.signatures))
    return type(root.optimizer).__name__


def test_a_child_imports_tensorflow_without_keras_which_is_there_when_it_is_used(tmp_path):
    found = child.run("tests.rooms.base.test_lean_import:work", {"file": str(tmp_path / "m.h5")}).result
    assert found == {"before": [], "after": list(PACKAGES), "same": True, "h5": None}
    assert (tmp_path / "m.h5").read_bytes().startswith(b"\x89HDF")


@stacks.needs_keras_2_optimizers
@pytest.mark.parametrize("kind", ["optimizers", "legacy"])
def test_an_optimizer_in_a_model_is_loaded_and_saved_as_one(kind, tmp_path):
    import numpy as np
    import tensorflow as tf

    from tftrt_tools.models.savedmodel.job import protos

    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,))])
    model.compile((tf.keras.optimizers if kind == "optimizers" else tf.keras.optimizers.legacy).Adam(), "mse")
    model.fit(np.ones((8, 4)), np.ones((8, 3)), verbose=0)
    tf.saved_model.save(model, str(tmp_path / "m"))
    request = {"model": str(tmp_path / "m"), "output": str(tmp_path / "again")}
    assert child.run("tests.rooms.base.test_lean_import:work", request).result == "RestoredOptimizer"
    before, after = (
        [
            node
            for node in protos.meta_graph(protos.read(tmp_path / name)).object_graph_def.nodes
            if "ptimizer" in node.user_object.identifier
        ]
        for name in ("m", "again")
    )
    assert [(one.user_object.identifier, len(one.slot_variables)) for one in before] == [
        (one.user_object.identifier, len(one.slot_variables)) for one in after
    ] and before
