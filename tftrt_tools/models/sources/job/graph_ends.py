"""The inputs and outputs of a graph: as the flags say, else as the graph shows."""

import dataclasses
import re
from collections.abc import Collection, Sequence

import tensorflow as tf

from tftrt_tools.base import errors
from tftrt_tools.models.sources.tensors import Tensor, keys, parse

_PLACEHOLDERS = ("Placeholder", "PlaceholderV2")
# Ops from which a training graph gets its rows.
_PIPELINES = (
    "IteratorGetNext",
    "IteratorGetNextSync",
    "OneShotIterator",
    "QueueDequeueV2",
    "QueueDequeueManyV2",
    "QueueDequeueUpToV2",
)
# Ops that compute no answer: they write, check or train.
_NO_ANSWER = re.compile(
    r"Assert|Print.*|NoOp|Save.*|Restore.*|Assign.*|Resource.*|Apply.*|Sparse(Resource)?Apply.*|WriteFile|Const|Shape"
    r"|ShapeN|Size|Rank|Scatter(Nd)?(Add|Sub|Update)|.*Summary(V2)?|Variable.*|Stack.*|Enter|RefEnter|Queue.*|.*Dataset.*"
)
_TRAINING = re.compile(
    r"(^|.*/)(gradients?(_\d+)?|Adam|GradientDescent|Momentum|RMSProp|Adagrad|train_op|save(_\d+)?)(/.*|$)"
    r"|.*/(switch_[tf]|pred_id)$"
)
_SHOWN = 6


