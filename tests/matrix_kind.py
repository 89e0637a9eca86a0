"""A kind of models that tests bring along: NumPy's own arrays."""

import contextlib
from collections.abc import Callable

import numpy as np

from tftrt_tools.base import errors
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import load_job, run_job
from tftrt_tools.models.execution.run import Answer, Indexed, LoadRequest, Request, Runtime
from tftrt_tools.models.execution.runner import Where
from tftrt_tools.models.kinds.model import Arithmetic, Contents, Overview, Signature
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.savedmodel.shapes import InputSpec


@jobs.job
def answer() -> Callable[[Request], Answer]:
    """Runs calls on a matrix, in NumPy."""
    return lambda request: run_job.answer(request, load)


@jobs.job
def under_load() -> Callable[[LoadRequest], Indexed]:
    """Makes calls on a matrix, for load in process."""
    return make


class Weights:
    """A kind: an .npz with one matrix, by which rows are multiplied."""

    name = "matrix"
    forms = ("a matrix (.matrix.npz)",)
    runtime = Runtime(job=answer, jobs="tests.matrix_kind", under_load=under_load)
    named_signatures = alone = of_tensorflow = False
    unconverted = ("a matrix is no TensorFlow model", "give one")

    def arithmetic(self, path):
        return Arithmetic("FP32", "NumPy")

    def onnx(self, path):
        return ""

    def weights(self, path):
        return ()

    def takes(self, path):
        return path.endswith(".matrix.npz")

    def check(self, source, as_it_is):
        if not self.takes(source.path):
            raise errors.UsageError("no matrix")

    def opened(self, source, log_file):
        return contextlib.nullcontext(source.path)

    def contents(self, paths):
        specs = [
            [InputSpec("rows", "float32", (None, len(matrix)))]
            + [InputSpec("product", "float32", (None, matrix.shape[1]))]
            for matrix in (np.load(path)["w"] for path in paths)
        ]
        return [Contents(signatures={"serving_default": Signature((one,), (other,))}) for one, other in specs]

    def overview(self, path):
        return Overview(
            model=path,
            form=self.name,
            signatures=self.contents([path])[0].signatures,
            opsets={},
            ops={"MatMul": 1},
            weights={},
            files=(),
            facts={},
            unasked=("what it is for",),
        )

    def digest(self, path):
        return files.digest(path)

    def document(self, path, name):
        return None

    def keep(self, path, name, document):
        return False


class Loaded:
    """The runner of a matrix."""

    where = Where(mode="cpu", runtime="NumPy", version=np.__version__)

    def __init__(self, path):
        self._weights = np.load(path)["w"]

    def ready(self, signature, inputs):
        return lambda: {"product": inputs["rows"] @ self._weights}

    def watched(self, ready):
        return ready(), None

    def kernels(self, calls):
        return {}


@contextlib.contextmanager
def load(path, wanted):
    yield Loaded(path)


def make(request):
    return load_job.made(request, load)
