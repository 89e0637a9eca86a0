"""What publishing has to know of a SavedModel, read from its files alone; nothing is loaded or run."""

import dataclasses

from tftrt_tools.savedmodel.inspection import Inspection


@dataclasses.dataclass(frozen=True)
class Facts:
    """seen: Inspection, whose findings are those of `tftrt inspect --check` less this machine's and the verification's; converted:
    TF-TRT was at it; methods: {signature: its method name}; unknown_ops: names of ops that the TensorFlow here does not have; tables:
    {engine: TensorRT version, such as "8.5.3", of its INT8 table}; engine_ops: how many ops of the graph are TF-TRT's."""

    seen: Inspection
    converted: bool
    methods: dict
    unknown_ops: tuple
    tables: dict
    engine_ops: int

    def to_dict(self):
        return {"seen": self.seen.to_dict(), "converted": self.converted, "methods": self.methods,
                "unknown_ops": list(self.unknown_ops), "tables": self.tables, "engine_ops": self.engine_ops}

    @classmethod
    def from_dict(cls, data):
        return cls(Inspection.from_dict(data["seen"]), data["converted"], data["methods"], tuple(data["unknown_ops"]), data["tables"],
                   data["engine_ops"])

    @property
    def assets(self):
        """All EngineAssets that the model carries."""
        return [asset for file in self.seen.engine_files for asset in file.assets]


# Ops that only a TensorFlow with TF-TRT has.
_TFTRT_OPS = frozenset({"TRTEngineOp", "CreateTRTResourceHandle", "InitializeTRTResource", "SerializeTRTResource"})


def read(model):
    """The Facts of SavedModel directory `model`; runs in a child process. Raises: TftrtError, UsageError."""
    from tftrt_tools.savedmodel import findings, inspector, protos, signatures

    meta_graph = protos.meta_graph(protos.read(model))
    seen = inspector.inspect(model, meta_graph)
    # A wrong or stale verification has an answer of its own.
    found = findings.find(dataclasses.replace(seen, verification=None))
    methods = {name: one.method_name for name, one in signatures.definitions(meta_graph).items()}
    ops = _ops(meta_graph.graph_def)
    return Facts(dataclasses.replace(seen, findings=tuple(found)), inspector.is_converted(model, meta_graph), methods,
                 _unknown(ops, meta_graph.graph_def), _tables(meta_graph.graph_def), sum(ops[name] for name in _TFTRT_OPS))


def _ops(graph_def):
    import collections

    nodes = [*graph_def.node, *(node for function in graph_def.library.function for node in function.node_def)]
    return collections.Counter(node.op for node in nodes)


def _unknown(ops, graph_def):
    """An op that is called by a function's name is a call, not an op of its own."""
    from tftrt_tools import tf_private

    functions = {function.signature.name for function in graph_def.library.function}
    return tuple(sorted(name for name in ops if name not in functions and tf_private.op_def_registry.get(name) is None))


def _tables(graph_def):
    from tftrt_tools import errors
    from tftrt_tools.calibration import table
    from tftrt_tools.savedmodel import graph

    found = {}
    for node in graph.engine_nodes(graph_def):
        text = node.attr["calibration_data"].s.decode(errors="replace") if "calibration_data" in node.attr else ""
        if text:
            try:
                found[graph.engine_name(node.name)] = table.parse(text).tensorrt
            except errors.TftrtError:
                continue  # TensorRT's to refuse; no form that says its version
    return found
