"""Convolutions with dilations, written as one op each, and paddings where TF-TRT takes them.

TensorFlow writes a convolution with dilations as SpaceToBatchND, a plain convolution and BatchToSpaceND, and TF-TRT takes neither
rearrangement. With blocks of b, paddings (p, q) and crops (c, d) these compute

    out[o] = sum over j of filter[j] * x[o - (p - c) + j * b],

where x is zero outside: the convolution with dilation b and paddings (p - c, q - d). If sizes are open, the graph computes the paddings
and crops from the shape; nothing is written before their difference is shown to be the same for every size.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2, node_def_pb2

from tftrt_tools.models.savedmodel.job import added_nodes, folding, inferred
from tftrt_tools.models.savedmodel.preparation import Dilated

if TYPE_CHECKING:
    import numpy.typing as npt

T = TypeVar("T")
# Ops that treat every position alike, so they may come before or after the rearrangement; the first operand is the data.
_ALIKE = frozenset({"Identity", "Relu", "Relu6", "LeakyRelu", "Elu", "Selu", "Sigmoid", "Tanh", "Softplus", "Softsign"})
# The other operands of these have a number for each channel, or one for all.
_BY_CHANNEL = frozenset({"BiasAdd", "Add", "AddV2", "Sub", "Mul", "RealDiv", "Maximum", "Minimum"})
# Ops that compute paddings. For whole numbers n they give a * n + f(n), where f repeats with the moduli.
_ARITHMETIC = frozenset(
    {
        "Shape",
        "Identity",
        "StridedSlice",
        "Slice",
        "GatherV2",
        "Pack",
        "ConcatV2",
        "ExpandDims",
        "Squeeze",
        "Reshape",
        "Cast",
        "Add",
        "AddV2",
        "Sub",
        "Neg",
        "FloorMod",
    }
)
_CONSTANTS = (_ARITHMETIC | folding.FILTERS) - {"Shape"}
# The most sizes to try; if more are needed, a convolution stays as it is.
_MOST_SIZES = 5000
# How many times a filter may grow. One that is depthwise or has three dimensions gets zeros, because on a CPU TensorFlow silently ignores
# the dilations of a depthwise convolution, and refuses those of one with three dimensions.
_MOST_ZEROS = 16
# The most numbers of a depthwise filter for each channel that are written as sums.
_MOST_TAPS = 49
# {op of a convolution: dimensions of its filter beside the channels}.
_DIMENSIONS = {"Conv2D": 2, "DepthwiseConv2dNative": 2, "Conv3D": 3}
_CHANNELS_LAST, _CHANNELS_FIRST = (b"", b"NHWC", b"NDHWC"), (b"NCHW", b"NCDHW")


def rewrite(
    graph_def: graph_pb2.GraphDef,
    results: frozenset[str] = frozenset(),
    kept: frozenset[str] = frozenset(),
    sums: bool = True,
    explicit: bool = False,
) -> tuple[Dilated, ...]:
    """Write the convolutions with dilations of a graph as one op each, in place, but not inside functions.

    Args: graph_def: frozen. results: names of the nodes that the signature returns. kept: names of nodes to leave as they are.
      sums: write depthwise ones whose zeros would be too many as sums; in implicit batch mode TF-TRT takes no Slice.
      explicit: write paddings of two dimensions as numbers of the convolution, which TF-TRT does not take, in place of SAME or a Pad.
    Returns: Dilated for each written one, in the graph's order.
    """
    if not any(node.op == "BatchToSpaceND" for node in graph_def.node):
        return ()
    view = _View(graph_def, results)
    written = []
    for node in [
        candidate for candidate in graph_def.node if candidate.op == "BatchToSpaceND" and candidate.name not in kept
    ]:
        site = _site(node, view)
        if site and site.convolution.name not in kept and site.before.name not in kept:
            plan = _plan(site, view)
            if plan and (sums or plan.taps is None):
                written.append(_write(site, _numbered(site, plan, view) if explicit else plan, view))
    return tuple(written)


def lift_paddings(graph_def: graph_pb2.GraphDef, kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Move a Pad behind the ExpandDims of its Conv1D, in place: TF-TRT pads only four dimensions. Returns: names of the paddings."""
    nodes, moved = {node.name: node for node in graph_def.node}, []
    for node in list(graph_def.node):
        pad = nodes.get(folding.name_of(node.input[0])) if node.op == "ExpandDims" and node.input else None
        if pad is None or pad.op != "Pad" or {pad.name, node.name} & kept:
            continue
        sizes, axis = folding.value(pad.input[1], nodes, _CONSTANTS), folding.value(node.input[1], nodes, _CONSTANTS)
        if sizes is None or axis is None or sizes.shape != (3, 2) or int(axis) not in (1, -3) or sizes[[0, 2]].any():
            continue
        data = pad.input[0]
        # The padding takes the name that others read, so they need no change.
        inner = graph_def.node.add()
        inner.CopyFrom(node)
        inner.name, inner.input[0] = added_nodes.free(f"{node.name}/unpadded", nodes), data
        nodes[inner.name] = inner
        _padding(node, inner.name, [sizes[0], [0, 0], sizes[1], sizes[2]], graph_def, nodes)
        for part in (node, inner):
            part.attr.pop("_output_shapes", None)
        moved.append(pad.name)
    return tuple(dict.fromkeys(moved))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Site:
    """The nodes of a convolution with dilations."""

    # The BatchToSpaceND at its end.
    after: node_def_pb2.NodeDef
    # Nodes between the convolution and `after`, without both.
    chain: tuple[node_def_pb2.NodeDef, ...]
    convolution: node_def_pb2.NodeDef
    # The node that reads `before`.
    entry: node_def_pb2.NodeDef
    # The SpaceToBatchND at its beginning.
    before: node_def_pb2.NodeDef
    # Rank of the data outside, 3 to 5.
    rank: int

    @property
    def channels_first(self) -> bool:
        """Whether the channels are before the sizes."""
        return self.convolution.attr["data_format"].s in _CHANNELS_FIRST

    def by_axis(self, outside: T, of_each: Iterable[T]) -> list[T]:
        """Values for all dimensions. Args: outside: for batch and channels; of_each: for the others."""
        return [outside, outside, *of_each] if self.channels_first else [outside, *of_each, outside]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Plan:
    """How a convolution is rewritten. Sizes are height and width, with the depth before them where there is one."""

    blocks: tuple[int, ...]
    # (before, after) each.
    pads: tuple[tuple[int, int], ...]
    # The padding of the convolution, as TensorFlow names it: "SAME", "VALID" behind a Pad of `pads`, or "EXPLICIT" of `pads`.
    padding: str
    # The filter with zeros between its values, or None.
    filters: npt.NDArray[Any] | None = None
    # The filter of a depthwise convolution that is written as a sum, or None; and for it the sizes of the result.
    taps: npt.NDArray[Any] | None = None
    sizes: tuple[int, ...] = ()


