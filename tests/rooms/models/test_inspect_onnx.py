"""`tftrt inspect` of an ONNX file: what its bytes say, held against the package onnx and against ONNX Runtime."""

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.rooms.models.test_inspect import tftrt_inspect
from tftrt_tools.base import errors
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.kinds.model import File
from tftrt_tools.models.kinds.onnx import file, kind
from tftrt_tools.models.savedmodel.shapes import InputSpec

WEIGHTS = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)


def value(name, dtype=TensorProto.FLOAT, shape=None):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(functions=(), **changed):
    """Nodes of the graph, of both branches of a conditional, of a function, and of another domain; weights in three places."""
    then = helper.make_graph([helper.make_node("Relu", ["c"], ["t"])], "then", [], [value("t")])
    half = numpy_helper.from_array(np.zeros((300, 300), np.float16))
    other = helper.make_graph(
        [helper.make_node("Constant", [], ["e"], value=half)], "else", [], [value("e", TensorProto.FLOAT16)]
    )
    nodes = [
        helper.make_node("Cast", ["x"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["c", "w"], ["y"]),
        helper.make_node("FastGelu", ["y"], ["z"], domain="com.microsoft"),
        helper.make_node("If", ["b"], ["i"], then_branch=then, else_branch=other),
    ]
    # As files before version 4 have it, the weights are among the inputs.
    inputs = [
        value("x", TensorProto.INT64, ["n", 300]),
        value("b", TensorProto.BOOL, []),
        value("w", TensorProto.FLOAT, [300, 2]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        inputs,
        [value("z"), value("i", TensorProto.FLOAT, ["a", 300])],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(
        graph,
        opset_imports=opsets,
        functions=functions,
        **{"ir_version": 8, "producer_name": "by hand", "producer_version": "2", **changed},
    )
    helper.set_model_props(made, {"trained on": "nothing"})
    return made


@pytest.fixture
def saved(tmp_path):
    """A function that saves a model. Returns: its path."""

    def write(made=None, name="m.onnx", **options):
        onnx.save(made or model(), tmp_path / name, **options)
        return str(tmp_path / name)

    return write


def test_it_tells_what_the_file_says(saved):
    double = helper.make_function(
        "own", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    seen = file.overview(saved(model([double])))
    (signature,) = seen.signatures.values()
    assert signature.inputs == (InputSpec("x", "int64", (None, 300)), InputSpec("b", "bool", ()))
    assert signature.outputs == (InputSpec("z", "float32", None), InputSpec("i", "float32", (None, 300)))
    assert seen.ops == dict.fromkeys(("Add", "Cast", "Constant", "If", "MatMul", "Relu", "com.microsoft.FastGelu"), 1)
    assert seen.opsets == {"ai.onnx": 17, "com.microsoft": 1} and seen.weights == {"float16": 90_000, "float32": 600}
    assert (
        seen.facts["producer"] == "by hand 2"
        and seen.facts["trained on"] == "nothing"
        and seen.facts["format version"] == "8"
    )
    assert [one.name for one in seen.files] == ["m.onnx"] and any("metadata" in line for line in seen.unasked)


def test_of_a_plain_model_it_is_what_the_runtime_says(saved):
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        *(helper.make_node("Relu", ["y"], [f"z{number}"]) for number in range(3)),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x", TensorProto.FLOAT, ["n", 300])],
        [value(f"z{number}", TensorProto.FLOAT, ["n", 2]) for number in range(3)],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )
    path = saved(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    seen = file.overview(path)
    assert list(seen.ops.items()) == [("Relu", 3), ("MatMul", 1)]
    with opening.opened(path) as (opened,):
        assert opened.signatures == seen.signatures


def test_weights_beside_it_are_named_counted_and_part_of_its_digest(saved, tmp_path):
    path = saved(save_as_external_data=True, location="weights.bin", size_threshold=1000)
    seen, before = file.overview(path), kind.ONNX.digest(path)
    assert seen.files[1] == File("weights.bin", (tmp_path / "weights.bin").stat().st_size) and seen.bytes == sum(
        one.bytes for one in seen.files
    )
    assert seen.weights == file.overview(saved(name="whole.onnx")).weights
    content = bytearray((tmp_path / "weights.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "weights.bin").write_bytes(content)
    assert kind.ONNX.digest(path) != before


def test_what_is_no_tensor_is_told_as_what_it_is(saved):
    sequence = onnx.ValueInfoProto(name="s")
    sequence.type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("SequenceLength", ["s"], ["n"])], "graph", [sequence], [value("n", TensorProto.INT64, [])]
    )
    (signature,) = file.overview(saved(helper.make_model(graph, ir_version=8))).signatures.values()
    assert signature.inputs == (InputSpec("s", "sequence", None),) and signature.outputs == (
        InputSpec("n", "int64", ()),
    )


@pytest.mark.parametrize(
    ("op", "domain", "constants", "precision"),
    [
        ("DequantizeLinear", "", np.float32, "INT8"),
        ("MatMulInteger", "", np.float32, "INT8"),
        ("DynamicQuantizeLinear", "", np.float32, "INT8"),
        ("QLinearAdd", "com.microsoft", np.float32, "INT8"),
        ("QAttention", "com.microsoft", np.float16, "INT8"),
        ("DynamicQuantizeLSTM", "com.microsoft", np.float32, "INT8"),
        ("DynamicQuantizeMatMul", "com.microsoft", np.float32, "INT8"),
        ("QEmbedLayerNormalization", "com.microsoft", np.float32, "INT8"),
        ("QOrderedMatMul", "com.microsoft", np.float32, "INT8"),
        ("MatMul", "", np.float16, "FP16"),
        ("MatMul", "", np.float32, "FP32"),
        ("QuickGelu", "com.microsoft", np.float32, "FP32"),
    ],
)
def test_the_precision_of_another_tool_s_file_is_that_of_its_ops_and_weights(op, domain, constants, precision, saved):
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], domain=domain)],
        "g",
        [value("x")],
        [value("y")],
        [numpy_helper.from_array(np.ones(4, constants), "w")],
    )
    assert kind.ONNX.arithmetic(saved(helper.make_model(graph))).key == precision


