"""`tftrt export` of ONNX files that somebody else made: opsets, names, metadata, frozen inputs, precisions, what is refused; and plans of
them with INT8 written in."""

import dataclasses
import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import onnx_files, stacks
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tests.gpu_commands import NO_GPU
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.models.execution import npz
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.kinds.onnx import file
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tensorrt.exporting import bisecting, onnx_bisect_job, precision, targets
from tftrt_tools.tensorrt.exporting.job import foreign, lowering, opsets
from tftrt_tools.tensorrt.plans import convert
from tftrt_tools.tensorrt.plans.settings import Settings

RNG = np.random.default_rng(3)


def exported(tftrt, folder, source, *flags, code=0):
    """(what was printed, the only file of --json) of an export to m.onnx."""
    done = tftrt("export", source, f"--output={folder / 'm.onnx'}", f"--json={folder / 'j.json'}", *flags)
    assert done.returncode == code, done.stdout + done.stderr
    (made,) = json.loads((folder / "j.json").read_text())["files"]
    return done.stdout, made


def answers(path, feed):
    return onnxruntime.InferenceSession(str(path)).run(None, feed)


# Opset, names, metadata --------------------------------------------------------------------------------------------------------------------


def test_a_newer_file_is_brought_down_and_keeps_its_ends_and_metadata(tftrt, tmp_path):
    source = onnx_files.foreign(tmp_path / "given.onnx")
    printed, made = exported(tftrt, tmp_path, source, "--shapes=x:2x4x3;z:8")
    assert (
        "note: the file has opset 18; onnx converted it to 16" in printed
        and "PASSED" in printed
        and "opset 16)" in printed
    )
    seen = file.overview(str(tmp_path / "m.onnx"))
    assert (
        seen.opsets == {"ai.onnx": 16}
        and made["opset"] == 16
        and made["verification"]["passed"]
        and not made["findings"]
    )
    (signature,) = seen.signatures.values()
    assert [one.name for one in signature.inputs] == ["z", "x"] and [one.shape for one in signature.inputs] == [
        (8,),
        (None, 4, None),
    ]
    # Equal names would say that the two sizes are equal.
    assert made["dimensions"] == {"x_0": ["x:0", "y:0"], "x_2": ["x:2"]}
    assert (
        seen.facts["license"] == "its own"
        and seen.facts["tftrt.tool"] != "older"
        and seen.facts["tftrt.source"] == "given.onnx"
    )
    assert seen.facts["tftrt.source_digest"] == files.digest(source) and seen.facts["tftrt.opset"] == "16"
    feed = {"x": RNG.normal(size=(2, 4, 3)).astype(np.float32), "z": RNG.normal(size=8).astype(np.float32)}
    np.testing.assert_allclose(answers(tmp_path / "m.onnx", feed)[0], answers(source, feed)[0], rtol=1e-5)
    assert tftrt("verify", source, tmp_path / "m.onnx", "--shapes=x:2x4x3;z:8").returncode == 0


@pytest.mark.parametrize(
    ("own", "flags", "becomes"),
    [(12, (), 16), (20, ("--target=10",), 20), (13, ("--target=10",), 18), (17, ("--opset=15",), 15)],
)
def test_the_opset_is_one_that_the_target_reads(own, flags, becomes, tftrt, tmp_path):
    source = onnx_files.product(tmp_path / "given.onnx", opset=own)
    printed, made = exported(tftrt, tmp_path, source, *flags)
    assert file.overview(str(tmp_path / "m.onnx")).opsets == {"ai.onnx": becomes} and made["opset"] == becomes
    assert (f"the file has opset {own}; onnx converted it to {becomes}" in printed) == (own != becomes)