class _View:
    """A graph's nodes by name, how many inputs read each, and the shapes that TensorFlow infers."""

    def __init__(self, graph_def: graph_pb2.GraphDef, results: Iterable[str]) -> None:
        self.graph_def, self.nodes = graph_def, {node.name: node for node in graph_def.node}
        self.readers = dict.fromkeys(results, 2)
        for node in graph_def.node:
            for source in node.input:
                if not source.startswith("^"):
                    self.readers[folding.name_of(source)] = self.readers.get(folding.name_of(source), 0) + 1
        self._shapes = inferred.shapes(graph_def)

    def source(self, node: node_def_pb2.NodeDef, index: int = 0) -> node_def_pb2.NodeDef:
        return self.nodes[folding.name_of(node.input[index])]

    def input_shape(self, node: node_def_pb2.NodeDef, index: int) -> Any:
        return self._shapes.get_operation_by_name(node.name).inputs[index].shape

    def constant(self, node: node_def_pb2.NodeDef, index: int) -> npt.NDArray[Any] | None:
        return folding.value(node.input[index], self.nodes, _CONSTANTS)


def _site(after: node_def_pb2.NodeDef, view: _View) -> _Site | None:
    """The _Site that ends with a BatchToSpaceND, or None."""
    chain, node, squeezed = [], view.source(after), False
    while node.op not in _DIMENSIONS:
        if view.readers[node.name] != 1 or not (_is_squeeze(node) and not squeezed or _is_alike(node, view)):
            return None
        squeezed = squeezed or node.op == "Squeeze"
        chain.append(node)
        node = view.source(node)
    entry = view.source(node)
    if view.readers[node.name] != 1 or not _is_plain(node):
        return None
    before = entry
    if squeezed:
        axis = view.constant(entry, 1) if entry.op == "ExpandDims" else None
        if axis is None or int(axis) not in (1, -3) or view.readers[entry.name] != 1:
            return None
        before = view.source(entry)
    if before.op != "SpaceToBatchND":
        return None
    # In other ops an operand of this shape may have a number for each position.
    if node.attr["data_format"].s in _CHANNELS_FIRST and (squeezed or any(step.op not in _ALIKE for step in chain)):
        return None
    return _Site(
        after=after,
        chain=tuple(reversed(chain)),
        convolution=node,
        entry=entry if squeezed else node,
        before=before,
        rank=3 if squeezed else 2 + _DIMENSIONS[node.op],
    )


