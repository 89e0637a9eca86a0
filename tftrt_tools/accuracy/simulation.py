"""The child's side of `sensitivity`: a converted model's engines run natively, with INT8's or FP16's rounding switched on node by node.

What is simulated is the rounding of values: of what enters a kernel, and for FP16 of what leaves it. How TensorRT sums inside a kernel, and
whether it finds INT8 faster for a node at all, only a GPU shows.
"""

import pathlib
import re

import numpy as np
import tensorflow as tf

from tftrt_tools import errors, progress, scratch, tf_private
from tftrt_tools.accuracy import harm, measurement, metrics
from tftrt_tools.calibration import file, toolkit
from tftrt_tools.conversion import int8, prepare
from tftrt_tools.conversion.settings import Settings
from tftrt_tools.execution import gpu as gpu_module
from tftrt_tools.execution import npz
from tftrt_tools.savedmodel import graph, inline, loading, rounding, rounding_sites, segments

# Below, the simulation is not of this model: it draws random numbers, or keeps state.
_LEAST_FIDELITY_DB = 40.0


def job(request):
    """Round each node of a model alone, all together, and all but the worst.

    Args:
      request: {"model": SavedModel directory, "settings": Settings.to_dict(), "int8": int8.Source.to_dict(), "calls": {signature: .npz
        paths of the inputs to score}, "nodes": regular expression of the nodes to look at alone, "" for all, None for none}.

    Returns: {"signatures": [SignatureHarm dicts], "tables": [EngineTable dicts], "gpu": {…} or None}.
    """
    settings = Settings.from_dict(request["settings"])
    # The reference should be the best float32 answer.
    tf.config.experimental.enable_tensor_float_32_execution(False)
    progress.say("loading the model")
    model = loading.load(pathlib.Path(request["model"]), settings.tags)
    tables_from, found, tables = int8.Source.from_dict(request["int8"]), [], []
    for name, paths in request["calls"].items():
        one, made = _signature(name, model.root.signatures[name], settings, tables_from, paths, request["nodes"])
        found.append(one)
        tables += made
    return {"signatures": [one.to_dict() for one in found], "tables": [one.to_dict() for one in tables], "gpu": gpu_module.seen()}


def _signature(name, function, settings, tables_from, paths, nodes):
    """One signature. Returns: (SignatureHarm, [EngineTable])."""
    progress.say(f"converting signature {name}")
    frozen, passed = prepare.passed(name, function, settings)
    if not passed.engines:
        raise errors.TftrtError(f"no segment of signature {name!r} is worth an engine: nothing would run in {settings.precision_mode}",
                                "`tftrt inspect` names each op and the reason")
    if passed.quantization.aware:
        raise errors.UsageError(f"signature {name!r} is quantization-aware: its own nodes say what is rounded and how",
                                "study the model as it was before they were put in")
    inlined, inner = inline.inline_segments(passed.graph_def)
    rounded = {engine.name for engine in passed.engines if engine.precision == settings.precision_mode}
    inner = {engine: tensors for engine, tensors in inner.items() if engine in rounded}
    if settings.precision_mode == "INT8":
        tables = _tables(name, frozen, passed.graph_def, settings, tables_from, paths)
        sites, unrounded, gated, gates = _int8(passed.graph_def, inlined, inner, tables, settings)
    else:
        tables, unrounded = (), ()
        sites = rounding_sites.fp16_sites(inlined, inner)
        gated, gates = rounding.add_fp16(inlined, sites)
    alone = _chosen(name, sites, nodes, settings)
    simulated = _Simulation(name, frozen, gated, gates, paths)
    return _studied(simulated, sites, alone, unrounded, settings), tables


def _tables(name, frozen, graph_def, settings, tables_from, paths):
    """The EngineTables that `convert` would make; without another source of ranges, from the inputs to score."""
    if not (tables_from.options or tables_from.given):
        engines = [engine.name for engine in graph.engine_ops(graph_def) if engine.precision == "INT8"]
        digests = {engine: digest for engine, digest in segments.engine_digests(graph_def, names=True).items() if engine in engines}
        made = toolkit.tables(frozen, graph_def, list(digests), map(npz.load, paths), settings, tf_private.tensorrt_versions()[1])
        own = [file.EngineTable(digest, name, engine, *made[engine]) for engine, digest in digests.items()]
        tables_from = int8.Source(None, measurement.calibration(own, settings.calibration_method))
    with scratch.folder("engines") as folder:
        return int8.tables(name, frozen, graph_def, loading.input_specs(frozen.original), settings, tables_from, folder)[0]


def _int8(graph_def, inlined, inner, tables, settings):
    """(sites that have ranges, names of those that have none, the gated graph, its gates)."""
    scales = toolkit.by_tensor(graph_def, inner, {one.engine: one.table for one in tables}, settings.dynamic)
    aliases = rounding_sites.Aliases(inlined)
    scales = {**{aliases.source(tensor): scale for tensor, scale in scales.items()}, **scales}
    sites, unrounded, ranges = [], [], {}
    for site in rounding_sites.int8_sites(inlined, inner):
        found = {tensor: scales.get(tensor, scales.get(aliases.source(tensor))) for tensor in site.tensors}
        if None in found.values():
            unrounded.append(site.name)
            continue
        sites.append(site)
        ranges.update(found)
    gated, gates = rounding.add_int8(inlined, sites, ranges)
    return tuple(sites), tuple(unrounded), gated, gates


