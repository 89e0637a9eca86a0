"""Where a command's result goes: tables for people, JSON for machines. Both are made from the same typed result."""

from __future__ import annotations

import contextlib
import contextvars
import sys
from typing import TYPE_CHECKING, TextIO

from tftrt_tools.base import results, terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.models.savedmodel import preparation as preparation_module
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.flops import Flops

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sized

    from rich.console import Console
    from rich.table import Table

    from tftrt_tools.models.savedmodel.preparation import Preparation


# Where tables go in place of stdout, for a program that runs a command.
_instead: contextvars.ContextVar[TextIO | None] = contextvars.ContextVar("tables", default=None)


@contextlib.contextmanager
def tables_to(stream: TextIO) -> Iterator[None]:
    """Inside the block, tables go to `stream`."""
    before = _instead.set(stream)
    try:
        yield
    finally:
        _instead.reset(before)


def console(json_path: str | None) -> Console:
    """A rich console for tables: stdout, or stderr if stdout carries the JSON."""
    stream = _instead.get() or (sys.stderr if json_path == "-" else sys.stdout)
    width = None if stream.isatty() else 140
    return terminal.console(stream, width)


def write_json(result: results.Document, json_path: str | None) -> None:
    """Write `result.to_dict()` to `json_path` whole or not at all; `-` is stdout, None writes nothing."""
    if not json_path:
        return
    text = results.json_text(result)
    if json_path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    whole_file.write_text(json_path, text)


def flops_cell(flops: Flops | None) -> str:
    """A table's cell; blank without a count."""
    return flops.text() if flops else ""


def flops_note(flops: Flops | None, shapes: str) -> str:
    """A remark on a cell of `flops_cell`, or "". Args: shapes: the --shapes of the count."""
    if flops is None or not flops.note():
        return ""
    return flops.note() + ("; `tftrt inspect --shapes=…` counts for given ones" if flops.unknown and not shapes else "")


def prepared(preparation: Preparation) -> list[str]:
    """Sentences on a savedmodel.preparation.Preparation: what it rewrote, and why."""
    said = []
    if preparation.opened:
        said.append(
            f"{terminal.counted(len(preparation.opened), 'call')} for XLA (jit_compile=True) opened: TF-TRT does not look into them"
        )
    for name, value in preparation.frozen:
        said.append(
            f"input {name} is {str(value).lower()} for good (--freeze): requests still send it, and the model no longer reads it"
        )
    for name, shape in preparation.sizes:
        said.append(
            f"input {name} takes {shape_grammar.text(shape)} alone (--fix_sizes): a request of another size is an error"
        )
    said += [preparation_module.constant(*one) for one in preparation.defaults]
    for name in preparation.offered:
        said.append(
            f"input {name} only decides conditionals: --freeze={name}:false (or true) takes them away, and engines grow together"
        )
    if preparation.folded:
        said.append(
            f"{terminal.counted(len(preparation.folded), 'quantization')} of constant weights computed beforehand: TF-TRT takes no "
            "convolution behind one"
        )
    if preparation.unquantized:
        said.append(
            f"{terminal.counted(len(preparation.unquantized), 'quantization')} of activations left out (--allow_quantization_changes): the "
            "answers differ by their rounding to 8 bits"
        )
    if preparation.dilated:
        zeros = sum(one.added_bytes for one in preparation.dilated) / 1e6
        said.append(
            f"{terminal.counted(len(preparation.dilated), 'convolution')} with dilations written as one op: TF-TRT knows no SpaceToBatchND"
            + (f"; depthwise ones have zeros in their filters, {zeros:.3g} MB" if zeros else "")
        )
    if preparation.paddings:
        said.append(
            f"{terminal.counted(len(preparation.paddings), 'padding')} done in four dimensions: TF-TRT pads nothing else"
        )
    if preparation.flattened:
        said.append(
            f"{terminal.counted(len(preparation.flattened), 'reshape')} of rows with a constant shape: TF-TRT takes a computed one only "
            "with dynamic shapes"
        )
    said += _layers(preparation)
    if preparation.dropouts:
        said.append(preparation_module.dropouts(preparation.dropouts))
    if preparation.slices:
        said.append(
            f"{terminal.counted(len(preparation.slices), 'slice')} counted from the beginning: TF-TRT counts from the end only where the "
            "engine itself knows the size"
        )
    depthwise, dense = (
        [one for one in preparation.convolutions if one.written == kind] for kind in ("DepthwiseConv2dNative", "Conv2D")
    )
    if depthwise:
        said.append(
            f"{terminal.counted(len(depthwise), 'grouped convolution')} written as depthwise: TF-TRT knows no other groups"
        )
    if dense:
        added = sum(one.added_bytes for one in dense) / 1e6
        said.append(
            f"{terminal.counted(len(dense), 'grouped convolution')} written with zeros between the groups, {added:.3g} MB more of weights: "
            "TF-TRT knows no groups"
        )
    return said


