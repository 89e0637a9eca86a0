"""`tftrt export`: ONNX files of sample models and of small models with a trap each, bad input, interrupts, refused ops."""

import errno
import importlib.util
import json
import os
import pathlib
import re
import shutil

import numpy as np
import onnx
import pytest
import tensorflow as tf
from onnx import numpy_helper

from tests import command_here, onnx_files, onnx_sources, plan_recordings, stacks
from tftrt_tools.base import errors, tf_private
from tftrt_tools.base.process import progress
from tftrt_tools.command_line import cli
from tftrt_tools.models.kinds.onnx import file
from tftrt_tools.models.savedmodel import files
from tftrt_tools.tensorrt.exporting import bisecting, converting, earlier, export, operators, parser
from tftrt_tools.tensorrt.exporting.onnx_graph import Node, Value
from tftrt_tools.tensorrt.exporting.targets import TARGETS

# {sample model: flags}; the ranker takes strings apart, which ONNX cannot say.
SAMPLES = {
    "digits_cnn": [],
    "spread_cnn": ["--target=11"],
    "bert_encoder": ["--shapes=input_ids:2x16;input_mask:2x16"],
    "lstm_tagger": ["--shapes=tokens:2x9"],
    "dynamic_segmenter": ["--shapes=image:1x40x48x3", "--target=10"],
    "tf1_export": ["--target=onnxruntime"],
    "mobilenet_v2": [],
    "resnet50": [],
}
SLOW = ("mobilenet_v2", "resnet50")


