"""What TensorRT's inspector says of the layers of a plan (engine_layers.json of its passport), as the log of an engine's build says it.

Form of the document: TensorRT 8.5.3 with ProfilingVerbosity.DETAILED, seen on an H100 (tests/data/plan_layers_*.json.gz). No runtime is
imported here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base.logs import engine_layers
from tftrt_tools.base.logs.engine_layers import Row, Tensor

# {what "Format/Datatype" names: the word of the build's log}.
_TYPES = {
    "FP32": "Float",
    "FP16": "Half",
    "INT8": "Int8",
    "INT32": "Int32",
    "BOOL": "Bool",
    "BF16": "BFloat16",
    "FP8": "FP8",
    "INT64": "Int64",
}
_TYPE = re.compile(rf"\b({'|'.join(_TYPES)})\b", re.IGNORECASE)
# A packed format, such as "… where channel % 8 == 0" or "Thirty-two wide channel vectorized …".
_MODULO = re.compile(r"channel % (\d+) == 0")
_WIDE = re.compile(r"^(\S+) wide channel")
_WORDS = {"two": 2, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32}
_NO_TACTIC = "0x0000000000000000"
# "N/A due to dynamic shapes".
_UNTOLD = "N/A"


def rows(document: Mapping[str, Any] | None) -> tuple[Row, ...]:
    """The layers of all profiles in the order in which they run; () where the document tells only names, or nothing.

    Args: document: what the inspector says, {"Layers": [{"Name", "LayerType", "Inputs", "Outputs", "TacticValue", …}]}.
    """
    listed = (document or {}).get("Layers", ())
    return tuple(_row(layer) for layer in listed if isinstance(layer, dict) and "Name" in layer)


def _row(layer: Mapping[str, Any]) -> Row:
    name, profile = engine_layers.without_profile(str(layer["Name"]))
    return Row(
        name=name,
        kind=str(layer.get("LayerType", "")),
        tactic=str(layer.get("TacticValue", _NO_TACTIC)),
        inputs=tuple(map(_tensor, layer.get("Inputs", ()))),
        outputs=tuple(map(_tensor, layer.get("Outputs", ()))),
        profile=profile,
    )


def _tensor(description: Mapping[str, Any]) -> Tensor:
    form = str(description.get("Format/Datatype", ""))
    kind = _TYPE.search(form)
    told = _TYPES[kind[1].upper()] if kind else "" if form.startswith(_UNTOLD) else form
    return Tensor(
        name=engine_layers.without_profile(str(description.get("Name", "")))[0],
        type=told,
        sizes=tuple(description.get("Dimensions", ())),
        packed=_packed(form),
    )


def _packed(form: str) -> int:
    """The number of channels that a format packs together."""
    modulo, wide = _MODULO.search(form), _WIDE.match(form)
    return int(modulo[1]) if modulo else _WORDS.get(wide[1].lower(), 1) if wide else 1
