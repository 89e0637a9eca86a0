"""The answers of a converted model with its engines' rounding, in TensorFlow; the child's side of `rounded_answers`.

INT8 engines round by the tables that they carry, FP16 engines to FP16, at the nodes that `sensitivity` rounds (calibration.job.rounded says
what is simulated). Needs no GPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from tftrt_tools.accuracy import metrics, studying_job
from tftrt_tools.accuracy.rounded_answers import RoundedCall, RoundedSignature, RoundRequest
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import npz, run_job
from tftrt_tools.models.savedmodel.engine_op import lowest_precision
from tftrt_tools.models.savedmodel.job import detach, graph, inline, loading, protos, rounding, rounding_sites
from tftrt_tools.tftrt.calibration import file, table
from tftrt_tools.tftrt.calibration.job import fitting, rounded, toolkit
from tftrt_tools.tftrt.conversion.job import graph_pass, int8

if TYPE_CHECKING:
    from tensorflow.core.framework import graph_pb2

    from tftrt_tools.base.choices import Precision
    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.job.rounding import Rounded
    from tftrt_tools.tftrt.calibration.file import Calibration
    from tftrt_tools.tftrt.conversion.job.graph_pass import Frozen

# The answer for a signature whose engines round nothing.
_FP32: Final = "FP32"


class _NotSimulatedError(Exception):
    """The reason why a signature's rounding cannot be simulated."""


def job(request: RoundRequest) -> dict[str, RoundedSignature]:
    """Answer calls with rounding. Returns: {signature: what became of it}. Raises: UsageError, TftrtError."""
    calls: dict[str, list[RoundedCall]] = {}
    for call in request.calls:
        calls.setdefault(call.signature, []).append(call)
    rounded_of: dict[str, RoundedSignature] = {}
    with scratch.folder("rounded") as folder:
        progress.say("loading the converted model")
        detach.write(protos.read(request.model), request.model, folder + "/model")
        model = loading.load(folder + "/model", ())
        for number, (name, listed) in enumerate(calls.items()):
            rounded_of[name] = _answered(
                name, model.root.signatures[name], f"simulated_{number}", request.calibration, listed
            )
    return rounded_of


def _answered(
    name: str,
    function: tf.types.experimental.ConcreteFunction,
    prefix: str,
    calibration: Calibration | None,
    calls: Sequence[RoundedCall],
) -> RoundedSignature:
    """Answer the calls of one signature, and write the answers. Returns: the part of `job`'s answer about it."""
    precision: Precision | None = None
    nodes = 0
    try:
        frozen = graph_pass.freeze(name, function)
        graph_def = inline.inline_calls(frozen.graph_def)
        graph.rename(
            graph_def,
            {},
            {
                library_function.signature.name: f"{prefix}_{library_function.signature.name}"
                for library_function in graph_def.library.function
            },
        )
        engines = {engine_op.name: engine_op for engine_op in graph.engine_ops(graph_def)}
        precision = lowest_precision(engine.precision for engine in engines.values()) or _FP32
        if precision == _FP32:
            return RoundedSignature(precision=_FP32, nodes=0, problem="")
        put_in = _put_in(name, graph_def, engines, calibration)
        nodes = put_in.nodes
        _write(name, frozen, put_in, calls)
    except _NotSimulatedError as why:
        return RoundedSignature(precision=precision, nodes=nodes, problem=str(why))
    except (
        errors.TftrtError,
        tf.errors.OpError,
        ValueError,
    ) as error:  # a graph over TensorFlow's 2 GiB is a ValueError
        cause = error.cause if isinstance(error, errors.TftrtError) else errors.first_line(str(error))
        return RoundedSignature(precision=precision, nodes=nodes, problem=cause)
    return RoundedSignature(precision=precision, nodes=nodes, problem="")


@dataclasses.dataclass(frozen=True)
class _PutIn:
    """A graph with rounding in it. fed: {tensor to feed: its value while everything is rounded}; gates: those of `fed` that switch the
    rounding; nodes: how many round."""

    graph_def: graph_pb2.GraphDef
    fed: Mapping[str, npt.NDArray[Any]]
    gates: frozenset[str]
    nodes: int


def _put_in(
    name: str, graph_def: graph_pb2.GraphDef, engines: Mapping[str, EngineOp], calibration: Calibration | None
) -> _PutIn:
    """Raises: _NotSimulatedError, TftrtError."""
    inlined, inner = inline.inline_segments(graph_def)
    rounding_engines = {engine: engine_op for engine, engine_op in engines.items() if engine_op.precision != _FP32}
    for engine, op in rounding_engines.items():
        _check(engine, op, engine in inner)
    of_int8 = [engine for engine, engine_op in rounding_engines.items() if engine_op.precision == "INT8"]
    tables = _tables(graph_def, of_int8, engines, calibration)
    named: dict[str, Any] = {}
    for engine in of_int8:
        named |= toolkit.names(graph_def, [engine], not engines[engine].implicit_batch)
    scales = toolkit.by_tensor(inner, named, tables)
    left_out = toolkit.left_out(inner, named, tables)
    sites, _, ranges = rounded.with_scales(inlined, {engine: inner[engine] for engine in of_int8}, scales, left_out)
    half = rounding_sites.fp16_sites(
        inlined, {engine: inner[engine] for engine in rounding_engines if engine not in of_int8}
    )
    if of_int8 and not sites:
        raise _NotSimulatedError("no node of its INT8 engines has a range and an INT8 kernel")
    if not sites and not half:
        raise _NotSimulatedError("its engines hold no node that rounds")
    fed: dict[str, npt.NDArray[Any]] = {}
    gates = []
    for chosen, add in ((sites, rounding.add_int8), (half, rounding.add_fp16)):
        if chosen:
            done: Rounded = add(inlined, chosen)
            inlined, fed[done.gates] = done.graph_def, np.ones(len(chosen), bool)
            gates.append(done.gates)
            if done.scales:
                fed[done.scales] = np.array([ranges[tensor] for tensor in done.tensors], np.float32)
    return _PutIn(inlined, fed, frozenset(gates), len(sites) + len(half))


