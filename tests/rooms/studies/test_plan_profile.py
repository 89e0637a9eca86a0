"""The profile of a plan as far as it goes without a GPU: layers that an inspector told on an H100, the sizes of an ONNX file, traces of calls,
the document, tables, pages and the command."""

import dataclasses
import gzip
import json
import math
import statistics
import threading
import time

import numpy as np
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("tensorrt")
from tests import onnx_files, plan_recordings  # noqa: E402
from tests.command_line import assert_clear  # noqa: E402
from tests.engine_recordings import RESNET as TF_TRT_RESNET  # noqa: E402
from tests.engine_recordings import profiles as tf_trt_profiles  # noqa: E402
from tests.engine_recordings import recording as tf_trt_recording  # noqa: E402
from tests.gpu_commands import NO_GPU  # noqa: E402
from tests.plan_recordings import FER, INPUTS, RESNET  # noqa: E402
from tftrt_tools.base import errors  # noqa: E402
from tftrt_tools.command_line.report import profile as page  # noqa: E402
from tftrt_tools.models.kinds.plan import document, layer_information  # noqa: E402
from tftrt_tools.models.savedmodel import passport  # noqa: E402
from tftrt_tools.studies.profiling import (  # noqa: E402
    apart,
    chrome,
    comparison,
    engine_rows,
    engines,
    engines_compare,
    layer_tracks,
    layers,
    measure,
    onnx_names,
    plan,
    recording,
    rows,
    stored,
    traces,
)
from tftrt_tools.studies.profiling.job import host, plan_calls, plan_job, plan_onnx, plan_trace  # noqa: E402
from tftrt_tools.studies.profiling.profile import Profile  # noqa: E402

BLOCK = "StatefulPartitionedCall/resnet50/conv2_block1_"

# What the inspector tells -----------------------------------------------------------------------------------------------------------------


def test_what_the_inspector_tells_of_each_layer():
    every = layer_information.rows(plan_recordings.layers(RESNET))
    assert [sum(row.profile == number for row in every) for number in range(3)] == [62, 61, 62]
    assert not any(
        "[profile" in text
        for row in every
        for text in (row.name, *(tensor.name for tensor in (*row.inputs, *row.outputs)))
    )
    first = plan_recordings.rows(RESNET)[f"{BLOCK}1_conv/Conv2D + {BLOCK}1_relu/Relu"]
    assert (first.kind, first.tactic) == ("CaskConvolution", "0x4a81ea1e51436a30")
    assert [(tensor.type, tensor.sizes, tensor.packed) for tensor in first.inputs] == [("Half", (1, 64, 56, 56), 8)]


@pytest.mark.parametrize(
    ("form", "kind", "packed"),
    [
        ("Row major linear FP32", "Float", 1),
        ("Row major linear FP16 format", "Half", 1),
        ("Channel major FP32 format", "Float", 1),
        ("Channel major FP16 format where channel % 8 == 0", "Half", 8),
        ("Four wide channel vectorized row major Int8 format", "Int8", 4),
        ("Thirty-two wide channel vectorized row major Int8 format", "Int8", 32),
        ("Row major linear BOOL", "Bool", 1),
        ("a new form", "a new form", 1),
        ("N/A due to dynamic shapes", "", 1),
    ],
)
def test_forms_of_tensors(form, kind, packed):
    (row,) = layer_information.rows(
        {
            "Layers": [
                {
                    "Name": "a",
                    "LayerType": "X",
                    "Inputs": [{"Name": "t", "Dimensions": [1, 2], "Format/Datatype": form}],
                }
            ]
        }
    )
    assert (row.inputs[0].type, row.inputs[0].packed) == (kind, packed) and row.tactic == "0x0000000000000000"


def test_a_document_that_tells_names_alone_tells_no_layers():
    assert (
        layer_information.rows({"Layers": ["a", "b"]})
        == layer_information.rows({"text": "…"})
        == layer_information.rows(None)
        == ()
    )


# The ONNX file ----------------------------------------------------------------------------------------------------------------------------


def test_sizes_and_operations_of_a_call():
    one, many = plan_recordings.graph(RESNET), plan_recordings.graph(RESNET, 32)
    assert not [node.name for node in many.nodes if node.flops is None] and many.flops == 32 * one.flops
    # The engine of TF-TRT for the same model does the same work.
    assert one.flops == next(
        graph.flops for graph in tf_trt_recording(TF_TRT_RESNET).graphs if graph.nodes[0].outputs[0].shape[0] == 1
    )
    first = many.by_name["StatefulPartitionedCall/resnet50/conv1_conv/Conv2D"]
    assert first.flops == 2 * 7 * 7 * 3 * 32 * 64 * 112 * 112 and first.outputs[0].shape == (32, 64, 112, 112)
    order = list(many.by_name)
    assert all(order.index(source) < order.index(node.name) for node in many.nodes for source in node.inputs)
    assert {many.nodes[0].op, many.nodes[-1].op} == {"_Arg", "_Retval"} and sum(
        node.op == "Const" for node in many.nodes
    ) > 100