@pytest.fixture(autouse=True, scope="module")
def more_children():
    """An export asks for more children than other commands: none is started anew for the next test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command_here, "_KEPT", 6)
        yield


def names(values):
    return [one.name for one in values]


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in SAMPLES])
def test_sample_models_answer_as_onnx_files(name, zoo_model, tftrt, tmp_path):
    source, target = zoo_model(name), tmp_path / "model.onnx"
    done = tftrt("export", source, f"--output={target}", f"--json={tmp_path / 'export.json'}", *SAMPLES[name])
    assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
    said = json.loads((tmp_path / "export.json").read_text())
    assert said["passed"] and said["written"] and said["opset"] == TARGETS[said["target"]].opset
    (made,) = said["files"]
    assert made["verification"]["runtimes"]["converted"].startswith("ONNX Runtime") and made["path"] == str(target)
    # Names and order are those of the model's function.
    function = tf.saved_model.load(str(source)).signatures[made["signature"]]
    seen = file.overview(str(target))
    (signature,) = seen.signatures.values()
    assert names(signature.inputs) == list(tf_private.argument_names(function))
    assert names(signature.outputs) == sorted(function.structured_outputs)
    assert [one.shape for one in signature.inputs] == [
        tuple(one.shape) for one in function.inputs[: len(signature.inputs)]
    ]
    # Each open dimension has a name, and the file tells where it is from.
    graph = onnx.load(str(target)).graph
    dims = [dim for value in (*graph.input, *graph.output) for dim in value.type.tensor_type.shape.dim]
    assert all(
        dim.HasField("dim_value") or dim.dim_param.isidentifier() and "unk_" not in dim.dim_param for dim in dims
    )
    assert {dim.dim_param for value in graph.input for dim in value.type.tensor_type.shape.dim[:1]} == {"batch"}
    assert seen.facts["tftrt.source_digest"] == files.digest(source) == said["source_digest"]
    assert (
        seen.facts["tftrt.target"] == TARGETS[said["target"]].title
        and seen.facts["tftrt.signature"] == made["signature"]
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export.json", "model.onnx"]


def test_a_model_with_ops_that_onnx_has_not_is_refused_by_node(zoo_model, tftrt, tmp_path):
    done = tftrt("export", zoo_model("ranker"), f"--output={tmp_path / 'm.onnx'}", "--signature_keys=user_embedding")
    assert done.returncode == 1 and list(tmp_path.iterdir()) == []
    cause, mend = done.stderr.splitlines()
    assert "'user_embedding'" in cause and "StringStrip (StatefulPartitionedCall/PartitionedCall/StringStrip)" in cause
    assert "StringToHashBucketFast (" in cause and "--signature_keys" in mend


def test_each_signature_becomes_a_file_and_each_function_one(tftrt, tmp_path):
    source = onnx_sources.several(tmp_path / "saved")
    done = tftrt("export", source, f"--output={tmp_path / 'out.onnx'}", f"--json={tmp_path / 'j.json'}")
    assert done.returncode == 0, done.stderr
    made = {one["signature"]: one for one in json.loads((tmp_path / "j.json").read_text())["files"]}
    assert {name: (pathlib.Path(one["path"]).name, one["twins"]) for name, one in made.items()} == {
        "serving_default": ("out.serving_default.onnx", []),
        "other": ("out.other.onnx", ["same"]),
    }
    (signature,) = file.overview(made["serving_default"]["path"]).signatures.values()
    # Two outputs are an input: each has its own name nevertheless.
    assert names(signature.inputs) == ["a", "b"] and names(signature.outputs) == ["again", "copy", "z"]
    # Flags about one signature do not disturb the others.
    done = tftrt(
        "export",
        source,
        f"--output={tmp_path / 'out.onnx'}",
        "--shapes=other/x:3x4;serving_default/b:5x4;serving_default/a:5",
        "--ranges=x:0:1;a:2:3",
        "--thresholds=other/y:snr_db>=500",
        f"--json={tmp_path / 'j.json'}",
    )
    first, second = json.loads((tmp_path / "j.json").read_text())["files"]
    assert (
        done.returncode == 3
        and "failed: other/y: snr_db is" in done.stdout
        and "no tensor departs that both graphs have" in done.stdout
    )
    assert (first["verification"]["shapes"], second["verification"]["shapes"]) == (
        ["other(x 3x4)"],
        ["serving_default(a 5, b 5x4)"],
    )
    for name in ("same", "other"):
        alone = tmp_path / f"alone-{name}.onnx"
        assert tftrt("export", source, f"--output={alone}", f"--signature_keys={name}").returncode == 0
        assert alone.is_file()


def test_a_keras_file_is_exported_under_the_names_of_the_other_commands(tftrt, tmp_path):
    keras = tf.keras.Sequential(
        [tf.keras.Input((4,), name="rows"), tf.keras.layers.Dense(3, name="head", activation="gelu")]
    )
    keras.save(tmp_path / "m.keras")
    done = tftrt("export", tmp_path / "m.keras", f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 0, done.stderr
    (signature,) = file.overview(str(tmp_path / "m.onnx")).signatures.values()
    assert names(signature.inputs) == ["rows"] and names(signature.outputs) == ["head"]
    assert file.overview(str(tmp_path / "m.onnx")).facts["tftrt.source"] == "m.keras"
    assert tftrt("verify", tmp_path / "m.keras", tmp_path / "m.onnx").returncode == 0


def test_weights_beside_the_file_are_found_by_its_readers(zoo_model, tftrt, tmp_path):
    source, target = zoo_model("digits_cnn"), tmp_path / "m.onnx"
    done = tftrt("export", source, f"--output={target}", "--external_data")
    assert done.returncode == 0 and f"with its weights in {target}.data" in done.stdout
    assert target.stat().st_size < 50_000 < 300_000 < (tmp_path / "m.onnx.data").stat().st_size
    assert [one.name for one in file.overview(str(target)).files] == ["m.onnx", "m.onnx.data"]
    assert tftrt("verify", source, target).returncode == 0
    (tmp_path / "m.onnx.data").unlink()
    done = tftrt("inspect", target)
    assert done.returncode == 1 and "has weights in m.onnx.data, which is not beside it" in done.stderr


def test_the_weights_of_an_earlier_export_go_with_it(zoo_model, tftrt, tmp_path):
    source, target, weights = zoo_model("digits_cnn"), tmp_path / "m.onnx", tmp_path / "m.onnx.data"

    def exported(*flags):
        done = tftrt("export", source, f"--output={target}", *flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "removed:" not in exported("--external_data") and "removed:" not in exported("--external_data")
    # Another file of the folder needs them, or may need them.
    shutil.copyfile(target, tmp_path / "other.onnx")
    assert f"note: {weights} stays: other.onnx needs it" in exported() and weights.is_file()
    assert "removed:" not in exported("--external_data")
    (tmp_path / "other.onnx").write_bytes(b"\x08 damaged")
    assert f"note: {weights} stays: other.onnx may need it, and cannot be read" in exported() and weights.is_file()
    (tmp_path / "other.onnx").unlink()
    # A file that m.onnx does not name is somebody else's.
    assert "removed:" not in (printed := exported()) and "stays" not in printed and weights.is_file()
    exported("--external_data")
    assert f"removed: {weights}, the weights of the file that was there before" in exported()
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    "needed",
    ["a copy with another ending", "a link", "another export", "another name of it", "what may not be removed", ""],
)
def test_weights_that_something_else_needs_or_wrote_are_never_removed(needed, tmp_path, monkeypatch):
    path, weights = tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    onnx_files.product(path, outside=True, properties={"tftrt.tool": "1"})
    monkeypatch.chdir(tmp_path)
    before = earlier.weights("m.onnx")
    whole = path.read_bytes()
    onnx_files.product(path, properties={"tftrt.tool": "2"})
    if needed == "a copy with another ending":
        (tmp_path / "m.onnx.old").write_bytes(whole)
    elif needed == "another name of it":
        (tmp_path / "n.onnx").write_bytes(whole.replace(b"m.onnx.data", b"M.ONNX.data"))
        (tmp_path / "M.ONNX.data").symlink_to("m.onnx.data")
    elif needed == "a link":
        (tmp_path / "l.onnx").write_bytes(whole)
        (tmp_path / "real").mkdir()
        shutil.move(tmp_path / "l.onnx", tmp_path / "real" / "l.onnx")
        (tmp_path / "l.onnx").symlink_to("real/l.onnx")
    elif needed == "another export":
        (tmp_path / "new").write_bytes(weights.read_bytes())
        (tmp_path / "new").replace(weights)
    elif needed:
        monkeypatch.setattr(
            os,
            "unlink",
            lambda path: (_ for _ in ()).throw(PermissionError(errno.EPERM, "Operation not permitted", path)),
        )
    removed, stay = earlier.cleared([before])
    monkeypatch.undo()
    assert weights.is_file() == bool(needed) and removed == (() if needed else ("m.onnx.data",))
    assert len(stay) == (needed not in ("", "another export"))


def test_weights_that_another_tool_wrote_are_not_removed(zoo_model, tftrt, tmp_path):
    source, target, weights = zoo_model("digits_cnn"), tmp_path / "m.onnx", tmp_path / "m.onnx.data"
    assert tftrt("export", source, f"--output={target}", "--external_data").returncode == 0
    foreign = onnx.load(target, load_external_data=False)
    del foreign.metadata_props[:]
    target.write_bytes(foreign.SerializeToString())
    done = tftrt("export", source, f"--output={target}", "--json=-")
    assert done.returncode == 0 and weights.is_file()
    assert json.loads(done.stdout)["stay"] == [
        f"{weights} stays, which held the weights of the file that was replaced: another tool wrote it"
    ]


def test_weights_that_are_too_many_for_one_file_go_beside_it(zoo_model, tmp_path, monkeypatch, capsys):
    """Two gigabytes are the limit; docs/dev/measured/onnx.md tells of a model beyond it."""
    monkeypatch.setattr(export, "_MOST_INSIDE", 1000)
    assert cli.main(["export", str(zoo_model("digits_cnn")), f"--output={tmp_path / 'm.onnx'}"]) == 0
    assert f"with its weights in {tmp_path / 'm.onnx'}.data" in capsys.readouterr().out
    assert (tmp_path / "m.onnx.data").stat().st_size > 300_000


def test_a_graph_too_large_for_one_message_is_run_from_files(zoo_model, tftrt, tmp_path, monkeypatch):

    from tftrt_tools.tensorrt.exporting.job import model_file, onnx_ranges

    assert tftrt("export", zoo_model("digits_cnn"), f"--output={tmp_path / 'm.onnx'}").returncode == 0
    model, rows = onnx.load(tmp_path / "m.onnx"), {"image": np.ones((2, 8, 8, 1), np.float32)}
    wanted = onnx_ranges.Session(model).run(rows)
    monkeypatch.setattr(model_file, "MOST_INSIDE", 1000)
    assert np.array_equal(onnx_ranges.Session(model).run(rows)["probabilities"], wanted["probabilities"])
    model_file.save(model, str(tmp_path / "again.onnx"))
    assert (tmp_path / "again.onnx").stat().st_size < 50_000 and (
        tmp_path / "again.onnx.weights"
    ).stat().st_size > 300_000
    values = [
        [numpy_helper.to_array(tensor).tobytes() for tensor in one.graph.initializer]
        for one in (onnx.load(tmp_path / "again.onnx"), model)
    ]
    assert values[0] == values[1] and model == onnx.load(tmp_path / "m.onnx"), "the model that was written is as it was"


def test_tf2onnx_brings_constants_up_to_date_once(zoo_model, monkeypatch):
    """Each time costs the memory of all weights, until the process ends."""
    from tf2onnx import graph

    from tftrt_tools.models.savedmodel.job import loading
    from tftrt_tools.tensorrt.exporting.job import conversion

    counted, get = [], graph.Node.get_onnx_attrs
    monkeypatch.setattr(
        graph.Node, "get_onnx_attrs", lambda node, *given: counted.append(node.is_const()) or get(node, *given)
    )
    update = graph.Node.update_proto
    model = loading.load(str(zoo_model("digits_cnn")))
    conversion.convert(model.root, model.root.signatures["serving_default"], conversion.Asked(opset=16))
    constants = sum(counted)
    assert len(counted) - constants > 3 * constants > 0, "the other nodes are brought up to date again and again"
    assert graph.Node.update_proto is update


# {op that tf2onnx does not know: (function, the beginning of the note)}.
MENDED = {
    "Erfc": (tf.math.erfc, "Erfc became 1 - Erf"),
    "Log1p": (lambda x: tf.math.log1p(tf.abs(x)), "Log1p became"),
    "MulNoNan": (lambda x: tf.math.multiply_no_nan(x, tf.nn.relu(x)), "MulNoNan became Where"),
}


@pytest.mark.parametrize("op", MENDED)
def test_ops_that_tf2onnx_does_not_know_are_said_otherwise(op, tftrt, tmp_path):
    function, note = MENDED[op]
    source = onnx_sources.rows(tmp_path / "saved", function)
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 0 and f"note: {note}" in done.stdout, done.stdout + done.stderr
    assert op not in file.overview(str(tmp_path / "m.onnx")).ops


# {transform of rows of 600 values}: of frames that are shorter than the transform, as long, and longer; of the rows themselves.
SPECTRA = {
    "magnitudes of padded frames": lambda x: tf.abs(tf.signal.stft(x, 100, 40)),
    "magnitudes of whole frames": lambda x: tf.abs(tf.signal.stft(x, 128, 64)),
    "parts": lambda x: tf.concat([tf.math.real(tf.signal.rfft(x)), tf.math.imag(tf.signal.rfft(x))], -1),
    "a short transform of long rows": lambda x: tf.abs(tf.signal.rfft(x, [64])),
    "an odd length": lambda x: tf.abs(tf.signal.rfft(x, [33])),
}


@pytest.mark.parametrize("kind", SPECTRA)
def test_fourier_transforms_of_frames_are_products(kind, tftrt, tmp_path):
    source = onnx_sources.save(
        tmp_path / "saved", lambda x: {"y": SPECTRA[kind](x)}, tf.TensorSpec((None, 600), tf.float32, "x")
    )
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 0 and "note: RFFT became two products" in done.stdout, done.stdout + done.stderr
    assert file.overview(str(tmp_path / "m.onnx")).ops["MatMul"] == 2


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda x: {"y": tf.abs(tf.signal.rfft(x))}, "does not tell how long the frames of RFFT"),
        (lambda x: {"y": tf.math.real(tf.complex(x, x))}, "reads a complex tensor that is no RFFT"),
    ],
)
def test_other_complex_tensors_are_refused(function, said, tftrt, tmp_path):
    source = onnx_sources.save(tmp_path / "saved", function, tf.TensorSpec((None, None), tf.float32, "x"))
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--shapes=x:2x64")
    assert done.returncode == 1 and said in done.stderr, done.stdout + done.stderr


# {kind: what --target=8.5 says of it}; "" if it passes.
SUPPRESSIONS = {
    "plain": "",
    "padded": "",
    "scored": "",
    "soft": "first departs: v (",
    "combined": "",
    "combined open": "",
}


@pytest.mark.parametrize("kind", SUPPRESSIONS)
def test_suppressions_pass_or_are_refused_with_the_reason(kind, tftrt, tmp_path):
    source = onnx_sources.suppression(tmp_path / "saved", kind)
    # Boxes of drawn corners are none that detections could be counted by.
    flags = ["--ranges=b:0:1;s:0:1"] if kind.startswith("combined") else []
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--allow_constant_outputs", *flags)
    assert done.returncode == (3 if SUPPRESSIONS[kind] else 0), done.stdout + done.stderr
    assert SUPPRESSIONS[kind] in done.stdout and (tmp_path / "m.onnx").exists() == (not SUPPRESSIONS[kind])
    if kind == "soft":
        assert "failed: serving_default/v: snr_db is" in done.stdout and "nothing was written" in done.stdout


def test_a_convolution_that_keras_has_xla_compile_is_exported(tftrt, tmp_path):
    """Grouped ones are in a function of their own with jit_compile, which has to be opened."""
    keras = tf.keras.Sequential(
        [tf.keras.Input((8, 8, 4)), tf.keras.layers.Conv2D(8, 3, groups=2), tf.keras.layers.Flatten()]
    )
    keras.export(str(tmp_path / "saved"))
    for flags in ((), ("--external_data",)):
        done = tftrt("export", tmp_path / "saved", f"--output={tmp_path / 'm.onnx'}", *flags)
        assert done.returncode == 0 and "PASSED" in done.stdout, done.stdout + done.stderr
    (made,) = (node for node in onnx.load(tmp_path / "m.onnx").graph.node if node.op_type == "Conv")
    assert {one.name: one.i for one in made.attribute if one.name == "group"} == {"group": 2}


def test_a_changed_model_whose_weights_are_all_small_has_its_file_of_weights(tmp_path):
    from tftrt_tools.tensorrt.exporting.job import model_file

    small = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [4], [1.0] * 4)
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [value("x", onnx.TensorProto.FLOAT, [4])],
        [value("y", onnx.TensorProto.FLOAT, [4])],
        [small],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    model_file.rewrite(model, str(tmp_path / "m.onnx"), "m.onnx.data", {})
    assert {path.name for path in tmp_path.iterdir()} == {"m.onnx", "m.onnx.data"}
    onnx.checker.check_model(str(tmp_path / "m.onnx"))


@pytest.mark.parametrize("flags", [(), ("--precision=FP16",)], ids=["FP32", "FP16"])
def test_a_model_becomes_the_same_file_each_time(zoo_model, tftrt, tmp_path, flags):
    """The engine cache knows a plan's file by its digest."""
    for number in range(2):
        done = tftrt(
            "export",
            zoo_model("bert_encoder"),
            f"--output={tmp_path / str(number)}.onnx",
            "--shapes=input_ids:2x16;input_mask:2x16",
            *flags,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()


def test_int64_is_noted_and_a_constant_beyond_int32_is_refused(tftrt, tmp_path):
    source = onnx_sources.rows(tmp_path / "saved", lambda x: x * 5_000_000_000, tf.int64)
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 3 and "note: TensorRT 8.5 has no INT64: x becomes INT32 there" in done.stdout
    assert (
        "refused: Mul: the constant 5000000000 does not fit into INT32" in done.stdout
        and "--allow_refused" in done.stdout
    )
    assert not (tmp_path / "m.onnx").exists()
    assert tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--target=10").returncode == 0
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}", "--allow_refused")
    assert done.returncode == 0 and "refused: Mul" in done.stdout and "PASSED" in done.stdout
    assert file.overview(str(tmp_path / "m.onnx")).facts["tftrt.opset"] == "16"


