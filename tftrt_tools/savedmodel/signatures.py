"""The signatures of a SavedModel that a caller may name, and the choice among them."""

from tftrt_tools import errors


def definitions(meta_graph):
    """The signatures of a MetaGraphDef that a caller may name: {name: SignatureDef}, less those of initialization and training."""
    return {name: one for name, one in sorted(meta_graph.signature_def.items()) if not name.startswith("__saved_model_")}


def chosen(names, keys):
    """Those of `names` that `keys` lists, in the order of `names`; all without keys. Raises: UsageError."""
    if not names:
        raise errors.UsageError("the model has no signatures", "export it with signatures, e.g. Keras's model.export(path)")
    for key in keys:
        if key not in names:
            raise errors.UsageError(f"no signature {key!r}", "signatures here: " + ", ".join(names))
    return [name for name in names if not keys or name in keys]
