"""Engines taken apart on a GPU. `make gpu-test`."""

import pytest

from tests import stacks
from tests.gpu_commands import build, convert
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.profiling import engines_compare, plan

# Layers and kernels are timed one after the other: who else computes on the GPU makes one of the two longer.
pytestmark = [pytest.mark.gpu, pytest.mark.gpu_alone, pytest.mark.timeout(900), stacks.needs_bindings]


@pytest.fixture(scope="module")
def digits(zoo_model, tmp_path_factory):
    """digits_cnn in FP16 with an engine of two profiles, built with --layers."""
    folder = tmp_path_factory.mktemp("layers")
    convert(zoo_model("digits_cnn"), folder / "converted", "--precision=FP16", "--use_dynamic_shape")
    build(folder / "converted", "--shapes=image:1x8x8x1,256x8x8x1", "--layers", f"--output={folder / 'built'}")
    assert passport.read(folder / "built", passport.LAYERS)
    return folder / "built"


def test_an_engine_is_taken_apart_profile_by_profile(digits):
    found, failed = plan.measure(digits)
    assert not failed and [one.profile for one in found] == [0, 1]
    for one in found:
        assert not [note for note in one.notes if "IProfiler" not in note]
        assert one.kernels_by == "ranges" and not one.fusion.gone and all(group.fused for group in one.fusion.groups)
        assert one.layer_seconds == pytest.approx(one.kernel_seconds, rel=0.05)
        # Kernels of a few microseconds: what IProfiler adds to each is not the same everywhere.
        assert one.agreement == pytest.approx(1, abs=0.3) and one.event_seconds > 0
        assert one.cuda_graph.error == "" and one.cuda_graph.saves > 0 and len(one.streams) == 3
        assert one.memory.engine > 0 and one.memory.activations_of_profile > 0 and one.peaks is not None
        assert all(layer.tactic and layer.kind for layer in one.layers)
    rows = engines_compare.compare(*found).rows
    assert sum(row.other.seconds for row in rows) == pytest.approx(found[1].layer_seconds)