def test_a_table_of_strings_is_for_onnx_runtime_alone(tftrt, tmp_path):
    source = onnx_sources.lookup(tmp_path / "saved")
    done = tftrt("export", source, f"--output={tmp_path / 'm.onnx'}")
    assert done.returncode == 3 and "refused: ai.onnx.ml." in done.stdout and "LookupTableFindV2" in done.stdout
    np.savez(tmp_path / "rows.npz", x=np.array([b"a", b"b", b"c", b"a"]))
    done = tftrt(
        "export", source, f"--output={tmp_path / 'm.onnx'}", "--target=onnxruntime", f"--data={tmp_path / 'rows.npz'}"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (onnx_sources.counter, "it changes variables ("),
        (onnx_sources.same_name, "'x' is an input and an output of it"),
        (
            lambda folder: onnx_sources.rows(folder, lambda x: tf.bitcast(x, tf.int32)),
            "does not know its ops Bitcast (",
        ),
        (
            lambda folder: onnx_sources.rows(folder, lambda x: tf.strings.join([x, x]), tf.string),
            "does not know its ops StringJoin (",
        ),
    ],
)
def test_what_onnx_cannot_say_is_one_line_with_the_mend(make, said, tftrt, tmp_path):
    done = tftrt("export", make(tmp_path / "saved"), f"--output={tmp_path / 'm.onnx'}", "--target=onnxruntime")
    cause, mend = done.stderr.splitlines()
    assert (
        done.returncode == 1
        and said in cause
        and "'serving_default' of " in cause
        and ("leave " in mend or "another name" in mend)
    )
    assert [one.name for one in tmp_path.iterdir()] == ["saved"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "--output is missing"),
        (["--output=m.pb"], "--output=m.pb does not end in .onnx"),
        (["--output=none/m.onnx"], "none/m.onnx cannot be written"),
        (["--output=m.onnx", "--opset=19"], "--opset=19 is none that an export writes"),
        (["--output=m.onnx", "--target=9"], "--target"),
        (["--output=m.onnx", "--signature_keys=none"], "no signature 'none'"),
        (["--output=m.onnx", "--shapes=x:1x5"], "refuses x:1x5"),
        (["--output=m.onnx", "--ranges=z:0:1"], "z"),
        (["--output=m.onnx", "--data=none.npz"], "none.npz"),
    ],
)
def test_flags_that_cannot_work_are_told_before_the_work(flags, said, small, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", small, *flags]) == 2
    cause, *mend = capsys.readouterr().err.splitlines()
    assert said in cause and len(mend) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """A SavedModel that takes x, rows of 4."""
    return onnx_sources.rows(
        tmp_path_factory.mktemp("small") / "saved",
        lambda x: tf.nn.softmax(x @ tf.ones((4, 3)) * tf.constant([1.0, 2, 3])),
    )


def test_sources_that_cannot_be_exported_are_told_in_a_line(small, converted, tftrt, capsys, tmp_path, monkeypatch):
    target = f"--output={tmp_path / 'm.onnx'}"
    (tmp_path / "there.onnx").write_bytes(b"\x08")
    for source, code, said in (
        (tmp_path / "there.onnx", 1, "there.onnx is truncated or damaged"),
        (plan_recordings.directory(tmp_path / "plan"), 2, "is a plan directory already"),
        (tmp_path / "none", 2, "no such file"),
        (converted("digits_cnn"), 2, "is a converted model: its engine ops mean nothing outside TF-TRT"),
    ):
        done = tftrt("export", source, target)
        assert done.returncode == code and said in done.stderr.splitlines()[0] and len(done.stderr.splitlines()) == 2
    real = importlib.util.find_spec
    for package, title in (
        ("tf2onnx", "tf2onnx"),
        ("onnx", "onnx"),
        ("onnxslim", "onnxslim"),
        ("onnxruntime", "ONNX Runtime"),
    ):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, missing=package: None if name == missing else real(name)
        )
        assert cli.main(["export", small, target]) == 1
        cause, mend = capsys.readouterr().err.splitlines()
        assert f"{title}, which an export needs, is not installed" in cause and f"'.[{stacks.EXPORT}]'" in mend
    assert not (tmp_path / "m.onnx").exists()