def graph_of(nodes, inputs, constants=None, **shapes):
    outputs = [helper.make_tensor_value_info(nodes[-1].output[0], 1, None)]
    held = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    model = helper.make_model(
        helper.make_graph(nodes, "test", onnx_files.values(*inputs), outputs, held),
        opset_imports=[helper.make_opsetid("", 13)],
    )
    return plan_onnx.of(model, shapes)


@pytest.mark.parametrize(
    ("node", "second", "flops"),
    [
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1), (4, 5), 2 * 6 * 5 * 4),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), (6, 5), 2 * 4 * 5 * 6),
        (helper.make_node("Einsum", ["x", "w"], ["y"], equation="ij,kj->ik"), (5, 6), 2 * 4 * 5 * 6),
        (helper.make_node("Einsum", ["x", "w"], ["y"], equation="...j,kj->...k"), (5, 6), None),
        (helper.make_node("Add", ["x", "w"], ["y"]), (6,), 0),
    ],
)
def test_operations(node, second, flops):
    found = graph_of([node], [("x", "float32", ("rows", 6))], {"w": np.zeros(second, np.float32)}, x=(4, 6))
    assert found.by_name["y"].flops == flops and found.tensors == {"x": "x", "w": "w", "y": "y"}


def test_a_transposed_convolution_multiplies_for_each_of_its_inputs():
    found = graph_of(
        [helper.make_node("ConvTranspose", ["x", "w"], ["y"], name="up", strides=[2, 2])],
        [("x", "float32", ("rows", 3, 4, 4))],
        {"w": np.zeros((3, 8, 2, 2), np.float32)},
        x=(2, 3, 4, 4),
    )
    assert found.by_name["up"].flops == 2 * (2 * 3 * 4 * 4) * 8 * 2 * 2 and found.by_name["up"].outputs[0].shape == (
        2,
        8,
        8,
        8,
    )


def test_an_open_size_leaves_operations_open_and_names_stay_apart():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="w"),
        helper.make_node("Relu", ["a"], ["b"], name="same"),
        helper.make_node("Neg", ["b"], ["c"], name="same"),
    ]
    found = graph_of(nodes, [("x", "float32", ("rows", 6))], {"w": np.zeros((6, 5), np.float32)})
    assert (
        found.by_name["w"].op == "MatMul"
        and found.by_name["w"].flops is None
        and found.by_name["w (constant)"].op == "Const"
    )
    assert found.by_name["same'"].inputs == ("same",) and found.tensors["c"] == "same'"


# Layers -----------------------------------------------------------------------------------------------------------------------------------


def found(name, profile=0, batch=1):
    known = plan_recordings.rows(name, profile)
    return layers.of_names(known, plan_recordings.graph(name, batch), known)


@pytest.mark.parametrize(("name", "profile", "batch"), [(RESNET, 0, 1), (RESNET, 1, 32), (FER, 0, 1), (FER, 1, 32)])
def test_every_node_of_a_recorded_plan_has_a_layer(name, profile, batch):
    """But for a squeeze that is no work, and for normalisations that TensorRT has taken into products without a word."""
    graph, own = plan_recordings.graph(name, batch), found(name, profile, batch)
    assert {graph.by_name[node].op for node in layers.homeless(own, graph)} <= {"Squeeze", "BatchNormalization"}
    held = layers.holders(own)
    products = [node.name for node in graph.nodes if node.op in ("Conv", "MatMul", "Gemm")]
    assert len(products) > 15
    for node in products:
        (place,) = held[node]
        assert own[place].role == "product"


def test_roles_and_nodes_of_a_plan():
    own = {layer.name: layer for layer in found(RESNET)}
    residual = f"{BLOCK}0_conv/Conv2D + {BLOCK}add/add + {BLOCK}out/Relu"
    assert own[residual].role == "product" and own[residual].nodes == (
        f"{BLOCK}0_conv/Conv2D",
        f"{BLOCK}add/add",
        f"{BLOCK}out/Relu",
    )
    # The bias is in the product, whose answer a move of TensorRT's own writes under the bias' name.
    last = own["StatefulPartitionedCall/resnet50/predictions/MatMul"]
    assert [node.rsplit("/", 1)[1] for node in last.nodes] == ["MatMul", "BiasAdd"]
    assert [layer.role for layer in found(RESNET)[:4]] == ["transpose", "reformat", "product", "shuffle"]