def _layers(preparation: Preparation) -> Iterator[str]:
    yield from _counted(
        (
            preparation.enlarged,
            "repeat",
            "of rows and columns written as a nearest-neighbour resize: TF-TRT sees no channels behind a computed shape",
        ),
        (
            preparation.repeats,
            "repeat",
            "of elements with the known sizes in the shape: TF-TRT sees none behind a computed shape",
        ),
        (
            preparation.transposed,
            "transposed convolution",
            "written as plain ones: TF-TRT takes none with an open batch",
        ),
        (
            preparation.interleaved,
            "transposed convolution",
            "of open sizes written as plain ones and DepthToSpace: TF-TRT takes none with an open batch",
        ),
        (
            preparation.upsampled,
            "bilinear resize",
            "of open sizes written as convolutions and DepthToSpace: TF-TRT refuses the op",
        ),
    )
    products = [one for one in preparation.resized if one.type != preparation_module.NEAREST]
    if products:
        megabytes = sum(one.added_bytes for one in products) / 1e6
        kinds = ", ".join(sorted({one.type for one in products}))
        counted = terminal.counted(len(products), "resize")
        yield f"{counted} ({kinds}) written as products with constant weights, {megabytes:.3g} MB: TF-TRT refuses the op"
    if picking := len(preparation.resized) - len(products):
        counted = terminal.counted(picking, "nearest-neighbour resize")
        yield f"{counted} written as GatherV2: TF-TRT takes it, and its engine would take other pixels"
    yield from _counted(
        (
            preparation.indexed,
            "node",
            "that mirror or reverse written as GatherV2: TF-TRT knows neither MirrorPad nor ReverseV2",
        ),
        (preparation.new_axes, "slice", "with a new axis written as ExpandDims: TF-TRT takes none"),
        (preparation.cumulated, "cumulative sum", "written as additions of moved parts: TF-TRT knows no Cumsum"),
        (preparation.gathered, "GatherNd", "written as GatherV2: TF-TRT knows no GatherNd"),
        (
            preparation.einsums,
            "Einsum",
            "written otherwise: TF-TRT takes none with an ellipsis, and none in implicit batch mode",
        ),
        (
            preparation.chosen,
            "node",
            "of Select, DivNoNan, NotEqual or Cast written with SelectV2, RealDiv or Equal: TF-TRT refuses the op",
        ),
        (
            preparation.normalized,
            "normalization",
            "by the statistics of what it gets (as Keras 2's LayerNormalization) written as means and differences: TF-TRT takes none",
        ),
        (
            preparation.kept_resizes,
            "resize",
            "kept in TensorFlow: TF-TRT takes it, and its engine would take other pixels",
        ),
    )


def _counted(*rows: tuple[Sized, str, str]) -> Iterator[str]:
    """A line for each row of which there is something. Args: rows: (nodes, what one of them is, what became of them and why)."""
    for nodes, what, why in rows:
        if nodes:
            yield f"{terminal.counted(len(nodes), what)} {why}"


def table(title: str | None, columns: Iterable[str], rows: Iterable[Iterable[object]]) -> Table:
    """A rich table; a column named with a leading '>' is right-aligned. Cells are values, or rich texts."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = terminal.shown(title) if title else title
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold", pad_edge=False)
    for column in columns:
        shown.add_column(
            terminal.shown(column.lstrip(">")), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    for row in rows:
        shown.add_row(
            *("" if cell is None else cell if isinstance(cell, Text) else terminal.shown(str(cell)) for cell in row)
        )
    return shown