class Stop:
    """Stands for a user who presses Ctrl-C when a phase begins. seen: the phases."""

    def __init__(self, phase=""):
        self.phase, self.seen = phase, []

    def __call__(self, text, done, total):
        self.seen.append(text)
        if self.phase and text.startswith(self.phase):
            raise KeyboardInterrupt


PHASES = (
    "looking at the model",
    "exporting",
    "checking serving_default",
    "rewriting",
    "running",
    "comparing",
    "writing",
)


@pytest.mark.parametrize("phase", PHASES)
def test_an_interrupt_leaves_what_was_there(phase, small, capsys, tmp_path):
    (tmp_path / "m.onnx").write_bytes(b"before")
    stop = Stop(phase)
    with progress.listening(stop):
        assert cli.main(["export", small, f"--output={tmp_path / 'm.onnx'}"]) == 1
    assert stop.seen[-1].startswith(phase) and "interrupted" in capsys.readouterr().err
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("m.onnx", b"before")]


def test_every_phase_that_is_said_is_interrupted_by_a_test(small, tmp_path):
    listener = Stop()
    with progress.listening(listener):
        assert cli.main(["export", small, f"--output={tmp_path / 'm.onnx'}"]) == 0
    own = [text for text in listener.seen if not text.startswith(("loading", "the original", "the converted"))]
    assert {phase for phase in PHASES for text in own if text.startswith(phase)} == set(PHASES)
    assert (tmp_path / "m.onnx").stat().st_mode & 0o777 == 0o644