def test_rounding_to_int8_is_in_the_layers_that_write_and_read():
    own = {layer.name.rsplit(" + ", 1)[-1]: layer for layer in found(FER)}
    first = own["StatefulPartitionedCall/model_1/activation_1/Relu"]
    assert [plan_recordings.graph(FER).by_name[node].op for node in first.nodes] == [
        "QuantizeLinear",
        "Conv",
        "Relu",
        "QuantizeLinear",
    ]


@pytest.mark.parametrize(
    ("name", "kind", "nodes", "role"),
    [
        ("a + b", "", ["a", "b"], "product"),
        ("PWN(PWN(b), c)", "PointWiseV2", ["b", "c"], "pointwise"),
        ("{ForeignNode[b...c]}", "Myelin", ["b", "c"], "fused graph"),
        ("reshape_after_a", "NoOp", [], "shuffle"),
        ("squeeze_before_a", "", [], "shuffle"),
        ("(Unnamed Layer* 31) [Constant]", "Constant", [], "constant"),
        ("w + (Unnamed Layer* 3) [Shuffle] + a", "CaskGemmConvolution", ["a"], "product"),
        ("a_2", "CaskConvolution", ["a"], "product"),
        ("d", "Shuffle", ["d"], "transpose"),
        ("e", "", ["e"], "shuffle"),
        ("c", "SoftMax", ["c"], "other"),
        ("nothing", "", [], "other"),
    ],
)
def test_names_of_layers(name, kind, nodes, role):
    known = graph_of(
        [
            helper.make_node("Conv", ["x", "w"], ["ta"], name="a"),
            helper.make_node("Sigmoid", ["ta"], ["tb"], name="b"),
            helper.make_node("Softmax", ["tb"], ["tc"], name="c"),
            helper.make_node("Transpose", ["tc"], ["td"], name="d"),
            helper.make_node("Reshape", ["td", "s"], ["te"], name="e"),
        ],
        [("x", "float32", (1, 3, 4, 4))],
        {"w": np.zeros((2, 3, 1, 1), np.float32), "s": np.array([1, -1])},
    )
    assert onnx_names.nodes(name, known) == nodes and onnx_names.role(name, nodes, known, kind) == role
    assert layers.of_names([name], known)[0].name == name


def test_without_the_file_the_names_themselves_are_the_nodes():
    (layer,) = layers.of_names(["a/conv + a/relu"], None)
    assert layer.nodes == ("a/conv", "a/relu") and layer.role == "other"


# The plan alone ---------------------------------------------------------------------------------------------------------------------------


def answers(name, profile=0, batch=1):
    """Facts of the parts "told" and "timed": the layers' names are the recorded ones, the times are invented: 10 us each, moves none."""
    names = [one + (f" [profile {profile}]" if profile else "") for one in plan_recordings.rows(name, profile)]
    given, shape = INPUTS[name]
    first = {
        "engine": "plan",
        "record": 0,
        "profile": profile,
        "rows": 0,
        "implicit": False,
        "bytes": 1000,
        "shapes": {given: [batch, *shape]},
    }
    gpu = {
        "compute_capability": "9.0",
        "name": "NVIDIA H100 80GB HBM3",
        "most_sm_mhz": 1980,
        "most_memory_mhz": 2619,
        "memory_bus_bits": 5120,
    }
    times = [
        0.0 if plan_recordings.rows(name, profile)[one.split(" [profile")[0]].kind == "NoOp" else 0.01 for one in names
    ]
    timed = {
        **first,
        "layers_ahead": {"names": names, "milliseconds": [times] * 3},
        "single_seconds": [1e-3],
        "host_seconds": [1e-4],
        "wall_seconds": [1.1e-3],
        "row_seconds": [9e-4],
        "clocks_mhz": [1980],
    }
    return {"told": {**first, "num_optimization_profiles": 3, "multiprocessors": 132, "gpu": gpu}, "timed": timed}


def plan_engines(name=RESNET, batches=(1, 32)):
    parts = {
        part: {"answers": [answers(name, number, batch)[part] for number, batch in enumerate(batches)]}
        for part in ("told", "timed")
    }
    recording = engines.Recording(
        parts=parts,
        ops=(
            plan._engine_op(
                "/nowhere",
                document.PlanFile(
                    tensorrt="8.5.3.1",
                    compute_capability="9.0",
                    gpu="H100",
                    precision="INT8" if name == FER else "FP16",
                    inputs=(),
                    outputs=(),
                    profiles=(),
                    bytes=1,
                    digest="",
                ),
            ),
        ),
        graphs=tuple(plan_recordings.graph(name, batch) for batch in batches),
        built={"plan": plan.layer_table.Built(rows=layer_information.rows(plan_recordings.layers(name)))},
    )
    return engines.profiles(recording)[0]


