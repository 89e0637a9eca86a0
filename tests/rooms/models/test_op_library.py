"""A model with a real custom op: taken by each command with --op_library, and without it told what is missing."""

import shutil
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from tests import next_lines
from tests.command_here import run_tftrt, unshared
from tests.command_line import assert_clear
from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport

pytestmark = pytest.mark.slow

# By TensorFlow's C API, whose headers are compiled in a moment: those for C++ take six seconds of processor time.
SOURCE = """
#include "tensorflow/c/kernels.h"
#include "tensorflow/c/ops.h"
#include "tensorflow/c/tf_tensor.h"
static void Same(TF_ShapeInferenceContext* context, TF_Status* status) {
  TF_ShapeHandle* shape = TF_NewShapeHandle();
  TF_ShapeInferenceContextGetInput(context, 0, shape, status);
  TF_ShapeInferenceContextSetOutput(context, 0, shape, status);
  TF_DeleteShapeHandle(shape);
}
static void Compute(void*, TF_OpKernelContext* context) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor *x = nullptr, *y = nullptr;
  TF_GetInput(context, 0, &x, status);
  int64_t dims[8];
  for (int i = 0; i < TF_NumDims(x); ++i) dims[i] = TF_Dim(x, i);
  y = TF_AllocateOutput(context, 0, TF_FLOAT, dims, TF_NumDims(x), TF_TensorByteSize(x), status);
  const float* from = (const float*)TF_TensorData(x);
  float* to = (float*)TF_TensorData(y);
  for (int64_t i = 0; i < TF_TensorElementCount(x); ++i) to[i] = 3 * from[i];
  TF_DeleteTensor(x);
  TF_DeleteTensor(y);
  TF_DeleteStatus(status);
}
static bool Register() {
  TF_Status* status = TF_NewStatus();
  TF_OpDefinitionBuilder* op = TF_NewOpDefinitionBuilder("ToolkitThreefold");
  TF_OpDefinitionBuilderAddInput(op, "x: float");
  TF_OpDefinitionBuilderAddOutput(op, "y: float");
  TF_OpDefinitionBuilderSetShapeInferenceFunction(op, &Same);
  TF_RegisterOpDefinition(op, status);
  TF_RegisterKernelBuilder("Threefold", TF_NewKernelBuilder("ToolkitThreefold", "CPU", nullptr, &Compute, nullptr), status);
  TF_DeleteStatus(status);
  return true;
}
static bool registered = Register();
"""


@pytest.fixture(autouse=True)
def nothing_is_left():
    """What has loaded a library cannot unload it."""
    with unshared():
        yield


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    if not shutil.which("g++"):
        pytest.skip("no g++ here to build a custom op with")
    folder = tmp_path_factory.mktemp("op")
    (folder / "threefold.cc").write_text(SOURCE)
    command = [
        "g++",
        "-O0",
        "-shared",
        "-fPIC",
        "threefold.cc",
        "-o",
        "threefold.so",
        *tf.sysconfig.get_compile_flags(),
        *tf.sysconfig.get_link_flags(),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder / "threefold.so"


@pytest.fixture(scope="module")
def frozen(library):
    """A frozen graph with the op between two that go into an engine."""
    path = library.with_name("model.pb")
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, 8], name="x")
        first = tf.nn.relu(tf.matmul(x, np.eye(8, dtype=np.float32)) + 1.0, name="first")
        tf.matmul(tf.nn.relu(first), np.full((8, 4), 0.5, np.float32), name="y")
        graph_def = graph.as_graph_def()
    for node in graph_def.node:
        node.input[:] = ["threefold" if name == "first" else name for name in node.input]
    graph_def.node.add(name="threefold", op="ToolkitThreefold", input=["first"])
    path.write_bytes(graph_def.SerializeToString())
    return path


def test_each_command_needs_the_library_and_takes_it(library, frozen):
    folder = library.parent
    refused = run_tftrt("convert", f"--model={frozen}", "--output=out", cwd=folder)
    assert_clear(
        refused,
        errors.EXIT_FAILED,
        "ToolkitThreefold is no op of this TensorFlow: name the library that has it with --op_library",
    )
    done = run_tftrt("convert", "--model=model.pb", "--output=out", "--op_library=threefold.so", cwd=folder)
    assert done.returncode == errors.EXIT_DONE, done.stderr
    assert passport.read(folder / "out", passport.MANIFEST)["op_libraries"] == [str(library)]
    assert f"--op_library={library}\n" in (passport.folder(folder / "out") / passport.FLAGS).read_text()
    verified = run_tftrt("verify", "model.pb", "out", "--op_library=threefold.so", cwd=folder)
    assert verified.returncode == errors.EXIT_DONE, verified.stdout + verified.stderr
    benched = run_tftrt(
        "bench",
        "--in_process=out",
        "--duration_seconds=1",
        "--warmup_seconds=0.5",
        "--op_library=threefold.so",
        cwd=folder,
    )
    assert benched.returncode == errors.EXIT_DONE, benched.stderr
    without = run_tftrt("bench", "--in_process=out", "--duration_seconds=1", "--warmup_seconds=0.5", cwd=folder)
    assert (
        without.returncode == errors.EXIT_FAILED
        and "ToolkitThreefold" in without.stderr
        and "--op_library" in without.stderr
    )


def test_a_library_that_is_none_is_told(frozen, tmp_path):
    (tmp_path / "no.so").write_text("x")
    assert_clear(
        run_tftrt("inspect", frozen, "--op_library=nowhere.so", cwd=tmp_path),
        errors.EXIT_USAGE,
        "--op_library=nowhere.so: no such file",
    )
    assert_clear(
        run_tftrt("inspect", frozen, "--op_library=no.so", cwd=tmp_path), errors.EXIT_USAGE, "cannot be loaded"
    )


def test_the_lines_that_name_the_next_command_repeat_the_library(library, frozen, tmp_path):
    folder = tmp_path / "it's here"
    folder.mkdir()
    for path in (library, frozen):
        shutil.copy(path, folder / f"the {path.name}")
    with next_lines.Way(folder) as way:
        given = "--op_library=the threefold.so"
        assert way.follow("inspect", "the model.pb", given) == ["inspect", "convert", "verify"]
        publish = ("publish", "the model_fp16", "--model_name=m", "--base_path=models")
        assert way.follow(*publish, given) == ["publish", "serve", "smoke", "bench"]
        refused = run_tftrt(*publish, cwd=folder)
        assert_clear(refused, errors.EXIT_CHECK, "op ToolkitThreefold is not one of TensorFlow's")
        elsewhere = run_tftrt(*publish, given, "--server_image=tensorflow/serving:2.14.1", cwd=folder)
        assert_clear(elsewhere, errors.EXIT_CHECK, "op ToolkitThreefold is not one of TensorFlow's")
