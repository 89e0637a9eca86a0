"""`tftrt publish` on a GPU: the warm-up runs the engines, or builds them. `make gpu-test`."""

import pytest

from tests.gpu_commands import EXACT, NO_GPU, convert
from tftrt_tools.base import errors
from tftrt_tools.servers.serving.publishing import publish

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]
UNVERIFIED = publish.Options(unverified=True)


def test_saved_engines_serve_the_shapes_they_were_built_for(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", EXACT)
    done = publish.publish(tmp_path / "model", "m", str(tmp_path / "models"), UNVERIFIED)
    replayed = done.warm_up.replay
    assert replayed.mode == "gpu" and replayed.misses == () and replayed.records
    assert all((one.built, one.native) == (0, 0) for one in replayed.records)
    assert done.target.compute_capabilities and done.target.tensorrt
    with pytest.raises(errors.CheckFailed, match="they end the server"):
        publish.publish(
            tmp_path / "model",
            "m",
            str(tmp_path / "models"),
            publish.Options(unverified=True, target="tensorflow/serving:2.14.1-gpu"),
        )


def test_without_engines_the_largest_batch_builds_one_that_serves_all(zoo_model, tmp_path):
    convert(zoo_model("digits_cnn"), tmp_path / "model", "--precision=FP16", env=NO_GPU)
    done = publish.publish(tmp_path / "model", "m", str(tmp_path / "models"), UNVERIFIED)
    assert [one.built for one in done.warm_up.replay.records] == [1, 0] and done.warm_up.replay.misses == ()