def test_a_plan_is_taken_apart_as_engines_are():
    one, many = plan_engines()
    assert (
        one.of_a_plan
        and (one.engine, one.precision, one.profile, many.profile) == ("plan", "FP16", 0, 1)
        and len(many.layers) == 61
    )
    assert sum(layer.flops or 0 for layer in many.layers) == plan_recordings.graph(RESNET, 32).flops
    layer = next(
        layer for layer in many.layers if layer.nodes[:1] == ("StatefulPartitionedCall/resnet50/conv1_conv/Conv2D",)
    )
    assert (layer.kind, layer.precision, layer.precision_from, layer.formats) == (
        "CaskConvolution",
        "FP16",
        "inspector",
        "Half c4 → Half c8",
    )
    assert (
        layer.tactic.startswith("0x")
        and layer.output_shape == (32, 64, 112, 112)
        and layer.bound
        and layer.roof_share > 0
    )
    assert many.memory.plan == 1000 and many.memory.weights_in_model > 100e6 and not many.notes
    shown = engine_rows.headline(many)
    assert shown[1].startswith("alone, without copies: 0.9000 ms") and "TensorFlow" not in " ".join(
        (*shown, *engine_rows.remarks(many))
    )


def test_a_context_tells_formats_where_open_sizes_leave_them_open_at_the_build():
    told, open_sizes = plan_recordings.layers(RESNET), plan_recordings.layers(RESNET)
    for layer in open_sizes["Layers"]:
        for one in (*layer["Inputs"], *layer["Outputs"]):
            one["Format/Datatype"] = "N/A due to dynamic shapes"
    parts = {part: {"answers": [facts]} for part, facts in answers(RESNET).items()}
    recording = engines.Recording(
        parts=parts,
        ops=(),
        graphs=(plan_recordings.graph(RESNET, 1),),
        built={"plan": plan.layer_table.Built(rows=layer_information.rows(open_sizes))},
    )
    (done,) = engines.profiles(recording)[0]
    assert {layer.formats for layer in done.layers} == {""} and any(layer.tactic for layer in done.layers)
    first = {"engine": "plan", "record": 0, "profile": 0, "rows": 0, "implicit": False}
    seen = {"inspected": {"answers": [{**first, "layers": told["Layers"]}]}}
    (done,) = engines.profiles(dataclasses.replace(recording, parts={**parts, **seen}))[0]
    assert "Half c8 → Half c8" in {layer.formats for layer in done.layers}
    # What a context does not tell either stays as it was at the build.
    seen = {"inspected": {"answers": [{**first, "layers": open_sizes["Layers"]}]}}
    built = {"plan": plan.layer_table.Built(rows=layer_information.rows(told))}
    (done,) = engines.profiles(dataclasses.replace(recording, parts={**parts, **seen}, built=built))[0]
    assert "Half c8 → Half c8" in {layer.formats for layer in done.layers}


def test_the_fusion_map_of_a_plan_is_told_by_nodes_of_the_file():
    _, many = plan_engines()
    groups = {group.nodes[0].removeprefix("StatefulPartitionedCall/resnet50/"): group for group in many.fusion.groups}
    assert len(groups) == 50 and all(group.fused for group in groups.values()) and not many.fusion.split
    assert [node.rsplit("/", 1)[1] for node in groups["conv2_block1_0_conv/Conv2D"].nodes] == ["Conv2D", "add", "Relu"]
    assert [node.rsplit("/", 1)[1] for node in groups["predictions/MatMul"].nodes] == ["MatMul", "BiasAdd"]


def test_int8_layers_are_told_by_the_inspector():
    one, _ = plan_engines(FER)
    products = [layer for layer in one.layers if layer.role == "product"]
    assert {layer.precision for layer in products} == {"INT8"} and one.precision == "INT8"


def test_a_plan_without_layer_information_says_so():
    parts = {part: {"answers": [facts]} for part, facts in answers(RESNET).items()}
    (done,) = engines.profiles(engines.Recording(parts=parts, ops=(), graphs=(plan.Graph("plan", ()),)))[0]
    assert not any(layer.kind or layer.formats for layer in done.layers)
    op = plan._engine_op(
        "/nowhere",
        document.PlanFile(
            tensorrt="8.5.3.1",
            compute_capability="9.0",
            gpu="H100",
            precision="FP16",
            inputs=(),
            outputs=(),
            profiles=(),
            bytes=1,
            digest="",
        ),
    )
    (done,) = engines.profiles(engines.Recording(parts=parts, ops=(op,), graphs=(plan.Graph("plan", ()),)))[0]
    assert done.notes == (
        "the sizes in model.onnx are not known: no operations, no fusion map",
        "the plan's metadata have no layer information: tactics, formats and types are not known",
    )


