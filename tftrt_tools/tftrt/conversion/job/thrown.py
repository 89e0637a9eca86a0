"""Finds the nodes on which a converter of TF-TRT fails: the pass then ends with an exception, or ends the process, and names no node.

Such a node stays in TensorFlow. The pass fails as soon as it is offered the first of them, so halving the list finds that one.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from tftrt_tools.base import errors, records, tf_private
from tftrt_tools.base.files import plain_file, scratch
from tftrt_tools.base.process import child, environment, jobs, native_log, progress
from tftrt_tools.models.savedmodel.job import graph, loading
from tftrt_tools.tftrt.conversion import pass_apart, pass_log

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

# The value of an argument of tf_private.GraphPass.
Parameter = bool | int | str | None
# Runs the pass with these nodes kept in TensorFlow; raises where it fails.
Trial = Callable[[AbstractSet[str]], object]
# Types that an engine can give (of the op TRTEngineOp, TF 2.14).
_TYPES = frozenset({"float32", "float16", "int32", "bool", "int8"})
# If so many nodes of one type fail, all of the type stay in TensorFlow: each takes several passes to find.
MANY = 8
# For a Frozen: {explicit batch mode: {node that stays in TensorFlow: why}}.
Thrown = dict[bool, dict[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PassRequest(records.Record):
    """A pass for another process. graph: file of its GraphDef; kept: nodes that stay in TensorFlow; the others: of Pass."""

    graph: str
    kept: tuple[str, ...]
    preserved: tuple[str, ...]
    parameters: dict[str, Parameter]
    variables: dict[str, str]


@jobs.job
def single_pass() -> Callable[[PassRequest], None]:
    """Run a pass, which may end the process. The result is thrown away."""
    from tftrt_tools.tftrt.conversion import pass_job

    return pass_job.job


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pass:
    """One run of the graph pass."""

    graph_def: graph_pb2.GraphDef
    # Names of the nodes and tensors that are fed and returned, and those of nodes that stay in TensorFlow.
    preserved: tuple[str, ...]
    # Of tf_private.GraphPass.
    parameters: Mapping[str, Parameter]
    # Environment variables.
    variables: Mapping[str, str]

    def __call__(self, kept: AbstractSet[str]) -> graph_pb2.GraphDef:
        """Run it. Args: kept: more nodes that stay in TensorFlow. Returns: the converted GraphDef."""
        meta = tf_private.meta_graph(self.graph_def, [*self.preserved, *sorted(kept)])
        with environment.variables(self.variables):
            return tf_private.GraphPass(**self.parameters).run(meta)


def run(one: Pass, thrown: Thrown) -> tuple[graph_pb2.GraphDef, str]:
    """Run a pass, without the nodes on which it fails. Args: thrown: such nodes; new ones are added. Returns: (the converted GraphDef, what
    was logged). Raises: TftrtError where it fails whatever it is offered."""
    mode = bool(one.parameters["use_dynamic_shape"])
    if mode not in thrown:
        thrown[mode] = {}
        if pass_apart.wanted():
            with _apart(one) as trial:
                _find(trial, one.graph_def, thrown[mode])
    with pass_apart.marked():
        while True:
            with contextlib.suppress(Exception), native_log.captured() as text:
                converted = one(thrown[mode].keys())
                break
            _find(one, one.graph_def, thrown[mode])
    untyped = _untyped(converted)
    if untyped.keys() <= thrown[mode].keys():
        return converted, text[0]
    thrown[mode].update(untyped)
    return run(one, thrown)


def _untyped(converted: graph_pb2.GraphDef) -> dict[str, str]:
    """{node: why it stays in TensorFlow}: nodes of engines that give TensorFlow a type that no engine gives. TF-TRT asks only for the types
    that a node reads, and makes an engine op that TensorFlow cannot load."""
    nodes = {}
    for segment in graph.native_segments(converted).values():
        for result, given in zip(segment.function.signature.output_arg, segment.engine.outputs, strict=True):
            if given.dtype not in _TYPES:
                node = segment.function.ret[result.name].split(":")[0]
                nodes[node] = f"TensorRT has no {given.dtype}, which this node gives to TensorFlow"
    return nodes


def _find(trial: Trial, graph_def: graph_pb2.GraphDef, messages: dict[str, str]) -> None:
    """Add the nodes on which the pass fails to `messages`, {node: why}, until it succeeds. Raises: TftrtError."""
    converters = tf_private.registered_converters()
    while error := _error(trial, messages.keys()):
        progress.say("a converter of TF-TRT fails: looking for the node")
        order = [node.name for node in graph_def.node if node.op in converters and node.name not in messages]
        if not order or _error(trial, {*messages, *order}):
            raise errors.TftrtError(
                f"TF-TRT's graph pass fails, whatever it is offered: {error}",
                "check that TensorFlow's own TrtGraphConverterV2 takes the model",
            )
        name, text = _first(trial, order, messages.keys(), error)
        messages[name] = f"{pass_log.FAILS}: {text}"
        _spread(name, graph_def, messages)


def _first(trial: Trial, order: Sequence[str], messages: AbstractSet[str], message: str) -> tuple[str, str]:
    """(the first node of `order` on which the pass fails, what it says). Args: message: what it says of all together."""
    passes, fails = 0, len(order)
    while fails - passes > 1:
        middle = (passes + fails) // 2
        if text := _error(trial, {*messages, *order[middle:]}):
            fails, message = middle, text
        else:
            passes = middle
    return order[fails - 1], message


def _spread(name: str, graph_def: graph_pb2.GraphDef, known: dict[str, str]) -> None:
    """Let all nodes of the type of `name` stay in TensorFlow, if MANY of them have failed."""
    types = {node.name: node.op for node in graph_def.node}
    if sum(types.get(one) == types[name] for one in known) >= MANY:
        known.update({other: known[name] for other, op in types.items() if op == types[name] and other not in known})


def _error(trial: Trial, kept: AbstractSet[str]) -> str:
    """The message of the pass where it fails, else ""."""
    try:
        trial(kept)
    except child.ChildDied as died:
        return pass_log.last_words(died.log) or died.cause
    except Exception as error:
        return loading.first_line(error)
    return ""


@contextlib.contextmanager
def _apart(graph_pass: Pass) -> Iterator[Trial]:
    """Yields: a Trial that runs the pass in another process, which may end by it."""
    with scratch.folder("pass") as folder, contextlib.ExitStack() as stack:
        path = os.path.join(folder, "graph.pb")
        with plain_file.naming(path), open(path, "wb") as file:
            file.write(graph_pass.graph_def.SerializeToString())
        workers: list[jobs.Worker[PassRequest, None]] = []

        def trial(kept: AbstractSet[str]) -> None:
            if not workers or not workers[-1].alive:
                workers.append(stack.enter_context(single_pass.worker()))
            workers[-1].call(
                PassRequest(
                    graph=path,
                    kept=tuple(sorted(kept)),
                    preserved=graph_pass.preserved,
                    parameters=dict(graph_pass.parameters),
                    variables=dict(graph_pass.variables),
                )
            )

        yield trial
