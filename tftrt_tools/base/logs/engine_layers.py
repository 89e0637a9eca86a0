"""The layers of a built engine, each with its tactic and the types, sizes and formats of what it reads and writes: lines of the list
"Engine Layer Information" of TensorRT's verbose log, as 8.5.3 writes it under TensorFlow 2.14.1 (seen on an H200,
tests/data/engine_layers.log.gz). The engine itself keeps only the names.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Literal

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.logs import heads

LINE = re.compile(
    r"^Layer\((?P<kind>\w+)\): (?P<name>.*?), Tactic: (?P<tactic>(?:0x)?-?[0-9a-f]+), (?P<inputs>.*) -> (?P<outputs>.*)$",
    re.MULTILINE,
)
# The name of a layer of TF-TRT's begins its nodes with the engine's.
ENGINE = re.compile(r"(TRTEngineOp_\w+)/")
# A part of the network that TensorRT's compiler Myelin fused.
FUSED = "Myelin"
# This suffix ends layer names of an engine's second and later profiles.
_PROFILE = re.compile(r" \[profile (\d+)\]")
# "NAME (Half[32,256:8,14,14])": after the channels, by how many a format packs them.
_TENSOR = re.compile(r"(.+?) \((\w+)[\[(]([^\])]*)[\])]\)(?:, |$)")
_PRECISION: dict[str, Precision] = {"Int8": "INT8", "Half": "FP16", "Float": "FP32"}
_MULTIPLIES = re.compile(r":(?:CONVOLUTION|DECONVOLUTION|FULLY_CONNECTED|MATRIX_MULTIPLY|EINSUM)\b")
# They move or hold values.
_PASSIVE = (
    "NoOp",
    "Reformat",
    "Shuffle",
    "Constant",
    "Slice",
    "Concat",
    "Gather",
    "ShapeHostToDevice",
    "ShapeDeviceToHost",
)
_PART_OF_A_NODE = re.compile(r"-(?:conv|sum|activation|pooling|shuffle|FULLY_CONNECTED-shuffle_\d+)$")
_LONGEST_SHOWN = 100
# From the end.
_PACKED_AXIS = 3
# What TensorRT puts behind the name of a layer, or of a node of Myelin's, where it means its weights.
_WEIGHTS = re.compile(r"(?:\.\w+|_[A-Z_]+(?:\[\w+\])?_constant)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tensor(records.Record):
    """A tensor that a layer reads or writes."""

    # TensorRT's; often that of the TensorFlow tensor.
    name: str
    # TensorRT's: "Float", "Half", "Int8", "Int32", "Bool".
    type: str
    # As the log writes them; a size that is open in the profile may be negative.
    sizes: tuple[int, ...]
    # How many channels lie side by side: 1 for a plain layout, 8 for channels packed by eight.
    packed: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row(records.Record):
    """A layer."""

    # TensorRT's, without the mark of a profile.
    name: str
    # TensorRT's, such as "CaskConvolution", "Reformat", "NoOp", "Myelin".
    kind: str
    # The number of the chosen implementation, in hexadecimal; "0x0000000000000000" where there is no choice.
    tactic: str
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    # The number of its optimization profile, from 0: each profile has its own layers.
    profile: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer(records.Record):
    """A layer that computes."""

    # The TensorFlow node of its product, else TensorRT's own name, without the engine's.
    node: str
    # TensorRT's.
    kind: str
    # The type of its first input (TF32 counts as FP32), "" for other types.
    precision: Precision | Literal[""]
    # Whether it is a convolution or matrix product.
    multiplies: bool
    # Tensors without a range, for which it could not be INT8.
    without_range: tuple[str, ...] = ()
    # The number of its optimization profile, from 0: each profile has its own layers.
    profile: int = 0


def rows(block: str) -> tuple[Row, ...]:
    """The layers of a list, in the order in which they run."""
    return tuple(_row(match) for match in LINE.finditer(block))


def without_profile(name: str) -> tuple[str, int]:
    """Split a layer's name into the name without the mark of its profile, and the number of the profile."""
    found = _PROFILE.search(name)
    return _PROFILE.sub("", name), heads.whole(found[1]) if found else 0


