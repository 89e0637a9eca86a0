"""`tftrt verify --tensors` of SavedModels: which inner tensors they share, those inside engines, and how these are fetched."""

import dataclasses
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests import stacks
from tests.onnx_sources import Spec, save
from tftrt_tools.accuracy import marked_job
from tftrt_tools.accuracy.marked import ChunksRequest
from tftrt_tools.base import errors
from tftrt_tools.command_line import cli
from tftrt_tools.models.savedmodel import engine_op
from tftrt_tools.models.savedmodel.job import graph, loading, marking, protos
from tftrt_tools.tensorrt.plans.tensors import Inner, Tensors


def said(path):
    return json.loads(pathlib.Path(path).read_text())


def chain(folder, second=1.0):
    """x -> first -> second -> third, each with a constant; the second's is another where it is asked for."""

    def function(x):
        one = tf.multiply(x, tf.constant([2.0, 3.0, 4.0, 5.0]), name="first")
        two = tf.add(one, tf.constant([second, 1.0, 1.0, 1.0]), name="second")
        return {"y": tf.multiply(two, tf.constant([0.5, 0.25, 0.5, 0.25]), name="third")}

    return save(folder, function, Spec((None, 4), tf.float32, "x"))


def test_tensors_inside_engines_are_compared_without_a_gpu(zoo_model, converted, tmp_path, capsys):
    model = converted("digits_cnn", "--precision=FP16")
    assert (
        cli.main(["verify", str(zoo_model("digits_cnn")), str(model), "--tensors=all", f"--json={tmp_path / 'j.json'}"])
        == 0
    )
    printed, found = capsys.readouterr().out, said(tmp_path / "j.json")
    inners = {one["tensor"].rpartition("/")[2]: one for one in found["inners"]}
    assert list(inners)[:4] == list(stacks.here().inner) and (len(found["inners"]), found["computed"]) == (
        stacks.here().shared,
        14,
    )
    assert all(
        one["node"].split(" in TRTEngineOp_")[0] == stacks.TYPES.get(name[:-2], name[:-2])
        for name, one in inners.items()
    )
    assert found["arithmetic"] == "rewrite" and found["passed"] and found["fallbacks"] == []
    assert "its engines' native segments" in printed and f"{stacks.here().shared} of 14 tensors of floats" in printed


def test_the_first_tensor_that_departs_is_named(tmp_path, capsys):
    one, other = chain(tmp_path / "one"), chain(tmp_path / "other", second=1.5)
    assert cli.main(["verify", one, other, "--tensors=all", f"--json={tmp_path / 'j.json'}"]) == errors.EXIT_CHECK
    assert "first departs: PartitionedCall/second:0 (AddV2) with" in capsys.readouterr().out
    assert [one["tensor"].split("/")[1] for one in said(tmp_path / "j.json")["inners"]] == [
        "first:0",
        "second:0",
        "third:0",
    ]
    assert cli.main(["verify", one, other, "--tensors=PartitionedCall/first"]) == errors.EXIT_DONE, (
        "the name of a node will do"
    )


def test_what_went_wrong_inside_an_engine_is_named(zoo_model, converted, tmp_path, capsys):
    model = shutil.copytree(converted("digits_cnn", "--precision=FP16"), tmp_path / "wrong")
    proto = protos.read(model)
    (segment,) = (
        one for one in proto.meta_graphs[0].graph_def.library.function if "native_segment" in one.signature.name
    )
    (reader,) = (node for node in segment.node_def if re.search(rf"{stacks.node('conv2/BiasAdd')}$", node.name))
    (bias,) = (node for node in segment.node_def if node.name == reader.input[1].split(":")[0])
    assert bias.op == "Const"
    bias.attr["value"].tensor.CopyFrom(
        tf.make_tensor_proto(tf.make_ndarray(bias.attr["value"].tensor) + np.float32(0.1))
    )
    (model / protos.FILE).write_bytes(proto.SerializeToString())
    assert cli.main(["verify", str(zoo_model("digits_cnn")), str(model), "--tensors=all"]) == errors.EXIT_CHECK
    assert re.search(
        rf"first departs: \S+/{stacks.node('conv2/BiasAdd')}:0 \(BiasAdd in TRTEngineOp_\w+\) with .* behind "
        rf"\S+/{stacks.node('conv2/Conv2D')}:0 with inf dB",
        capsys.readouterr().out,
    )


def frozen(model):
    """(GraphDef of a converted model's signature, {name: tensor})."""
    found, prefix = marked_job._of(loading.load(str(model)), "serving_default")
    return found.graph_def, marking.computed(found.graph_def, prefix)


