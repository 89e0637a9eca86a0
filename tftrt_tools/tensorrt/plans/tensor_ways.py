"""How two models are run with inner tensors as outputs: two ONNX files, an ONNX file and a plan, or two SavedModels."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import typing
from collections.abc import Callable, Sequence

from tftrt_tools.accuracy import marked
from tftrt_tools.accuracy.marked import Chunks
from tftrt_tools.base import errors
from tftrt_tools.models.execution import run
from tftrt_tools.models.execution.runner import Where
from tftrt_tools.models.kinds import table
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan import kind as plan_kind
from tftrt_tools.models.kinds.savedmodel.kind import RUNTIME, SAVED_MODEL
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.plans import convert, shaping, tensor_files
from tftrt_tools.tensorrt.plans.settings import Settings

# Tensors of a run in TensorFlow alone, where they change nothing.
_WHOLE = 240


class Way(typing.Protocol):
    """A pair of models of some kinds."""

    # The signature that is called.
    signature: str
    # Whether float32 is computed without TF32 in the original, and the engines of the other are watched.
    exact: bool

    def written(self, names: list[str], chunk: int) -> Chunks:
        """The tensors that both compute, and a file for each run. Args: names: of tensors, [] for all; chunk: tensors of a run. Raises:
        UsageError."""

    def first(self, file: str) -> run.Placed:
        """What runs the original with the outputs of a file."""

    def second(self, file: str, folder: pathlib.Path) -> run.Placed:
        """What runs the other. Args: folder: for what has to be made. Raises: TftrtError."""

    def ran(self, where: Where) -> str:
        """Where the other ran, for people."""


def of(original: str, converted: str, signature: str) -> Callable[[Model, Model, str, str | None], Way]:
    """The Way of two models, by their kinds. Args: signature: of SavedModels, "" for the usual one. Raises: UsageError."""
    kinds = table.kind(original), table.kind(converted)
    if kinds == (SAVED_MODEL, SAVED_MODEL):
        return functools.partial(_SavedModels, signature)
    if kinds[0] is not ONNX or kinds[1] not in (ONNX, plan_kind.PLAN):
        raise errors.UsageError(
            f"--tensors compares tensors of one name, and the models are of two kinds: {original} ({kinds[0].name}), "
            f"{converted} ({kinds[1].name})",
            "give two SavedModels, or an ONNX file and a plan of it or another ONNX file",
        )
    if signature:
        raise errors.UsageError(
            "--signature_keys has no effect with --tensors of ONNX files, which have no signatures", "leave it out"
        )
    return _OnnxFiles


class _OnnxFiles:
    """A Way."""

    signature, exact = DEFAULT, False

    def __init__(self, first: Model, second: Model, folder: str, log_file: str | None) -> None:
        self._first, self._second, self._folder, self._log_file = first, second, folder, log_file

    def written(self, names: list[str], chunk: int) -> Chunks:
        files = (_onnx(self._first), _onnx(self._second))
        return tensor_files.find.run(
            tensor_files.Request(files=files, names=tuple(names), folder=self._folder, chunk=chunk)
        ).result

    def first(self, file: str) -> run.Placed:
        return run.Placed(file, ONNX.runtime)

    def second(self, file: str, folder: pathlib.Path) -> run.Placed:
        """ONNX Runtime, or a plan that is built like the one that is compared."""
        second = self._second
        if second.kind is ONNX:
            return run.Placed(file, ONNX.runtime)
        made = second.document(passport.MANIFEST) or {}
        with passport.understood(second.path, passport.MANIFEST):
            settings = Settings.from_dict(made["settings"])
        kept = tuple(str(pathlib.Path(second.path) / one.file) for one in document.read(second.path).plugins)
        target = folder / "plan"
        folder.mkdir(parents=True, exist_ok=True)
        shapes = shaping.without_signature(settings.shapes, [settings.signature])
        convert.convert(
            file,
            target,
            dataclasses.replace(settings, plugins=kept, signature_keys=(), shapes=shapes),
            log_file=self._log_file,
        )
        return plan_kind.at(str(target))

    def ran(self, where: Where) -> str:
        return where.text()


def _onnx(model: Model) -> str:
    return model.path if model.kind is ONNX else str(pathlib.Path(model.path) / document.ONNX)


class _SavedModels:
    """A Way."""

    exact = True

    def __init__(self, asked: str, first: Model, second: Model, folder: str, log_file: str | None) -> None:
        self._first, self._second, self._folder, self._log_file = first, second, folder, log_file
        self.signature = _signature(first, second, asked)
        self._runtime = dataclasses.replace(RUNTIME, job=marked.answer, jobs="tftrt_tools.accuracy.marked_job")

    def written(self, names: list[str], chunk: int) -> Chunks:
        request = marked.ChunksRequest(
            models=(self._first.path, self._second.path),
            signature=self.signature,
            names=tuple(names),
            folder=self._folder,
            chunk=chunk,
            whole=_WHOLE,
            inside=all(engine.precision != "INT8" for engine in self._second.engines),
        )
        return marked.find.run(request).result

    def first(self, file: str) -> run.Placed:
        return run.Placed(file, self._runtime)

    def second(self, file: str, folder: pathlib.Path) -> run.Placed:
        return run.Placed(file, self._runtime)

    def ran(self, where: Where) -> str:
        return where.text() + (", its engines' native segments" if where.mode == "native segments" else "")


def _signature(first: Model, second: Model, asked: str) -> str:
    """The signature to call: the one that is asked for, the usual one, or the only one that both have. Raises: UsageError."""
    both: Sequence[str] = [name for name in second.signatures if name in first.signatures]
    if asked in both or (not asked and DEFAULT in both):
        return asked or DEFAULT
    if not asked and len(both) == 1:
        return both[0]
    known = f"both have {', '.join(both)}" if both else "they have none of the same name"
    raise errors.UsageError(
        f"--tensors: the models have no signature {asked!r} in common"
        if asked
        else "--tensors is about one signature, and which one is not clear",
        f"--signature_keys=NAME; {known}",
    )