def test_a_plan_is_compared_with_an_engine_of_tf_trt_by_the_nodes_that_both_have():
    mine, its = plan_engines(), tf_trt_profiles(TF_TRT_RESNET)
    (one, other), *_ = engines_compare.pairs(mine, its)
    done = engines_compare.compare(one, other)
    both = [row for row in done.rows if row.one.layers and row.other.layers and row.nodes]
    assert len(both) > 50 and not done.only_one[3:]
    first = next(row for row in both if "StatefulPartitionedCall/resnet50/conv1_conv/Conv2D" in row.nodes)
    # TensorFlow's graph has the bias by itself, the ONNX file has it in the convolution: the row holds it.
    assert {node.rsplit("/", 1)[1] for node in first.nodes} == {"Conv2D", "BiasAdd", "Relu"} or len(first.nodes) == 3
    assert first.one.precisions == ("FP16",) and not first.fused_otherwise


def test_the_file_of_a_plan_is_read_in_a_child_and_a_bad_one_leaves_no_graph(tmp_path):
    folder = plan_recordings.directory(tmp_path / "plan")
    (one,) = plan.graphs_of_plan(folder, [{"image": [1, 224, 224, 3], "logits": [1, 1000]}])
    assert one.flops == plan_recordings.graph(RESNET).flops and plan.graphs_of_plan(folder, []) == ()
    (folder / "model.onnx").write_bytes(b"no file")
    assert plan.graphs_of_plan(folder, [{}, {}]) == (plan.Graph("plan", ()),) * 2
    assert len(plan._built(folder)["plan"].of_profile(1)) == 61


class Deserialized:
    """Stands for a plan behind the guard, which nothing can deserialize here."""

    num_optimization_profiles, has_implicit_batch_dimension = 2, False

    def __init__(self, path):
        self.plan = document.read(path)

    def copy(self):
        return self


class Card:
    """Stands for the CUDA runtime."""

    def free_memory(self):
        return 0


def test_each_profile_is_measured_at_its_best_and_each_other_call_in_the_profile_that_serves_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_job.plan_engine, "Engine", Deserialized)
    folder = plan_recordings.directory(tmp_path / "plan")
    said = json.loads((folder / "plan.json").read_text())
    said["profiles"][1]["inputs"]["image"] |= {"min": [2, 224, 224, 3]}
    (folder / "plan.json").write_text(json.dumps(said))
    calls = tuple({"image": (rows, 224, 224, 3)} for rows in (1, 8, 64))
    chosen = list(plan_job._chosen(Card(), apart.Request(model=str(folder), calls=calls)))
    assert [(one.asset.engine, one.record, one.profile, one.rows, one._call["image"][0]) for one in chosen] == [
        ("plan", 0, 0, 0, 1),
        ("plan", 0, 1, 0, 32),
        ("plan", 2, 1, 8, 8),
    ]


# Whole calls ------------------------------------------------------------------------------------------------------------------------------

THREAD = 1495069376


def traced():
    """(CUPTI's records of five runs of ResNet-50 on an H100, marks of calls around them). The records are those of an engine alone: the copies
    in and out of 100 us each, and the marks, are invented."""
    answer = tf_trt_recording(TF_TRT_RESNET).parts["traced"]["answers"][0]["trace"]
    works = sorted(
        [("kernels", one) for one in answer["kernels"]] + [("copies", one) for one in answer["copies"]],
        key=lambda one: one[1][1],
    )
    launches = {launch[0]: launch for launch in sorted(answer["launches"], key=lambda one: one[1], reverse=True)}
    found = {"names": answer["names"], "kernels": [], "copies": [], "launches": []}
    each, marks = len(works) // 5, []
    for number in range(5):
        later = number * 1_000_000  # the recorded runs follow each other with no room for copies
        own = [
            (kind, [work[0], work[1] + later, work[2] + later, *work[3:]])
            for kind, work in works[number * each : (number + 1) * each]
        ]
        for kind, work in own:
            found[kind].append(work)
            launch = launches[work[4]]
            found["launches"].append([launch[0], launch[1] + later, launch[2] + later, THREAD])
        begin, launched = (found["launches"][place][1 + end] for place, end in ((-each, 0), (-1, 1)))
        end = max(work[2] for _, work in own)
        found["copies"] += [
            ["memcpy 1", begin - 110_000, begin - 10_000, 178, 9000 + number, 602_112],
            ["memcpy 2", end + 1_000, end + 101_000, 178, 9100 + number, 4_000],
        ]
        found["launches"] += [
            [9000 + number, begin - 118_000, begin - 112_000, THREAD],
            [9100 + number, launched + 8_000, launched + 12_000, THREAD],
        ]
        marks += [
            [traces.INPUT, begin - 120_000, begin - 111_000, THREAD, {}],
            [traces.RUN_OF_PLAN, begin - 8_000, launched + 2_000, THREAD, {}],
            [traces.OUTPUT, launched + 6_000, end + 110_000, THREAD, {}],
            [traces.RUN, begin - 125_000, end + 120_000, THREAD, {}],
            [traces.CALL, begin - 125_000, end + 120_000, THREAD, {"number": number, "caller": 0}],
        ]
    return found, marks


