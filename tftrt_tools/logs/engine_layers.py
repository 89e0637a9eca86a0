"""A layer of a built engine, from the list "Engine Layer Information" that TensorRT's verbose log has behind a build.

Form of the lines: TensorRT 8.5.3 under TensorFlow 2.14.1, seen on an H200 (tests/data/engine_layers.log.gz).
"""

from __future__ import annotations

import dataclasses
import re
from typing import Literal

from tftrt_tools import records
from tftrt_tools.choices import Precision

LINE = re.compile(r"^Layer\((?P<kind>\w+)\): (?P<name>.*?), Tactic: (?P<tactic>(?:0x)?-?[0-9a-f]+), (?P<inputs>.*) -> (?P<outputs>.*)$",
                  re.MULTILINE)
# The name of a layer of TF-TRT's begins its nodes with the engine's.
ENGINE = re.compile(r"(TRTEngineOp_\w+)/")
# This suffix ends layer names of an engine's second and later profiles.
_PROFILE = re.compile(r" \[profile (\d+)\]")
_TYPE = re.compile(r"\((Int8|Half|Float)\[")
_PRECISION: dict[str, Precision] = {"Int8": "INT8", "Half": "FP16", "Float": "FP32"}
_MULTIPLIES = re.compile(r":(?:CONVOLUTION|DECONVOLUTION|FULLY_CONNECTED|MATRIX_MULTIPLY|EINSUM)\b")
# They move or hold values.
_PASSIVE = ("NoOp", "Reformat", "Shuffle", "Constant", "Slice", "Concat", "Gather", "ShapeHostToDevice", "ShapeDeviceToHost")
# A part of the network that TensorRT's compiler Myelin fused.
FUSED = "Myelin"
_PART_OF_A_NODE = re.compile(r"-(?:conv|sum|activation|pooling|shuffle|FULLY_CONNECTED-shuffle_\d+)$")
_LONGEST_SHOWN = 100


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


def read(match: re.Match[str], prefix: str) -> tuple[Layer, str] | None:
    """Args: match: of LINE. prefix: "ENGINE/".

    Returns: (Layer, TensorRT's name of it), or None for a layer that only moves or holds values.
    """
    kind, name, profile = match["kind"], _PROFILE.sub("", match["name"]), _PROFILE.search(match["name"])
    if kind in _PASSIVE:
        return None
    kinds = _TYPE.findall(match["inputs"]) or _TYPE.findall(match["outputs"])
    layer = Layer(node=_node(name, prefix), kind=kind, precision=_PRECISION[kinds[0]] if kinds else "",
                  multiplies=bool(_MULTIPLIES.search(name)), profile=int(profile[1]) if profile else 0)
    return layer, name


def shown(name: str) -> str:
    """For people: the node that says most of a layer's name as TensorRT writes it."""
    engine = ENGINE.search(name)
    node = _node(name, f"{engine[1]}/" if engine else "")
    return node if len(node) <= _LONGEST_SHOWN else f"{node[:_LONGEST_SHOWN]}…"


def _node(name: str, prefix: str) -> str:
    """The node of the layer's multiplying part, else of its first part."""
    parts = name.split(" + ")
    chosen = next((part for part in parts if _MULTIPLIES.search(part)), parts[0])
    plain = chosen.replace(prefix, "")
    return plain if plain.startswith(("{", "PWN(")) else _PART_OF_A_NODE.sub("", plain.rsplit(":", 1)[0])