def test_ops_that_the_opset_has_not_are_written_out(tftrt, tmp_path):
    constants = {"s": np.linspace(1, 2, 4, dtype=np.float32), "b": np.linspace(-1, 1, 4, dtype=np.float32)}
    nodes = [
        helper.make_node("Gelu", ["x"], ["a"], name="gelu"),
        helper.make_node("Mish", ["a"], ["c"]),
        helper.make_node("GroupNormalization", ["c", "s", "b"], ["d"], num_groups=2),
        helper.make_node("Gelu", ["d"], ["y"], approximate="tanh"),
    ]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("b", 4, 6))),
        onnx_files.values(("y", "float32", ("b", 4, 6))),
        constants,
        opset=21,
    )
    printed, made = exported(tftrt, tmp_path, source)
    seen = file.overview(str(tmp_path / "m.onnx"))
    assert (
        "note: 2 Gelu written with other ops: opset 16 has none" in printed
        and seen.opsets == {"ai.onnx": 16}
        and not made["findings"]
    )
    assert not {"Gelu", "Mish", "GroupNormalization", "CastLike"} & set(seen.ops) and made["verification"]["passed"]


@pytest.mark.parametrize(("size", "parts"), [(7, 2), (8, 3), (6, 3)])
def test_parts_of_other_sizes_keep_them_in_an_older_opset(size, parts, tmp_path):
    nodes = [helper.make_node("Split", ["x"], [f"y{one}" for one in range(parts)], axis=-1, num_outputs=parts)]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("b", size))),
        [helper.make_tensor_value_info(f"y{one}", TensorProto.FLOAT, None) for one in range(parts)],
        opset=18,
    )
    made, _ = lowering.lowered(onnx.shape_inference.infer_shapes(onnx.load(source)), 16, "opset 18")
    onnx.checker.check_model(made, full_check=True)
    feed = {"x": RNG.random((2, size), np.float32)}
    for one, other in zip(
        answers(source, feed), onnxruntime.InferenceSession(made.SerializeToString()).run(None, feed), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_an_opset_whose_axes_the_parser_does_not_read_is_refused_with_the_mend(tftrt, tmp_path):
    nodes = [helper.make_node("ReduceMean", ["x", "axes"], ["y"], name="mean")]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("b", 4))),
        onnx_files.values(("y", "float32", ("b", 1))),
        {"axes": np.array([-1])},
        opset=18,
    )
    printed, _ = exported(tftrt, tmp_path, source, "--opset=18", code=3)
    assert (
        "refused: ReduceMean: the parser does not read axes that are an input, and would reduce over all (mean)"
        in printed
    )
    assert (
        "leave --opset out" in printed and "leave that part out" not in printed and not (tmp_path / "m.onnx").exists()
    )
    _, made = exported(tftrt, tmp_path, source)
    assert made["opset"] == 16 and not made["findings"]


def test_an_op_that_cannot_be_said_in_the_opset_is_named(tftrt, tmp_path):
    nodes = [helper.make_node("BitwiseNot", ["x"], ["y"], name="bits")]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "int32", ("b", 4))),
        onnx_files.values(("y", "int32", ("b", 4))),
        opset=18,
    )
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert_clear(done, 1, "from opset 18 to 16: No Previous Version of BitwiseNot exists")
    assert not (tmp_path / "m.onnx").exists()


def test_ops_that_did_not_change_for_the_node_pass_the_converter():
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                helper.make_node("Resize", ["x", "", "s"], ["a"], name="resize", antialias=0, mode="nearest"),
                helper.make_node("Resize", ["a", "", "s"], ["y"], name="smooth", antialias=1, mode="linear"),
            ],
            "g",
            onnx_files.values(("x", "float32", (1, 1, 4, 4))),
            onnx_files.values(("y", "float32", (1, 1, 4, 4))),
            [numpy_helper.from_array(np.ones(4, np.float32), "s")],
        ),
        opset_imports=[helper.make_opsetid("", 18)],
        producer_name="them",
    )
    with pytest.raises(errors.TftrtError, match="cannot convert it from opset 18 to 16"):
        lowering.lowered(model, 16, "")
    del model.graph.node[1]
    model.graph.node[0].output[0] = "y"
    made, _ = lowering.lowered(model, 16, "")
    onnx.checker.check_model(made, full_check=True)
    assert opsets.of(made) == 16 and made.producer_name == "them" and [one.domain for one in made.opset_import] == [""]
    assert made.graph.node[0].name == "resize" and {one.name for one in made.graph.node[0].attribute} == {"mode"}


