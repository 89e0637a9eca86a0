"""The line `next: tftrt …` at the end of a command: ready to be pasted, whatever the paths are, and right for what was done."""

import re
import shlex
import shutil

import pytest

from tests.command_here import run_tftrt
from tftrt_tools.command_line.commands import _calling, _flags, _next, convert
from tftrt_tools.models.savedmodel import passport


def values_of(*argv, command=convert):
    return _flags.parse("convert", command, list(argv))[0]


def next_lines(printed):
    """The commands of each `next:` line, as words."""
    return [
        [shlex.split(one)[1:] for one in line.split(" && ")]
        for line in re.findall(r"^next: (.*)$", printed, re.MULTILINE)
    ]


def test_a_line_is_quoted_for_the_shell_and_never_wrapped(capsys):
    model = "my models/it's (new)/" + 200 * "x"
    _next.show(values_of(), ["verify", model, "b"], ["publish", "b"])
    assert next_lines(capsys.readouterr().out) == [[["verify", model, "b"], ["publish", "b"]]]


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
    assert next_lines(capsys.readouterr().out) == [[["verify", "a", "b"]]]


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
        "--freeze=training:false", "--allow_unsafe_deserialization", "--precision_mode=INT8", "--calibration_data=x.npz"
    )
    words = _next.convert(values, "models/resnet.h5", "FP16", "--dry_run", without=["calibration_data"])
    assert words == [
        "convert",
        "--input_saved_model_dir=models/resnet.h5",
        "--output_saved_model_dir=models/resnet_fp16",
        "--precision_mode=FP16",
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


@pytest.mark.slow
def test_the_lines_lead_from_a_model_to_a_server(zoo_model, tmp_path):
    """Each line is run as the command before printed it, in a folder whose name needs quotes."""
    folder = tmp_path / "it's here"
    folder.mkdir()
    shutil.copytree(zoo_model("digits_cnn"), folder / "my model")

    def run(*words):
        done = run_tftrt(*words, cwd=folder, env={"CUDA_VISIBLE_DEVICES": "-1"})
        assert done.returncode == 0, done.stderr
        return done.stdout

    ((convert_words,),) = next_lines(run("inspect", "my model", "--minimum_segment_size=4"))
    assert convert_words[0] == "convert" and "--minimum_segment_size=4" in convert_words
    ((verify_words,),) = next_lines(run(*convert_words))
    assert verify_words == ["verify", "my model", "my model_fp16"]
    assert next_lines(run("inspect", "my model_fp16")) == [[verify_words]]
    on_gpu = "\nnext, on a machine with a GPU: tftrt verify 'my model' 'my model_fp16' --allow_builds\n"
    for printed in (run(*verify_words), run("inspect", "my model_fp16")):
        assert on_gpu in printed and next_lines(printed) == [], "no engine ran"
    publish_words = _next.publish(values_of(), "my model_fp16")
    ((serve_words,),) = next_lines(run(*publish_words))
    assert serve_words == ["serve", "--model_name=my_model_fp16", f"--model_base_path={folder}/models/my_model_fp16"]
    assert "next" not in run(*verify_words, "--json=-")
