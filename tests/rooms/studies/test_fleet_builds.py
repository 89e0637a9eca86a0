"""`tftrt build --on`: the model travels to each kind of GPU, and comes back whole. On machines whose GPUs are counted and are none, what is
built is a model without engines."""

import importlib.util
import json

import pytest

from tests import fleets
from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.fleet.place import parse
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.studies.fleet_builds import building
from tftrt_tools.studies.fleet_builds.building import Asked, FleetBuild

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray is not installed: the extra `fleet`"
)
T4, L4 = "accelerator_type:T4", "accelerator_type:L4"
STRIPPED = Asked(backend="tftrt")


@needs_ray
@pytest.mark.slow
def test_each_kind_gets_a_whole_model_and_a_wrong_one_takes_nothing_from_them(converted, tmp_path):
    model, out = converted("digits_cnn", "--precision_mode=FP16"), tmp_path / "out"
    with fleets.cluster(T4, "RTX4090") as (_, address, _):
        done = building.everywhere(
            str(model), str(out), STRIPPED, parse(address), ["T4", "H100", "RTX4090"], place_seconds=1
        )
        assert [(one.gpu_type, one.status, one.complete) for one in done.kinds] == [
            ("T4", "done", True),
            ("H100", "not placeable", False),
            ("RTX4090", "done", True),
        ]
        assert not done.complete and done.kinds[1].mend == "there are: RTX4090, T4"
        assert sorted(path.name for path in out.iterdir()) == ["RTX4090", "T4"]
        for one in out.iterdir():
            files.check(one)
            assert passport.read(one, passport.MANIFEST)["build"]["model_digest"] == files.digest(model)
        assert FleetBuild.from_dict(json.loads(done.to_json())).to_dict() == done.to_dict()
        # Without names: all kinds that the fleet has. What is there is not replaced.
        with pytest.raises(errors.UsageError, match="exists"):
            building.everywhere(str(model), str(out), STRIPPED, parse(address))
        again = building.everywhere(str(model), str(out), STRIPPED, parse(address), overwrite=True)
        assert [one.gpu_type for one in again.kinds] == ["RTX4090", "T4"] and again.complete


@needs_ray
@pytest.mark.slow
def test_the_command_says_what_the_machine_said_and_writes_nothing(converted, tftrt, tmp_path):
    model = converted("digits_cnn", "--precision_mode=FP16")
    done = tftrt(
        "build",
        model,
        "--shapes=image:1x8x8x1",
        "--on=local",
        f"--output_saved_model_dir={tmp_path / 'out'}",
        "--json=-",
        env=fleets.COUNTED,
    )
    (kind,) = json.loads(done.stdout)["kinds"]
    assert done.returncode == 3 and kind["gpu_type"] == "L4" and kind["status"] == "failed", done.stderr
    assert kind["cause"] in done.stderr and not (tmp_path / "out").exists()


@needs_ray
@pytest.mark.parametrize(("place", "says"), [("local", "has no GPU"), ("ray://127.0.0.1:1", "no fleet answers at")])
def test_a_fleet_without_gpus_and_one_that_does_not_answer_are_told(place, says, converted, tftrt, tmp_path):
    model, out = converted("digits_cnn", "--precision_mode=FP16"), tmp_path / "out"
    done = tftrt("build", model, "--shapes=image:1x8x8x1", f"--on={place}", f"--output_saved_model_dir={out}")
    assert_clear(done, 1, says)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--on=ray://head"], "is no place"),
        (["--gpu_types=T4"], "names machines of a fleet"),
        (["--on=local"], "--output_saved_model_dir is missing"),
        (["--on=local", "--output_saved_model_dir=out", "--repeat=3"], "--repeat has no effect with --on"),
        (["--on=local", "--output_saved_model_dir=out", "--log_file=log"], "--log_file has no effect with --on"),
        (["--on=local", "--output_saved_model_dir=out", "--gpu_types=../T4"], "is no kind of GPU"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_fleet_is_opened(flags, says, converted, tftrt):
    model = converted("digits_cnn", "--precision_mode=FP16")
    assert_clear(tftrt("build", model, "--shapes=image:1x8x8x1", *flags), 2, says)