def test_the_command_prints_it_and_writes_it(saved, tmp_path):
    path = saved(save_as_external_data=True, location="weights.bin", size_threshold=0)
    done = tftrt_inspect(path, f"--json={tmp_path / 'o.json'}")
    assert done.returncode == 0, done.stderr
    for said in (
        "ONNX file",
        "weights.bin",
        "ai.onnx 17, com.microsoft 1",
        "x int64[?,300]",
        "com.microsoft.FastGelu",
        "not told: ",
    ):
        assert said in done.stdout
    told = json.loads((tmp_path / "o.json").read_text())
    assert told["kind"] == "overview" and told["format"] == "ONNX file" and told["ops"]["MatMul"] == 1
    assert told["model"] == path and told["bytes"] == sum(one["bytes"] for one in told["files"])


def test_a_table_in_a_file_s_metadata_is_a_line_and_cannot_steer_the_terminal(saved, tmp_path):
    made, table = model(), "\n".join(map(str, range(5000))) + "\x1b[31mred"
    helper.set_model_props(made, {"charac\nter": table, "colour": "\x1b[31mred"})
    done = tftrt_inspect(saved(made), f"--json={tmp_path / 'o.json'}")
    assert (
        f"  charac ter: {' '.join(map(str, range(30)))}" in done.stdout
        and f"… ({len(table):,} characters: --json has all)" in done.stdout
    )
    assert "  colour: [31mred\n" in done.stdout and "\x1b" not in done.stdout
    assert json.loads((tmp_path / "o.json").read_text())["facts"]["charac\nter"] == table


@pytest.mark.parametrize("flag", ["--precision=INT8", "--shapes=x:1x300", "--check", "--inputs=x"])
def test_flags_about_a_conversion_are_refused(saved, flag):
    done = tftrt_inspect(saved(), flag)
    assert (
        done.returncode == errors.EXIT_USAGE
        and f"{flag.split('=')[0]} has no effect" in done.stderr
        and "leave it out" in done.stderr
    )


def shortened(path):
    path.write_bytes(path.read_bytes()[:-100])


WRONG = {
    "cut off": (shortened, "m.onnx is truncated or damaged", "export or copy the model again"),
    "empty": (lambda path: path.write_bytes(b""), "m.onnx is empty", "the exporter wrote"),
    "a pointer to it": (
        lambda path: path.write_text("version https://git-lfs.github.com/spec/v1\n"),
        "is no ONNX file",
        "the exporter wrote",
    ),
    "an archive": (lambda path: path.write_bytes(b"PK\x03\x04" + bytes(100)), "is no ONNX file", "the exporter wrote"),
    "no graph": (
        lambda path: path.write_bytes(onnx.ModelProto(ir_version=8).SerializeToString()),
        "it has no graph",
        "export",
    ),
    "not there": (lambda path: path.unlink(), "no such file", "check the path"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "holds no saved_model.pb", "saved_model.pb"),
    "without its weights": (
        lambda path: (path.parent / "w.bin").unlink(),
        "has weights in w.bin, which is not beside it",
        "copy w.bin",
    ),
    "weights cut off": (lambda path: shortened(path.parent / "w.bin"), "w.bin is truncated: it has", "copy it again"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_file_is_told_in_a_line_with_the_mend(saved, tmp_path, what):
    change, cause, mend = WRONG[what]
    weights = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0} if "weights" in what else {}
    saved(**weights)
    change(tmp_path / "m.onnx")
    done = tftrt_inspect(tmp_path / "m.onnx")
    first, second = done.stderr.splitlines()
    assert done.returncode in (errors.EXIT_FAILED, errors.EXIT_USAGE) and cause in first and mend in second


def test_weights_elsewhere_are_refused(saved):
    made = onnx.load(saved(save_as_external_data=True, location="w.bin", size_threshold=0), load_external_data=False)
    for entry in made.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = "../w.bin"
    path = saved(name="out.onnx")
    with open(path, "wb") as out:
        out.write(made.SerializeToString())
    with pytest.raises(errors.TftrtError, match="outside the model's folder"):
        file.overview(path)


def test_damaged_bytes_never_raise_anything_else(saved, tmp_path):
    whole = open(saved(), "rb").read()
    random, refused = np.random.default_rng(0), 0
    # Not in the middle, where the weights are.
    places = [*range(300), *range(len(whole) - 600, len(whole))]
    for _ in range(500):
        content = bytearray(whole)
        for place in random.choice(places, 3):
            content[place] = random.integers(256)
        path = tmp_path / "damaged.onnx"
        path.write_bytes(content)
        try:
            file.overview(str(path))
        except errors.TftrtError:
            refused += 1
    assert refused > 100