def test_files_that_cannot_all_be_written_are_none(tmp_path, monkeypatch):
    source, content = tmp_path / "content", tmp_path / "target"
    source.mkdir()
    content.mkdir()
    (source / "a.onnx").write_bytes(b"a")
    (content / "a.onnx").write_bytes(b"before")

    class One:
        def __init__(self, name):
            self.path, self.weights = str(content / name), ""

    # The second content is missing, as on a full disk.
    with pytest.raises(OSError):
        export._write([One("a.onnx"), One("b.onnx")], source)
    assert [(one.name, one.read_bytes()) for one in content.iterdir()] == [("a.onnx", b"before")]


@pytest.fixture(scope="session")
def digits(zoo_model, tmp_path_factory):
    """(folder with the digits CNN as m.onnx, its frozen graph f.pb and a call in.npz; the answer of the export)."""
    folder = tmp_path_factory.mktemp("bisect")
    request = converting.Request(
        model=str(zoo_model("digits_cnn")),
        signature="serving_default",
        output=str(folder / "m.onnx"),
        frozen=str(folder / "f.pb"),
        opset=16,
    )
    np.savez(folder / "in.npz", image=np.random.default_rng(0).random((2, 8, 8, 1), np.float32))
    return folder, converting.saved_model.run(request).result