def test_a_tensor_inside_becomes_an_output_of_an_engine_that_is_built_anew(converted):
    definition, tensors = frozen(converted("digits_cnn", "--precision=FP16"))
    names = {name.rpartition("/")[2]: name for name in tensors}
    wanted = {names[one]: tensors[names[one]] for one in (f"{stacks.POOL}:0", "Softmax:0")}
    (engine,) = (node for node in definition.node if node.op == "TRTEngineOp")
    before, readers = (
        engine.name,
        [node.name for node in definition.node if any(graph.engine_name(engine.name) in one for one in node.input)],
    )
    assert marking.mark(definition, wanted) == {
        names[f"{stacks.POOL}:0"]: f"{before}_marked0:1",
        names["Softmax:0"]: f"{before}_marked0:0",
    }
    assert (
        engine.name == before + "_marked0" and list(engine.attr["OutT"].list.type) == [tf.float32.as_datatype_enum] * 2
    )
    assert len(engine.attr["output_shapes"].list.shape) in (0, 2) and engine.attr["_allow_build_at_runtime"].b
    segment = graph.library(definition)[engine.attr["segment_func"].func.name]
    assert segment.ret["tensorrtoutputph_1"].endswith(f"/{stacks.POOL}:output:0") and [
        one.name for one in segment.signature.output_arg
    ] == ["tensorrtoutputph_0", "tensorrtoutputph_1"]
    nodes = {node.name: node for node in definition.node}
    assert readers and all(
        any(source.startswith(before + "_marked") for source in nodes[name].input) for name in readers
    )


def test_engine_ops_of_another_number_have_other_names(converted):
    definition, tensors = frozen(converted("digits_cnn", "--precision=FP16"))
    (name,) = (name for name in tensors if name.endswith(f"{stacks.POOL}:0"))
    fetched = marking.mark(definition, {name: tensors[name]}, 1)[name]
    engine, segment = fetched.rpartition(":")[0], fetched.rpartition("/")[2].rpartition(":")[0]
    assert engine == tensors[name].engine + "_marked1" and engine_op.unmarked(segment) == graph.engine_name(
        tensors[name].engine
    )
    assert [one for one in graph.library(definition) if one.endswith("_marked1")]


def test_what_an_engine_gives_is_fetched_from_the_engine_that_is_there(converted):
    definition, tensors = frozen(converted("digits_cnn", "--precision=FP16"))
    (name,) = (name for name in tensors if name.endswith("Softmax:0"))
    kept = definition.SerializeToString(deterministic=True)
    assert marking.mark(definition, {name: tensors[name]}) == {name: f"{tensors[name].engine}:0"}
    assert definition.SerializeToString(deterministic=True) == kept


def test_a_node_that_keeps_its_name_and_computes_something_else_is_left_out(
    zoo_model, converted, tmp_path, capsys, monkeypatch
):
    """TF-TRT's optimizers write (x * y) * c as x * (y * c) in each layer normalization."""
    monkeypatch.setattr("tftrt_tools.tensorrt.plans.tensor_ways._WHOLE", 48)
    model = converted("bert_encoder", "--precision=FP16")
    assert (
        cli.main(
            [
                "verify",
                str(zoo_model("bert_encoder")),
                str(model),
                "--tensors=all",
                "--shapes=input_ids:2x16;input_mask:2x16",
                f"--json={tmp_path / 'j.json'}",
            ]
        )
        == 0
    ), capsys.readouterr().out
    found = said(tmp_path / "j.json")
    assert 100 < len(found["inners"]) < found["computed"] and found["chunks"] > 1
    assert all(np.float64(one["snr_db"]) > 80 for one in found["inners"])
    assert len({" in TRTEngineOp_" in one["node"] for one in found["inners"]}) == 2, "outside of engines and inside"


def test_a_converted_model_with_loops_is_compared_outside_of_them(zoo_model, converted, tmp_path):
    """Its graph stays a function when it is frozen, and so do segments that a loop may hold."""
    model = converted("lstm_tagger", "--precision=FP16", "--use_dynamic_shape")
    assert (
        cli.main(
            [
                "verify",
                str(zoo_model("lstm_tagger")),
                str(model),
                "--tensors=all",
                "--shapes=tokens:2x7",
                f"--json={tmp_path / 'j.json'}",
            ]
        )
        == 0
    )
    found = said(tmp_path / "j.json")
    assert len(found["inners"]) > 5 and any("TRTEngineOp_" in one["node"] for one in found["inners"])