def test_ops_of_onnx_runtime_are_carried_into_another_opset(tftrt, tmp_path):
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("QuickGelu", ["a"], ["y"], domain="com.microsoft"),
    ]
    source = onnx_files.write(
        tmp_path / "given.onnx", nodes, *(onnx_files.values((name, "float32", ("b", 4))) for name in "xy")
    )
    model = onnx.load(source)
    model.opset_import.add(domain="com.microsoft", version=1)
    onnx.save(model, source)
    exported(tftrt, tmp_path, source, "--target=onnxruntime")
    assert file.overview(str(tmp_path / "m.onnx")).opsets == {"ai.onnx": 18, "com.microsoft": 1}


@pytest.mark.parametrize("of_nodes", ["", "ai.onnx"])
def test_the_long_name_of_onnxs_own_domain_means_the_same(of_nodes, tftrt, tmp_path):
    source = onnx_files.product(tmp_path / "given.onnx")
    model = onnx.load(source)
    model.opset_import[0].domain, model.graph.node[0].domain = "ai.onnx", of_nodes
    onnx.save(model, source)
    _, made = exported(tftrt, tmp_path, source)
    assert made["verification"]["passed"] and [one.domain for one in onnx.load(tmp_path / "m.onnx").opset_import] == [
        ""
    ]


def test_constants_that_are_numbers_or_lists_are_known(tftrt, tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Constant", [], ["most"], value_ints=[3]),
        helper.make_node("Constant", [], ["least"], value_floats=[1e-7]),
        helper.make_node("Pow", ["x", "two"], ["s"]),
        helper.make_node("TopK", ["s", "most"], ["t", "places"]),
        helper.make_node("Add", ["t", "least"], ["a"], name="bound"),
        helper.make_node("Reciprocal", ["a"], ["r"]),
        helper.make_node("Relu", ["r"], ["y"], name="relu"),
        helper.make_node("Relu", ["x"], ["z"], name="other"),
    ]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("b", 8))),
        onnx_files.values(("y", "float32", ("b", 3)), ("z", "float32", ("b", 8))),
    )
    _, made = exported(tftrt, tmp_path, source, "--precision=FP16", "--rewrite=none")
    reasons = {one["name"]: one["reason"] for one in made["precision"]["nodes"]}
    assert reasons["bound"].startswith("its constant least holds nothing above 1e-07") and not reasons["other"]


def test_a_number_beyond_int32_is_found_wherever_it_stands(tftrt, tmp_path):
    nodes = [
        helper.make_node("Constant", [], ["more"], value_int=2**40),
        helper.make_node("Add", ["x", "more"], ["y"], name="sum"),
    ]
    ends = (onnx_files.values((name, "int64", ("b", 4))) for name in "xy")
    source = onnx_files.write(tmp_path / "given.onnx", nodes, *ends)
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--rewrite=none")
    assert done.returncode == 3 and "the constant 1099511627776 does not fit into INT32" in done.stdout


def test_constants_that_are_inputs_functions_and_stale_shapes_are_mended(tmp_path):
    own = helper.make_function(
        "own", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 16)]
    )
    graph = helper.make_graph(
        [helper.make_node("twice", ["w"], ["v"], domain="own"), helper.make_node("Add", ["x", "v"], ["y"])],
        "g",
        onnx_files.values(("x", "float32", (-1, 4)), ("w", "float32", (4,))),
        onnx_files.values(("y", "float32", (-1, 4))),
        [numpy_helper.from_array(np.ones(4, np.float32), "w")],
    )
    model = helper.make_model(
        graph, functions=[own], opset_imports=[helper.make_opsetid("", 16), helper.make_opsetid("own", 1)]
    )
    onnx.save(model, tmp_path / "given.onnx")
    made, _, notes = foreign.read(str(tmp_path / "given.onnx"))
    assert len(notes) == 1 and "replace: w " in notes[0]
    assert (
        [one.name for one in made.graph.input] == ["x"]
        and not made.functions
        and [one.op_type for one in made.graph.node] == ["Add", "Add"]
    )
    assert made.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "x_0"


