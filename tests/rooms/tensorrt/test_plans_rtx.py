"""The network and the configuration of a plan through the parser and the builder of tensorrt_rtx, which has the API of TensorRT 11 and builds
without a GPU. Skipped where it is not installed: pip install tensorrt-rtx."""

import pytest
from onnx import helper

from tests import onnx_files
from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.plan.job import differences
from tftrt_tools.tensorrt.plans import shaping
from tftrt_tools.tensorrt.plans.job import network
from tftrt_tools.tensorrt.plans.settings import Settings

trt = pytest.importorskip("tensorrt_rtx")


@pytest.fixture(scope="module")
def logger():
    return trt.Logger(trt.Logger.ERROR)


@pytest.fixture(scope="module")
def builder(logger):
    return trt.Builder(logger)


def parsed(builder, logger, path):
    return network.parsed(trt, builder, logger, path, strongly_typed=False)


def profiles(path, shapes):
    return shaping.profiles(shapes, onnx_file.overview(path).signatures["serving_default"].inputs)


@pytest.mark.parametrize(
    ("make", "shapes", "settings"),
    [
        (onnx_files.product, "x:1x4,8x4|x:min=9x4,opt=16x4,max=64x4", Settings()),
        (onnx_files.product, "x:8x4", Settings(max_workspace_size_bytes=1 << 28, tf32=False)),
        (onnx_files.quantized, "x:8x64", Settings(precision_mode="INT8")),
    ],
)
def test_a_plan_is_built(make, shapes, settings, builder, logger, tmp_path):
    path = make(tmp_path / "m.onnx")
    made, parser = parsed(builder, logger, path)
    network.check_inputs(made)
    asked = profiles(path, shapes)
    config, flags = network.configured(trt, builder, made, asked, settings, {})
    assert config.num_optimization_profiles == len(asked)
    assert flags == (("TF32",) if settings.tf32 else ()) and config.get_flag(trt.BuilderFlag.TF32) == settings.tf32
    assert len(bytes(builder.build_serialized_network(made, config))) > 1000
    del parser


def test_weights_beside_the_file_are_found(builder, logger, tmp_path):
    path = onnx_files.product(tmp_path / "m.onnx", outside=True)
    made, parser = parsed(builder, logger, path)
    assert made.num_inputs == 1 and made.num_layers > 0 and parser.num_errors == 0


def test_a_model_without_open_dimensions_has_no_profile(builder, logger, tmp_path):
    path = onnx_files.product(tmp_path / "m.onnx", rows=8)
    made, parser = parsed(builder, logger, path)
    config, _ = network.configured(trt, builder, made, profiles(path, ""), Settings(), {})
    assert config.num_optimization_profiles == 0
    del parser


@pytest.mark.parametrize(("shapes", "names"), [("x:1x4x5x6", ["?", "x_2", "x_3"]), ("x:4x4x4x4", ["?", "?", "?"])])
def test_dimensions_of_one_name_and_other_sizes_get_names_of_their_own(shapes, names, builder, logger, tmp_path):
    path = onnx_files.write(
        tmp_path / "m.onnx",
        [helper.make_node("Relu", ["x"], ["y"])],
        onnx_files.values(("x", "float32", ("?", 4, "?", "?"))),
        onnx_files.values(("y", "float32", ("?", 4, "?", "?"))),
    )
    made, parser = parsed(builder, logger, path)
    config, _ = network.configured(trt, builder, made, profiles(path, shapes), Settings(), {})
    assert [made.get_input(0).get_dimension_name(axis) for axis in (0, 2, 3)] == names
    assert builder.build_serialized_network(made, config) is not None
    del parser


def test_a_refused_node_is_named(builder, logger, tmp_path):
    path = onnx_files.write(
        tmp_path / "m.onnx",
        [helper.make_node("Det", ["x"], ["y"], name="the_odd_one")],
        onnx_files.values(("x", "float32", (2, 4, 4))),
        onnx_files.values(("y", "float32", (2,))),
    )
    with pytest.raises(errors.TftrtError, match="does not take .*the_odd_one") as raised:
        parsed(builder, logger, path)
    assert "--plugins" in raised.value.mend


@pytest.mark.parametrize(
    ("settings", "ranges", "says"),
    [
        (Settings(precision_mode="FP16"), {}, "nothing in the ONNX file is FP16"),
        (Settings(precision_mode="INT8"), {}, "INT8 needs ranges"),
        (Settings(precision_mode="INT8"), {"x": 1.0}, "takes no calibration table"),
        (Settings(tactic_sources=("CUDNN",)), {}, "has no such source"),
    ],
)
def test_what_the_release_cannot_do_is_one_line(settings, ranges, says, builder, logger, tmp_path):
    path = onnx_files.product(tmp_path / "m.onnx")
    made, parser = parsed(builder, logger, path)
    with pytest.raises(errors.TftrtError, match=says) as raised:
        network.configured(trt, builder, made, profiles(path, "x:8x4"), settings, ranges)
    assert raised.value.mend
    del parser


def test_a_table_beside_quantized_nodes_is_refused(builder, logger, tmp_path):
    path = onnx_files.quantized(tmp_path / "m.onnx")
    made, parser = parsed(builder, logger, path)
    with pytest.raises(errors.TftrtError, match="has QuantizeLinear nodes with scales of their own"):
        network.configured(trt, builder, made, profiles(path, "x:8x64"), Settings(precision_mode="INT8"), {"x": 1.0})
    del parser


def test_it_is_a_release_without_weak_types():
    assert not differences.weakly_typed(trt) and differences.network_flags(trt, True) in (0, 1, 2)