def departure(folder, renamed, name="m.onnx"):
    request = bisecting.Request(
        onnx=str(folder / name), frozen=str(folder / "f.pb"), renamed=renamed, inputs=str(folder / "in.npz")
    )
    return bisecting.saved_model.run(request).result


def test_the_first_tensor_that_departs_is_the_one_whose_weights_are_others(digits):
    folder, answer = digits
    assert departure(folder, answer.renamed) is None
    model = onnx.load(folder / "m.onnx")
    second = [node for node in model.graph.node if node.op_type == "Conv"][1]
    weights = next(one for one in model.graph.initializer if one.name == second.input[1])
    weights.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weights) * np.float32(1.01), weights.name))
    onnx.save(model, folder / "spoiled.onnx")
    found = departure(folder, answer.renamed, "spoiled.onnx")
    assert (
        re.search(f"/{stacks.node('conv2/BiasAdd')}:0$", found.tensor)
        and found.source_op == "BiasAdd"
        and found.node == f"Conv {second.name}"
    )
    # Weights of 1.01 times the size: 20 log10(100) dB.
    assert (
        found.snr_db == pytest.approx(40, abs=1)
        and re.search(f"/{stacks.node('relu1/Relu')}:0$", found.before)
        and found.compared == stacks.here().compared
    )