def _check(engine: str, engine_op: EngineOp, inlined: bool) -> None:
    if engine_op.precision == "INT8" and engine_op.explicit_precision:
        raise _NotSimulatedError(f"{engine} is quantization-aware: its own nodes say what is rounded")
    if engine_op.precision == "INT8" and not engine_op.calibrated:
        raise _NotSimulatedError(
            f"{engine} carries no calibration table: its ranges are not known before a GPU calibrates it"
        )
    if not inlined:
        raise _NotSimulatedError(f"{engine} lies in a branch or loop that stays a function")


def _tables(
    graph_def: graph_pb2.GraphDef,
    names: Sequence[str],
    engines: Mapping[str, EngineOp],
    calibration: Calibration | None,
) -> dict[str, table.Table]:
    """{engine: the table on its op, with the names of the declared shapes}."""
    texts = {
        graph.engine_name(node.name): node.attr["calibration_data"].s.decode() for node in graph.engine_nodes(graph_def)
    }
    native, tables = graph.native_segments(graph_def), {}
    for engine in names:
        read, zeros = table.read(texts[engine], f"the table of {engine}")
        measured = (
            next((candidate for candidate in calibration.engines if candidate.engine == engine), None)
            if calibration
            else None
        )
        engine_table = file.EngineTable(
            segment="",
            signature="",
            engine=engine,
            table=read,
            left_out=tuple(
                (name, reason)
                for name, reason in (measured.left_out if measured else file.without_range(zeros))
                if name not in read.scales
            ),
        )
        method = int8.method_of(calibration) if calibration else "entropy"
        build = native[engine].function, not engines[engine].implicit_batch, native[engine].shapes
        tables[engine] = fitting.fitted(engine_table, *build, method).table
    return tables


def _write(name: str, frozen: Frozen, put_in: _PutIn, calls: Sequence[RoundedCall]) -> None:
    """Answer the calls, once the graph has answered the first one like the model, with nothing rounded. Raises: _NotSimulatedError."""
    outputs = sorted(frozen.original.structured_outputs)
    if not any(frozen.original.structured_outputs[output].dtype.is_floating for output in outputs):
        raise _NotSimulatedError("it has no float output, which rounding could change little by little")
    function = _function(frozen, put_in)

    def answers(call: RoundedCall, on: bool) -> dict[str, npt.NDArray[Any]]:
        feed = {key: tf.constant(value) for key, value in run_job.read_inputs(call).items()}
        found = function(tf.constant(on), *[feed[key] for key in frozen.input_names])
        return {output: tensor.numpy() for output, tensor in zip(outputs, found, strict=True)}

    _check_fidelity(name, calls[0], answers(calls[0], False))
    for number, call in enumerate(calls):
        progress.say(f"running {name} with its engines' rounding", number, len(calls))
        run_job.keep_answers(call, answers(call, True), call.output)


def _check_fidelity(name: str, call: RoundedCall, plain: Mapping[str, npt.NDArray[Any]]) -> None:
    names = call.renamed.outputs
    for output, native in npz.load(call.native).items():
        own = next((value for key, value in plain.items() if names.get(key, key) == output), None)
        if native.dtype.kind != "f" or own is None or not np.isfinite(native).all():
            continue
        compared = metrics.Accumulator(name, output, wanted=("snr_db",))
        compared.add(native, own)
        if compared.result().snr_db < studying_job.LEAST_FIDELITY_DB:
            raise _NotSimulatedError(
                f"it answers otherwise each time ({output}): it draws random numbers, or keeps state"
            )


def _function(frozen: Frozen, put_in: _PutIn) -> Callable[..., list[tf.Tensor]]:
    """A function of (whether to round, the signature's inputs by name) that returns the signature's outputs as a list."""

    def run(on: tf.Tensor, *inputs: tf.Tensor) -> list[tf.Tensor]:
        given: dict[str, tf.Tensor] = {}
        for tensor, value in put_in.fed.items():
            fed = tf.fill(value.shape, on) if tensor in put_in.gates else tf.constant(value)
            given |= {tensor: fed, f"^{tensor.removesuffix(':0')}": fed}
        outputs: list[tf.Tensor] = tf.graph_util.import_graph_def(
            put_in.graph_def, input_map={**given, **frozen.input_map(inputs)}, return_elements=frozen.outputs, name=""
        )
        return outputs

    function: Callable[..., list[tf.Tensor]] = tf.compat.v1.wrap_function(
        run, [tf.TensorSpec((), tf.bool), *frozen.input_specs()]
    )
    return function
