"""`tftrt export --int8_as=PLAN`: INT8 only where TensorRT takes it of itself. The plan's layers are those of a real one: fer with the ranges of its calibration,
batch 1 and 32, TensorRT 8.5.3 on an H100; its file is beside them, with zeros for weights."""

import gzip
import json

import numpy as np
import onnx
import pytest
import tensorflow as tf

from tests import doubles, onnx_files, plan_jobs, plan_recordings
from tests.command_here import run_tftrt
from tests.command_line import assert_clear
from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tensorrt.exporting import as_plan
from tftrt_tools.tensorrt.exporting.as_plan import AsPlan, Seen
from tftrt_tools.tensorrt.exporting.job import placement
from tftrt_tools.tensorrt.plans import building, making


def recorded(name):
    return gzip.decompress((ROOT / f"tests/data/plans/fer_ranges.{name}.gz").read_bytes())


def directory(folder, layers, ranged=40):
    """A plan directory whose inspector told these layers."""
    plan_recordings.directory(folder)
    passport.write(folder, document.LAYER_INFORMATION, {"Layers": layers})
    passport.write(folder, passport.MANIFEST, {**passport.read(folder, passport.MANIFEST), "ranged": ranged})
    return folder


@pytest.fixture(scope="module")
def fer(tmp_path_factory):
    return directory(tmp_path_factory.mktemp("plans") / "fer", json.loads(recorded("layers.json"))["Layers"])


def layer(name, kind, profile=0, rows=8):
    """What the inspector says of a layer that reads one tensor. Args: kind: as "Format/Datatype" has it."""
    return {
        "Name": f"{name} [profile {profile}]" if profile else name,
        "LayerType": "CaskConvolution",
        "Inputs": [{"Name": "x", "Dimensions": [rows, 4], "Format/Datatype": f"Row major linear {kind} format"}],
        "Outputs": [],
    }


def test_the_nodes_are_those_that_the_plan_computes_in_int8(fer):
    model = onnx.ModelProto.FromString(recorded("onnx"))
    placed = placement.place(model, ())
    stay = as_plan.wider(as_plan.read(fer), [site.node for site in placed.sites])
    chosen = placement.place(model, (), stay)
    short = [site.node.removeprefix("StatefulPartitionedCall/model_1/") for site in chosen.sites]
    assert (len(placed.sites), len(stay), len(short)) == (27, 14, 13)
    # The second half of the network: few channels in the first, and much to read and to write.
    assert all(
        name.startswith(
            (
                "separable_conv2d_5",
                "separable_conv2d_6",
                "separable_conv2d_7",
                "separable_conv2d_8",
                "conv2d_5",
                "conv2d_6",
                "conv2d_7",
                "add_3",
                "add_4",
            )
        )
        for name in short
    )
    assert set(stay.values()) == {f"--int8_as={fer} has it in FP32, which was faster"}
    # An addition behind a convolution in FP32 has nothing to be rounded for.
    assert {one.name for one in chosen.left} == {one.name for one in placed.left} | {
        name for name in stay if not name.endswith("/add")
    }


def test_a_node_gets_it_if_half_of_its_layers_have_it():
    seen = AsPlan(
        plan="p",
        layers=tuple(
            Seen(*one)
            for one in [
                ("a + relu", "Int8"),
                ("a + relu", "Float"),
                ("b", "Half"),
                ("b", "Half"),
                ("b", "Int8"),
                ("PWN(c)", "Int8"),
                ("other", "Float"),
            ]
        ),
    )
    assert as_plan.wider(seen, ["a", "b", "c", "unnamed"]) == {"b": "--int8_as=p has it in FP16, which was faster"}


@pytest.mark.parametrize(("rows", "expected"), [((32, 1), ["a"]), ((1, 32), ["b"]), ((8, 8), ["a"])])
def test_the_profile_of_the_largest_shapes_decides(rows, expected):
    layers = [
        layer("a", "INT8", 0, rows[0]),
        layer("b", "FP16", 0, rows[0]),
        layer("a", "FP16", 1, rows[1]),
        layer("b", "INT8", 1, rows[1]),
        layer("Reformatting CopyNode", "INT8", 1, 1000) | {"LayerType": "Reformat"},
    ]
    seen = AsPlan(plan="p", layers=as_plan.seen({"Layers": layers}))
    assert [one for one in ("a", "b") if one not in as_plan.wider(seen, ["a", "b"])] == expected