def test_what_a_rewrite_has_given_another_form_is_left_out(tmp_path):
    """A dilated convolution is three nodes in TensorFlow, two of which move places to the batch, and one in the converted model."""
    weights = tf.random.stateless_uniform((3, 2, 2), (1, 2))

    def function(x):
        return {"y": tf.exp(tf.nn.relu(tf.nn.convolution(x, weights, padding="VALID", dilations=2)), name="last")}

    source, target = save(tmp_path / "saved", function, Spec((None, 16, 2), tf.float32, "x")), str(tmp_path / "fp16")
    assert cli.main(["convert", f"--model={source}", f"--output={target}", "--precision=FP16"]) == 0
    assert cli.main(["verify", source, target, "--tensors=all", f"--json={tmp_path / 'j.json'}"]) == 0
    assert any("last" in one["tensor"] for one in said(tmp_path / "j.json")["inners"])


def test_loops_and_branches_are_left_out(tmp_path):
    """Nothing can be fetched from inside, or from a branch that is not taken."""

    def function(x):
        total = tf.reduce_sum(x, name="total")
        taken = tf.cond(total > 1e9, lambda: tf.sin(x, name="taken"), lambda: tf.cos(x, name="other"))
        ended = tf.while_loop(
            lambda number, value: number < 3,
            lambda number, value: (number + 1, tf.tanh(value, name="round")),
            (0, taken),
        )[1]
        return {"y": tf.multiply(ended, 2.0, name="last")}

    model = save(tmp_path / "saved", function, Spec((None, 4), tf.float32, "x"))
    assert cli.main(["verify", model, model, "--tensors=all", f"--json={tmp_path / 'j.json'}"]) == 0
    names = [one["tensor"] for one in said(tmp_path / "j.json")["inners"]]
    assert any("total" in name for name in names) and any("last" in name for name in names)
    assert not any(part in name for name in names for part in ("taken", "other", "round"))


def test_tensors_inside_an_int8_engine_are_refused_and_what_it_gives_is_compared(zoo_model, converted, tmp_path):
    request = ChunksRequest(
        models=(str(zoo_model("digits_cnn")), str(converted("digits_cnn", "--precision=FP16"))),
        signature="serving_default",
        folder=str(tmp_path),
        chunk=48,
        whole=240,
        inside=False,
    )
    (made,) = marked_job.chunks(request).chunks
    (inner,) = made.tensors
    assert re.search(rf"{stacks.node('probabilities/Softmax')}:0$", inner.tensor)
    with pytest.raises(errors.UsageError, match="is inside an INT8 engine"):
        names = (inner.tensor.replace("Softmax", "MatMul"),)
        marked_job.chunks(dataclasses.replace(request, folder=str(tmp_path / "again"), names=names))


def test_an_engine_that_fell_back_proves_nothing():
    known = {
        "original": "a",
        "converted": "b",
        "runtimes": {},
        "bound": 30.0,
        "arithmetic": "FP16",
        "computed": 1,
        "calls": 1,
        "chunks": 1,
    }
    equal = (Inner("a:0", "Relu in TRTEngineOp_1", 60.0),)
    assert Tensors(**known, inners=equal).passed
    assert not Tensors(**known, inners=equal, fallbacks=("TRTEngineOp_1_marked",)).passed


@pytest.mark.parametrize(
    ("flags", "cause", "mend"),
    [
        (("--tensors=gone",), "'gone' is no tensor of floats that both models compute", "there are: all, "),
        (("--tensors=al",), "'al' is no tensor of floats that both models compute", "did you mean 'all'?"),
        (("--tensors=all", "--signature_keys=other"), "no signature 'other' in common", "both have serving_default"),
        (("--tensors=all", "--signature_keys=a,b"), "--tensors is about one signature", "such as --signature_keys=a"),
        (("--tensors=all", "--rename=a=b"), "--rename has no effect with --tensors", "leave it out"),
    ],
)
def test_bad_flags(zoo_model, flags, cause, mend, capsys):
    model = str(zoo_model("digits_cnn"))
    assert cli.main(["verify", model, model, *flags]) == errors.EXIT_USAGE
    told = capsys.readouterr().err
    assert cause in told and mend in told


def test_models_of_two_kinds_are_refused(zoo_model, tmp_path, capsys):
    file = tmp_path / "m.onnx"
    file.write_bytes(b"")
    assert cli.main(["verify", str(zoo_model("digits_cnn")), str(file), "--tensors=all"]) == errors.EXIT_USAGE
    assert "(SavedModel), " in capsys.readouterr().err