def facts(folder):
    """What the recorder leaves of a plan's calls at batch 1."""
    found, marks = traced()
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("model-0", "model-0-callers2"):
        (folder / f"{name}.trace.json.gz").write_bytes(gzip.compress(json.dumps(plan_trace.of(found, marks)).encode()))
    # As long as the traced calls, but for a tenth of what the host does.
    long = statistics.median(end - start for name, start, end, *_ in marks if name == traces.CALL) * 1e-9
    seconds = [[9e-6, 0.3 * long, 0.68 * long - 9e-6]] * 20
    seen = {"engine": {"plan": 1}, "fallback": {}, "build": {}, "calibration": {}, "reasons": []}
    call = {
        "model": "model",
        "number": 0,
        "signature": "serving_default",
        "shapes": {"image": [1, 224, 224, 3]},
        "input_bytes": {"image": 602_112},
        "dtypes": {"image": "float32"},
        "untraced": [seconds] * 4,
        "first_seconds": 0.5,
        "first": seen,
        "second": seen,
        "output_bytes": {"logits": 4000},
        "output_shapes": {"logits": [1, 1000]},
        "output_dtypes": {"logits": "float32"},
        "traced": [[1e-4] * 3] * 5,
        "trace": "model-0.trace.json.gz",
        "trace_bytes": 1,
        "complaints": [],
        "trace_log": [],
        "callers": [
            {"callers": 1, "seconds": [1e-3] * 9, "wall": 0.01, "gpu": []},
            {"callers": 2, "seconds": [1e-3] * 9, "wall": 0.01, "gpu": [], "trace": "model-0-callers2.trace.json.gz"},
        ],
    }
    return {
        "machine": host.machine({"tensorrt": "8.5.3.1"}, tf32=True),
        "failed": {},
        "calls": [call],
        "models": {
            "model": {
                "load_seconds": 0.7,
                "where": {"mode": "gpu", "gpu": plan_recordings.HERE, "runtime": "TensorRT", "version": "8.5.3.1"},
            }
        },
    }


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    manifest = passport.read(plan_recordings.directory(folder / "plan"), passport.MANIFEST)
    return measure.of_recording(
        facts(folder / "traces"), folder / "traces", [measure.Named("resnet_plan", "sha256:1")], manifest, True
    )


@pytest.fixture(scope="module")
def whole(measured):
    """The profile of the calls and of the plan alone."""
    nodes = measure._nodes(plan_recordings.graph(RESNET))
    side = measure.dataclasses.replace(measured.profile.model, graph={"serving_default": nodes})
    return measure.dataclasses.replace(measured.profile, engines=plan_engines(), model=side)


def test_the_parts_of_a_plans_call_add_up_and_have_names_of_their_own(whole):
    (call,) = whole.model.calls
    parts = {(part.group, part.device): part for part in call.parts}
    assert sum(part.seconds for part in call.parts) == pytest.approx(call.latency.p50) and call.unplaced_share < 0.05
    assert list(parts) == [
        ("input", "host"),
        ("input", "GPU"),
        ("call", "host"),
        ("engine", "host"),
        ("engine", "GPU"),
        ("output", "host"),
        ("output", "GPU"),
        ("rest", ""),
    ]
    assert [part.name for part in call.parts[:4]] == [
        "starting the copies to the GPU",
        "copies to the GPU",
        "Python around the plan",
        "plan, on the host",
    ]
    assert parts["input", "GPU"].traced_seconds == pytest.approx(1e-4) == parts["output", "GPU"].traced_seconds
    (run,) = call.engines
    # 62 kernels and 9 fills and copies that TensorRT makes itself.
    assert (run.name, run.runs, run.kernels, run.fallbacks) == ("plan", 1, 62, 0) and run.arithmetic[
        "FP16"
    ] > 0.8 * sum(run.arithmetic.values())
    assert {(one.kind, one.group): one.bytes for one in call.copies if one.kind != "fill"} == {
        ("host to GPU", "input"): 602_112,
        ("GPU to host", "output"): 4000,
    }
    assert not call.ops and call.of_a_plan and "starting the copies in" in rows.basis(call)
    assert call.callers[1].overlap.streams == 1 and rows.callers(call)[1][0] == "2"