def _chosen(name, sites, nodes, settings):
    """Indices of the sites to round alone. Raises: UsageError, TftrtError."""
    if not sites:
        raise errors.TftrtError(f"no node of signature {name!r} would be rounded to {settings.precision_mode}: its engines hold no "
                                "convolution, matrix product or other node with a range", "`tftrt inspect --all` lists the engines' ops")
    if nodes is None:
        return []
    found = [number for number, site in enumerate(sites) if not nodes or re.fullmatch(nodes, site.name)]
    if not found:
        raise errors.UsageError(f"--nodes={nodes} matches no node that {settings.precision_mode} rounds (the whole name must match)",
                                "names look like " + ", ".join(site.name for site in sites[:3]))
    return found


class _Simulation:
    """A signature whose nodes can be rounded by gates, over the inputs to score."""

    def __init__(self, name, frozen, graph_def, gates, paths):
        self.name, self._paths = name, paths
        self._original = frozen.original
        self._inputs = frozen.input_names
        self.outputs = sorted(frozen.original.structured_outputs)
        self._function = _function(frozen, graph_def, gates)
        dtypes = [frozen.original.structured_outputs[output].dtype for output in self.outputs]
        self.floats = [output for output, dtype in zip(self.outputs, dtypes, strict=True) if dtype.is_floating]
        if not self.floats:
            raise errors.TftrtError(f"signature {name!r} has no float output, and noise is measured on floats",
                                    "study a signature that gives scores or features, not only classes or strings")

    def sweep(self, runs_wanted, text):
        """Run all of the data once for each of `runs_wanted`, {key: bool vector}, batch by batch.

        Returns: ({key: Effects against nothing rounded}, SNR in dB of nothing rounded against the model, rows).
        """
        compared = {key: self._accumulators() for key in runs_wanted}
        own, rows, done = self._accumulators(), 0, 0
        for path in self._paths:
            feed = {name: tf.constant(value) for name, value in npz.load(path).items()}
            original, plain = self._called(self._original, feed), None
            for key, gates in {None: np.zeros_like(next(iter(runs_wanted.values()))), **runs_wanted}.items():
                progress.say(text, done, len(self._paths) * (len(runs_wanted) + 1))
                answer = self._run(gates, feed)
                plain = answer if key is None else plain
                into = own if key is None else compared[key]
                for output in self.floats:
                    into[output].add(original[output] if key is None else plain[output], answer[output])
                done += 1
            rows += max((value.shape[0] for value in feed.values() if value.shape.rank), default=1)
        fidelity = min(one.result().snr_db for one in own.values())
        return {key: tuple(harm.Effect.of(one.result()) for one in all_of.values()) for key, all_of in compared.items()}, fidelity, rows

    def _accumulators(self):
        return {output: metrics.Accumulator(self.name, output, wanted=harm.METRICS) for output in self.floats}

    def _called(self, function, feed):
        try:
            return loading.answers(function, feed)
        except tf.errors.OpError as error:
            raise self._failed(error) from None

    def _run(self, gates, feed):
        try:
            answers = self._function(tf.constant(gates), *[feed[name] for name in self._inputs])
        except tf.errors.OpError as error:
            raise self._failed(error) from None
        return {output: tensor.numpy() for output, tensor in zip(self.outputs, answers, strict=True)}

    def _failed(self, error):
        return errors.TftrtError(f"signature {self.name!r} fails on the data: {loading.first_line(error)}", "check the data")


def _function(frozen, graph_def, gates):
    """A function of (gates, the signature's inputs by name) that returns the signature's outputs as a list."""
    def run(switches, *inputs):
        fed = {gates: switches, f"^{gates.removesuffix(':0')}": switches, **frozen.input_map(inputs)}
        return tf.graph_util.import_graph_def(graph_def, input_map=fed, return_elements=frozen.outputs, name="")

    return tf.compat.v1.wrap_function(run, [tf.TensorSpec((None,), tf.bool), *frozen.input_specs()])


def _studied(simulated, sites, alone, unrounded, settings):
    """The SignatureHarm. alone: indices of the sites to round alone."""
    count, precision = len(sites), settings.precision_mode
    wanted = {"all": np.ones(count, bool), **{number: np.arange(count) == number for number in alone}}
    effects, fidelity, rows = simulated.sweep(wanted, f"rounding nodes of {simulated.name} to {precision}, one at a time")
    if fidelity < _LEAST_FIDELITY_DB:
        raise errors.TftrtError(f"signature {simulated.name!r}, frozen and with nothing rounded, answers otherwise than the model "
                                f"(SNR {fidelity:.1f} dB)", "a model that draws random numbers or keeps state cannot be studied so")
    nodes = harm.ranked([harm.Node(sites[number].name, sites[number].op, sites[number].engine, effects[number]) for number in alone])
    order = [next(number for number in alone if sites[number].name == node.name and sites[number].engine == node.engine) for node in nodes]
    # A model that keeps more than half of them is no longer one of that precision.
    keeps = {kept: _without(sites, order[:kept], precision) for kept in range(1, min(harm.tried(nodes), count // 2, len(order)) + 1)}
    accumulated, _, _ = simulated.sweep(keeps, f"keeping the worst nodes of {simulated.name} high") if keeps else ({}, 0, 0)
    kept = tuple(harm.Kept(number, accumulated[number]) for number in keeps)
    return harm.SignatureHarm(simulated.name, rows, nodes, effects["all"], kept, unrounded, count - len(alone), fidelity)


def _without(sites, kept, precision):
    """Gates with everything rounded but what `kept` (indices) keeps high.

    --high_precision_nodes takes the ranges of a node's inputs away: whatever else reads them is not INT8 either.
    """
    if precision == "INT8":
        high = {tensor for number in kept for tensor in sites[number].tensors}
        return np.array([not high & set(site.tensors) for site in sites])
    return np.array([number not in kept for number in range(len(sites))])
