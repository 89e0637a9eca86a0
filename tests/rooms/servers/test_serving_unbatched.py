"""Models that a server with batching cannot serve are named: model, signature and tensor."""

import pytest

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.configuration import config_check, generation, model_config, unbatched
from tftrt_tools.servers.serving.configuration.batching_file import Settings


def spec(name, *shape):
    return InputSpec(name, "float32", None if shape == ("?",) else tuple(shape))


@pytest.mark.parametrize(
    "inputs, outputs, said",
    [
        ([spec("x", None, 4)], [spec("y", None, 3)], []),
        ([spec("x", None, 4), spec("keep")], [spec("y", None, 3)], ["input 'keep' is float32[], a scalar"]),
        ([spec("x", None, 4)], [spec("y")], ["output 'y' is float32[], a scalar"]),
        (
            [spec("x", None, 4)],
            [spec("names", 3), spec("y", None)],
            ["output 'names' is float32[3], whatever the batch"],
        ),
        ([spec("x", 8, 4)], [spec("y", 8)], []),
        ([spec("x", "?")], [spec("y", "?")], []),
        ([], [spec("y")], ["output 'y'"]),
    ],
)
def test_tensors_without_a_batch_are_named(inputs, outputs, said):
    found = list(unbatched.of_signature("serving_default", inputs, outputs))
    assert len(found) == len(said) and all(
        f"serving_default: {one}" in line for one, line in zip(said, found, strict=True)
    )


@pytest.fixture(scope="module")
def scalar(tmp_path_factory):
    """A base path with a model that takes a scalar beside its rows."""
    import tensorflow as tf

    base = tmp_path_factory.mktemp("scalar") / "m"
    module = tf.Module()
    module.f = tf.function(
        lambda x, keep: {"y": x * keep},
        input_signature=[tf.TensorSpec((None, 4), name="x"), tf.TensorSpec((), name="keep")],
    )
    tf.saved_model.save(module, str(base / "1"), signatures=module.f)
    return base


def options(base, **more):
    return generation.Options(models=(model_config.parse(f"m={base}"),), batching=Settings(max_batch_size=8), **more)


def test_configure_refuses_such_a_model_and_check_finds_it(scalar, tmp_path):
    with pytest.raises(
        errors.UsageError, match=r"m/1: serving_default: input 'keep' is float32\[\], a scalar"
    ) as refused:
        generation.configure(tmp_path, options(scalar))
    assert "without --enable_batching" in refused.value.mend and not list(tmp_path.iterdir())
    done = generation.configure(tmp_path, options(scalar, allow_uncovered=True))
    assert "input 'keep'" in done.warnings[0]
    both = config_check.check(done.files.values())
    assert not both.passed and "input 'keep'" in both.files[0].problems[0].text
    models, _ = done.files.values()
    assert config_check.check([models]).passed, "nothing says that this server batches"
