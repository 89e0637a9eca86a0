"""The list of an engine's layers in TensorRT's log: of builds on an H200, and lines of an H100."""

from tests.rooms.tftrt.test_layer_log import DIGITS_FP16, DIGITS_INT8, ENCODER_INT8, LOG
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.conversion import layer_table

FOUND = layer_table.of_log(LOG, [DIGITS_INT8, DIGITS_FP16, ENCODER_INT8, "TRTEngineOp_other"])
# Of an engine of two profiles on an H100: a size that is none stands before each size.
SIZES = """DefaultLogger Total Activation Memory: 9223372036881160704
DefaultLogger Total Scratch Memory: 512
DefaultLogger Total Activation Memory: 4072960
DefaultLogger Total Activation Memory: 9223372037075729408
DefaultLogger Total Scratch Memory: 394240
DefaultLogger Total Activation Memory: 32576512
"""


def test_every_layer_is_read_with_its_tensors():
    assert {engine: len(built.rows) for engine, built in FOUND.items()} == {
        DIGITS_INT8: 17,
        DIGITS_FP16: 14,
        ENCODER_INT8: 240,
    }
    listed = [line for line in LOG.splitlines() if line.startswith("Layer(") and "ShapeHostToDevice" not in line]
    own = {DIGITS_INT8, DIGITS_FP16, ENCODER_INT8}
    assert sum(any(engine in line for engine in own) for line in listed) == sum(
        len(built.rows) for built in FOUND.values()
    )
    for row in (row for built in FOUND.values() for row in built.rows):
        assert row.outputs and (row.inputs or row.kind == "Constant") and row.tactic.startswith("0x")


def test_types_sizes_and_packing():
    row = next(row for row in FOUND[DIGITS_INT8].rows if row.kind == "CaskConvolution" and "conv2" in row.name)
    assert row.inputs[0].name.startswith("Reformatted Input Tensor 0 to ") and (
        row.inputs[0].type,
        row.inputs[0].sizes,
    ) == ("Float", (32, 32, 8, 8))
    assert row.inputs[0].packed == 4 and row.tactic == "0x8f0ed36578f14aff"
    assert row.outputs[0] == layer_table.Tensor(
        name="StatefulPartitionedCall/digits_cnn/conv2/Relu", type="Float", sizes=(32, 64, 8, 8), packed=4
    )
    unnamed = [
        tensor.name for row in FOUND[ENCODER_INT8].rows for tensor in row.inputs if tensor.name.startswith("(Unnamed")
    ]
    assert "(Unnamed Layer* 20) [Shuffle]_output" in unnamed


def test_profiles_are_told_apart():
    own = [line for line in LOG.splitlines() if line.startswith("Layer(") and DIGITS_FP16 in line]
    second = [line.replace(", Tactic:", " [profile 1], Tactic:", 1) for line in own]
    text = SIZES + "Engine Layer Information:\n" + "\n".join((*own, *second)) + "\n"
    built = layer_table.of_log(text, [DIGITS_FP16])[DIGITS_FP16]
    assert [row.name for row in built.of_profile(0)] == [row.name for row in built.of_profile(1)] and len(
        built.of_profile(1)
    ) == 14
    assert built.activation_bytes == (4072960, 32576512) and built.scratch_bytes == (512, 394240)
    assert layer_table.without_profile("a [profile 2]") == ("a", 2) and layer_table.without_profile("a") == ("a", 0)


def test_the_table_stays_with_the_model(tmp_path):
    layer_table.keep(tmp_path, "nothing of engines", [DIGITS_FP16])
    assert passport.read(tmp_path, passport.LAYERS) is None
    layer_table.keep(tmp_path, LOG, [DIGITS_FP16])
    document = passport.read(tmp_path, passport.LAYERS)
    assert layer_table.Table.from_dict(document).engines == {DIGITS_FP16: FOUND[DIGITS_FP16]}