@pytest.mark.parametrize("opset", [8, 9, 13, 16])
def test_files_of_ir_version_3_whose_constants_have_to_be_inputs(tftrt, tmp_path, opset):
    model = onnx.load(onnx_files.product(tmp_path / "given.onnx", opset=opset))
    model.ir_version = 3
    model.graph.input.extend(onnx_files.values(("w", "float32", (4, 3))))
    onnx.save(model, tmp_path / "given.onnx")
    said, _ = exported(tftrt, tmp_path, tmp_path / "given.onnx")
    made = onnx.load(tmp_path / "m.onnx")
    assert [one.name for one in made.graph.input] == ["x"] and made.ir_version >= 4
    assert "constants now" not in said


def test_an_input_that_callers_may_replace_is_a_constant_and_said(tftrt, tmp_path):
    """TensorRT takes its value from the file, too."""
    model = onnx.load(onnx_files.product(tmp_path / "given.onnx"))
    model.ir_version = 8
    model.graph.input.extend(onnx_files.values(("w", "float32", (4, 3))))
    onnx.save(model, tmp_path / "given.onnx")
    said, _ = exported(tftrt, tmp_path, tmp_path / "given.onnx")
    assert "constants now, which callers of the source may replace: w (inputs with a value in the file)" in re.sub(
        r"\s+", " ", said
    )
    assert [one.name for one in onnx.load(tmp_path / "m.onnx").graph.input] == ["x"]


def test_names_of_open_dimensions_stay_also_where_nothing_follows_from_the_inputs(tftrt, tmp_path):
    nodes = [
        helper.make_node("NonZero", ["x"], ["y"]),
        helper.make_node("Relu", ["x"], ["z"]),
        helper.make_node("NonZero", ["z"], ["v"]),
    ]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("N", 4))),
        onnx_files.values(
            ("y", "int64", (2, "K")), ("z", "float32", ("N", 4)), ("x", "float32", ("N", 4)), ("v", "int64", (2, "?"))
        ),
    )
    _, made = exported(tftrt, tmp_path, source)
    assert made["dimensions"] == {"N": ["x:0", "z:0", "x:0"], "K": ["y:1"], "v_1": ["v:1"]}


@pytest.mark.parametrize(("outputs", "says"), [((), "has no output"), (("y", "y"), "has the output 'y' twice")])
def test_outputs_that_cannot_be_told_apart_or_are_missing_are_told(tftrt, tmp_path, outputs, says):
    model = onnx.load(onnx_files.product(tmp_path / "given.onnx"))
    kept = model.graph.output[0]
    del model.graph.output[:]
    model.graph.output.extend([kept] * len(outputs))
    onnx.save(model, tmp_path / "given.onnx")
    assert_clear(tftrt("export", tmp_path / "given.onnx", f"--output={tmp_path / 'm.onnx'}"), 1, says)


def test_what_stays_in_fp32_inside_a_branch_is_named(tftrt, tmp_path):
    source = onnx_files.decided(tmp_path / "given.onnx")
    done = tftrt(
        "export",
        source,
        f"--output={tmp_path / 'm.onnx'}",
        "--precision=INT8",
        "--calibrate_on_random_data",
        "--ranges=sr:16000:16001",
    )
    assert_clear(done, 1, "it is inside a loop or a branch")


# Inputs and outputs ------------------------------------------------------------------------------------------------------------------------