def _is_squeeze(node: node_def_pb2.NodeDef) -> bool:
    return node.op == "Squeeze" and list(node.attr["squeeze_dims"].list.i) in ([1], [-3])


def _is_alike(node: node_def_pb2.NodeDef, view: _View) -> bool:
    if node.op in _ALIKE:
        return True
    if node.op == "FusedBatchNormV3":
        return not node.attr["is_training"].b and node.attr["data_format"].s in _CHANNELS_LAST
    if node.op not in _BY_CHANNEL or node.attr["data_format"].s == b"NCHW":
        return False
    data, other = (view.input_shape(node, index) for index in (0, 1))
    return (
        data.rank is not None
        and other.rank is not None
        and other.rank <= data.rank
        and all(size == 1 for size in other[:-1])
    )


def _is_plain(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node is a convolution with strides of one and without padding."""
    ones = all(size == 1 for name in ("strides", "dilations") for size in node.attr[name].list.i)
    return (
        ones
        and node.attr["data_format"].s in (*_CHANNELS_LAST, *_CHANNELS_FIRST)
        and node.attr["padding"].s == b"VALID"
    )


def _plan(site: _Site, view: _View) -> _Plan | None:
    blocks, others = (view.constant(source, 1) for source in (site.before, site.after))
    kernel, dimensions = view.input_shape(site.convolution, 1), _DIMENSIONS[site.convolution.op]
    if kernel.rank is None or None in kernel[:dimensions].as_list():
        return None
    if blocks is None or others is None or not np.array_equal(blocks, others):
        return None
    differences = _pads(site, blocks, view)
    if differences is not None and site.channels_first:
        if blocks[0] != 1 or differences[0].any():
            return None
        blocks, differences = blocks[1:], differences[1:]
    if differences is None or len(differences) > site.rank - 2 or (differences < 0).any():
        return None
    # Blocks begin with the first dimension after the batch; one of three dimensions has no height.
    missing = site.rank - 2 - len(differences)
    sizes = [*map(int, blocks), *[1] * missing]
    pads = [*((int(before), int(after)) for before, after in differences), *[(0, 0)] * missing]
    if site.rank == 3:
        sizes, pads = [1, *sizes], [(0, 0), *pads]
    widths = [(length - 1) * size for length, size in zip(kernel[:dimensions].as_list(), sizes, strict=True)]
    if all(pad == (width // 2, width - width // 2) for pad, width in zip(pads, widths, strict=True)):
        padding = "SAME"
    else:
        padding = "VALID"
    plan = _Plan(blocks=tuple(sizes), pads=tuple(pads), padding=padding)
    if site.convolution.op == "Conv2D":
        return plan
    if dimensions == 3 and padding == "VALID" and any(map(any, pads)):
        return None  # TF-TRT pads only two dimensions
    filters = view.constant(site.convolution, 1)
    if filters is None:
        return None
    spread = _spread(filters, sizes)
    if spread is not None:
        return dataclasses.replace(plan, filters=spread)
    results = _results(site, widths, pads, view)
    if dimensions == 3 or results is None or filters.shape[-1] != 1 or math.prod(filters.shape[:2]) > _MOST_TAPS:
        return None
    return dataclasses.replace(plan, padding="VALID", taps=filters[..., 0], sizes=results)


def _numbered(site: _Site, plan: _Plan, view: _View) -> _Plan:
    """The plan with its paddings as numbers of the convolution, where TensorFlow's op takes them."""
    if not any(map(any, plan.pads)):
        # SAME adds nothing here, and ONNX Runtime refuses the word beside dilations where sizes are open.
        return dataclasses.replace(plan, padding="VALID")
    if plan.taps is not None or _DIMENSIONS[site.convolution.op] != 2:
        return plan
    # tf2onnx puts the numbers of a Pad in front of a Conv2D in the place of the convolution's own.
    padded = site.convolution.op == "Conv2D" and _is_padded(site.before.input[0], view)
    return dataclasses.replace(plan, padding="VALID" if padded else "EXPLICIT")


def _is_padded(source: str, view: _View) -> bool:
    """Whether a tensor is what a Pad gives."""
    node = view.nodes[folding.name_of(source)]
    while node.op == "Identity":
        node = view.nodes[folding.name_of(node.input[0])]
    return str(node.op) == "Pad"


def _results(
    site: _Site, widths: Sequence[int], pads: Sequence[tuple[int, int]], view: _View
) -> tuple[int, ...] | None:
    """Height and width of the result, or None where they are open."""
    shape = view.input_shape(site.before, 0)
    if shape.rank != site.rank:
        return None
    inner = shape[2:] if site.channels_first else shape[1:-1]
    sizes = [1, *inner] if site.rank == 3 else list(inner)
    if None in sizes:
        return None
    return tuple(size + sum(pad) - width for size, pad, width in zip(sizes, pads, widths, strict=True))


def _spread(filters: npt.NDArray[Any], blocks: Sequence[int]) -> npt.NDArray[Any] | None:
    """A filter with zeros between its values, or None if it would be too large."""
    sizes = [(length - 1) * block + 1 for length, block in zip(filters.shape, blocks, strict=False)]
    if math.prod(sizes) > _MOST_ZEROS * math.prod(filters.shape[: len(blocks)]):
        return None
    spread = np.zeros((*sizes, *filters.shape[len(blocks) :]), filters.dtype)
    spread[tuple(slice(None, None, block) for block in blocks)] = filters
    return spread


def _pads(site: _Site, blocks: npt.NDArray[Any], view: _View) -> npt.NDArray[Any] | None:
    """(dimensions, 2) of paddings minus crops, or None if they are not the same for every size."""
    sources = site.before.input[2], site.after.input[2]
    ancestors = folding.behind(sources, view.nodes, _ARITHMETIC)
    if ancestors is None:
        return None
    shapes = [node for node in ancestors.values() if node.op == "Shape"]
    if len({node.input[0] for node in shapes}) > 1:
        return None
    sizes = _sizes_to_try(shapes[0], ancestors, blocks, view) if shapes else [()]
    if sizes is None:
        return None
    with tf.Graph().as_default() as graph, tf.compat.v1.Session(graph=graph) as session:
        tf.import_graph_def(folding.part(ancestors), name="")
        fetched = [source if ":" in source else f"{source}:0" for source in sources]
        compute = session.make_callable(fetched, [f"{node.name}:0" for node in shapes])
        first = None
        for size in sizes:
            paddings, crops = compute(*[np.array(size)] * len(shapes))
            if first is None:
                first = paddings - crops
            elif not np.array_equal(first, paddings - crops):
                return None
    return first


def _sizes_to_try(
    shape: node_def_pb2.NodeDef, ancestors: Mapping[str, node_def_pb2.NodeDef], blocks: npt.NDArray[Any], view: _View
) -> list[tuple[int, ...]] | None:
    """Shapes that are enough to prove equality for all, or None.

    From a size n, _ARITHMETIC computes a * n + f(n), where f repeats with the least common multiple of the moduli: values that are equal
    for one size more than that multiple are equal for all.
    """
    moduli = [view.constant(node, 1) for node in ancestors.values() if node.op == "FloorMod"]
    declared = view.input_shape(shape, 0)
    if declared.rank is None or any(
        modulus is None or not set(modulus.ravel()) <= set(blocks.ravel()) for modulus in moduli
    ):
        return None
    period = math.lcm(*map(int, blocks.ravel()))
    spatial = range(1, 1 + len(blocks))
    values = [
        [size] if size is not None else list(range(1, period + 2)) if axis in spatial else [1, 2]
        for axis, size in enumerate(declared.as_list())
    ]
    return list(itertools.product(*values)) if math.prod(map(len, values)) <= _MOST_SIZES else None


def _write(site: _Site, plan: _Plan, view: _View) -> Dilated:
    """Replace three nodes by one convolution. Returns: Dilated."""
    convolution, graph_def, nodes = site.convolution, view.graph_def, view.nodes
    site.entry.input[0] = site.before.input[0]
    if plan.filters is not None:
        convolution.input[1] = added_nodes.constant(f"{convolution.name}/filter", plan.filters, graph_def, nodes)
    elif plan.taps is None:
        convolution.attr["dilations"].list.i[:] = site.by_axis(1, plan.blocks)
    convolution.attr["padding"].s = plan.padding.encode()
    if plan.padding == "EXPLICIT":
        numbers = itertools.chain.from_iterable(site.by_axis((0, 0), plan.pads))
        convolution.attr["explicit_paddings"].list.i[:] = numbers
    if plan.padding == "VALID" and any(map(any, plan.pads)):
        pad = graph_def.node.add(name=added_nodes.free(f"{convolution.name}/padding", nodes))
        nodes[pad.name] = pad
        pad.attr["T"].CopyFrom(convolution.attr["T"])
        _padding(pad, convolution.input[0], site.by_axis([0, 0], plan.pads), graph_def, nodes)
        convolution.input[0] = pad.name
    if plan.taps is not None:
        _sum(site, plan.taps, plan, graph_def, nodes)
    last = site.chain[-1] if site.chain else convolution
    dtype = site.after.attr["T"].type
    # The node keeps its name: others read it, or the signature returns it.
    site.after.op, site.after.input[:] = "Identity", [last.name]
    site.after.attr.clear()
    site.after.attr["T"].type = dtype
    for node in (site.entry, convolution, *site.chain):
        node.attr.pop("_output_shapes", None)
    spread = plan.filters
    added = (
        spread.nbytes - spread[tuple(slice(None, None, block) for block in plan.blocks)].nbytes
        if spread is not None
        else 0
    )
    return Dilated(
        name=convolution.name, type=convolution.op, dilations=plan.blocks, padding=plan.padding, added_bytes=added
    )


def _sum(
    site: _Site,
    taps: npt.NDArray[Any],
    plan: _Plan,
    graph_def: graph_pb2.GraphDef,
    nodes: dict[str, node_def_pb2.NodeDef],
) -> None:
    """Make a depthwise convolution the sum of its padded data, moved and multiplied with a number for each channel. Args: taps: its filter,
    by height, width and channel."""
    node = site.convolution
    dtype, data, writer = node.attr["T"].type, node.input[0], added_nodes.Writer(graph_def, nodes)
    products: list[str] = []
    for place in np.ndindex(*taps.shape[:2]):
        name = f"{node.name}/{'_'.join(map(str, place))}"
        begin = site.by_axis(0, (at * block for at, block in zip(place, plan.blocks, strict=True)))
        bounds = [
            writer.constant(f"{name}/{what}", np.array(values, np.int32))
            for what, values in (("begin", begin), ("size", site.by_axis(-1, plan.sizes)))
        ]
        moved = writer.add("Slice", f"{name}/moved", [data, *bounds], T=dtype, Index=tf.int32.as_datatype_enum)
        values = taps[place][:, None, None] if site.channels_first else taps[place]
        factors = writer.constant(f"{name}/factors", values)
        products.append(writer.add("Mul", f"{name}/product", [moved.name, factors], T=dtype).name)
    total = products[0]
    for number, product in enumerate(products[1:-1]):
        total = writer.add("AddV2", f"{node.name}/sum_{number}", [total, product], T=dtype).name
    added_nodes.become(node, "AddV2", [total, products[-1]], T=dtype)


def _padding(
    node: node_def_pb2.NodeDef,
    source: str,
    sizes: npt.ArrayLike,
    graph_def: graph_pb2.GraphDef,
    nodes: dict[str, node_def_pb2.NodeDef],
) -> None:
    """Make a node the Pad of `source`, of rank four."""
    constant = added_nodes.constant(f"{node.name}/paddings", np.array(sizes, np.int32), graph_def, nodes)
    added_nodes.become(node, "Pad", [source, constant], T=node.attr["T"].type, Tpaddings=tf.int32.as_datatype_enum)
