"""The rewrites of an exported graph: which there are, which are made for a target, and which are left out because the answers differ."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.tensorrt.exporting.onnx_graph import Node
from tftrt_tools.tensorrt.exporting.targets import TARGETS

# The word for no rewrite at all, and the signs in front of one that is left out or made in addition.
NONE, WITHOUT, WITH = "none", "-", "+"
_PARSERS = tuple(name for name, one in TARGETS.items() if one.parser)
_ALL = tuple(TARGETS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A kind of rewrite."""

    # For people: what becomes what.
    title: str
    # Targets for which it is made without being asked for.
    default: tuple[str, ...] = _ALL
    # Targets for which it can be asked for.
    possible: tuple[str, ...] = _ALL
    # Made while tf2onnx converts; else it is made in the graph that was exported.
    converting: bool = False
    # The opset that it needs; 0 for any.
    opset: int = 0
    # Whether the file may grow by it.
    grows: bool = False


# In the order in which they are made.
REWRITES: Mapping[str, Rewrite] = {
    "nms": Rewrite(
        title="CombinedNonMaxSuppression: one NonMaxSuppression and a TopK with constant K",
        default=_PARSERS,
        converting=True,
    ),
    "einsum": Rewrite(title="Einsum of two operands: one MatMul", converting=True),
    "dilations": Rewrite(
        title="a convolution between SpaceToBatchND and BatchToSpaceND: one with dilations", converting=True
    ),
    "nearest": Rewrite(
        title="a resize that repeats each pixel, with half pixels: one without", default=_PARSERS, converting=True
    ),
    "reverse": Rewrite(title="a tensor in the opposite order: one Slice that goes backwards", converting=True),
    "layer_norm": Rewrite(title="LayerNormalization: one op, or for 8.5 ops that its parser takes"),
    "gelu": Rewrite(
        title="GELU: one op", default=("10", "11", "onnxruntime"), possible=("10", "11", "onnxruntime"), opset=20
    ),
    "attention": Rewrite(title="attention: the scale before the product, as TensorRT fuses it", default=("10", "11")),
    "fold": Rewrite(title="what only constants decide, computed beforehand"),
    "dead_ends": Rewrite(title="nodes that do nothing, left out"),
    "simplify": Rewrite(title="neighbours that are one op, and equal nodes, merged"),
    "hard_swish": Rewrite(title="a hard swish or a hard sigmoid made of other ops: one op", default=("8.5",), opset=14),
    # Behind it: its division by 6 would be a scale in front of the next convolution.
    "conv_scale": Rewrite(title="a constant scale or shift around a convolution: in its weights", default=("8.5",)),
    "pad_pool": Rewrite(title="zeros around the input of a pooling: the pooling's own padding"),
    "loop_count": Rewrite(title="a Loop that counts up to a limit: one that says how often it runs"),
    "reverse_sequence": Rewrite(
        title="sequences reversed by their lengths: one GatherElements, which takes an open batch", default=("8.5",)
    ),
    "nms_limit": Rewrite(
        title="a NonMaxSuppression without a limit: its limit is the number of boxes", default=_PARSERS
    ),
    "shape_part": Rewrite(title="the sizes of some dimensions: all sizes, and a Slice of them", default=("8.5",)),
    "instance_norm": Rewrite(title="an InstanceNormalization in float16: in float32, between casts", default=("8.5",)),
    "defaults": Rewrite(
        title="attributes that are left out, and that the parser takes for others: written", default=_PARSERS
    ),
    # By itself where it was measured.
    "wide_conv": Rewrite(
        title="a convolution of few channels with a long kernel: its long dimension becomes channels",
        default=("8.5",),
        grows=True,
    ),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Missed(records.Record):
    """A node that resembles what a rewrite changes, and stayed as it was."""

    node: str
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewritten(records.Record):
    """What became of a rewrite in one graph."""

    # A key of REWRITES.
    name: str
    # How many nodes it changed: that it wrote in the place of others, or took out.
    nodes: int
    # Why it was left out; "" if the graph has it.
    undone: str = ""
    # What it did not take, and why; of the rewrites that can tell.
    missed: tuple[Missed, ...] = ()


def chosen(flag: Sequence[str], target: str, opset: int = 0, converting: bool = True) -> tuple[str, ...]:
    """The rewrites that are made, in their order.

    Args: flag: items of --rewrite: names, which are then the only ones; -NAME and +NAME each, for the default ones without it or with it;
      or "none". target: a key of TARGETS; opset: that the user gave, 0 for none. converting: whether tf2onnx makes the graph. Raises:
      UsageError.
    """
    items = [one.strip() for one in flag if one.strip()]
    signed = [(one[0], one[1:]) if one[0] in (WITHOUT, WITH) else ("", one) for one in items]
    for sign, name in signed:
        if name not in REWRITES and (sign, name) != ("", NONE):
            mend = f"give {NONE} alone" if name == NONE else errors.nearest(name, (*REWRITES, NONE))
            raise errors.UsageError(f"--rewrite: no rewrite {name!r}", mend)
    left, more, only = ([name for sign, name in signed if sign == one] for one in (WITHOUT, WITH, ""))
    if only and (left or more) or NONE in only and len(only) > 1:
        raise errors.UsageError(
            f"--rewrite={','.join(flag)} mixes names that are made alone with others",
            f"name the only ones, or those to leave out ({WITHOUT}NAME) or to add ({WITH}NAME), or {NONE}",
        )
    for name in more:
        if name in left:
            raise errors.UsageError(
                f"--rewrite={','.join(flag)} adds {name} and leaves it out", "leave one of the two out"
            )
    for name in (*more, *(one for one in only if one != NONE)):
        one = REWRITES[name]
        if target not in one.possible:
            raise errors.UsageError(
                f"--rewrite={name}: {TARGETS[target].title} does not take what it writes",
                "leave it out, or give another --target",
            )
        if one.converting and not converting:
            raise errors.UsageError(
                f"--rewrite={name} is made while TensorFlow's graph becomes ONNX, and this model is none of TensorFlow's",
                "leave it out",
            )
        if 0 < opset < one.opset:
            raise errors.UsageError(
                f"--rewrite={name} writes opset {one.opset}, and --opset={opset} is given", "leave one of the two out"
            )
    if only:
        return tuple(name for name in REWRITES if name in only)
    return tuple(
        name
        for name, one in REWRITES.items()
        if name in more or (target in one.default and name not in left and not 0 < opset < one.opset)
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """Rewrites to make in an exported graph."""

    # The file; the file to write; the name of the one beside each for its weights, or "".
    onnx: str
    output: str
    weights: str
    # Their names.
    rewrites: tuple[str, ...]
    # A key of TARGETS.
    target: str
    # Whether the opset may be another one than that of the file.
    raised: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changed(records.Record):
    """The file that was written."""

    nodes: tuple[Node, ...]
    opset: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer(records.Record):
    """What became of each rewrite. changed: None where nothing was written."""

    rewrites: tuple[Rewritten, ...]
    changed: Changed | None = None


@jobs.job
def rewrite() -> Callable[[Request], Answer]:
    """Rewrite a graph: one after the other, each checked, and left out if it fails."""
    from tftrt_tools.tensorrt.exporting import rewrite_job

    return rewrite_job.job


class Attempt(Protocol):
    """A graph with rewrites, checked."""

    @property
    def rewrites(self) -> tuple[Rewritten, ...]: ...

    @property
    def problem(self) -> str:
        """Why it does not answer like its source; "" if it does."""


Tried = TypeVar("Tried", bound=Attempt)


def settle(names: Sequence[str], attempt: Callable[[tuple[str, ...]], Tried]) -> tuple[Tried, tuple[Rewritten, ...]]:
    """The graph with as many rewrites as leave its answers right: of those that changed it the last is left out, then the one before, …
    Where one is left out, another may find something to change.

    Args: names: rewrites; attempt: makes the graph with some of them, and checks it. Returns: (what was made last, all rewrites, also those
      left out). If the graph without any rewrite is wrong, too, that is returned.
    """
    first = found = attempt(tuple(names))
    if first.problem and _changed(first):
        progress.say("trying it without rewrites")
        found = attempt(())
        if found.problem:
            return found, found.rewrites
        found = first
    undone: list[Rewritten] = []
    while found.problem and (changed := _changed(found)):
        last = changed[-1]
        undone.insert(0, dataclasses.replace(last, undone=f"with it the answers differ: {found.problem}"))
        left = {one.name for one in undone}
        progress.say(f"trying it without {last.name}")
        found = attempt(tuple(name for name in names if name not in left))
    return found, (*found.rewrites, *undone)


def _changed(found: Attempt) -> list[Rewritten]:
    """The rewrites that changed a graph."""
    return [one for one in found.rewrites if one.nodes and not one.undone]