def computes(row: Row, prefix: str) -> Layer | None:
    """Args: prefix: "ENGINE/". Returns: None for a layer that only moves or holds values."""
    if row.kind in _PASSIVE:
        return None
    kinds = _precisions(row.inputs) or _precisions(row.outputs)
    return Layer(
        node=_node(row.name, prefix),
        kind=row.kind,
        precision=kinds[0] if kinds else "",
        profile=row.profile,
        multiplies=bool(_MULTIPLIES.search(row.name)),
    )


def misread(layers: Sequence[Row]) -> tuple[str, ...]:
    """Reshapes of packed channels for which TensorRT moves nothing, although the packed numbers lie in another order.

    A packed format lays the numbers of one axis side by side: the third from the end. So (8, 8, 48, 48) has its channels packed, and after
    a reshape to (8, 4, 4608) its rows. TensorRT 8.5.3 gave such a reshape no work in the FP16 plan of a group normalization, with as many
    rows as channels, and the answers were other numbers (9.9 dB, seen on an H200, 2026-11-28; without the packed format 66.8 dB).

    Returns: the names, each once.
    """
    found = [
        row.name
        for row in layers
        if row.kind == "NoOp"
        and len(row.inputs) == len(row.outputs) == 1
        and row.inputs[0].packed > 1 < row.outputs[0].packed
        and _differ(row.inputs[0].sizes, row.outputs[0].sizes)
    ]
    return tuple(dict.fromkeys(found))


def _differ(taken: Sequence[int], given: Sequence[int]) -> bool:
    """Whether packed numbers of these sizes lie in another order, as far as the sizes are known."""
    pairs = zip(_around_the_packed(taken), _around_the_packed(given), strict=True)
    return any(one != other for one, other in pairs if one is not None and other is not None)


def _around_the_packed(sizes: Sequence[int]) -> tuple[int | None, ...]:
    """Numbers in front of the packed axis, on it, and behind it; None where a size is open. Tensors of fewer than three axes have ones in
    front."""
    full = (1,) * (_PACKED_AXIS - len(sizes)) + tuple(sizes)
    parts = full[:-_PACKED_AXIS], full[-_PACKED_AXIS : -_PACKED_AXIS + 1], full[-_PACKED_AXIS + 1 :]
    return tuple(math.prod(part) if min(part, default=1) > 0 else None for part in parts)


def shown(name: str) -> str:
    """For people: the node that says most of a layer's name as TensorRT writes it."""
    engine = ENGINE.search(name)
    node = _node(name, f"{engine[1]}/" if engine else "")
    return node if len(node) <= _LONGEST_SHOWN else f"{node[:_LONGEST_SHOWN]}…"


def owner(weights: str) -> str:
    """For people: the node whose weights these are, by the name that TensorRT gives the weights."""
    return shown(_WEIGHTS.sub("", without_profile(weights.strip())[0]))


def owners(listed: str) -> list[str]:
    """The owners of weights whose names are separated by commas. Names can also hold commas inside parentheses."""
    names: list[str] = []
    for part in listed.split(", "):
        if names and names[-1].count("(") > names[-1].count(")"):
            names[-1] += f", {part}"
        else:
            names.append(part)
    return [owner(name) for name in names]


def _row(match: re.Match[str]) -> Row:
    name, profile = without_profile(match["name"])
    return Row(
        name=name,
        kind=match["kind"],
        tactic=match["tactic"],
        inputs=_tensors(match["inputs"]),
        outputs=_tensors(match["outputs"]),
        profile=profile,
    )


def _tensors(text: str) -> tuple[Tensor, ...]:
    return tuple(_tensor(*found) for found in _TENSOR.findall(text))


def _tensor(name: str, kind: str, sizes: str) -> Tensor:
    numbers = [part.partition(":") for part in sizes.split(",") if part]
    return Tensor(
        name=name,
        type=kind,
        sizes=tuple(heads.whole(size) for size, _, _ in numbers),
        packed=next((heads.whole(packed) for _, _, packed in numbers if packed), 1),
    )


def _precisions(tensors: Sequence[Tensor]) -> list[Precision]:
    return [_PRECISION[tensor.type] for tensor in tensors if tensor.type in _PRECISION]


def _node(name: str, prefix: str) -> str:
    """The node of the layer's multiplying part, else of its first part."""
    parts = name.split(" + ")
    chosen = next((part for part in parts if _MULTIPLIES.search(part)), parts[0])
    plain = chosen.replace(prefix, "") if prefix else chosen
    return plain if plain.startswith(("{", "PWN(")) else _PART_OF_A_NODE.sub("", plain.rsplit(":", 1)[0])
