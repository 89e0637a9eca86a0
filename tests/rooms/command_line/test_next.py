"""The line `next: tftrt …` at the end of a command: ready to be pasted, whatever the paths are, and right for what was done."""

import pathlib
import re
import shlex
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests import next_lines, zoo
from tests.command_here import run_tftrt
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _calling, _flags, _help, _next, convert
from tftrt_tools.models.savedmodel import passport

ON_GPU = next_lines.ON_GPU


def values_of(*argv, command=convert):
    return _flags.parse("convert", command, list(argv))[0]


def shown_by(printed):
    """The commands of each `next:` line, as words."""
    return [
        [shlex.split(one)[1:] for one in line.split(" && ")]
        for line in re.findall(r"^next: (.*)$", printed, re.MULTILINE)
    ]


def test_a_line_is_quoted_for_the_shell_and_never_wrapped(capsys):
    model = "my models/it's (new)/" + 200 * "x"
    _next.show(values_of(), ["verify", model, "b"], ["publish", "b"])
    assert shown_by(capsys.readouterr().out) == [[["verify", model, "b"], ["publish", "b"]]]


def test_saved_engines_need_the_tensorrt_that_built_them(capsys):
    built = {
        "gpu": {"name": "a GPU"},
        "versions": {"tensorrt": "8.6.1"},
        "signatures": [{"name": "s", "built": [{"name": "TRTEngineOp_0"}]}],
    }
    for manifest, needs in (
        (built, " and TensorRT 8.6.1"),
        ({**built, "settings": {"save_engines": False}}, ""),
        ({**built, "gpu": None}, ""),
        ({**built, "signatures": [{"name": "s", "built": []}]}, ""),
        (None, ""),
    ):
        _next.show_on_gpu(values_of(), ["verify", "a", "b"], manifest)
        assert capsys.readouterr().out == f"next, on a machine with a GPU{needs}: tftrt verify a b\n"


def test_no_line_where_a_program_reads_what_is_printed(capsys):
    _next.show(values_of("--json=-"), ["verify", "a", "b"])
    assert capsys.readouterr() == ("", "")
    _next.show(values_of("--json=result.json"), ["verify", "a", "b"])
    assert shown_by(capsys.readouterr().out) == [[["verify", "a", "b"]]]


