"""How a frozen signature was rewritten before the pass (conversion.job.prepare). No TensorFlow here."""

import dataclasses
from collections.abc import Collection

from tftrt_tools.base import records


@dataclasses.dataclass(frozen=True, kw_only=True)
class Grouped(records.Record):
    """A convolution of several groups."""

    # The name of the node.
    name: str
    type: str
    groups: int
    # The type of the node that replaces it, "" if there is none.
    written: str = ""
    # The bytes by which its filter grew.
    added_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dilated(records.Record):
    """A convolution with dilations that consisted of three nodes."""

    # The name of the node that computes it now.
    name: str
    type: str
    # The dilations along height and width; with three dimensions, the depth's first.
    dilations: tuple[int, ...]
    # "SAME", "EXPLICIT" or "VALID"; if "VALID" needs padding, a Pad comes before it.
    padding: str
    # Bytes of zeros in the filter of a depthwise one, or of one with three dimensions.
    added_bytes: int = 0


NEAREST = "ResizeNearestNeighbor"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resized(records.Record):
    """A resize of pictures that was written as products; of NEAREST as picked rows and columns."""

    # The name of the node that gives its result now.
    name: str
    # The type that it had.
    type: str
    # Height and width of the picture, and of the result.
    before: tuple[int, int]
    behind: tuple[int, int]
    # The bytes of weights that came into the graph with it.
    added_bytes: int = 0


def stands_for(name: str, written: Collection[str]) -> frozenset[str]:
    """The nodes that a node is a part of, or is. Args: written: names of nodes that were written as several, whose names begin with that
    one's."""
    parts = name.split("/")
    return frozenset("/".join(parts[:end]) for end in range(1, len(parts) + 1)) & frozenset(written)


def constant(name: str, value: str) -> str:
    """A sentence on a placeholder that no signature names. Args: as of Preparation.defaults."""
    return f"{name} has {'the value ' + value if value else 'its default'} for good: no signature names it, so nobody can feed it"


def dropouts(names: Collection[str]) -> str:
    """A sentence on dropouts. Args: as of Preparation.dropouts."""
    return f"{len(names)} dropout{'s' * (len(names) != 1)} that keep{'s' * (len(names) == 1)} everything taken out"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation(records.Record):
    """The changes to a signature's graph. Its answers stay the same, except for `unquantized` and `frozen`, which the user asks for."""

    # Names of the calls for XLA that were replaced by their functions' nodes.
    opened: tuple[str, ...] = ()
    # Grouped convolutions of the main graph.
    convolutions: tuple[Grouped, ...] = ()
    # Convolutions with dilations that were written as one node.
    dilated: tuple[Dilated, ...] = ()
    # Names of paddings of two or three dimensions that are done in four.
    paddings: tuple[str, ...] = ()
    # Names of mirrored paddings and reversed tensors that take elements by constant numbers now.
    indexed: tuple[str, ...] = ()
    # Names of slices that add an axis, and are an ExpandDims now.
    new_axes: tuple[str, ...] = ()
    # Names of cumulative sums that are additions now.
    cumulated: tuple[str, ...] = ()
    # Names of GatherNd nodes that are GatherV2 now.
    gathered: tuple[str, ...] = ()
    # Names of Einsum nodes that TF-TRT refused, and that were written otherwise.
    einsums: tuple[str, ...] = ()
    # Names of Select and DivNoNan nodes that were written otherwise.
    chosen: tuple[str, ...] = ()
    # Names of normalizations by the statistics of what they get that are means and differences now.
    normalized: tuple[str, ...] = ()
    # Names of transposed convolutions that were written as plain ones.
    transposed: tuple[str, ...] = ()
    # Names of transposed convolutions, and of bilinear resizes, of open sizes that were written as plain convolutions.
    interleaved: tuple[str, ...] = ()
    upsampled: tuple[str, ...] = ()
    # Resizes that were written otherwise.
    resized: tuple[Resized, ...] = ()
    # Names of resizes that stay in TensorFlow, because an engine may compute them wrongly.
    kept_resizes: tuple[str, ...] = ()
    # Names of slices that are counted from the beginning now, and were from the end.
    slices: tuple[str, ...] = ()
    # Names of the ends of repeats (tf.repeat): of rows and columns of pictures, which are a resize now; and of others, whose shape shows
    # its sizes.
    enlarged: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    # Names of Reshapes that keep the rows and have a constant shape now; it was computed.
    flattened: tuple[str, ...] = ()
    # Names of the ends of dropouts that drop nothing, because they keep the constant share 1.
    dropouts: tuple[str, ...] = ()
    # Names of FakeQuant nodes on constants that became constants.
    folded: tuple[str, ...] = ()
    # Names of FakeQuant nodes on activations that were left out.
    unquantized: tuple[str, ...] = ()
    # (input, value) of inputs that have one value for good and are not read.
    frozen: tuple[tuple[str, bool | int | float], ...] = ()
    # (input, shape) of inputs that take one size for good, but for the batch.
    sizes: tuple[tuple[str, tuple[int | None, ...]], ...] = ()
    # Names of nodes that would be written otherwise if their sizes were known.
    open_sizes: tuple[str, ...] = ()
    # (name, why) of nodes that are written otherwise elsewhere, and stay as they are here.
    outside: tuple[tuple[str, str], ...] = ()
    # (name, value as text, "" where it is no single constant) of placeholders with a default that no signature names.
    defaults: tuple[tuple[str, str], ...] = ()
    # Inputs that only conditionals read.
    offered: tuple[str, ...] = ()

    @property
    def native(self) -> frozenset[str]:
        """Names of nodes that stay in TensorFlow."""
        return self.left | frozenset(self.kept_resizes)

    @property
    def apart(self) -> frozenset[str]:
        """Names of nodes that were written as several, whose names begin with that one's."""
        resized = (one.name for one in self.resized)
        return self.moved | frozenset((*self.transposed, *self.interleaved, *self.upsampled, *resized))

    @property
    def of_one_mode(self) -> bool:
        """Whether the graph may have been written otherwise for the other batch mode."""
        return bool(self.apart or self.dilated or self.outside or self.open_sizes)

    @property
    def moved(self) -> frozenset[str]:
        """Names of nodes that TensorFlow's own op computes faster than what stands for it, unless it is in an engine with others."""
        moved = (self.indexed, self.paddings, self.new_axes, self.cumulated, self.gathered, self.einsums, self.chosen)
        return frozenset(name for names in (*moved, self.normalized) for name in names)

    @property
    def left(self) -> frozenset[str]:
        """Names of grouped convolutions that were not rewritten."""
        return frozenset(one.name for one in self.convolutions if not one.written)