def test_the_document_is_read_back_and_says_that_it_is_of_a_plan(whole):
    written = json.loads(json.dumps(whole.to_dict()))
    assert json.loads(json.dumps(Profile.from_dict(written).to_dict())) == written
    assert (
        whole.of_a_plan
        and whole.on_gpu
        and not whole.signatures
        and whole.settings["precision_mode"] == "FP16"
        and not whole.notes
    )
    first, second = rows.headline(whole)
    assert (
        "TensorRT 8.5.3.1" in first
        and "TensorFlow" not in first
        and second == "a TensorRT plan, without TensorFlow; asked for FP16"
    )
    assert whole.machine.tf32 and whole.machine.gpu == plan_recordings.HERE


def test_the_page_of_a_plan_has_its_parts_layers_and_graph(whole):
    text = page.page(whole)
    assert (
        text.count("<svg") >= 5
        and "copies to the GPU" in text
        and "The graph of serving_default" in text
        and "FP16" in text
    )
    assert {node.engine for node in whole.model.graph["serving_default"]} == {"plan"}
    kept = {node.name for node in whole.model.graph["serving_default"]}
    assert all(set(node.inputs) <= kept for node in whole.model.graph["serving_default"]) and len(kept) == 125


def test_the_trace_of_a_plan_shows_host_and_gpu(measured, tmp_path):
    (file,) = measured.traces.values()
    tracks = chrome.marked(traces.read(file).tracks)
    assert [(track.gpu, track.name) for track in tracks] == [(False, f"thread {THREAD}"), (True, "stream 178")]
    chrome.write(tmp_path / "t.json", [("plan", (*tracks, *layer_tracks.of(tracks, ())))])
    listed = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sum(event["name"] == traces.CALL for event in listed) == 5 and any(event["ph"] == "s" for event in listed)


def test_without_records_of_cupti_a_trace_has_the_hosts_part_and_says_why(tmp_path):
    told = facts(tmp_path)
    _, marks = traced()
    complaint = "CUPTI: cuptiActivityEnable: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)"
    (tmp_path / "model-0.trace.json.gz").write_bytes(
        gzip.compress(json.dumps(plan_trace.of({}, marks, [complaint])).encode())
    )
    told["calls"][0] |= {"complaints": [complaint]}
    (call,) = measure.of_recording(told, tmp_path, [measure.Named("m", "d")], None, True).profile.model.calls
    assert not call.gpu_seconds and any("lets only administrators trace the GPU" in note for note in call.notes)
    assert {part.group for part in call.parts} == {"input", "call", "engine", "output", "rest"}


def test_marks_are_kept_while_a_trace_is_taken_and_stages_are_counted_for_each_thread():
    marks = plan_calls.Marks()
    begun = marks.now()
    assert marks.end("input", begun) >= 0 and marks.spent()["input"] > 0 and marks.trace(None) == []
    ticks = iter(range(100, 1000, 10))
    marks.trace(lambda: next(ticks))
    assert marks.end("run", marks.now(), number=3) == pytest.approx(10e-9)
    (row,) = marks.trace(None)
    assert row == ["run", 100, 110, threading.get_ident() & 0xFFFFFFFF, {"number": 3}]
    seen = []
    thread = threading.Thread(target=lambda: seen.append(dict(marks.spent())))
    thread.start()
    thread.join()
    assert seen == [{}] and set(marks.spent()) == {"input", "run"}


class Runner:
    """Stands for the runner of a plan, which needs a GPU: its call spends time where a Marked context would."""

    def ready(self, signature, inputs):
        def call():
            for stage in (traces.INPUT, traces.RUN_OF_PLAN, traces.OUTPUT):
                plan_calls.MARKS.end(stage, plan_calls.MARKS.now())
            return {"y": np.zeros((2, 3), np.float32)}

        return call

    def watched(self, ready):
        from tftrt_tools.models.execution.trace import CallTrace

        return ready(), CallTrace(engine={"plan": 1}, fallback={}, build={}, calibration={})