def test_a_frozen_input_takes_the_branch_that_it_decides_against_away(tftrt, tmp_path):
    source = onnx_files.decided(tmp_path / "given.onnx")
    printed, made = exported(tftrt, tmp_path, source, "--freeze=sr:16000")
    assert "note: input sr is 16000 for good (--freeze)" in printed and made["verification"]["passed"]
    seen = file.overview(str(tmp_path / "m.onnx"))
    assert set(seen.ops) == {"MatMul"} and seen.weights == {"float32": 12} and seen.facts["tftrt.freeze"] == "sr:16000"
    feed = {"x": RNG.normal(size=(2, 4)).astype(np.float32), "sr": np.array(16000)}
    np.testing.assert_array_equal(answers(tmp_path / "m.onnx", feed)[0], answers(source, feed)[0])
    assert tftrt("verify", source, tmp_path / "m.onnx").returncode == 0
    # Without the flag both branches stay.
    exported(tftrt, tmp_path, source, "--ranges=sr:16000:16001")
    assert file.overview(str(tmp_path / "m.onnx")).ops["If"] == 1


@pytest.fixture
def squeezed(tmp_path):
    """A file with a conditional on a size, as PyTorch writes squeeze(1)."""
    axis = helper.make_node("Constant", [], ["inner"], value=numpy_helper.from_array(np.array([1])))
    branches = {
        f"{name}_branch": helper.make_graph(
            [*before, helper.make_node(op, ["x", *(one.output[0] for one in before)], [name], name=name)],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)],
        )
        for name, op, before in (("then", "Squeeze", [axis]), ("else", "Identity", []))
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "axis"], ["size"]),
        helper.make_node("Equal", ["size", "axis"], ["one"]),
        helper.make_node("If", ["one"], ["r"], name="squeeze", **branches),
        helper.make_node("ReduceSum", ["r"], ["y"], keepdims=0),
    ]
    return onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("rows", "size", 3))),
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        {"axis": np.array([1])},
        opset=16,
    )


def test_a_conditional_on_a_size_whose_branches_have_other_ranks_is_doubtful(squeezed, tftrt, tmp_path):
    printed, made = exported(tftrt, tmp_path, squeezed, "--shapes=x:4x2x3")
    (finding,) = made["findings"]
    assert (
        finding["node"] == "squeeze"
        and not finding["certain"]
        and "doubtful: If: its branches give tensors of different ranks" in printed
    )


def test_sizes_that_are_fixed_decide_conditionals(squeezed, tftrt, tmp_path):
    printed, made = exported(tftrt, tmp_path, squeezed, "--shapes=x:4x1x3", "--fix_shapes")
    assert "note: the sizes of x are those of --shapes for good (--fix_shapes)" in printed and not made["findings"]
    seen = file.overview(str(tmp_path / "m.onnx"))
    assert not {"If", "Shape", "Gather"} & seen.ops.keys() and seen.signatures["serving_default"].inputs[0].shape == (
        4,
        1,
        3,
    )
    assert tftrt("verify", squeezed, tmp_path / "m.onnx", "--shapes=x:4x1x3").returncode == 0


@pytest.mark.parametrize(
    ("flags", "says"), [([], "has unknown dimensions"), (["--shapes=x:4x1x3,4x2x3"], "--shapes has 2 of them")]
)
def test_sizes_to_fix_have_to_be_told(squeezed, flags, says, tftrt, tmp_path):
    assert_clear(tftrt("export", squeezed, f"--output={tmp_path / 'm.onnx'}", "--fix_shapes", *flags), 2, says)


def test_sizes_of_other_models_are_not_fixed(zoo_model, tftrt, tmp_path):
    assert_clear(
        tftrt(
            "export",
            zoo_model("digits_cnn"),
            f"--output={tmp_path / 'm.onnx'}",
            "--fix_shapes",
            "--shapes=image:1x8x8x1",
        ),
        2,
        "is no ONNX file",
    )


def test_outputs_are_cut_and_weights_go_beside(tftrt, tmp_path):
    constants = {name: RNG.normal(size=(64, 64)).astype(np.float32) for name in ("v", "w")}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"], name="first"),
        helper.make_node("MatMul", ["x", "w"], ["b"], name="second"),
    ]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("rows", 64))),
        onnx_files.values(("a", "float32", ("rows", 64)), ("b", "float32", ("rows", 64))),
        constants,
        outside=True,
    )
    exported(tftrt, tmp_path, source, "--outputs=b", "--external_data")
    seen = file.overview(str(tmp_path / "m.onnx"))
    assert (
        seen.ops == {"MatMul": 1}
        and seen.weights == {"float32": 64 * 64}
        and [one.name for one in seen.files] == ["m.onnx", "m.onnx.data"]
    )
    assert seen.facts["tftrt.outputs"] == "b" and tftrt("verify", source, tmp_path / "m.onnx").returncode == 0