@dataclasses.dataclass(frozen=True)
class Flags:
    """The values of --inputs and --outputs; () where they are not given."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @classmethod
    def of(cls, inputs: Sequence[str], outputs: Sequence[str]) -> "Flags":
        return cls(parse("inputs", tuple(inputs)), parse("outputs", tuple(outputs)))

    @property
    def complete(self) -> bool:
        """Whether both are given."""
        return bool(self.inputs and self.outputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class End:
    """A tensor that is fed or fetched."""

    tensor: Tensor
    # Whether it is one already.
    placeholder: bool
    # A name, such as "float32".
    dtype: str
    # Dims, or None for an unknown rank.
    shape: tuple[int | None, ...] | None
    # The tensor's name in the signature, once it is chosen.
    key: str = ""

    def text(self) -> str:
        """For people: x float32[?,8], or x (of block/x) float32[?,8] where it has another name in the signature."""
        dims = (
            "unknown rank" if self.shape is None else ",".join("?" if dim is None else str(dim) for dim in self.shape)
        )
        name = self.tensor.flag if self.key in ("", self.tensor.flag) else f"{self.key} (of {self.tensor.flag})"
        return f"{name} {self.dtype}[{dims}]"


@dataclasses.dataclass(frozen=True)
class Ends:
    """inputs, outputs: in the order of the signature."""

    inputs: tuple[End, ...]
    outputs: tuple[End, ...]


def of(graph: tf.Graph, flags: Flags, source: str, several: bool) -> Ends:
    """The inputs and outputs.

    Args: graph: with all nodes. flags: the given ones. For the others the graph decides: inputs are placeholders that the outputs need;
      outputs are nodes that compute from the inputs and that nothing reads. source: for messages. several: take all such output nodes;
      otherwise only one may exist, because most of a training graph's are no answers.
    Returns: Ends. Raises: UsageError, which proposes flags where they are needed.
    """
    inputs = tuple(_given(graph, tensor, "inputs", source) for tensor in flags.inputs)
    placeholders = [
        _end(operation.outputs[0]) for operation in graph.get_operations() if operation.type in _PLACEHOLDERS
    ]
    if flags.outputs:
        outputs = tuple(_given(graph, output, "outputs", source) for output in flags.outputs)
    else:
        outputs = tuple(_dead_ends(graph, inputs or placeholders))
        if not outputs or len(outputs) > 1 and not several:
            raise _which(source, graph, inputs or placeholders, outputs)
    if inputs:
        _check_fed(graph, inputs, outputs, source)
    else:
        needed = _ancestors(graph, outputs)
        inputs = tuple(placeholder for placeholder in placeholders if placeholder.tensor.node in needed)
    if not inputs:
        raise _which(source, graph, (), outputs)
    return Ends(_named(inputs), _named(outputs))


def _check_fed(graph: tf.Graph, inputs: tuple[End, ...], outputs: tuple[End, ...], source: str) -> None:
    """Refuse outputs that need a placeholder beside the inputs, unless it has a default. Raises: UsageError."""
    fed = {end.tensor.node for end in inputs}
    needed = _ancestors(graph, outputs, fed) - fed
    missing = [name for name in sorted(needed) if graph.get_operation_by_name(name).type in _PLACEHOLDERS]
    if missing:
        named = ",".join([*(end.tensor.flag for end in inputs), *missing])
        raise errors.UsageError(
            f"the outputs of {source} need the placeholder {missing[0]!r}, which --inputs does not name",
            f"name it: --inputs={named}; or choose other --outputs",
        )


def _named(ends: tuple[End, ...]) -> tuple[End, ...]:
    names = keys([one.tensor for one in ends])
    return tuple(dataclasses.replace(one, key=name) for one, name in zip(ends, names, strict=True))


def _given(graph: tf.Graph, tensor: Tensor, flag: str, source: str) -> End:
    try:
        end = _end(graph.get_tensor_by_name(tensor.name))
    except (KeyError, ValueError):
        raise errors.UsageError(f"--{flag}: {source} has no tensor {tensor.flag!r}", _similar(graph, tensor)) from None
    shape = end.shape if tensor.shape is None else tensor.shape
    if end.shape is not None and tensor.shape is not None and not _fits(tensor.shape, end.shape):
        raise errors.UsageError(
            f"--inputs: {end.text()} cannot have the shape that is given", "give one that fits, or leave it out"
        )
    return dataclasses.replace(end, tensor=tensor, shape=shape)


def _fits(wanted: tuple[int | None, ...], known: tuple[int | None, ...]) -> bool:
    return len(wanted) == len(known) and all(
        None in (one, other) or one == other for one, other in zip(wanted, known, strict=True)
    )


def _similar(graph: tf.Graph, tensor: Tensor) -> str:
    import difflib

    names = [operation.name for operation in graph.get_operations() if operation.outputs]
    if tensor.node in names:
        return f"its outputs are numbered from 0 to {len(graph.get_operation_by_name(tensor.node).outputs) - 1}"
    near = difflib.get_close_matches(tensor.node, names, 3, 0.5)
    return f"did you mean {' or '.join(near)}?" if near else "leave the flag out: what the graph shows is then proposed"


def _end(tensor: tf.Tensor) -> End:
    node, _, port = tensor.name.rpartition(":")
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return End(
        tensor=Tensor(node, int(port)),
        placeholder=tensor.op.type in _PLACEHOLDERS,
        dtype=tensor.dtype.base_dtype.name,
        shape=shape,
    )


def _dead_ends(graph: tf.Graph, inputs: "tuple[End, ...] | list[End]") -> list[End]:
    """Outputs of the nodes that compute from the inputs and that no other reads."""
    waiting = [graph.get_tensor_by_name(end.tensor.name) for end in inputs]
    reached = set()
    while waiting:
        for consumer in waiting.pop().consumers():
            if consumer not in reached:
                reached.add(consumer)
                waiting += consumer.outputs
    ends = [operation for operation in graph.get_operations() if operation in reached and _is_answer(operation)]
    # The second output of a Merge says which branch was taken.
    return [
        _end(tensor)
        for end in ends
        for tensor in end.outputs[: 1 if end.type == "Merge" else None]
        if tensor.dtype == tensor.dtype.base_dtype
    ]


def _is_answer(operation: tf.Operation) -> bool:
    if not operation.outputs or any(tensor.consumers() for tensor in operation.outputs):
        return False
    kinds = {tensor.dtype.base_dtype for tensor in operation.outputs}
    counter = (
        operation.type == "Exit" and operation.outputs[0].dtype.is_integer and operation.outputs[0].shape.rank == 0
    )
    return not (
        counter
        or _NO_ANSWER.fullmatch(operation.type)
        or _TRAINING.match(operation.name)
        or kinds & {tf.resource, tf.variant}
    )


def _ancestors(graph: tf.Graph, outputs: tuple[End, ...], until: Collection[str] = ()) -> set[str]:
    """Names of all nodes that the outputs need. Args: until: nodes behind which nothing is needed."""
    waiting, seen = [graph.get_operation_by_name(output.tensor.node) for output in outputs], set()
    while waiting:
        operation = waiting.pop()
        if operation.name not in seen:
            seen.add(operation.name)
            waiting += (
                []
                if operation.name in until
                else [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
            )
    return seen


def _which(
    source: str, graph: tf.Graph, inputs: "tuple[End, ...] | list[End]", outputs: tuple[End, ...]
) -> errors.UsageError:
    """Why the graph does not show its inputs and outputs, and flags to begin with."""
    if not inputs:
        pipelines = [
            _end(tensor)
            for operation in graph.get_operations()
            if operation.type in _PIPELINES
            for tensor in operation.outputs
        ]
        where = f"; rows come from {_texts(pipelines)}" if pipelines else ""
        named = ",".join(pipeline.tensor.flag for pipeline in pipelines[:_SHOWN]) or "NODE"
        answers = ",".join(output.tensor.flag for output in outputs[:_SHOWN]) or "NODE"
        return errors.UsageError(
            f"{source} has no placeholder that its outputs need{where}",
            f"name what is fed: --inputs={named} --outputs={answers}",
        )
    if not outputs:
        return errors.UsageError(
            f"{source}: nothing that computes from {_texts(inputs)} is left unread, so its outputs are not clear",
            "name them: --outputs=NODE,…",
        )
    # Answers have a row for each row of the batch; the other unread nodes of a training graph mostly have not.
    likely = tuple(output for output in outputs if output.shape and output.shape[0] is None) or outputs
    needed = _ancestors(graph, likely[:_SHOWN])
    return errors.UsageError(
        f"{source}: which outputs? Nothing reads {_texts((*likely, *(output for output in outputs if output not in likely)))}",
        f"name them: --inputs={','.join(end.tensor.flag for end in inputs if end.tensor.node in needed)} --outputs="
        + ",".join(end.tensor.flag for end in likely[:_SHOWN]),
    )


def _texts(ends: "tuple[End, ...] | list[End]") -> str:
    return ", ".join(one.text() for one in ends[:_SHOWN]) + (
        f" and {len(ends) - _SHOWN} more" if len(ends) > _SHOWN else ""
    )
