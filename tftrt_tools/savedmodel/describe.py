"""Signatures and engine ops of SavedModels, read from their protos in a child process (`job`); nothing is loaded or run."""

import dataclasses

from tftrt_tools import child
from tftrt_tools.savedmodel import signatures
from tftrt_tools.savedmodel.engine_op import EngineOp
from tftrt_tools.savedmodel.shapes import InputSpec


@dataclasses.dataclass(frozen=True)
class Description:
    """inputs, outputs: {signature: (InputSpec, …)}; engines: EngineOps of the whole model; tags: of the MetaGraph; same:
    {signature: the one that stands for it} of twins.find."""

    inputs: dict
    outputs: dict
    engines: tuple
    tags: tuple
    same: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_dict(cls, data):
        inputs, outputs = ({name: tuple(map(InputSpec.from_dict, specs)) for name, specs in data[key].items()}
                           for key in ("inputs", "outputs"))
        return cls(inputs, outputs, tuple(map(EngineOp.from_dict, data["engines"])), tuple(data["tags"]), data["same"])


def describe(*models):
    """Descriptions of SavedModel directories. Raises: TftrtError, UsageError."""
    found = child.run("tftrt_tools.savedmodel.describe:job", {"models": [str(model) for model in models]}).result
    return [Description.from_dict(one) for one in found]


def job(request):
    """Args: request: {"models": directories}. Returns: a Description's fields for each, in JSON values."""
    from tftrt_tools.savedmodel import graph, protos, twins

    found = []
    for model in request["models"]:
        meta = protos.meta_graph(protos.read(model))
        known = signatures.definitions(meta)
        found.append({"inputs": {name: [spec.to_dict() for spec in graph.specs(one.inputs)] for name, one in known.items()},
                      "outputs": {name: [spec.to_dict() for spec in graph.specs(one.outputs)] for name, one in known.items()},
                      "engines": [engine.to_dict() for engine in graph.engine_ops(meta.graph_def)],
                      "tags": list(meta.meta_info_def.tags), "same": twins.find(meta)})
    return found