# Precision ---------------------------------------------------------------------------------------------------------------------------------


def test_int8_is_written_into_nodes_that_would_have_one_name(tftrt, tmp_path):
    constants = {name: RNG.normal(size=(8, 8)).astype(np.float32) for name in ("u", "v", "w", "last")}
    nodes = [
        helper.make_node("MatMul", ["x", "u"], ["a"], name="b"),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "v"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]),
        helper.make_node("MatMul", ["c", "last"], ["y"]),
    ]
    source = onnx_files.write(
        tmp_path / "given.onnx",
        nodes,
        onnx_files.values(("x", "float32", ("rows", 8))),
        onnx_files.values(("y", "float32", ("rows", 8))),
        constants,
    )
    np.savez(tmp_path / "rows.npz", x=RNG.normal(size=(96, 8)).astype(np.float32))
    data = (f"--calibration_data={tmp_path / 'rows.npz'}", f"--data={tmp_path / 'rows.npz'}")
    printed, made = exported(
        tftrt, tmp_path, source, "--precision=INT8", *data, "--fp32_nodes=y", "--thresholds=snr_db>=5;cosine>=0.5"
    )
    assert "against the model" in printed and {
        one["name"] for one in made["precision"]["nodes"] if one["precision"] == "INT8"
    } >= {"b", "b/2"}
    assert (
        file.overview(str(tmp_path / "m.onnx")).ops["QuantizeLinear"] >= 4
        and made["precision"]["verification"]["passed"]
    )
    # Where the bounds are missed, the next step names the nodes.
    done = tftrt(
        "export", source, f"--output={tmp_path / 'n.onnx'}", "--precision=INT8", *data, "--thresholds=snr_db>=55"
    )
    assert done.returncode == 3 and not (tmp_path / "n.onnx").exists()
    line = next(line for line in done.stdout.splitlines() if line.startswith("next: "))
    assert (
        line.startswith(f"next: tftrt sensitivity {source} --precision=INT8 --data=") and "--calibration_data=" in line
    )
    # What has a precision inside is asked for none more.
    for again in ("INT8", "FP16"):
        done = tftrt(
            "export",
            tmp_path / "m.onnx",
            f"--output={tmp_path / 'n.onnx'}",
            f"--precision={again}",
            *(data[:1] if again == "INT8" else ()),
        )
        assert_clear(done, 2, "m.onnx has a precision written in already: node")
    assert tftrt("export", tmp_path / "m.onnx", f"--output={tmp_path / 'n.onnx'}", "--target=10").returncode == 0
    assert file.overview(str(tmp_path / "n.onnx")).ops["QuantizeLinear"] >= 4


def test_fp16_and_what_has_it_already(tftrt, tmp_path):
    source = onnx_files.product(tmp_path / "given.onnx")
    _, made = exported(tftrt, tmp_path, source, "--precision=FP16")
    assert made["precision"]["verification"]["passed"] and file.overview(str(tmp_path / "m.onnx")).weights == {
        "float16": 12
    }
    (tmp_path / "m.onnx").rename(tmp_path / "half.onnx")
    done = tftrt("export", tmp_path / "half.onnx", f"--output={tmp_path / 'm.onnx'}", "--precision=FP16")
    assert_clear(done, 2, "half.onnx has a precision written in already: ")
    np.savez(tmp_path / "x.npz", x=np.ones((8, 4), np.float32))
    assert_clear(
        tftrt("sensitivity", tmp_path / "half.onnx", f"--data={tmp_path / 'x.npz'}"), 2, "half.onnx has a precision"
    )


