"""The child's side of `describe`: signatures and engine ops from a SavedModel's protos."""

from collections.abc import Sequence

from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.models.savedmodel.describe import Description
from tftrt_tools.models.savedmodel.job import graph, input_facts, protos, twins, unnamed


def job(models: Sequence[str]) -> list[Description]:
    """The job describe.read."""
    return [_description(model) for model in models]


def _description(model: str) -> Description:
    meta = protos.meta_graph(protos.read(model))
    definitions = signatures.definitions(meta)
    return Description(
        inputs=input_facts.specs(meta),
        outputs={name: graph.specs(definition.outputs) for name, definition in definitions.items()},
        engines=tuple(graph.engine_ops(meta.graph_def)),
        tags=tuple(meta.meta_info_def.tags),
        same=twins.find(meta),
        unnamed={name: unnamed.of_signature(meta.graph_def, definition) for name, definition in definitions.items()},
    )
