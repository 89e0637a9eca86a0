"""The child's side of `version_on_disk`: a version directory's files are read."""

from __future__ import annotations

from tftrt_tools.models.savedmodel import engine_assets, passport, signatures
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.job import graph, input_facts, inspector, protos, twins
from tftrt_tools.servers.serving.smoke.version_on_disk import Contents, Engine, Signature
from tftrt_tools.servers.serving.warmup import warmup_requests


def read(path: str) -> Contents:
    """The Contents of a version directory. Raises: TftrtError, UsageError."""
    meta = protos.meta_graph(protos.read(path), ())
    definitions, specs = signatures.definitions(meta), input_facts.specs(meta)
    generating = {
        graph.engine_name(node.name)
        for node in graph.engine_nodes(meta.graph_def)
        if node.attr["_profile_generation_mode"].b
    }
    manifest = passport.read(path, passport.MANIFEST)
    left = passport.left_native(manifest)
    origins = (engine_assets.origin(asset, manifest) for asset in engine_assets.read(path))
    ops = {
        engine_op.name: _engine(engine_op, engine_op.name in generating, left.get(engine_op.name, ""))
        for engine_op in graph.engine_ops(meta.graph_def)
    }
    return Contents(
        engines={
            signature_graph.name: tuple(ops[name] for name in signature_graph.engines)
            for signature_graph in inspector.signature_graphs(meta)
        },
        signatures={
            name: Signature(
                inputs=tuple(specs[name]),
                outputs=tuple(graph.specs(definition.outputs)),
                tensors={
                    f"{kind}/{key}": info.name
                    for kind in ("inputs", "outputs")
                    for key, info in getattr(definition, kind).items()
                },
            )
            for name, definition in definitions.items()
        },
        warmup_records=_warmup_records(path),
        twins=twins.find(meta),
        built_for=tuple(sorted({capability for _, capability in origins if capability})),
    )


def _engine(one: EngineOp, generating: bool, left: str) -> Engine:
    hole, silent = _hole(one, generating)
    return Engine(name=one.name, precision=one.precision, hole=hole, silent=silent, left=left)


def _hole(engine: EngineOp, generating: bool) -> tuple[str, bool]:
    """(`hole`, `silent`) of an Engine."""
    if generating:
        return f"{engine.name} was left in profile generation mode, which runs natively", True
    if engine.precision == "INT8" and engine.use_calibration and not engine.calibrated:
        return f"{engine.name} has no calibration table and would calibrate, natively, for ever", True
    if engine.implicit_batch and len(engine.inputs) > 1:
        return (
            f"{engine.name} runs natively, past the gate, where its {len(engine.inputs)} inputs have unequal batch sizes",
            False,
        )
    return "", False


def _warmup_records(path: str) -> int:
    import tensorflow as tf

    file = warmup_requests.path(path)
    if not file.is_file():
        return 0
    try:
        return sum(1 for _ in tf.data.TFRecordDataset([str(file)]))
    except tf.errors.OpError:
        return 0