@pytest.mark.parametrize(
    "words",
    [
        ("export", "MODEL", "--output=m.onnx", "--precision=FP16", "--data=DATA"),
        (
            "export",
            "MODEL",
            "--output=m.onnx",
            "--precision=INT8",
            "--calibration_data=DATA",
            "--thresholds=snr_db>=5;cosine>=0.5",
        ),
        ("sensitivity", "MODEL", "--data=DATA"),
        ("sensitivity", "MODEL", "--data=DATA", "--precision=FP16"),
    ],
)
def test_precisions_need_no_tensorflow(tmp_path, words):
    np.savez(tmp_path / "data.npz", x=RNG.normal(size=(64, 64)).astype(np.float32))
    known = {"MODEL": onnx_files.two_products(tmp_path / "given.onnx"), "DATA": str(tmp_path / "data.npz")}
    words = [re.sub("MODEL|DATA", lambda found: known[found[0]], word) for word in words]
    hidden = os.pathsep.join([str(ROOT / "tests/without_tensorflow"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tftrt_tools", *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": hidden},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda model: model.graph.node.append(helper.make_node("QLinearAdd", ["y"], ["z"], name="q")),
            "node q is a QLinearAdd",
        ),
        (
            lambda model: model.graph.node.append(
                helper.make_node("Cast", ["y"], ["z"], name="c", to=TensorProto.BFLOAT16)
            ),
            "node c gives BF16",
        ),
        (
            lambda model: model.graph.initializer.append(numpy_helper.from_array(np.ones(1, np.float16), "h")),
            "constant h is FP16",
        ),
    ],
)
def test_a_precision_inside_is_found(make, says, tmp_path):
    model = onnx.load(onnx_files.product(tmp_path / "given.onnx"))
    foreign.check_unwritten(model, "given.onnx", "")
    make(model)
    with pytest.raises(errors.UsageError, match=says):
        foreign.check_unwritten(model, "given.onnx", "")


# What is refused ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--signature_keys=a",), "--signature_keys has no effect"),
        (("--inputs=x",), "--inputs has no effect"),
        (("--custom_objects=a:b",), "--custom_objects has no effect"),
        (("--output=given.onnx",), "--output=given.onnx would write over given.onnx"),
        (("--outputs=gone",), "--outputs: no output 'gone'"),
        (("--freeze=x:1",), "input 'x' is float32[?,4]"),
        (("--opset=12", "--precision=FP16"), "--opset=12 has no nodes for"),
    ],
)
def test_flags_that_mean_nothing_for_an_onnx_file_are_told_in_a_line(flags, says, tftrt, tmp_path):
    source = onnx_files.product(tmp_path / "given.onnx")
    before = open(source, "rb").read()
    done = tftrt(
        "export",
        "given.onnx",
        *(flags if flags[0].startswith("--output=") else ("--output=m.onnx", *flags)),
        cwd=tmp_path,
    )
    assert_clear(done, 2, says)
    assert [path.name for path in tmp_path.iterdir()] == ["given.onnx"] and open(source, "rb").read() == before


def test_the_first_tensor_that_departs_is_found_in_the_source_itself(tmp_path):
    source = onnx_files.product(tmp_path / "given.onnx")
    model = onnx.load(source)
    model.graph.node.append(helper.make_node("Relu", ["y"], ["z"], name="relu"))
    model.graph.output[0].name = "z"
    onnx.save(model, source)
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones((4, 3), np.float32), "w"))
    onnx.save(model, tmp_path / "other.onnx")
    npz.save(str(tmp_path / "in.npz"), {"x": RNG.normal(size=(2, 4)).astype(np.float32)})
    request = bisecting.Request(onnx=str(tmp_path / "other.onnx"), source=source, inputs=str(tmp_path / "in.npz"))
    found = onnx_bisect_job.job(request)
    assert found.tensor == "y" and found.source_op == "MatMul" and found.node == "MatMul product" and found.snr_db < 60
    assert onnx_bisect_job.job(dataclasses.replace(request, onnx=source)) is None


# Plans -------------------------------------------------------------------------------------------------------------------------------------