def test_a_graph_that_is_taken_whole_does_not_tell():
    whole = Seen("{ForeignNode[a...c]}", "Int32")
    with pytest.raises(errors.UsageError, match="takes the model as one layer"):
        as_plan.wider(AsPlan(plan="p", layers=(whole,)), ["a", "b", "c"])
    assert as_plan.wider(
        AsPlan(plan="p", layers=(whole, Seen("d", "Int8"), Seen("e", "Half"))), ["a", "d", "e"]
    ).keys() == {"e"}


@pytest.mark.parametrize(
    ("nodes", "says", "mend"),
    [
        (["elsewhere"], "is a plan of another model", "in FP32"),
        (["b"], "computes no node of it in INT8", "--precision=FP16"),
    ],
)
def test_a_plan_that_tells_nothing_of_this_model_is_refused(nodes, says, mend):
    with pytest.raises(errors.UsageError, match=says) as raised:
        as_plan.wider(AsPlan(plan="p", layers=(Seen("b", "Half"),)), nodes)
    assert mend in raised.value.mend


def test_a_file_is_written_so(tmp_path):
    source = onnx_files.two_products(tmp_path / "m.onnx")
    plan = directory(
        tmp_path / "plan",
        [
            layer("Reformatting CopyNode for Input Tensor 0 to first", "INT8") | {"LayerType": "Reformat"},
            layer("first", "FP16"),
            layer("second + relu", "INT8"),
            layer("first", "INT8", 1, 1),
            layer("second + relu", "FP32", 1, 1),
        ],
    )
    asked = ["export", source, "--precision=INT8", "--calibrate_on_random_data", "--shapes=x:8x64", f"--int8_as={plan}"]
    done = run_tftrt(
        *asked,
        f"--output={tmp_path / 'int8.onnx'}",
        f"--json={tmp_path / 'e.json'}",
        "--thresholds=snr_db>=0,cosine>=0,top1>=0",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = json.loads((tmp_path / "e.json").read_text())["files"]
    assert {one["name"]: one["precision"] for one in made["precision"]["nodes"]} == {"first": "FP32", "second": "INT8"}
    assert f"--int8_as={plan} has it in FP16, which was faster" in done.stdout
    read = {
        name
        for node in onnx.load(tmp_path / "int8.onnx").graph.node
        if node.op_type == "QuantizeLinear"
        for name in node.input
    }
    assert "r" in read and "x" not in read


@pytest.mark.parametrize(
    ("words", "says", "mend"),
    [
        (["--precision=FP16", "--int8_as=PLAN"], "no effect with --precision=FP16", "choose INT8"),
        (["--precision=INT8", "--int8_as=m.onnx"], "is no plan directory", "--backend=tensorrt"),
        (["--precision=INT8", "--int8_as=FREE"], "it has no INT8", "--calibration_table"),
        (["--precision=INT8", "--int8_as=WRITTEN"], "its file has the INT8 written in", "from the FP32 file"),
        (["--precision=INT8", "--int8_as=OPEN"], "does not tell the types of its layers", "exact shapes"),
    ],
)
def test_what_does_not_tell_is_one_line(words, says, mend, tmp_path):
    onnx_files.two_products(tmp_path / "m.onnx")
    directory(tmp_path / "PLAN", [layer("first", "INT8")])
    directory(
        tmp_path / "OPEN",
        [layer("first", "INT8") | {"Inputs": [{"Name": "x", "Format/Datatype": "N/A due to dynamic shapes"}]}],
    )
    directory(tmp_path / "FREE", [layer("first", "FP16")], ranged=0)
    plan_recordings.directory(tmp_path / "WRITTEN", plan_recordings.FER)
    ranges = ["--calibrate_on_random_data"] if "--precision=INT8" in words else []
    done = run_tftrt("export", "m.onnx", "--output=o.onnx", *ranges, *words, cwd=tmp_path)
    assert_clear(done, 2, says)
    assert mend in done.stderr
    assert not (tmp_path / "o.onnx").exists()


@pytest.fixture
def without_a_gpu(monkeypatch):
    """Everything but TensorRT's own part."""

    def use(job):
        monkeypatch.setattr(bindings, "installed", lambda: True)
        doubles.job(monkeypatch, building.build, getattr(plan_jobs, job))
        monkeypatch.setattr(making, "_check_calls", lambda *arguments: None)
        doubles.job(monkeypatch, building.check, plan_jobs.checked)

    return use


def words(folder, *more):
    np.savez(folder / "rows.npz", x=np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32))
    source = onnx_files.two_products(folder / "m.onnx")
    return [
        "convert",
        "--backend=tensorrt",
        f"--model={source}",
        f"--output={folder / 'plan'}",
        "--precision=INT8",
        f"--calibration_data={folder / 'rows.npz'}",
        "--shapes=x:8x64",
        *more,
    ]


