"""The precision that is written into an ONNX graph: what was asked, what became of each node, and where its ranges are from."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

from tftrt_tools.accuracy.verify import Verification
from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import CalibrationMethod, Precision
from tftrt_tools.models.backends.recipe import Recipe
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.tftrt.calibration.comparison import Comparison
from tftrt_tools.tftrt.calibration.methods import AUTO, PERCENTILE

# What --calibration_table's ranges are called where methods are named.
GIVEN = "table"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """What the user says of the precision."""

    precision: Precision = "FP32"
    # Regular expressions of whole names: nodes that stay in FP32.
    fp32_nodes: tuple[str, ...] = ()
    # Of INT8: the data that ranges come from, or a calibration file that has them.
    data: DataOptions | None = None
    table: str = ""
    method: CalibrationMethod = AUTO
    # Of |x|, for the method percentile.
    percentile: float = PERCENTILE
    # Of INT8: a plan directory; only nodes that it computes in INT8 get it. "" for all. And what messages call it, if not by its path.
    int8_as: str = ""
    int8_said: str = ""
    # Where to write the ranges of all tensors, "" for nowhere.
    output_table: str = ""

    @classmethod
    def of(cls, recipe: Recipe, data: DataOptions | None = None, int8_as: str = "") -> Asked:
        """What a recipe says of it. Args: data: of its calibration, which a table of the recipe stands for."""
        int8 = recipe.precision_mode == "INT8"
        return cls(
            precision=recipe.precision_mode,
            fp32_nodes=tuple(filter(None, (recipe.fp32_nodes,))),
            data=data if int8 and not recipe.calibration_table else None,
            table=recipe.calibration_table if int8 else "",
            method=recipe.calibration_method,
            percentile=recipe.calibration_percentile,
            int8_as=int8_as,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class NodePrecision(records.Record):
    """What became of a node."""

    name: str
    op: str
    precision: Precision
    # Why it is in FP32, or what is special; "" for neither.
    reason: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written(records.Record):
    """The precision that is in a file."""

    precision: Precision
    # FP16: every node that computes floats; INT8: every node that TensorRT could take in INT8.
    nodes: tuple[NodePrecision, ...]
    # Constants that stay in FP32, because FP16 does not hold them, a line each.
    constants: tuple[str, ...] = ()
    # INT8: "entropy", "percentile 99.9", "table", …; and how it was chosen.
    method: str = ""
    comparison: Comparison | None = None
    # INT8: {tensor: the largest |x| that its scale keeps}, of the tensors that are rounded.
    ranges: dict[str, float] = dataclasses.field(default_factory=dict)
    # Rows that the ranges come from; 0 for a given table.
    samples: int = 0
    # What to know about the calibration data.
    warnings: tuple[str, ...] = ()
    # What to know of the file beside its answers.
    remarks: tuple[str, ...] = ()
    # The answers against the source's; None until they were compared.
    verification: Verification | None = None

    @property
    def taken(self) -> tuple[NodePrecision, ...]:
        """The nodes in that precision."""
        return tuple(one for one in self.nodes if one.precision == self.precision)

    @property
    def left(self) -> tuple[NodePrecision, ...]:
        """The others."""
        return tuple(one for one in self.nodes if one.precision != self.precision)


def kept(patterns: Sequence[str], names: Iterable[str]) -> frozenset[str]:
    """The nodes that --fp32_nodes names. Raises: UsageError for what is no regular expression or matches none."""
    known, found = list(names), set()
    for pattern in patterns:
        try:
            expression = re.compile(pattern)
        except re.error as error:
            raise errors.UsageError(
                f"--fp32_nodes={pattern} is no regular expression: {error}", "see Python's `re` syntax"
            ) from None
        matched = {name for name in known if expression.fullmatch(name)}
        if not matched:
            inside = sum(bool(expression.search(name)) for name in known)
            raise errors.UsageError(
                f"--fp32_nodes={pattern} matches no node",
                "the whole name of a node of the exported graph must match, without those that a rewrite takes (--rewrite=-NAME)"
                + (f"; did you mean '.*{pattern}.*'? ({inside} of {len(known)} nodes)" if inside else ""),
            )
        found |= matched
    return frozenset(found)
