"""Proto modules without TensorFlow, and TensorFlow after them."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT


def python(text, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_model_is_described_without_tensorflow(zoo_model):
    text = """
import sys
from tftrt_tools.models.savedmodel import describe_job
found, = describe_job.job([sys.argv[1]])
print(*found.inputs)
print("tensorflow" in sys.modules, any(name.startswith("tensorflow.python") for name in sys.modules))
"""
    assert python(text, zoo_model("digits_cnn")) == ["serving_default", "False False"]


def test_tensorflow_can_be_imported_afterwards_and_shares_the_modules(zoo_model):
    text = """
import sys
from tftrt_tools.models.savedmodel.job import protos
proto = protos.read(sys.argv[1])
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
print(saved_model_pb2 is protos.saved_model_pb2, *tf.saved_model.load(sys.argv[1]).signatures)
graph = tf.Graph()
with graph.as_default():
    tf.import_graph_def(proto.meta_graphs[0].graph_def, name="")
print(len(graph.get_operations()) == len(proto.meta_graphs[0].graph_def.node))
"""
    assert python(text, zoo_model("digits_cnn")) == ["True serving_default", "True"]


@pytest.mark.parametrize("first", ["tensorflow", "tftrt_tools.models.savedmodel.job.protos"])
def test_without_tensorflow_the_error_names_it(tmp_path, first):
    text = f"""
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "tensorflow" else find(name)
if {first!r} == "tensorflow":
    import tensorflow
try:
    import tftrt_tools.models.savedmodel.job.protos
    print("imported")
except ImportError as error:
    print(error.name)
"""
    assert python(text) == ["imported" if first == "tensorflow" else "tensorflow"]
