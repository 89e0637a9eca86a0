"""Engines for signatures whose names are no Python identifiers, and for one function under two names. On a GPU: `make gpu-test`."""

import pytest

from tests import signature_models as models
from tests.gpu_commands import NO_GPU, build, convert, engines_of, verify
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel.job import inspector, protos

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(560)]

NAMES = {"features": "in", "input.1": "x", "x:0": "y"}
SHAPES = "--shapes=" + ";".join(f"{name}:1x8,4x8" for name in NAMES)


@pytest.mark.parametrize("flags", [(), ("--nouse_dynamic_shape",)])
def test_names_reach_the_profiles_and_the_engines(flags, tmp_path):
    """TF-TRT makes the profiles with a function of its own, whose arguments are named after nodes."""
    source = models.tf1(tmp_path / "in", NAMES)
    done = convert(source, tmp_path / "out", "--minimum_segment_size=1", SHAPES, "--noengine_cache", *flags)
    assert done["engine_count"] and {one["name"] for one in done["signatures"][0]["inputs"]} == set(NAMES)
    code, said, error = verify(source, tmp_path / "out")
    assert code == 0, error or said["problems"]


def test_twins_share_their_engines(tmp_path):
    source = models.twins(tmp_path / "in")
    convert(source, tmp_path / "plain", "--use_dynamic_shape", env=NO_GPU)
    name = protos.meta_graph(protos.read(source)).signature_def["serve"].inputs.keys()
    built = build(
        tmp_path / "plain",
        f"--shapes={next(iter(name))}:1x8,4x8",
        f"--output={tmp_path / 'out'}",
        cache=tmp_path / "cache",
    )
    engines = {one["name"] for one in engines_of(built)}
    assert [one["twins"] for one in built["signatures"]] == [["serve"]] and len(engines) == 1
    seen = inspector.signature_graphs(protos.meta_graph(protos.read(tmp_path / "out")))
    assert {one.name: set(one.engines) for one in seen} == {"serve": engines, "serving_default": engines}
    calls = [run.Call(one.name, {one.inputs[0].name: models.rows(4)}) for one in seen]
    done = run.run(
        saved_model.at(tmp_path / "out"),
        run.save_calls(calls, tmp_path / "calls"),
        tmp_path / "answers",
        "the model",
        trace=True,
    )
    for trace in done.traces:
        assert set(trace.engine) == engines and not trace.build and not trace.fallback
    code, said, error = verify(source, tmp_path / "out")
    assert code == 0, error or said["problems"]
