"""In what the layers of engines compute, from logs of builds on an H200; and the flag that asks for it."""

import dataclasses
import gzip

import pytest

from tests.command_here import run_tftrt
from tests.conftest import ROOT
from tftrt_tools.command_line.commands import _made, _output
from tftrt_tools.command_line.commands import build as build_command
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration import file, table
from tftrt_tools.tftrt.conversion import build, layer_log
from tftrt_tools.tftrt.conversion.signature_result import BuiltEngine, SignatureResult

# What is of use of three logs of TensorFlow 2.14.1 with TensorRT 8.5.3: the digits CNN in INT8 and in FP16 (batch 32), an encoder of four layers
# in FP16 and then in INT8 with a table in which some ranges were missing (batch 32, 128 tokens).
LOG = gzip.decompress((ROOT / "tests/data/engine_layers.log.gz").read_bytes()).decode()
DIGITS_INT8, DIGITS_FP16 = "TRTEngineOp_8d598224fb_0_0", "TRTEngineOp_1ffd85ef81_0_0"
ENCODER_FP16, ENCODER_INT8 = "TRTEngineOp_947a4533e2_0_1", "TRTEngineOp_0193047987_0_1"
FOUND = layer_log.parse(LOG, [DIGITS_INT8, DIGITS_FP16, ENCODER_FP16, ENCODER_INT8, "TRTEngineOp_0193047987_0_0"])


def products(engine):
    return [(layer.node.rsplit("digits_cnn/")[-1], layer.precision) for layer in FOUND[engine] if layer.multiplies]


def test_each_product_is_told_with_its_node_and_precision():
    assert products(DIGITS_INT8) == [
        ("conv1/Conv2D", "FP32"),
        ("conv2/Conv2D", "FP32"),
        ("hidden/MatMul", "INT8"),
        ("probabilities/MatMul", "FP32"),
    ]
    assert [precision for _, precision in products(DIGITS_FP16)] == ["FP32"] * 4


def test_what_moves_values_is_left_out_and_what_computes_otherwise_is_kept():
    others = [(layer.node.rsplit("/", 2)[-2:], layer.kind) for layer in FOUND[DIGITS_INT8] if not layer.multiplies]
    assert others == [(["pool", "MaxPool"], "CaskPooling"), (["probabilities", "Softmax"], "CudaSoftMax")]


def test_layers_that_could_not_be_int8_name_the_tensor_without_a_range():
    layers = {layer.node.rsplit("/")[-1]: layer for layer in FOUND[ENCODER_INT8] if layer.multiplies}
    assert (
        layers["MatMul_5"].without_range == ("(Unnamed Layer* 63) [Shuffle]_output",)
        and layers["MatMul"].without_range == ()
    )
    assert layers["MatMul"].precision == layers["MatMul_5"].precision == "FP16"
    # A refusal of one engine says nothing of another.
    assert not any(layer.without_range for layer in FOUND[DIGITS_INT8])


def test_an_engine_without_layers_in_the_log_is_missing_and_the_last_build_counts():
    assert "TRTEngineOp_0193047987_0_0" not in FOUND
    assert layer_log.parse("", [DIGITS_INT8]) == {}
    again = LOG.replace(f"{DIGITS_FP16}/", f"{DIGITS_INT8}/")
    assert [layer.precision for layer in layer_log.parse(again, [DIGITS_INT8])[DIGITS_INT8] if layer.multiplies] == [
        "FP32"
    ] * 4


def test_ranges_that_no_tensor_of_the_network_has_are_found():
    def made(engine, *names):
        return file.EngineTable(
            segment="sha256:x",
            signature="s",
            engine=engine,
            table=table.Table("TRT-8503-EntropyCalibration2", dict.fromkeys(names, 1.0)),
        )

    own = "StatefulPartitionedCall/Gather", "(Unnamed Layer* 20) [Shuffle]_output"
    tables = [
        made(ENCODER_INT8, *own, "(Unnamed Layer* 99) [Shuffle]_output"),
        made(DIGITS_INT8, "TensorRTInputPH_0"),
        made("other", "x"),
    ]
    assert layer_log.unused_ranges(LOG, tables) == {ENCODER_INT8: ("(Unnamed Layer* 99) [Shuffle]_output",)}
    assert "has a range of tensors" in layer_log.unused_text("engine", ("x",))


