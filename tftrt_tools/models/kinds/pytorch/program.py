"""Reads a PyTorch program (.pt2, as torch.export.save writes it) without PyTorch: what it takes and gives, its ops, and what in it would
run code when PyTorch loads it."""

from __future__ import annotations

import collections
import dataclasses
import math
import pathlib
import pickletools
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import archives, documents
from tftrt_tools.models.kinds.model import File, Overview, Signature
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT

FORM = "PyTorch program"
MADE_BY = "torch.export.save(torch.export.export(module.eval(), inputs), 'model.pt2')"
TRUST = "if you trust the file, add --allow_unsafe_deserialization"
# torch._export.serde.schema.ScalarType, as far as NumPy has the type.
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    10: "complex64",
    11: "complex128",
    12: "bool",
    28: "uint16",
    34: "uint32",
    35: "uint64",
}
_OTHER_DTYPES = {13: "bfloat16", 29: "float8_e4m3fn", 30: "float8_e5m2"}
# The names that a pickle of tensors in tuples, lists and dicts contains.
_HARMLESS = re.compile(
    r"torch\._utils _rebuild_(tensor_v2|parameter)|torch \w*(Storage|Size)"
    r"|torch (device|bfloat16|float\d+|u?int\d+|bool)|collections OrderedDict"
    r"|torch\.storage \w*Storage|torch\.serialization _get_layout"
)
# SymPy evaluates the text of an expression, and what some of its classes take as text (S, sympify): so only these are called, and the only
# texts are names of symbols.
_EXPRESSION = re.compile(r"[\w (),=+\-*/<>!&|~%.]*")
_SYMBOL_NAME = re.compile(r"(?<=Symbol\()('\w+'|\"\w+\")")
_CALLED, _MEMBER = re.compile(r"(\w+)\s*\("), re.compile(r"__|\.\s*[A-Za-z_]")
_CALLABLE = re.compile(
    r"Symbol|Integer|Float|Rational|Add|Mul|Pow|Abs|(Python)?Mod|ModularIndexing|Max|Min|Where|Identity|Piecewise"
    r"|And|Or|Not|Xor|(Clean|Floor|Ceil|IntTrue|FloatTrue)Div|(Ceil|Floor|Trunc|Round)To(Int|Float)|ToFloat|RoundDecimal|FloatPow|PowByNatural"
    r"|[LR]Shift|Eq|Ne|Lt|Le|Gt|Ge|(Une|E)quality|(Strict)?(Less|Greater)Than|floor|ceiling|ceil"
    r"|IsNonOverlappingAndDenseIndicator|(BitwiseFn|OpaqueUnaryFn)_\w+"
)
# The names in a condition on shapes, which PyTorch runs as a line of Python.
_KEY = re.compile(r"\[('[^'\\]*'|\"[^\"\\]*\")\]")
_GUARD = re.compile(r"[\w (),=+\-*/<>!&|~%.\[\]]*")
_OF_A_TENSOR = frozenset("size stride storage_offset shape dim numel ndim".split())
_OF_NUMBERS = frozenset("and or not max min len abs int float floor ceil trunc sqrt".split())
# Ops that PyTorch finds in its own modules; one of them maps a file, and can make it.
_TARGET = re.compile(
    r"torch\.ops\.\w+(\.\w+)*|_operator\.\w+|math\.\w+|torch\.(sym_\w+|_sym_\w+)|torch\.fx\.experimental\.\w+\.\w+"
)
_FILE_OPS = re.compile(r"torch\.ops\.aten\.(from_file|save|load)\b.*")
# Constants that are not tensors are unpickled.
_OBJECTS = ("custom_obj_", "opaque_obj_")
_MOST_MODEL, _MOST_CONFIG, _MOST_PICKLE, _MOST_LEVELS = 256 << 20, 64 << 20, 64 << 20, 400
# Arguments of ops (batch_norm, dropout) that are true in training.
_IN_TRAINING = ("training", "train")
_UNASKED = (
    "what TF-TRT would take of it: TF-TRT converts TensorFlow models (`tftrt export` makes an ONNX file of it, which TensorRT builds)",
    "saved engines: there are none in a PyTorch program",
    "whether it was verified: a PyTorch program carries no metadata (`tftrt verify ORIGINAL FILE` compares)",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """The contents of a .pt2 file."""

    signature: Signature
    # A bool for each leaf of its arguments: True for an input, False for a constant.
    fed: tuple[bool, ...]
    # {op: nodes}, and {dtype: elements} of parameters, buffers and constants.
    ops: Mapping[str, int]
    weights: Mapping[str, int]
    # {domain: version} of its ops.
    opsets: Mapping[str, int]
    # The PyTorch that wrote it, "" if it does not say.
    torch: str
    # Buffers that a call changes, and ops that compute as in training.
    changed: tuple[str, ...]
    training: tuple[str, ...]
    # Devices of its tensors, such as "cuda".
    devices: frozenset[str]


def read(path: str, unsafe: bool = False) -> Program:
    """Read a file. Args: unsafe: take one that runs code when it is loaded. Raises: UsageError, TftrtError."""
    if not pathlib.Path(path).is_file():
        raise errors.UsageError(f"no such file: {path}", "check the path of the PyTorch program")
    try:
        with zipfile.ZipFile(path) as archive:
            archives.check(archive)
            # PyTorch does not tell small letters from capitals.
            entries = {name.partition("/")[2].lower(): name for name in archive.namelist()}
            _check_kind(path, archive, entries)
            if len(entries) < len(archive.namelist()):
                raise ValueError("it has two entries of one name")
            model = documents.parse_object(
                archives.read(archive, entries["models/model.json"], _MOST_MODEL), _MOST_LEVELS
            )
            # Also finds a file that was cut and mended, or damaged on its way.
            if (damaged := archive.testzip()) is not None:
                raise ValueError(f"{damaged} has another checksum")
            told = next(_runs_code(archive, entries, model), "") if not unsafe else ""
            exported = _program(model)
    except zipfile.BadZipFile as error:
        raise _no_archive(path, str(error)) from None
    except (*documents.MISREAD, EOFError, NotImplementedError, StopIteration) as error:
        raise errors.TftrtError(
            f"{path} is damaged ({' '.join(str(error).split())[:200] or type(error).__name__})",
            f"copy it again; a whole one is what {MADE_BY} writes",
        ) from None
    if told:
        raise errors.UsageError(f"{path} runs code when PyTorch loads it: {told}", TRUST)
    return exported


def overview(path: str) -> Overview:
    """The Overview of a file. Raises: as `read`."""
    exported, place = read(path, unsafe=True), pathlib.Path(path)
    facts = {"producer": f"PyTorch {exported.torch}"} if exported.torch else {}
    return Overview(
        model=str(place.absolute()),
        form=FORM,
        signatures={DEFAULT: exported.signature},
        opsets=dict(exported.opsets),
        ops=dict(exported.ops),
        weights=dict(exported.weights),
        files=(File(place.name, place.stat().st_size),),
        facts=facts,
        unasked=_UNASKED,
    )


def _no_archive(path: str, why: str) -> errors.TftrtError:
    with open(path, "rb") as file:
        first = file.read(4)
    if not first:
        return errors.TftrtError(f"{path} is empty", f"a whole one is what {MADE_BY} writes")
    if first.startswith(b"PK\x03\x04"):
        return errors.TftrtError(f"{path} is truncated ({why})", f"copy it again; a whole one is what {MADE_BY} writes")
    if first.startswith(b"\x80"):
        return _pickle(path)
    return errors.TftrtError(f"{path} is no PyTorch program, whatever its name says", f"give what {MADE_BY} writes")


def _pickle(path: str) -> errors.TftrtError:
    return errors.UsageError(
        f"{path} is a pickle (torch.save), which runs the code that it names when it is loaded",
        f"load it where you trust it, and give what {MADE_BY} writes; or give module:function",
    )


def _check_kind(path: str, archive: zipfile.ZipFile, entries: Mapping[str, str]) -> None:
    """Refuse other archives. Raises: UsageError."""
    if "models/model.json" in entries:
        return
    names = archive.namelist()
    if "serialized_exported_program.json" in names:
        raise errors.UsageError(
            f"{path} was saved by an old PyTorch, whose files hold pickles",
            "load it with torch.export.load, and save it with torch.export.save of PyTorch 2.9 or later",
        )
    if any(name.startswith("code/") for name in entries):
        raise errors.UsageError(f"{path} is a TorchScript program", f"give what {MADE_BY} writes")
    if "data.pkl" in entries:
        raise _pickle(path)
    models = [name for name in entries if name.startswith("models/") and name.endswith(".json")]
    if models:
        raise errors.UsageError(
            f"{path} holds no program called model, but {', '.join(sorted(models))}", f"give what {MADE_BY} writes"
        )
    raise errors.TftrtError(f"{path} is an archive, and no PyTorch program", f"give what {MADE_BY} writes")


def _runs_code(archive: zipfile.ZipFile, entries: Mapping[str, str], model: Mapping[str, Any]) -> Iterator[str]:
    """The parts of the file that would run code that is not PyTorch's own, a text each."""
    for name in entries:
        if name.startswith("data/aotinductor/"):
            yield f"{name} is compiled code"
        if name.endswith("_config.json"):
            for tensor, description in documents.parse_object(archives.read(archive, entries[name], _MOST_CONFIG))[
                "config"
            ].items():
                if description["use_pickle"] or str(description["path_name"]).lower().startswith(_OBJECTS):
                    yield f"{tensor} is a pickle"
        # Older files have their weights and constants as these have their example inputs.
        if name.startswith(("data/sample_inputs/", "data/weights/", "data/constants/")) and name.endswith(".pt"):
            with archive.open(entries[name]) as member:
                yield from (f"{name} names {what}" for what in _foreign_names(member))
    yield from _code_of(model)


def _code_of(model: Mapping[str, Any]) -> Iterator[str]:
    """The parts of the program itself that PyTorch evaluates or imports."""
    for text in _texts_of(model, "expr_str"):
        if not _is_expression(text):
            yield f"the size {text[:60]!r} is no plain expression"
    for text in _guards(model):
        if not _is_guard(text):
            yield f"the condition {text[:60]!r} is no plain one of shapes"
    for text in _texts_of(model, "target"):
        if not _TARGET.fullmatch(text) or _FILE_OPS.fullmatch(text):
            yield f"its op {text[:60]!r} is none of tensors"
    for key in ("in_spec", "out_spec", "context"):
        for text in _texts_of(model, key):
            yield from _imports(text)


def _is_expression(text: str) -> bool:
    """Whether SymPy only computes with it."""
    bare = _SYMBOL_NAME.sub("", text)
    return (
        bool(_EXPRESSION.fullmatch(bare))
        and not _MEMBER.search(bare)
        and all(map(_CALLABLE.fullmatch, _CALLED.findall(bare)))
    )


def _is_guard(text: str) -> bool:
    """Whether a condition only compares sizes."""
    bare = _KEY.sub("[0]", text)
    members, allowed = set(re.findall(r"\.\s*([A-Za-z_]\w*)", bare)), _OF_A_TENSOR | _OF_NUMBERS
    called = set(_CALLED.findall(bare)) - allowed
    return (
        bool(_GUARD.fullmatch(bare))
        and "__" not in bare
        and members <= allowed
        and all(map(_CALLABLE.fullmatch, called))
    )


def _guards(model: Mapping[str, Any]) -> Iterator[str]:
    for one in model.get("guards_code") or ():
        yield str(one)


def _imports(text: str) -> Iterator[str]:
    """Modules that PyTorch imports to make the trees of arguments: those of enums, and of a defaultdict's values."""
    try:
        waiting = [documents.parse(text)]
    except ValueError:
        return  # a text that is no JSON, such as the name of a dimension
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if "__enum__" in item:
                yield f"an argument is of {item.get('fqn')}"
            elif item.get("default_factory_module", "builtins") != "builtins":
                yield f"an argument is of {item['default_factory_module']}"
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and item[:1] in ("{", "[", '"'):
            yield from _imports(item)


def _foreign_names(member: IO[bytes]) -> Iterator[str]:
    """Names of a torch.save file that tensors do not need."""
    with zipfile.ZipFile(member) as inner:
        archives.check(inner)
        pickles = [name for name in inner.namelist() if name.rpartition("/")[2].lower() == "data.pkl"]
        if not pickles:
            raise ValueError("its example inputs are none of torch.save")
        for op, argument, _ in (
            opcode for name in pickles for opcode in pickletools.genops(archives.read(inner, name, _MOST_PICKLE))
        ):
            if op.name == "GLOBAL" and not _HARMLESS.fullmatch(str(argument)):
                yield str(argument)
            elif op.name in ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4"):
                yield f"a function ({op.name})"


def _texts_of(value: object, key: str) -> Iterator[str]:
    """Each text under `key`, at any depth."""
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if isinstance(item.get(key), str):
                yield item[key]
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _program(model: Mapping[str, Any]) -> Program:
    documents.check(model, {"torch_version": str, "opset_version": {str: int}})
    graph, signature = model["graph_module"]["graph"], model["graph_module"]["signature"]
    values = graph["tensor_values"]
    call = next(entry["signature"] for entry in model["graph_module"]["module_call_graph"] if not entry["fqn"])
    taken = [spec for spec in signature["input_specs"] if "user_input" in spec or "constant_input" in spec]
    given = [
        next(iter(spec.values()))["arg"]
        for spec in signature["output_specs"]
        if {"user_output", "user_input_mutation"} & set(spec)
    ]
    names = _argument_names(documents.parse(call["in_spec"])[1], call.get("forward_arg_names") or ())
    arguments = [spec["user_input"]["arg"] if "user_input" in spec else {} for spec in taken]
    inputs = [
        _spec(f"input {name!r}", name, argument, values)
        for name, argument in zip(names, arguments, strict=True)
        if argument
    ]
    outputs = [
        _spec(f"output {name!r}", name, argument, values)
        for name, argument in zip(_output_names(documents.parse(call["out_spec"])[1]), given, strict=True)
    ]
    _check_names("inputs", inputs)
    _check_names("outputs", outputs)
    named = {
        entry["arg"]["name"]
        for spec in signature["input_specs"]
        for entry in spec.values()
        if "name" in entry.get("arg", {})
    }
    weights: collections.Counter[str] = collections.Counter()
    for name in named & set(values):
        weights[_dtype(values[name])] += math.prod(size.get("as_int", 0) for size in values[name]["sizes"])
    changed = [
        spec["buffer_mutation"]["buffer_name"] for spec in signature["output_specs"] if "buffer_mutation" in spec
    ]
    training = {
        node["target"].removeprefix("torch.ops.")
        for node in graph["nodes"]
        for argument in node.get("inputs", ())
        if argument["name"] in _IN_TRAINING and argument["arg"].get("as_bool")
    }
    ops = collections.Counter(node["target"].removeprefix("torch.ops.") for node in graph["nodes"])
    return Program(
        signature=Signature(tuple(inputs), tuple(outputs)),
        fed=tuple(map(bool, arguments)),
        weights=dict(weights.most_common()),
        ops=dict(sorted(ops.items(), key=lambda item: (-item[1], item[0]))),
        opsets=model.get("opset_version") or {},
        torch=model.get("torch_version", ""),
        changed=tuple(changed),
        training=tuple(sorted(training)),
        devices=frozenset(value["device"]["type"] for value in values.values()),
    )


def _check_names(what: str, specs: Sequence[InputSpec]) -> None:
    """Refuse two of one name, of which one would be lost: {"a_b": …} beside {"a": {"b": …}}. Raises: TftrtError."""
    names = [spec.name for spec in specs]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise errors.TftrtError(
            f"two {what} of the program are called {twice!r}: keys within keys are joined by _", "name one otherwise"
        )


def _spec(what: str, name: str, argument: Mapping[str, Any], values: Mapping[str, Any]) -> InputSpec:
    """The InputSpec of a tensor. Raises: TftrtError for another value."""
    if "as_tensor" not in argument:
        raise errors.TftrtError(
            f"{what} of the program is no tensor ({', '.join(argument)})",
            "export a module that takes and gives tensors alone",
        )
    value = values[argument["as_tensor"]["name"]]
    if value["dtype"] not in _DTYPES:
        raise errors.TftrtError(
            f"{what} of the program is {_dtype(value)}, which NumPy does not have",
            "let the module take and give another type, and cast inside",
        )
    return InputSpec(name, _DTYPES[value["dtype"]], tuple(size.get("as_int") for size in value["sizes"]))


def _dtype(value: Mapping[str, Any]) -> str:
    number = value["dtype"]
    return _DTYPES.get(number) or _OTHER_DTYPES.get(number, f"type {number}")


def _argument_names(spec: Mapping[str, Any], forward: Sequence[str]) -> list[str]:
    """Names of the arguments' leaves: of ((positional, …), {keyword: …})."""
    positional, keywords = spec["children_spec"]
    leaves = []
    for place, child in enumerate(positional["children_spec"]):
        leaves += _leaves(child, forward[place] if place < len(forward) else f"input_{place}")
    for name, subtree in zip(_keys(keywords), keywords["children_spec"], strict=True):
        leaves += _leaves(subtree, name)
    return leaves


def _output_names(spec: Mapping[str, Any]) -> list[str]:
    """Names of what it returns: "output" for one tensor, output_0 and so on for several, the keys of a dict."""
    if spec["type"] is not None and _keys(spec):
        return _joined(spec, "", lambda _, key: key)
    leaves = _leaves(spec, "output")
    return ["output"] if len(leaves) == 1 else leaves


def _leaves(spec: Mapping[str, Any], name: str) -> list[str]:
    """A name for each leaf of a tree."""
    return [name] if spec["type"] is None else _joined(spec, name, lambda before, key: f"{before}_{key}")


def _joined(spec: Mapping[str, Any], name: str, join: Callable[[str, str], str]) -> list[str]:
    keys = _keys(spec) or [str(place) for place in range(len(spec["children_spec"]))]
    return [
        leaf for key, one in zip(keys, spec["children_spec"], strict=True) for leaf in _leaves(one, join(name, key))
    ]


def _keys(spec: Mapping[str, Any]) -> list[str]:
    """The keys of a dict, of whatever class; [] for a sequence."""
    context = documents.parse(spec["context"]) if spec.get("context") else None
    keys = context[-1] if isinstance(context, list) and context and isinstance(context[-1], list) else context
    if (
        not isinstance(keys, list)
        or len(keys) != len(spec["children_spec"])
        or not all(isinstance(key, str) for key in keys)
    ):
        return []
    return keys