def test_auto_builds_the_plan_that_tells_and_then_the_one_that_was_asked_for(without_a_gpu, tftrt, tmp_path):
    without_a_gpu("choosing")
    done = tftrt(*words(tmp_path, "--int8_as=auto"))
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert (
        "INT8 was written into the ONNX file, in 1 of its nodes; TensorRT of itself takes a wider type in 1 others"
        in said
    )
    nodes = onnx.load(tmp_path / "plan/model.onnx").graph.node
    producers = {name: node for node in nodes for name in node.output}
    rounded = {
        node.name
        for node in nodes
        if node.op_type == "MatMul" and producers.get(node.input[0], node).op_type == "DequantizeLinear"
    }
    assert rounded == {"second"}
    manifest = passport.read(tmp_path / "plan", passport.MANIFEST)
    assert manifest["settings"]["calibration_table"] == "" and manifest["ranged"] == 0
    assert "--int8_as=auto" in (passport.folder(tmp_path / "plan") / passport.FLAGS).read_text()


def test_auto_takes_a_signature_by_name_and_a_file_whose_nodes_have_none(without_a_gpu, tftrt, tmp_path):
    """All is made from one export, so that the plan and the file have the same names."""
    without_a_gpu("choosing")
    source = words(tmp_path)[2].removeprefix("--model=")
    model = onnx.load(source)
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, source)
    saved, rng = tmp_path / "saved", np.random.default_rng(0)
    first, second = (tf.constant(rng.normal(size=(64, 64)), tf.float32) for _ in range(2))
    served = tf.function(
        lambda x: {"y": tf.nn.relu(x @ first) @ second}, input_signature=[tf.TensorSpec((None, 64), tf.float32, "x")]
    )
    tf.saved_model.save(tf.Module(), str(saved), signatures={"score": served})
    for path, shapes in ((source, "x:8x64"), (saved, "score/x:8x64")):
        done = tftrt(
            "convert",
            "--backend=tensorrt",
            f"--model={path}",
            f"--output={tmp_path / 'plan'}",
            "--overwrite",
            "--precision=INT8",
            f"--calibration_data={tmp_path / 'rows.npz'}",
            f"--shapes={shapes}",
            "--int8_as=auto",
        )
        assert (
            done.returncode == 0
            and "in 1 of its nodes; TensorRT of itself takes a wider type in 1 others" in " ".join(done.stdout.split())
        ), done.stderr
    assert passport.read(tmp_path / "plan", passport.MANIFEST)["settings"]["signature"] == "score"


@pytest.mark.parametrize(
    ("shapes", "says"),
    [("x:min=1x64,max=8x64", "--int8_as=auto: a plan for ranges of shapes does not tell"), ("x:8x65", "x:8x65")],
)
def test_auto_with_shapes_that_do_not_do_is_one_line(shapes, says, without_a_gpu, tftrt, tmp_path):
    without_a_gpu("choosing")
    assert_clear(tftrt(*words(tmp_path, "--int8_as=auto", f"--shapes={shapes}")), 2, says)


def test_auto_where_tensorrt_may_not_choose_is_one_line(without_a_gpu, tftrt, tmp_path):
    without_a_gpu("refusing")
    done = tftrt(*words(tmp_path, "--int8_as=auto"))
    assert_clear(
        done,
        1,
        "--int8_as=auto needs a plan whose INT8 TensorRT may choose, and there is none: TensorRT 11.4 takes no calibration table here",
    )
    assert not (tmp_path / "plan").exists()


def test_an_export_builds_nothing(tftrt, tmp_path):
    source = onnx_files.two_products(tmp_path / "m.onnx")
    done = tftrt(
        "export",
        source,
        f"--output={tmp_path / 'o.onnx'}",
        "--precision=INT8",
        "--calibrate_on_random_data",
        "--int8_as=auto",
    )
    assert_clear(done, 2, "--int8_as=auto builds a plan, and nothing is built here")


def test_it_is_for_plans_whose_int8_is_written_into_the_file(tmp_path):
    onnx_files.two_products(tmp_path / "m.onnx")
    words = ["convert", f"--model={tmp_path / 'm.onnx'}", f"--output={tmp_path / 'plan'}", "--int8_as=other"]
    assert_clear(run_tftrt(*words), 2, "--int8_as is for plans")
    assert_clear(run_tftrt(*words, "--backend=tensorrt", "--shapes=x:8x64"), 2, "--int8_as has no effect")