def test_a_plan_takes_the_file_as_it_is_or_with_int8_from_data(tmp_path, monkeypatch):
    source, stage = onnx_files.foreign(tmp_path / "given.onnx"), tmp_path / "stage"
    stage.mkdir()
    settings = Settings(precision_mode="INT8", shapes="x:2x4x3;z:8")
    assert convert.place_onnx(Source(path=source), stage, settings) == ("", ())
    assert (stage / "model.onnx").read_bytes() == open(source, "rb").read()
    np.savez(
        tmp_path / "rows.npz",
        x=RNG.normal(size=(32, 4, 3)).astype(np.float32),
        z=np.tile(np.arange(8, dtype=np.float32), (32, 1)),
    )
    source = onnx_files.product(tmp_path / "other.onnx", opset=17)
    np.savez(tmp_path / "rows.npz", x=RNG.normal(size=(32, 4)).astype(np.float32))
    asked = precision.Asked(precision="INT8", data=DataOptions(source=str(tmp_path / "rows.npz")), method="max")
    name, notes = convert.place_onnx(
        Source(path=source), stage, Settings(precision_mode="INT8", shapes="x:2x4"), None, asked
    )
    assert name == "" and notes == (
        "the file has opset 17; onnx converted it to 16",
        "INT8 was written into the ONNX file, in 1 of its nodes; some may be "
        "faster in a wider type: --int8_as=auto builds twice and leaves them out",
    )
    monkeypatch.setattr(targets, "here", lambda: "10")
    stage = tmp_path / "later"
    stage.mkdir()
    _, notes = convert.place_onnx(
        Source(path=source), stage, Settings(precision_mode="INT8", shapes="x:2x4"), None, asked
    )
    assert "INT8 was written into the ONNX file, in 1 of its nodes" in notes
    assert file.overview(str(stage / "model.onnx")).ops["QuantizeLinear"] == 2


def test_calibration_flags_of_a_plan_count_with_data(tftrt, tmp_path):
    source = onnx_files.product(tmp_path / "given.onnx")
    np.savez(tmp_path / "rows.npz", x=RNG.normal(size=(32, 4)).astype(np.float32))
    told = ["convert", "--backend=tensorrt", f"--model={source}", f"--output={tmp_path / 'plan'}", "--shapes=x:2x4"]
    data = f"--calibration_data={tmp_path / 'rows.npz'}"
    for flags, says in (
        ([data], "--calibration_data has no effect with --precision=FP32"),
        (
            ["--precision=INT8", "--calibration_method=max"],
            "--calibration_method has no effect with --backend=tensorrt where nothing",
        ),
        (["--precision=INT8", data, "--calibrator=tensorrt"], "--calibrator has no effect with --backend=tensorrt"),
        (["--outputs=y"], "--outputs has no effect"),
    ):
        assert_clear(tftrt(*told, *flags, env=NO_GPU), 2, says)
    for flags in (["--precision=INT8", data, "--calibration_method=max"], ["--freeze=x:1"]):
        assert_clear(tftrt(*told, *flags, env=NO_GPU), 1, stacks.NO_PLAN)
    assert not (tmp_path / "plan").exists()


def test_a_plan_of_a_file_with_a_frozen_input_gets_the_export(tmp_path):
    source, stage = onnx_files.decided(tmp_path / "m.onnx"), tmp_path / "stage"
    stage.mkdir()
    convert.place_onnx(Source(path=source), stage, Settings(shapes="x:2x4", freeze="sr:16000"))
    found = file.overview(str(stage / "model.onnx"))
    assert found.facts["tftrt.freeze"] == "sr:16000" and "If" not in found.ops


def test_the_flags_of_an_int8_plan_can_be_given_again(tmp_path):
    flags = tmp_path / "convert.flags"
    flags.write_text("--backend=tensorrt\n--precision=INT8\n")
    argv = [f"--flagfile={flags}"]
    assert convert_command.older_flags(argv) == argv
    for name in ("precision", "precision_mode"):
        flags.write_text(f"--{name}=INT8\n")
        assert convert_command.older_flags(argv) == ["--calibration_method=entropy", *argv]