FLOATS = Value("x", "float32", (None, 4), False)
REFUSED = [
    (dict(op="LayerNormalization", inputs=(FLOATS,)), "8.5", "TensorRT 8.5's parser does not take it"),
    (dict(op="LayerNormalization", inputs=(FLOATS,)), "10", ""),
    (dict(op="com.microsoft.FastGelu", inputs=(FLOATS,)), "11", "TensorRT 11's parser does not take it"),
    (dict(op="com.microsoft.FastGelu", inputs=(FLOATS,)), "onnxruntime", ""),
    (dict(op="Identity", inputs=(Value("s", "string", (None,), False),)), "10", "TensorRT 10 has no string tensors"),
    (dict(op="Identity", inputs=(Value("s", "uint16", (None,), False),)), "8.5", "TensorRT 8.5 has no uint16 tensors"),
    (
        dict(op="TopK", inputs=(FLOATS, Value("k", "int64", (1,), False))),
        "8.5",
        "its K has to be a constant, and is computed",
    ),
    (dict(op="TopK", inputs=(FLOATS, Value("k", "int64", (1,), False))), "10", ""),
    (dict(op="TopK", inputs=(FLOATS, Value("k", "int64", (1,), True))), "8.5", ""),
    (
        dict(op="ReduceSum", inputs=(FLOATS, Value("axes", "int64", (1,), False))),
        "10",
        "its axes has to be a constant, and is computed",
    ),
    (dict(op="Pad", inputs=(FLOATS, Value("pads", "int64", (4,), True), Value("", "", None, False))), "8.5", ""),
    (
        dict(op="InstanceNormalization", inputs=(FLOATS, FLOATS, FLOATS)),
        "8.5",
        "its scale has to be a constant, and is computed",
    ),
    (dict(op="InstanceNormalization", inputs=(FLOATS, FLOATS, FLOATS)), "10", ""),
    (dict(op="EyeLike", inputs=(FLOATS,)), "8.5", "its shape has to be known, and depends on the inputs"),
    (
        dict(op="ReverseSequence", inputs=(FLOATS, Value("n", "int64", (None,), False))),
        "8.5",
        "how many sequences there are (the batch) has to be known, and is open",
    ),
    (
        dict(op="ReverseSequence", inputs=(FLOATS, Value("n", "int64", (), False))),
        "8.5",
        "how many sequences there are (the batch) has to be known, and is open",
    ),
    (dict(op="ReverseSequence", inputs=(FLOATS, Value("n", "int64", (None,), False))), "10", ""),
    (dict(op="ReverseSequence", inputs=(FLOATS, Value("n", "int64", (3,), False))), "8.5", ""),
    (dict(op="Pad", inputs=(FLOATS, Value("p", "int64", (4,), False))), "8.5", ""),
    (dict(op="Squeeze", inputs=(FLOATS, Value("axes", "int64", (1,), True))), "8.5", ""),
    (dict(op="EyeLike", inputs=(Value("x", "float32", (4, 4), False),)), "8.5", ""),
    (
        dict(op="MaxPool", inputs=(FLOATS,), outputs=(FLOATS, Value("i", "int64", None, False))),
        "8.5",
        "the places of the largest",
    ),
    (dict(op="Shape", inputs=(FLOATS,), unread="of some sizes"), "8.5", "of some sizes"),
    (dict(op="Shape", inputs=(FLOATS,), unread="of some sizes"), "10", ""),
    (dict(op="Slice", inputs=(FLOATS,), beyond_int32=2**63 - 1), "8.5", ""),
    (dict(op="Loop", inputs=(FLOATS,), beyond_int32=2**63 - 1), "8.5", ""),
    (dict(op="Add", inputs=(FLOATS,), beyond_int32=2**40), "8.5", "the constant 1099511627776 does not fit into INT32"),
    (dict(op="Add", inputs=(FLOATS,), beyond_int32=2**40), "10", ""),
]


