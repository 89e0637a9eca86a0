"""What in the configuration of a Keras model may run code, or read files, when Keras loads it.

Keras makes an object of each part with a `class_name`: it imports the `module` that the part names, and takes what it finds there. A layer
of TensorFlow's own functions (TFOpLambda) calls the function that it names while it is loaded. So names are held against an allow list.
"""

import dataclasses
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tftrt_tools.models.sources.job import keras_names as names

_KERAS_MODULE = re.compile(r"keras(\.\w+)*")
# Keras 3 has its own functions as classes.
_KERAS_OPS = re.compile(r"keras\.src\.ops\.(numpy|nn|math|image|linalg)")
_OP_CLASS = re.compile(r"[A-Z]\w*")
_CORE_OPS = frozenset("Cast ConvertToTensor Scatter ScatterUpdate Shape Slice SliceUpdate StopGradient Unstack".split())
_TYPE_SPEC_MODULE = re.compile(
    r"tensorflow\.python\.(framework\.(tensor|tensor_spec|sparse_tensor)|ops\.ragged\.ragged_tensor)"
)
_FUNCTION = "function"
# Layers that name a function of TensorFlow.
_FUNCTION_LAYERS = ("TFOpLambda", "SlicingOpLambda")
_MEMBER_LAYERS = ("InstanceProperty", "InstanceMethod")
# Keys whose value is a list of words, or the path of a file with them.
_FILE_KEYS = ("vocabulary", "vocabulary_file")


@dataclasses.dataclass(frozen=True)
class Need:
    """A part that needs consent. unknown: its class is none of Keras's, and the file names no module for it: most likely the user's own.
    of_keras: the file names a module of Keras for it: most likely of another Keras."""

    text: str
    unknown: bool = False
    of_keras: bool = False


def found(config: object, custom: Collection[str]) -> list[Need]:
    """What needs consent, in the order of the file.

    Args: config: of the model, as the file has it. custom: names of the user's own classes and functions, as Keras looks for them.
    """
    listed: dict[Need, None] = {}
    waiting = [config]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            listed.update(dict.fromkeys(_of(part, custom)))
            waiting += reversed(list(part.values()))
        elif isinstance(part, list):
            waiting += reversed(part)
    return list(listed)


def _of(part: Mapping[str, Any], custom: Collection[str]) -> Iterator[Need]:
    for key in _FILE_KEYS:
        if isinstance(part.get(key), str):
            yield Need(f"{key} reads the file {part[key]!r}")
    if "class_name" in part:
        why = _why_not(part, custom)
        if why:
            module = why.removesuffix(f".{part['class_name']}")
            of_keras = module != why and _KERAS_MODULE.fullmatch(module) is not None
            yield Need(_named(part, why), unknown=why == part["class_name"] != "Lambda", of_keras=of_keras)


def _named(part: Mapping[str, Any], why: str) -> str:
    """With the layer's own name, if it has another one."""
    inner = part.get("config")
    name = inner.get("name") if isinstance(inner, dict) else None
    return f"{name} ({why})" if isinstance(name, str) and name != why else why


def _why_not(part: Mapping[str, Any], custom: Collection[str]) -> str:
    """The part of an object that is not allowed; "" if all is allowed."""
    kind, module, registered = part["class_name"], part.get("module"), part.get("registered_name")
    if not all(isinstance(text, str) for text in (kind, module or "", registered or "")):
        return "an object whose name is no text"
    inner = part.get("config")
    if kind in ("Lambda", "__lambda__"):
        return "Lambda"
    if kind == "__typespec__" or kind == "TypeSpec":
        return _type_spec(part, module)
    if kind == _FUNCTION:
        return _function(inner, module, registered, custom)
    own = _looked_up(part, module) in custom
    if not own and not _is_keras(module, kind, registered, custom):
        return f"{module}.{kind}" if module else kind
    return "" if own else _inside(kind, inner if isinstance(inner, dict) else {})


def _looked_up(part: Mapping[str, Any], module: str | None) -> object:
    """The name by which Keras looks for the user's class before it imports the module; None where it does not look."""
    return part["class_name"] if module is None else part.get("registered_name", part["class_name"])