@pytest.mark.parametrize(
    ("engine", "asked", "wanted"),
    [
        (
            DIGITS_FP16,
            "FP16",
            [
                "asked for FP16: 4 convolutions and matrix products (4 in FP32); 2 other layers (2 in FP32)",
                "  in FP32: StatefulPartitionedCall/digits_cnn/conv1/Conv2D",
            ],
        ),
        (
            ENCODER_FP16,
            "FP16",
            ["asked for FP16: 1 fused graph (1 in FP16 of its inputs; what it multiplies in is not told)"],
        ),
        (
            ENCODER_INT8,
            "INT8",
            [
                "asked for INT8: 27 convolutions and matrix products (26 in FP16, 1 in FP32); 66 other layers (61 in FP16, 5 in FP32); "
                "1 fused graph (1 in FP16 of its inputs; what it multiplies in is not told)",
                "  in FP16: StatefulPartitionedCall/MatMul_5 (no range for (Unnamed Layer* 63) [Shuffle]_output)",
            ],
        ),
    ],
)
def test_lines_for_people(engine, asked, wanted):
    found = list(layer_log.lines(engine, FOUND[engine], asked))
    assert found[0] == f"{engine}, {wanted[0]}" and found[1 : len(wanted)] == wanted[1:]
    assert len(found) <= 7 and (len(found) < 7 or found[-1] == "  and 22 more that are not in INT8")


def test_the_layers_of_each_profile_are_told_apart():
    """An engine of two profiles lists its layers twice, "Layer(ShapeHostToDevice): [ShapeHostToDeviceCopy 0] [profile 1], Tactic: …" (seen on
    an H200); here the second list is the first one with that mark."""
    own = [line for line in LOG.splitlines() if line.startswith("Layer(") and DIGITS_FP16 in line]
    second = [line.replace(", Tactic:", " [profile 1], Tactic:", 1) for line in own]
    assert len(own) > 4
    found = layer_log.parse("Engine Layer Information:\n" + "\n".join([*own, *second]) + "\n", [DIGITS_FP16])[
        DIGITS_FP16
    ]
    assert [dataclasses.replace(layer, profile=0) for layer in found] == list(FOUND[DIGITS_FP16]) * 2
    assert [layer.profile for layer in found] == [0] * (len(found) // 2) + [1] * (len(found) // 2)
    said = [line for line in layer_log.lines("engine", found, "FP16") if line.startswith("engine")]
    assert [line.partition(" (")[0] for line in said] == [
        f"engine, profile {number} of 2, asked for FP16: 4 convolutions and matrix products" for number in (1, 2)
    ]


def test_an_engine_in_which_nothing_computes_is_told():
    assert list(layer_log.lines("engine", (), "FP32")) == ["engine, asked for FP32: no layer that computes"]


def test_the_flag_needs_engines_that_are_built(zoo_model, tmp_path):
    for arguments in (
        ("convert", f"--model={zoo_model('digits_cnn')}", f"--output={tmp_path / 'out'}"),
        ("build", tmp_path, "--strip"),
    ):
        done = run_tftrt(*arguments, "--layer_precisions")
        assert (
            done.returncode == 2
            and "--layer_precisions speaks of engines that are built" in done.stderr
            and "give --shapes" in done.stderr
        )
    assert not list(tmp_path.iterdir())


def test_a_build_prints_and_keeps_its_layers(converted, capsys):
    """The build itself needs a GPU (test_gpu_engines.py); here its result is put together from a conversion and the recorded log."""
    manifest = passport.read(converted("digits_cnn", "--precision=FP16"), passport.MANIFEST)
    assert manifest["layers"] == {}
    signature = SignatureResult.from_dict(manifest["signatures"][0])
    engine = dataclasses.replace(signature.engines[0], name=DIGITS_FP16, precision="FP16")
    signature = dataclasses.replace(
        signature,
        engines=(engine,),
        built=(BuiltEngine(name=DIGITS_FP16, shapes=((32, 8, 8, 1),), bytes=1000, seconds=2.0),),
    )
    made = file.EngineTable(
        segment="sha256:x",
        signature="s",
        engine=DIGITS_FP16,
        table=table.Table("TRT-8503-EntropyCalibration2", {"a": 1.0, "b": 1.0}),
    )
    built = build.Build(
        model="model",
        output="out",
        model_digest="sha256:x",
        shapes="image:32x8x8x1",
        strategy="Optimal",
        signatures=(signature,),
        versions=manifest["versions"],
        gpu={"name": "a GPU", "compute_capability": "9.0"},
        cache_problem="",
        seconds=2.0,
        layers=layer_log.Found.of(LOG, [signature], [made]),
    )
    assert build_command.__name__  # it registers the table
    _made.show(built, _output.console(None), None)
    said = capsys.readouterr().out
    assert "asked for FP16: 4 convolutions and matrix products (4 in FP32)" in said
    assert (
        f"warning: the table of {DIGITS_FP16} has 2 ranges of tensors that TensorRT does not have here, first a" in said
    )
    assert built.to_dict()["unused_ranges"] == {DIGITS_FP16: ["a", "b"]}
    kept = built.to_dict()["layers"][DIGITS_FP16]
    assert kept[0] == {
        "node": "StatefulPartitionedCall/digits_cnn/conv1/Conv2D",
        "kind": "CaskConvolution",
        "precision": "FP32",
        "multiplies": True,
        "without_range": [],
        "profile": 0,
    }