@pytest.mark.parametrize(("node", "target", "reason"), REFUSED)
def test_the_rules_of_the_parsers(node, target, reason):
    found = parser.findings([Node(**{"name": "n", "outputs": (FLOATS,), **node})], TARGETS[target])
    assert [(one.node, one.certain) for one in found] == ([("n", True)] if reason else [])
    assert all(one.reason.startswith(reason) for one in found)


def test_a_type_that_the_list_does_not_name_is_a_doubt():
    sizes = Value("s", "int64", (2,), False)
    nodes = [Node(name=f"n{number}", op="ReduceProd", inputs=(sizes,), outputs=(sizes,)) for number in range(5)]
    found = parser.findings(nodes, TARGETS["8.5"])
    assert not any(one.certain for one in found) and parser.findings(nodes, TARGETS["10"]) == ()
    assert parser.lines(found) == [
        "ReduceProd: the parser's list does not name int64 for it (INT32 in TensorRT 8.5) (n0, n1, n2 and 2 more)"
    ]
    # Sizes are integers, and what is made of them is not.
    assert (
        parser.findings([Node(name="n", op="ConstantOfShape", inputs=(sizes,), outputs=(FLOATS,))], TARGETS["8.5"])
        == ()
    )


@pytest.mark.parametrize(
    ("op", "more", "reason"),
    [
        (
            "Pad",
            (Value("p", "int64", (None,), False),),
            "how many paddings it computes (two for each dimension) is not known",
        ),
        # One that no runtime takes is still named.
        (
            "Pad",
            (Value("p", "int64", (), False),),
            "how many paddings it computes (two for each dimension) is not known",
        ),
        ("Squeeze", (), "it names no axes, and the sizes of its input are not known"),
    ],
)
def test_what_a_parser_may_know_from_more_than_the_file_says_is_a_doubt(op, more, reason):
    (found,) = parser.findings([Node(name="n", op=op, inputs=(FLOATS, *more), outputs=(FLOATS,))], TARGETS["8.5"])
    assert (found.reason, found.certain) == (reason, False)


def test_the_lists_are_of_ops_that_onnx_has():
    # ONNX dropped these; TensorRT's parsers still take them.
    former = {"ImageScaler", "ParametricSoftplus", "ScaledTanh"}
    known = {one.name for one in onnx.defs.get_all_schemas_with_history()}
    for ops in (operators.OPS_8_5, operators.OPS_10_1):
        assert former <= set(ops) and set(ops) - former <= known
    gained = set(operators.OPS_10_1) - set(operators.OPS_8_5)
    assert {"LayerNormalization", "GroupNormalization", "Gelu", "Mish", "IsInf"} <= gained and not set(
        operators.OPS_8_5
    ) - set(operators.OPS_10_1)


def test_a_graph_that_does_not_fit_is_told_by_the_checker(tmp_path):
    from tftrt_tools.tensorrt.exporting.job import model_file

    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["none"], ["y"], name="r")],
        "g",
        [value],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 16)], ir_version=8)
    with pytest.raises(errors.TftrtError, match="onnx.checker refuses the exported graph"):
        model_file.write(model, tmp_path / "m.onnx", {})