def test_calls_of_a_plan_are_timed_by_stages_and_marked():
    one = plan_calls.PlanCalls(Runner(), "serving_default", {"x": np.zeros((2, 4), np.float32)})
    assert one.shapes == {"x": [2, 4]} and one.input_bytes == {"x": 32} and set(one.call()) == {"y"}
    stages = one.timed()
    assert len(stages) == 3 and min(stages) >= 0 and math.isfinite(sum(stages))
    plan_calls.MARKS.trace(time.perf_counter_ns)
    assert len(one.all_marked(2)) == 2
    kept = plan_calls.MARKS.trace(None)
    assert [row[0] for row in kept].count(traces.CALL) == 2 and [row[4] for row in kept if row[0] == traces.CALL][
        1
    ] == {"number": 1, "caller": 0}
    times, wall = one.together(2, 0.02)
    assert times and wall > 0
    told = one.first()
    assert (
        told["first"]["engine"] == {"plan": 1}
        and told["output_shapes"] == {"y": [2, 3]}
        and told["output_dtypes"] == {"y": "float32"}
    )


def test_where_the_plan_does_not_load_the_recorder_leaves_the_guards_reason(tmp_path):
    folder = plan_recordings.directory(tmp_path / "plan")
    request = recording.Request(
        models=(recording.Recorded(name="model", path=str(folder), calls=()),),
        folder=str(tmp_path / "traces"),
        traced=3,
        callers=(1,),
        seconds=0.1,
    )
    told = recording.plan.run(request, env=NO_GPU).result
    with pytest.raises(errors.TftrtError, match="is a plan for NVIDIA H100 80GB HBM3, and no GPU is visible here"):
        measure._check(told, measure.Options(model=str(folder)))
    assert told["machine"]["versions"]["tensorrt"] and told["machine"]["tf32"] and not told["calls"]


# The command ------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path, whole):
    """A plan directory with its profile."""
    folder = plan_recordings.directory(tmp_path / "plan")
    digest = plan_digest(folder)
    side = measure.dataclasses.replace(whole.model, model=str(folder), digest=digest)
    assert stored.keep(str(folder), measure.dataclasses.replace(whole, model=side))
    return folder


def plan_digest(folder):
    from tftrt_tools.models.kinds import table

    return table.kind(str(folder)).digest(str(folder))


def test_a_kept_profile_is_shown_without_a_gpu(kept, tftrt, tmp_path):
    done = tftrt(
        "profile", kept, "--top=3", f"--html={tmp_path / 'p.html'}", f"--json={tmp_path / 'p.json'}", env=NO_GPU
    )
    assert done.returncode == 0, done.stderr
    assert "a TensorRT plan, without TensorFlow; asked for FP16" in done.stdout and "copies to the GPU" in done.stdout
    assert (
        "nothing was measured now" in done.stdout
        and "stale" not in done.stdout
        and "conv1_conv/Conv2D" in (tmp_path / "p.html").read_text()
    )
    assert json.loads((tmp_path / "p.json").read_text())["engines"][0]["engine"] == "plan"


def test_a_kept_profile_of_another_plan_is_stale(kept, tftrt):
    (kept / "model.plan").write_bytes(b"no Engine")
    assert "it is stale" in tftrt("profile", kept, env=NO_GPU).stdout


def test_a_plan_without_a_profile_is_one_line_without_a_gpu(tmp_path, tftrt):
    folder = plan_recordings.directory(tmp_path / "plan")
    assert_clear(
        tftrt("profile", folder, env=NO_GPU), 1, "carries no profile, and this machine has no GPU to measure one"
    )


def test_what_is_not_for_plans_is_told(tmp_path, tftrt, zoo_model):
    folder = plan_recordings.directory(tmp_path / "plan")
    assert_clear(tftrt("profile", folder, "--without_gpu", env=NO_GPU), 2, "is a plan, which runs on a GPU alone")
    assert_clear(
        tftrt("profile", folder, f"--original={zoo_model('digits_cnn')}", "--without_gpu", env=NO_GPU),
        2,
        "`tftrt profile A B`",
    )
    assert_clear(
        tftrt("profile", onnx_files.product(tmp_path / "m.onnx"), "--without_gpu", env=NO_GPU),
        2,
        "this profiles TensorFlow and plans",
    )


def test_a_plan_is_compared_with_a_profile_of_a_savedmodel(whole, kept, tftrt):
    done = comparison.compare(whole, whole)
    assert len(done.calls) == 1 and len(done.engines) == 2 and all(row.difference == 0 for row in done.engines[0].rows)
    other = measure.dataclasses.replace(
        whole.model, calls=tuple(measure.dataclasses.replace(call, signature="score") for call in whole.model.calls)
    )
    assert len(comparison.compare(whole, measure.dataclasses.replace(whole, model=other)).calls) == 1, (
        "a plan's signature has no name of its own"
    )
    shown = tftrt("profile", kept, kept, env=NO_GPU)
    assert shown.returncode == 0 and "plan (" in shown.stdout, shown.stderr
