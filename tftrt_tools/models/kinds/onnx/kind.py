"""The kind "ONNX file", the parent's side. ONNX Runtime is not imported here."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.choices import PRECISIONS
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds.model import Arithmetic, Contents, Overview
from tftrt_tools.models.kinds.onnx import file
from tftrt_tools.models.savedmodel import files
from tftrt_tools.models.sources import kinds
from tftrt_tools.models.sources.source import Source

_SUFFIX = ".onnx"
# Keys in the metadata of a file: `tftrt export` wrote it, and the precision that it put into the graph.
TOOL, PRECISION = "tftrt.tool", "tftrt.precision"
# ONNX's own ops and those of ONNX Runtime (com.microsoft).
_ROUNDING = re.compile(
    r"(Dynamic)?Quantize(Linear|MatMul|LSTM)|DequantizeLinear|(Conv|MatMul)Integer\w*|"
    r"Q(Linear\w+|Ordered\w+|Gemm|Attention|EmbedLayerNormalization|MoE)"
)


@jobs.job
def answer() -> Callable[[run.Request], run.Answer]:
    """Runs calls on an ONNX file, in ONNX Runtime."""
    from tftrt_tools.models.kinds.onnx import runner_job

    return runner_job.job


@jobs.job
def under_load() -> Callable[[run.LoadRequest], run.Indexed]:
    """Makes calls on an ONNX file, for load in process."""
    from tftrt_tools.models.kinds.onnx import runner_job

    return runner_job.make


@jobs.job
def read() -> Callable[[Sequence[str]], Sequence[Contents]]:
    """The contents of ONNX files, by their paths. Raises: TftrtError."""
    from tftrt_tools.models.kinds.onnx import runner_job

    return runner_job.read


def rounding(ops: Iterable[str]) -> list[str]:
    """The ops that round to INT8 or compute in it. Args: ops: as Overview.ops has them, DOMAIN.OP outside ONNX's own domain."""
    return [op for op in ops if _ROUNDING.fullmatch(op.rpartition(".")[2])]


class Onnx:
    """The kind, with the members of model.Kind."""

    name = "ONNX file"
    forms = (f"an ONNX file ({_SUFFIX})",)
    runtime = run.Runtime(
        job=answer, jobs="tftrt_tools.models.kinds.onnx.runner_job", under_load=under_load, package="onnxruntime"
    )
    named_signatures = False
    unconverted = ("TF-TRT converts TensorFlow models", kinds.WITH_ONNX)

    alone, of_tensorflow = False, False

    def onnx(self, path: str) -> str:
        """As model.Kind.onnx."""
        return path

    def weights(self, path: str) -> tuple[str, ...]:
        """As model.Kind.weights."""
        return tuple(file.outside(path))

    def arithmetic(self, path: str) -> Arithmetic:
        """As model.Kind.arithmetic: the precision that an export put into the graph; in another file that of its ops or weights."""
        known = file.overview(path)
        # Another tool, or a later version of this one, may have written an unknown word.
        precision = known.facts.get(PRECISION, "")
        if precision not in PRECISIONS:
            # One constant in FP16 is no FP16 model.
            halves = known.weights.get("float16", 0) > known.weights.get("float32", 0)
            precision = "INT8" if rounding(known.ops) else "FP16" if halves else ""
        return (
            Arithmetic(precision, f"{precision} in the graph")
            if precision
            else Arithmetic("FP32", "float32 of ONNX Runtime on the CPU")
        )

    def takes(self, path: str) -> bool:
        """Whether the name ends in .onnx."""
        return path.lower().endswith(_SUFFIX) and not pathlib.Path(path).is_dir()

    def check(self, source: Source, as_it_is: bool) -> None:
        """As model.Kind.check."""
        if not pathlib.Path(source.path).is_file():
            raise errors.UsageError(f"no such file: {source}", "check the path of the ONNX file")
        if importlib.util.find_spec("onnxruntime") is None:
            raise errors.TftrtError(
                f"ONNX Runtime, which runs {source}, is not installed",
                "pip install onnxruntime (the extra `onnx` has the version that was tested)",
            )

    def opened(self, source: Source, log_file: str | None) -> AbstractContextManager[str]:
        """As model.Kind.opened: the file itself."""
        return contextlib.nullcontext(source.path)

    def contents(self, paths: Sequence[str]) -> list[Contents]:
        """As model.Kind.contents; one process reads them all."""
        return list(read.run(paths).result)

    def overview(self, path: str) -> Overview:
        """As model.Kind.overview."""
        return file.overview(path)

    def digest(self, path: str) -> str:
        """As model.Kind.digest: of the file, and of the files beside it that hold its weights."""
        beside = file.outside(path)
        digests = [files.digest(one) for one in (path, *beside)]
        return "sha256:" + hashlib.sha256("\n".join(digests).encode()).hexdigest() if beside else digests[0]

    def document(self, path: str, name: str) -> dict[str, Any] | None:
        """None: a file carries no passport."""
        return None

    def keep(self, path: str, name: str, document: Mapping[str, Any]) -> bool:
        """False: a file carries no passport."""
        return False


ONNX = Onnx()
