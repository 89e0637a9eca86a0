"""The inner tensors of a SavedModel and of its conversion: which both compute, and their values; the child's side.

A `Marked` file names a model, a signature and tensors. It stands for the model with these tensors as outputs.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import tensorflow as tf

from tftrt_tools.accuracy.marked import Chunk, Chunks, ChunksRequest, SharedTensor
from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents, plain_file, scratch
from tftrt_tools.models.execution import run_job
from tftrt_tools.models.execution.job import gpu as gpu_module
from tftrt_tools.models.kinds.savedmodel import runner_job
from tftrt_tools.models.savedmodel.job import detach, graph, inline, loading, marking, protos
from tftrt_tools.tftrt.conversion.job import graph_pass

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Answer, Request
    from tftrt_tools.models.execution.runner import Arrays, Ready, Wanted, Where

_MOST_TOLD = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marked(records.Record):
    """A SavedModel with inner tensors of a signature as outputs."""

    model: str
    signature: str
    tensors: tuple[str, ...]


def chunks(request: ChunksRequest) -> Chunks:
    """Find the tensors that both compute, and write files for runs with some of them each.

    Raises: UsageError for a tensor that one of them has not, or if they share none.
    """
    folder = pathlib.Path(request.folder)
    both = [
        _of(_without_engines(model, folder / f"copy-{number}"), request.signature)
        for number, model in enumerate(request.models)
    ]
    first, second = (marking.computed(frozen.graph_def, prefix) for frozen, prefix in both)
    shared = {name: second[name] for name, tensor in first.items() if name in second and tensor.alike(second[name])}
    seen = {
        name: tensor for name, tensor in shared.items() if request.inside or not tensor.engine or tensor.output >= 0
    }
    names = [name if name in shared or ":" in name else f"{name}:0" for name in request.names]
    for given_name, name in zip(request.names, names, strict=True):
        if name not in seen:
            raise errors.UsageError(*_refused(given_name, name, shared, seen))
    if not seen:
        raise errors.UsageError(
            "--tensors: the models have no inner tensor of the same name", "compare a model with what was made from it"
        )
    chosen = {name: tensor for name, tensor in seen.items() if name in names or not names}
    doubtful = _doubtful(first, shared)
    listed, results = list(chosen), []
    size = request.chunk if gpu_module.seen() else request.whole
    for start in range(0, len(listed), size):
        part = listed[start : start + size]
        paths = [folder / f"{side}-{start}.json" for side in ("first", "second")]
        for model, path in zip(request.models, paths, strict=True):
            marked = Marked(model=model, signature=request.signature, tensors=tuple(part))
            plain_file.write_text(path, json.dumps(marked.to_dict()))
        told = tuple(
            SharedTensor(tensor=name, node=_told(chosen[name]), first=name, second=name, doubtful=name in doubtful)
            for name in part
        )
        results.append(Chunk(first=str(paths[0]), second=str(paths[1]), tensors=told))
    return Chunks(chunks=tuple(results), computed=len(second))


def _doubtful(first: Mapping[str, marking.Computed], shared: Collection[str]) -> set[str]:
    """Names of tensors behind one that the other model has not: a rewrite may have changed what they hold, such as their form."""
    names: set[str] = set()
    for name, tensor in first.items():
        if name not in shared or not names.isdisjoint(tensor.reads):
            names.add(name)
    return names


def _told(one: marking.Computed) -> str:
    return f"{one.op} in {graph.engine_name(one.engine)}" if one.engine else one.op


def _refused(
    said: str, name: str, shared: dict[str, marking.Computed], seen: dict[str, marking.Computed]
) -> tuple[str, str]:
    """(why there is no such tensor to compare, the mend). Args: said: as the user wrote the name."""
    if name in shared:
        return (
            f"--tensors: {said!r} is inside an INT8 engine, where a further output has no range and changes what it measures",
            "--tensors=all compares what engines give; export the model, and compare the ONNX file with its plan",
        )
    mend = errors.nearest(said, ["all", *seen], _MOST_TOLD) if seen else "they share none"
    return f"--tensors: {said!r} is no tensor of floats that both models compute", mend


def _without_engines(model: str, folder: pathlib.Path) -> loading.Model:
    """A SavedModel, loaded without the engines that are saved with it: they need a GPU."""
    detach.write(protos.read(model), model, folder)
    return loading.load(folder)


def _of(model: loading.Model, signature: str) -> tuple[graph_pass.Frozen, str]:
    """(a signature, what its nodes' names begin with)."""
    function = model.root.signatures[signature]
    frozen = graph_pass.freeze(signature, function)
    frozen = dataclasses.replace(frozen, graph_def=inline.inline_calls(frozen.graph_def))
    engines = [node.name for node in frozen.graph_def.node if node.op == graph.ENGINE_OP]
    # A converted signature is a call of the converted graph, and the call's name stands before each name of it.
    calls = [
        op.name + "/"
        for op in function.graph.get_operations()
        if op.type in ("PartitionedCall", "StatefulPartitionedCall")
    ]
    return frozen, next((call for call in calls if engines and all(name.startswith(call) for name in engines)), "")


def job(request: Request) -> Answer:
    """The job run_job.answer, for files with a Marked."""
    return run_job.answer(request, load)


@contextlib.contextmanager
def load(path: str, wanted: Wanted) -> Iterator[_Runner]:
    """Load a Marked, as runner.Load."""
    marked = Marked.from_dict(documents.read(path))
    gpu = runner_job.prepared(marked.model, wanted)
    if gpu:
        yield _Runner(marked, loading.load(marked.model), gpu)
        return
    with scratch.folder("marked") as folder:
        yield _Runner(marked, _without_engines(marked.model, pathlib.Path(folder) / "model"), None)


class _Runner(runner_job.Loaded):
    """The runner.Runner of a Marked."""

    def __init__(self, marked: Marked, model: loading.Model, gpu: dict[str, str] | None) -> None:
        self._model = model
        self._frozen, prefix = _of(self._model, marked.signature)
        tensors = marking.computed(self._frozen.graph_def, prefix)
        self._tensors = {name: tensors[name] for name in marked.tensors}
        engines = [] if gpu else [graph.engine_name(node.name) for node in graph.engine_nodes(self._frozen.graph_def)]
        self.where: Where = runner_job.where(marked.model, gpu, engines)
        self._functions: dict[tuple[tuple[int, ...], ...], Callable[..., list[tf.Tensor]]] = {}

    def ready(self, signature: str, inputs: Arrays) -> Ready:
        """As Runner.ready."""
        arrays = [inputs[name] for name in self._frozen.input_names]
        # An engine without profiles that is built in a call serves the shapes of that call alone, so each has its own engine ops.
        shapes = tuple(array.shape for array in arrays) if self.where.gpu else ()
        if shapes not in self._functions:
            self._functions[shapes] = self._function(len(self._functions))
        function, given = self._functions[shapes], [tf.constant(array) for array in arrays]

        def answers() -> Arrays:
            return {name: tensor.numpy() for name, tensor in zip(self._tensors, function(*given), strict=True)}

        return lambda: self._told(signature, inputs, answers)

    def _function(self, number: int) -> Callable[..., list[tf.Tensor]]:
        """The function from the inputs to the tensors. Args: number: of `marking.mark`."""
        definition = copy.deepcopy(self._frozen.graph_def)
        fetched = marking.mark(definition, self._tensors, number)
        if not self.where.gpu and graph.native(definition):
            # Segments change with it, and TensorFlow knows the loaded model's by their names.
            graph.rename(definition, {}, {name: f"{name}_native" for name in graph.library(definition)})

        def run(*inputs: tf.Tensor) -> list[tf.Tensor]:
            tensors: list[tf.Tensor] = tf.graph_util.import_graph_def(
                definition,
                input_map=self._frozen.input_map(inputs),
                return_elements=list(fetched.values()),
                name="model",
            )
            return tensors

        function: Callable[..., list[tf.Tensor]] = tf.compat.v1.wrap_function(run, self._frozen.input_specs())
        return function