def test_a_step_of_another_command_shows_no_line(capsys, monkeypatch):
    monkeypatch.setattr(_calling, "_running", ["optimize", "convert"])
    _next.show(values_of("--json=result.json"), ["verify", "a", "b"])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("model", "beside"),
    [("m.h5", "m_fp16"), (".", "../here_fp16"), ("..", "../../HERE_fp16"), ("/", "/_fp16"), ("sub/..", "../here_fp16")],
)
def test_a_folder_beside_a_model_has_a_name(model, beside, tmp_path, monkeypatch):
    (tmp_path / "here/sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    found = _next.sibling(model, "fp16")
    assert found == beside.replace("HERE", tmp_path.name) or model == "/" and found.endswith("_fp16")


def test_given_flags_are_repeated_and_defaults_are_not():
    values = values_of(
        "--minimum_segment_size=5",
        "--nosave_engines",
        "--keep_native_ops=A,B",
        "--op_library=x.so",
        "--op_library=y.so",
        "--tags=",
    )
    names = ("minimum_segment_size", "save_engines", "keep_native_ops", "op_library", "max_engines", "unknown_here")
    assert _next.given(values, names) == [
        "--minimum_segment_size=5",
        "--nosave_engines",
        "--keep_native_ops=A,B",
        "--op_library=x.so",
        "--op_library=y.so",
    ]


def test_a_conversion_has_the_settings_and_a_folder_beside_the_model():
    values = values_of(
        "--freeze=training:false", "--allow_unsafe_deserialization", "--precision=INT8", "--calibration_data=x.npz"
    )
    words = _next.convert(values, "models/resnet.h5", "FP16", "--dry_run", without=["calibration_data"])
    assert words == [
        "convert",
        "models/resnet.h5",
        "models/resnet_fp16",
        "--precision=FP16",
        "--allow_unsafe_deserialization",
        "--freeze=training:false",
        "--dry_run",
    ]
    assert _next.output_of(words) == "models/resnet_fp16"
    assert _next.sibling("resnet/", "fp16") == "resnet_fp16" and _next.sibling("v1.2", "fp16") == "v1.2_fp16"
    # Nothing is made in a folder that a server watches for versions.
    assert _next.sibling("models/resnet/12", "fp16") == "models/resnet_12_fp16"


def test_the_original_is_named_only_where_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "model"
    (model / passport.folder("")).mkdir(parents=True)
    passport.write(model, passport.MANIFEST, {"source": str(tmp_path / "a b")})
    assert _next.original("model") == ""
    (tmp_path / "a b").mkdir()
    assert _next.original("model") == "a b"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert _next.original("../model") == str(tmp_path / "a b")
    assert _next.original(".") == ""


@pytest.fixture
def way(tmp_path):
    """A folder whose name needs quotes, where lines are followed."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    with next_lines.Way(folder) as found:
        yield found


@pytest.mark.slow
def test_the_lines_lead_from_a_saved_model_to_a_server(way, zoo_model):
    way.benches = True
    shutil.copytree(zoo_model("digits_cnn"), way.folder / "my model")
    assert way.follow("inspect", "my model", "--minimum_segment_size=4") == ["inspect", "convert", "verify"]
    assert "--minimum_segment_size=4" in way.ran[1] and way.ran[2] == ["verify", "my model", "my model_fp16"]
    on_gpu = ["verify", "my model", "my model_fp16", "--allow_builds"]
    assert way.waits.pop() == (ON_GPU, on_gpu), "no engine ran"
    assert way.follow("inspect", "my model_fp16") == ["inspect"] and way.waits.pop() == (ON_GPU, on_gpu)
    # What is there already is not written over: the line names another folder.
    assert way.follow("inspect", "my model") == ["inspect", "convert", "verify"]
    assert way.ran[-1] == ["verify", "my model", "my model_fp16_2"]
    assert way.follow("build", "my model_fp16", "--strip", "--output=strip ped") == ["build", "verify"]
    shown = ["publish", "serve", "smoke", "bench"]
    assert way.follow(*_next.publish(values_of(), "my model_fp16")) == shown
    base_path = way.folder / "models/my_model_fp16"
    assert way.follow("configure", "--output=con fig", f"--model=m={base_path}") == ["configure", *shown[1:]]


@pytest.mark.slow
def test_the_lines_lead_on_from_rows_and_ranges(way, zoo_model, images):
    """Each of them leads to a conversion of its own, in a folder of its own."""
    shutil.copytree(zoo_model("digits_cnn"), way.folder / "my model")
    for name in ("held_back.npz", "calibration.npz", "labels.npy"):
        shutil.copy(images / name, way.folder / f"the {name}")
    verified = ["convert", "verify"]
    ranges = ("--calibration_data=the calibration.npz", "--output_table=a table.json", "--minimum_segment_size=4")
    # INT8 is verified with rows of one's own.
    assert way.follow("calibrate", "my model", *ranges) == ["calibrate", "convert"]
    assert "--calibration_table=a table.json" in way.ran[-1] and "--minimum_segment_size=4" in way.ran[-1]
    rows = ("--output=some rows.npz", "--labels=the labels.npy", "--output_labels=some labels.npy")
    others = ("--calibration_rows=60", "--output_calibration=other rows.npz")
    assert way.follow("data", "my model", "the held_back.npz", *rows, *others) == ["data", *verified]
    assert way.ran[-1][2:] == ["my model_int8_2", "--data=some rows.npz", "--labels=some labels.npy"]
    assert way.follow("data", "my model_int8", "the held_back.npz", "--output=again.npz") == ["data", "verify"]
    assert way.follow("sensitivity", "my model", "--data=the held_back.npz") == ["sensitivity", "convert"]
    assert way.ran[-1][2] == "my model_int8_3"
    # Where a model misses bounds, its own ranges are studied, and not those of the rows that are scored.
    own = ("convert", "my model", "own", "--precision=INT8", "--calibration_data=the calibration.npz")
    assert run_tftrt(*own, "--calibration_batch_size=64", cwd=way.folder).returncode == errors.EXIT_DONE
    data = [f"--calibration_data={way.folder / 'the calibration.npz'}", "--calibration_batch_size=64"]
    for number, (model, ranges) in enumerate(
        {"own": data, "my model_int8": ["--calibration_table=my model_int8"]}.items(), 4
    ):
        missed = ("my model", model, "--data=the held_back.npz", "--thresholds=snr_db>=60")
        done = run_tftrt("verify", *missed, cwd=way.folder)
        assert done.returncode == errors.EXIT_CHECK, done.stderr
        ((words,),) = shown_by(done.stdout)
        assert set(ranges) <= set(words)
        assert way.follow(*words) == ["sensitivity", "convert"] and way.ran[-1][2] == f"my model_int8_{number}"
    (way.folder / "the calibration.npz").unlink()
    (way.folder / "the calibration.npz").mkdir()  # what lies there now is no data
    done = run_tftrt("verify", "my model", "own", *missed[2:], cwd=way.folder)
    assert done.returncode == errors.EXIT_CHECK and "--calibration_table=own" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_lines_lead_on_from_files(way, tmp_path_factory, images, onnx_model):
    shutil.copy(zoo.trained(tmp_path_factory) / "model.keras", way.folder / "my model.keras")
    shutil.copy(onnx_model("digits_cnn"), way.folder / "my file.onnx")
    shutil.copy(images / "held_back.npz", way.folder / "the rows.npz")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        y = tf.nn.relu(tf.matmul(tf.nn.relu(x), np.full((8, 4), 0.5, np.float32)) + 1.0, name="y")
        tf.identity(tf.nn.relu(y), name="behind")
    (way.folder / "fro zen.pb").write_bytes(graph.as_graph_def().SerializeToString())
    for flags in (["my model.keras"], ["fro zen.pb", "--outputs=y"]):
        assert way.follow("inspect", *flags) == ["inspect", "convert", "verify"]
        assert way.ran[-1][3:] == flags[1:] and way.waits[-1][1][3:] == [*flags[1:], "--allow_builds"]
        assert way.follow(*_next.publish(values_of(), way.ran[-1][2])) == ["publish", "serve", "smoke", "bench"]
    found = way.follow("sensitivity", "my file.onnx", "--data=the rows.npz", "--precision=FP16")
    assert found == ["sensitivity", "export"]


@pytest.mark.slow
def test_the_lines_lead_on_from_a_model_that_takes_pictures(way, zoo_model):
    shutil.copytree(zoo_model("digits_cnn"), way.folder / "my model")
    found = way.follow("wrap", "my model", "--output=of pictures", "--image_scale=1/255")
    assert found == ["wrap", "verify", "publish", "serve", "smoke", "bench"]


@pytest.mark.slow
def test_a_model_of_open_sizes_gets_them_or_the_line_says_that_it_needs_them(way):
    module = tf.Module()
    module.serve = tf.function(
        lambda x: {"y": tf.nn.relu(x @ tf.ones((8, 4))) + 1.0},
        input_signature=[tf.TensorSpec([None, None, 8], tf.float32, name="x")],
    )
    tf.saved_model.save(module, str(way.folder / "open sizes"), {"serving_default": module.serve})
    small = ("--minimum_segment_size=1", "--use_dynamic_shape")
    assert way.follow("inspect", "open sizes", *small) == ["inspect", "convert"]
    ((needs, verify_words),) = way.waits
    assert needs == ", with --data or --shapes for the open sizes of input 'x'"
    assert way.follow(*verify_words, "--shapes=x:1x3x8,4x3x8") == ["verify"]
    # A model without engines is judged for good without a GPU.
    shutil.copytree(way.folder / "open sizes", way.folder / "plain")
    assert way.follow("verify", "open sizes", "plain", "--shapes=x:1x3x8") == [
        "verify",
        "publish",
        "serve",
        "smoke",
        "bench",
    ]
    assert "--warmup_shapes=x:1x3x8" in way.ran[-4] and "--shapes=serving_default/x:1x3x8" in way.ran[-1]
    np.savez(way.folder / "my rows.npz", x=np.random.default_rng(0).normal(size=(4, 5, 8)).astype(np.float32))
    shutil.copytree(way.folder / "open sizes", way.folder / "plain too")
    way.follow("verify", "open sizes", "plain too", "--data=my rows.npz")
    assert "--warmup_data=my rows.npz" in way.ran[-4] and way.ran[-1][0] == "bench"
    way.waits.clear()
    way.follow(*_next.publish(values_of(), "plain"), "--nowarmup")
    assert way.waits == [(needs, way.waits[0][1])] and way.waits[0][1][0] == "smoke"


@pytest.mark.slow
def test_what_builds_engines_waits_for_a_gpu(way, zoo_model, images):
    shutil.copytree(zoo_model("digits_cnn"), way.folder / "my model")
    shutil.copy(images / "calibration.npz", way.folder / "rows.npz")
    assert way.follow("inspect", "my model", "--shapes=image:1x8x8x1") == ["inspect"]
    ranges = ("--calibration_data=rows.npz", "--output_table=t")
    assert way.follow("calibrate", "my model", "--shapes=image:1x8x8x1", *ranges) == ["calibrate"]
    assert [(needs, words[0]) for needs, words in way.waits] == 2 * [(ON_GPU, "convert")]


def test_a_step_that_needs_a_gpu_is_no_step_where_none_is_asked(capsys, monkeypatch):
    monkeypatch.setattr(_calling, "_running", ["optimize", "verify"])
    _next.show_on_gpu(values_of(), ["verify", "a", "b"])
    _next.show_on_gpu(values_of("--json=-"), ["verify", "a", "b"])
    assert capsys.readouterr() == ("", "")


def test_every_command_that_names_a_next_one_is_followed():
    """A new one has to be followed here, or where its GPU or server is."""
    here = {"inspect", "convert", "build", "verify", "publish", "serve", "smoke", "configure"}
    here |= {"calibrate", "data", "sensitivity", "wrap"}
    elsewhere = {"export", "tune", "optimize", "regress", "_batching"}
    modules = pathlib.Path(_next.__file__).parent.glob("*.py")
    assert {path.stem for path in modules if "_next.show" in path.read_text()} == here | elsewhere


def test_a_server_of_a_model_with_ops_of_a_library_is_launched_by_flags_that_a_help_has():
    values = _flags.parse("publish", _calling.module("publish"), ["--op_library=ops.so"])[0]
    words = _next.serve(values, "m", "models/m")
    assert words[-2:] == ["--launch=local", "--op_library=ops.so"]
    shown = _help.shown(_flags.defaults(_calling.module("serve")))
    assert {word.lstrip("-").partition("=")[0] for word in words[1:]} <= set(shown)