def _is_keras(module: str | None, kind: str, registered: str | None, custom: Collection[str]) -> bool:
    """Whether Keras takes a class that is on the list, whichever of the three names it goes by."""
    if (
        registered not in (None, kind)
        and not _is_listed(str(registered).rpartition(">")[2])
        and registered not in custom
    ):
        return False
    if module is not None and _KERAS_OPS.fullmatch(module):
        return bool(_OP_CLASS.fullmatch(kind)) and registered in (None, kind)
    if module == "keras.src.ops.core" and kind in _CORE_OPS:
        return registered in (None, kind)
    return (module is None or bool(_KERAS_MODULE.fullmatch(module))) and (_is_listed(kind) or kind in names.FUNCTIONS)


def _is_listed(kind: str) -> bool:
    return kind in names.LAYERS or kind in names.OBJECTS or kind in names.VALUES or kind in _SPECIAL


def _function(name: object, module: str | None, registered: str | None, custom: Collection[str]) -> str:
    """Of a function by name. Keras takes `config`, in some places `registered_name` instead, from `module`."""
    if not isinstance(name, str):
        return "a function whose name is no text"
    if (
        name in custom
        or registered in custom
        and str(registered).rpartition(">")[2] == name
        and module in (None, "builtins")
    ):
        return ""
    allowed = name in names.FUNCTIONS and (registered in (None, _FUNCTION) or registered in names.FUNCTIONS)
    here = module is None or module == "builtins" or _KERAS_MODULE.fullmatch(module)
    return "" if allowed and here else f"the function {module + '.' if module else ''}{name}"


def _type_spec(part: Mapping[str, Any], module: str | None) -> str:
    # In a .keras file, and in HDF5 ("tf.TensorSpec").
    name = part.get("spec_name", part.get("type_spec"))
    allowed = isinstance(name, str) and name.removeprefix("tf.") in names.TYPE_SPECS
    here = module is None or _TYPE_SPEC_MODULE.fullmatch(module)
    registered = part.get("registered_name")
    return "" if allowed and here and registered in (None, name) else f"the type {module + '.' if module else ''}{name}"


def _inside(kind: str, config: Mapping[str, Any]) -> str:
    """The part of an allowed layer's configuration that is not allowed."""
    check = _SPECIAL.get(kind)
    return check(config) if check else ""


def _symbol(config: Mapping[str, Any]) -> str:
    symbol = config.get("function")
    if not isinstance(symbol, str):
        return "a function whose name is no text"
    space, _, name = symbol.removeprefix("compat.v1.").rpartition(".")
    allowed = name in names.OPS if space == "raw_ops" else name in names.SYMBOLS.get(space, ())
    return "" if allowed else symbol if symbol.startswith("keras.") else f"tf.{symbol}"


def _member(config: Mapping[str, Any]) -> str:
    member = config.get("attr_name")
    return "" if isinstance(member, str) and member in names.RAGGED_MEMBERS else f"the member {member!r} of a tensor"


def _maker(config: Mapping[str, Any]) -> str:
    kind, method = config.get("cls_symbol"), config.get("method_name")
    if not isinstance(kind, str) or not isinstance(method, str):
        return "a class whose name is no text"
    allowed = kind.removeprefix("compat.v1.") in names.RAGGED_CLASSES and method in names.RAGGED_MAKERS
    return "" if allowed else f"tf.{kind}.{method}"


def _graph_op(config: Mapping[str, Any]) -> str:
    node = config.get("node_def")
    if isinstance(node, str):
        node = {"op": _op_of(node)}
    op = node.get("op") if isinstance(node, dict) else None
    return "" if isinstance(op, str) and op in names.OPS else f"the op {op}"


def _op_of(text: str) -> str:
    """The op of a NodeDef in its binary form, as Keras reads it."""
    from google.protobuf import message
    from tensorflow.core.framework import node_def_pb2

    try:
        result: str = node_def_pb2.NodeDef.FromString(text.encode()).op
        return result
    except (message.DecodeError, UnicodeEncodeError):
        return "that cannot be read"


def _residual(config: Mapping[str, Any]) -> str:
    return "a function of ResidualWrapper" if config.get("residual_fn") is not None else ""


# Layers that are allowed where what they name is: {class: what of its configuration is not}.
_SPECIAL = {
    **dict.fromkeys(_FUNCTION_LAYERS, _symbol),
    **dict.fromkeys(_MEMBER_LAYERS, _member),
    "ClassMethod": _maker,
    "TensorFlowOpLayer": _graph_op,
    "ResidualWrapper": _residual,
}
