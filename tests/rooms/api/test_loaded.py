"""`tftrt_tools.load`: a model of any kind in a process of its own, called with arrays."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tftrt_tools
from tests import command_here
from tests.conftest import ROOT
from tests.zoo import zoo_inputs
from tftrt_tools.api import loaded
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel.shapes import InputSpec

DIGITS = np.zeros((2, 8, 8, 1), np.float32)


@pytest.fixture(scope="module")
def digits(zoo_model):
    """A loaded model that the tests of this file share."""
    with tftrt_tools.load(zoo_model("digits_cnn")) as model:
        yield model


@pytest.fixture(scope="module")
def twice(tmp_path_factory):
    """An ONNX file that doubles `input.1`, and adds `self` to it: names that Python takes otherwise."""
    names = ("input.1", "self")
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 2]) for name in names]
    output = helper.make_tensor_value_info("sum", TensorProto.FLOAT, ["rows", 2])
    nodes = [
        helper.make_node("Add", ["input.1", "input.1"], ["double"]),
        helper.make_node("Add", ["double", "self"], ["sum"]),
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "twice", inputs, [output]), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    path = tmp_path_factory.mktemp("onnx") / "twice.onnx"
    onnx.save(model, path)
    return path


def test_it_answers_by_name_by_mapping_and_with_one_array(digits):
    image = np.random.default_rng(0).random((3, 8, 8, 1), np.float32)
    answers = digits(image=image)
    assert set(answers) == {"probabilities"} and answers["probabilities"].shape == (3, 10)
    assert np.allclose(answers["probabilities"].sum(1), 1, atol=1e-5)
    for other in (
        digits({"image": image}),
        digits(image),
        digits["serving_default"](image=image),
        digits(image.tolist()),
    ):
        assert np.array_equal(other["probabilities"], answers["probabilities"])
    # Not the answer to the call before.
    assert not np.array_equal(digits(image=image + 1)["probabilities"], answers["probabilities"])


def test_it_says_what_it_takes_and_where_it_runs(digits):
    assert digits.inputs["image"].text() == "float32[?,8,8,1]" and set(digits.outputs) == {"probabilities"}
    assert list(digits.signatures) == ["serving_default"] and digits.signature == "serving_default"
    assert digits.where.runtime == "TensorFlow" and "image float32[?,8,8,1]" in repr(digits)


@pytest.mark.parametrize(
    ("inputs", "said", "mend"),
    [
        (
            {"imgae": DIGITS},
            "'serving_default' has no input 'imgae'",
            "did you mean 'image'?; it takes image float32[?,8,8,1]",
        ),
        ({}, "input 'image' of 'serving_default' is missing", "it takes image float32[?,8,8,1]"),
        ({"image": DIGITS[:, :4]}, "input 'image' takes float32[?,8,8,1], and float32[2,4,8,1] came", ""),
        ({"image": DIGITS[0]}, "input 'image' takes float32[?,8,8,1], and float32[8,8,1] came", ""),
        ({"image": np.array(["a"])}, "input 'image' takes float32[?,8,8,1], and a", ""),
        (
            {"image": DIGITS.astype(complex)},
            "input 'image' takes float32[?,8,8,1], and complex128 came",
            "convert it to float32",
        ),
        pytest.param({"image": object()}, "input 'image' takes float32[?,8,8,1], and", "", id="an object"),
        ({"image": [[1], [2, 3]]}, "a list that is no array came", ""),
    ],
    ids=str,
)
def test_what_it_does_not_take_is_told_in_a_line(digits, inputs, said, mend):
    if "and a" in said and "ndarray" not in said:
        said = said.removesuffix(", and a")
    with pytest.raises(errors.UsageError) as error:
        digits(inputs)
    assert said in error.value.cause and mend in error.value.mend and "\n" not in str(error.value)
    # And it can still be called.
    assert digits(DIGITS)["probabilities"].shape == (2, 10)


def test_an_input_given_twice_or_without_a_name(digits, twice):
    with pytest.raises(errors.UsageError, match="'image' is given twice"):
        digits({"image": DIGITS}, image=DIGITS)
    with pytest.raises(errors.UsageError, match="an array without a name"):
        digits(DIGITS, image=DIGITS)
    with (
        tftrt_tools.load(twice) as model,
        pytest.raises(errors.UsageError, match="takes 2 inputs; name them: input.1, self"),
    ):
        model(DIGITS)


def test_an_onnx_file_is_called_alike_also_by_names_that_python_takes_otherwise(twice):
    rows = np.array([[1, 2]], np.float32)
    with tftrt_tools.load(str(twice)) as model:
        assert model.where.runtime == "ONNX Runtime"
        assert model({"input.1": rows, "self": rows})["sum"].tolist() == [[3, 6]]
        assert model(self=rows, **{"input.1": rows})["sum"].tolist() == [[3, 6]]


def test_the_signatures_of_a_model_are_functions(zoo_model):
    inputs = zoo_inputs("ranker")
    with tftrt_tools.load(zoo_model("ranker")) as model:
        for name, arrays in inputs.items():
            answers = model[name](arrays)
            assert set(answers) == set(model[name].outputs) and all(map(len, answers.values()))
        with pytest.raises(errors.UsageError, match=r"no signature 'scor'.*did you mean|no signature 'scor'"):
            model["scor"]


def test_a_converted_model_runs_its_native_segments_without_a_gpu(converted, digits):
    path = converted("digits_cnn", "--precision=FP16", "--use_dynamic_shape")
    with tftrt_tools.load(path) as model:
        assert model.where.mode == "native segments" and model.where.replaced
        assert "its engines as native segments" in repr(model)
        assert np.allclose(model(DIGITS)["probabilities"], digits(DIGITS)["probabilities"], atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "value", "wanted"),
    [
        ("float32", [1, 2], np.float32),
        ("float32", np.array([1.5], np.float64), np.float32),
        ("float32", np.array([np.nan, np.inf]), np.float32),
        ("int32", np.array([1], np.int64), np.int32),
        ("bfloat16", np.array([1.0]), "bfloat16"),
        ("string", ["a", b"b"], object),
        ("string", np.array(["a"]), object),
        ("bool", [True], bool),
    ],
    ids=str,
)
def test_arrays_are_cast_where_nothing_is_lost(dtype, value, wanted):
    got = loaded._cast(InputSpec("x", dtype, (None,)), value)
    assert got.dtype == np.dtype(wanted)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", [1.5]),
        ("int32", np.array([2**31])),
        ("int8", np.array([128])),
        ("uint8", np.array([-1])),
        ("float32", np.array(["1"])),
        ("float32", np.array([b"1"], object)),
        ("float32", np.array([1j])),
        ("string", [1]),
        ("string", np.array([1, "a"], object)),
        ("bool", [2]),
        ("float32", None),
    ],
    ids=str,
)
def test_arrays_are_refused_where_something_would_be_lost(dtype, value):
    with pytest.raises(errors.UsageError, match=f"input 'x' takes {dtype}"):
        loaded._cast(InputSpec("x", dtype, (None,)), value)


def test_what_is_no_model_is_told_before_anything_is_started(tmp_path):
    with pytest.raises(errors.TftrtError, match="nowhere"):
        tftrt_tools.load(tmp_path / "nowhere")
    (tmp_path / "broken.onnx").write_bytes(b"no onnx")
    with pytest.raises(errors.TftrtError, match=r"broken\.onnx"):
        tftrt_tools.load(tmp_path / "broken.onnx")
    with pytest.raises(errors.UsageError, match=r"load\(\) takes the path of a model, and a ndarray came"):
        tftrt_tools.load(DIGITS)


def test_a_library_of_ops_that_is_not_there(zoo_model, tmp_path):
    with pytest.raises(errors.UsageError, match="--op_library=.*no such file"):
        tftrt_tools.load(zoo_model("digits_cnn"), op_library=tmp_path / "ops.so")


def test_a_call_that_the_model_refuses_leaves_it_usable(tmp_path):
    indices = helper.make_tensor_value_info("rows", TensorProto.INT64, ["n"])
    taken = helper.make_tensor_value_info("taken", TensorProto.FLOAT, ["n"])
    table = helper.make_tensor("table", TensorProto.FLOAT, [2], [1.0, 2.0])
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "rows"], ["taken"])], "g", [indices], [taken], [table]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "g.onnx")
    with tftrt_tools.load(tmp_path / "g.onnx") as model:
        with pytest.raises(errors.CallFailed, match="signature 'serving_default' fails for rows 1"):
            model(rows=[7])
        assert model(rows=[1])["taken"].tolist() == [2]


def pids(model):
    return model._process._worker._process._process.pid


def gone(pid, seconds=10):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_its_process_and_files_end_with_the_block_with_close_and_with_the_last_reference(twice):
    with command_here.unshared():
        with tftrt_tools.load(twice) as model:
            pid, folder = pids(model), model._process._folder
            assert folder.is_dir()
        assert model.closed and gone(pid) and not folder.exists() and "closed" in repr(model)
        with pytest.raises(errors.TftrtError, match=r"was closed; load it again"):
            model({"input.1": [[1, 2]], "self": [[1, 2]]})
        model.close()
        other = tftrt_tools.load(twice)
        pid, folder = pids(other), other._process._folder
        del other
        gc.collect()
        assert gone(pid) and not folder.exists()


def test_an_exception_in_the_block_is_the_user_s_and_ends_the_process(twice):
    with command_here.unshared(), pytest.raises(ZeroDivisionError):
        with tftrt_tools.load(twice) as model:
            pid = pids(model)
            1 / 0  # noqa: B018
    assert gone(pid)


def test_a_process_that_is_killed_is_told_and_not_called_again(twice):
    rows = {"input.1": np.ones((1, 2), np.float32), "self": np.ones((1, 2), np.float32)}
    with command_here.unshared(), tftrt_tools.load(twice) as model:
        os.kill(pids(model), signal.SIGKILL)
        with pytest.raises(errors.TftrtError, match=r"SIGKILL|has ended"):
            model(rows)
        with pytest.raises(errors.TftrtError, match="the process of .* has ended; load it again"):
            model(rows)
        assert model.closed


def test_threads_get_each_their_own_answers(digits):
    images = np.random.default_rng(1).random((8, 1, 8, 8, 1), np.float32)
    wanted = [digits(image)["probabilities"] for image in images]
    got = [None] * len(images)

    def ask(place):
        got[place] = digits(images[place])["probabilities"]

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(images))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(np.array_equal(one, other) for one, other in zip(got, wanted, strict=True))


INTERRUPTED = """
import os, signal, sys, threading
import numpy as np
import tftrt_tools as tftrt

image = np.zeros((1, 8, 8, 1), np.float32)
try:
    with tftrt.load(sys.argv[1]) as model:
        model(image)
        print(model._process._worker._process._process.pid, model._process._folder, flush=True)
        while True:
            model(image)
except KeyboardInterrupt:
    print("interrupted", "tensorflow" in sys.modules, model.closed, flush=True)
"""


@pytest.mark.slow
def test_ctrl_c_inside_the_block_ends_the_process_and_reaches_the_program(zoo_model):
    one = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(INTERRUPTED), str(zoo_model("digits_cnn"))],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    pid, folder = one.stdout.readline().split()
    time.sleep(0.3)
    one.send_signal(signal.SIGINT)
    rest, _ = one.communicate(timeout=60)
    assert rest == "interrupted False True\n" and one.returncode == 0
    assert gone(int(pid)) and not pathlib.Path(folder).exists()
