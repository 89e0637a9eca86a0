"""The calls that show whether the signatures of `tftrt wrap` answer like the model that they wrap: a client's files or pixels to the added
signature, and to the original what a client would have made of them, by NumPy and Pillow. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import inputs as random_inputs
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import drawing, find, read
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.tftrt.wrapping import added as names
from tftrt_tools.tftrt.wrapping import client_side
from tftrt_tools.tftrt.wrapping.added import Added, Pictures, Wrapped

if TYPE_CHECKING:
    from tftrt_tools.models.kinds.model import Model
    from tftrt_tools.models.savedmodel.shapes import InputSpec

# Files that every decoder reads otherwise: see docs/pictures.md.
ROUGH = "INT8"
_ROUNDED = {"float16": "FP32", "bfloat16": "FP16"}
# Drawn pictures: (height, width) each, and whether as JPEG.
_DRAWN = ((60, 80, False), (48, 33, True), (17, 64, False), (90, 90, True))
_NAMED = 5
# Where the values of a call come from; those of inputs beside a picture do not count.
Origin = Literal["data", "random"]
# A file and what it decodes to.
_Picture = tuple[bytes, client_side.Decoded]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sent:
    """A call of the wrapped model."""

    # The call.
    call: run.Call
    # The place among Exchange.originals of the call that the original gets.
    original: int
    # The signature that was added; None for one of the original.
    added: Added | None
    # The signature's name in the result.
    label: str
    # Where its values come from.
    source: Origin
    # Whether every decoder gives the same pixels.
    exact: bool = True

    def arithmetic(self, ran: str) -> str:
        """The key of the bounds. Args: ran: the key for the arithmetic that ran."""
        if not self.exact:
            return ROUGH
        if self.added is None or ran != "rewrite":
            return ran
        kinds = set(self.added.answers.types.values())
        return next((_ROUNDED[kind] for kind in ("bfloat16", "float16") if kind in kinds), ran)


@dataclasses.dataclass(frozen=True, eq=False)
class Labelled:
    """The calls in which an added signature gets the user's rows as a client would send them. places: among Exchange.sent, in the order of
    the rows; rows: the rows as they were read, None of arrays and functions; dropped: rows that filled no call."""

    places: tuple[int, ...]
    rows: read.Rows | None
    dropped: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exchange:
    """The calls of both models."""

    # Calls of the original, and of the wrapped model.
    originals: tuple[run.Call, ...]
    sent: tuple[Sent, ...]
    # What to know, a line each.
    notes: tuple[str, ...]
    # Of the added signatures that get the user's rows, by name.
    labelled: Mapping[str, Labelled]
    # The inputs whose drawn values keep to what the model's ops take, a line each.
    drew: tuple[str, ...] = ()

    @property
    def sources(self) -> dict[str, Origin]:
        """{label: where the values of its calls come from}: the data only if it gives those of all."""
        drawn = {one.label for one in self.sent if one.source == "random"}
        return {one.label: "random" if one.label in drawn else "data" for one in self.sent}

    def rows(self) -> Iterator[run.Call]:
        """The calls of added signatures, without the copies of their files."""
        seen: set[tuple[str, int]] = set()
        for item in self.sent:
            if item.added and (item.label, item.original) not in seen:
                seen |= {(item.label, item.original), (item.added.name, item.original)}
                yield item.call


def exchange(
    record: Wrapped,
    original: Model,
    wrapped: Model,
    asked: inputs.Asked,
    sizes: Sequence[int],
    keys: Sequence[str],
    folder: str,
) -> Exchange:
    """The calls. Args: record: of the wrapped model. sizes: rows of a call, largest first. keys: added signatures, () for all. folder: for
    rows that are read. Raises: UsageError."""
    there = [signature for signature in record.signatures if signature.name in wrapped.signatures]
    chosen = signatures.chosen([added.name for added in there], keys)
    if asked.shapes and all(added.pictures for added in there if added.name in chosen):
        raise errors.UsageError(
            "--shapes has no effect here: the calls are pictures, as large as the added signatures take them",
            "leave it out; --batch_size says how many are in a call",
        )
    maker = _Maker(record, original, asked, sizes, folder)
    for added_signature in there:
        if added_signature.name in chosen:
            maker.add(added_signature)
    maker.keep(wrapped)
    return Exchange(
        originals=tuple(maker.originals),
        sent=tuple(maker.sent),
        notes=tuple(dict.fromkeys(maker.notes)),
        labelled=maker.labelled,
        drew=tuple(dict.fromkeys(maker.drew)),
    )


class _Maker:
    """Makes an Exchange. Args: as of `exchange`."""

    def __init__(
        self, record: Wrapped, original: Model, asked: inputs.Asked, sizes: Sequence[int], folder: str
    ) -> None:
        self._record, self._original, self._asked, self._sizes, self._folder = record, original, asked, sizes, folder
        self._read_pictures: dict[int, tuple[_Picture, ...]] = {}
        self._rows: read.Rows | None = None
        self.labelled: dict[str, Labelled] = {}
        self._made: dict[Hashable, int] = {}
        self._origins: list[Origin] = []
        self._signatures: Mapping[str, Sequence[InputSpec]] = original.inputs
        self.drew: list[str] = []
        self.originals: list[run.Call] = []
        self.sent: list[Sent] = []
        self.notes: list[str] = []

    def add(self, added: Added) -> None:
        """The calls of an added signature."""
        of = self._named(added.of)
        if of not in self._original.signatures:
            raise errors.UsageError(
                f"the original has no signature {of!r}, which {added.name!r} wraps", "give the model that was wrapped"
            )
        if added.pictures:
            self._pictures(added, added.pictures, of)
        else:
            self._drawn(added, of)

    def keep(self, wrapped: Model) -> None:
        """The original's own signatures get the original's calls."""
        there = {
            self._named(name): name
            for name in wrapped.signatures
            if name not in {signature.name for signature in self._record.signatures}
        }
        for place, call in enumerate(self.originals):
            if call.signature in there:
                name = there[call.signature]
                self.sent.append(
                    Sent(
                        call=dataclasses.replace(call, signature=name),
                        original=place,
                        added=None,
                        label=name,
                        source=self._origins[place],
                    )
                )
        requested = {call.signature for call in self.originals}
        idle = [name for own, name in there.items() if own not in requested and not self._unchanged(own, name)]
        if idle:
            self.notes.append(f"not asked, because their shapes are open: {', '.join(idle)}")

    def _unchanged(self, own: str, name: str) -> bool:
        """Calls with drawn values of a signature around which nothing was added. Returns: whether its shapes are known."""
        takes = inputs.Takes.one(own, self._original.inputs)
        try:
            chosen = inputs.choose(
                takes, dataclasses.replace(self._asked, data="", shapes=""), self._folder, self._sizes
            )
        except errors.UsageError:
            return False
        self.drew += chosen.drew
        for number, call in enumerate(chosen.calls[own]):
            place = self._reference((own, number, "unchanged"), call, "random")
            self.sent.append(
                Sent(
                    call=dataclasses.replace(call, signature=name),
                    original=place,
                    added=None,
                    label=name,
                    source="random",
                )
            )
        return True

    def _named(self, name: str) -> str:
        """The name of a signature in the original."""
        return signatures.DEFAULT if self._record.default_was and name == self._record.default_was else name

    def _reference(self, key: Hashable, call: run.Call, origin: Origin) -> int:
        if key not in self._made:
            self._made[key] = len(self.originals)
            self.originals.append(call)
            self._origins.append(origin)
        return self._made[key]

    def _pictures(self, added: Added, pictures: Pictures, of: str) -> None:
        sizes = self._sizes if pictures.size else (1,)
        held, places, end = self._read(pictures.channels), [], 0
        origin: Origin = "data" if self._asked.data else "random"
        settings = repr(pictures.to_dict() | {"broken": "", "max_pixels": 0})
        for start, end in _parts(len(held), sizes):
            files, decoded = zip(*held[start:end], strict=True)
            places.append(len(self.sent))  # the first of the part's calls is a client's
            images = np.stack(
                [
                    client_side.resized(picture.pixels, pictures.size, pictures.options.image_resize)
                    for picture in decoded
                ]
            )
            beside, theirs = self._beside(added, end - start, of)
            if added.form == "uint8":
                pixels = client_side.rounded(images)
                call = run.Call(of, {pictures.input: client_side.normalized(pixels, pictures), **beside}, end - start)
                place = self._reference((settings, start, end, "uint8"), call, origin)
                self._send(
                    added, place, {pictures.input: client_side.laid_out(pixels, pictures), **theirs}, end - start
                )
                continue
            call = run.Call(of, {pictures.input: client_side.normalized(images, pictures), **beside}, end - start)
            place = self._reference((settings, start, end), call, origin)
            exact = all(picture.exact for picture in decoded)
            if not exact:
                self._send(added, place, {pictures.input: _strings(files), **theirs}, end - start, exact=False)
            copies = files if exact else [client_side.as_png(picture.pixels) for picture in decoded]
            self._send(added, place, {pictures.input: _strings(copies), **theirs}, end - start)
        if self._asked.data and places:
            self.labelled[added.name] = Labelled(tuple(places), self._rows, len(held) - end)

    def _send(
        self, added: Added, original: int, values: Mapping[str, npt.NDArray[Any]], rows: int, exact: bool = True
    ) -> None:
        label = added.name if exact else f"{added.name} (files)"
        self.sent.append(
            Sent(
                call=run.Call(added.name, dict(values), rows),
                original=original,
                added=added,
                label=label,
                exact=exact,
                source=self._origins[original],
            )
        )

    def _beside(self, added: Added, rows: int, of: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values of the other inputs, for the original and for the added signature."""
        limits = {spec.name: spec.limit for spec in self._signatures[of]}
        others = [
            spec.knowing(limits.get(spec.name))
            for spec in added.inputs
            if not added.pictures or spec.name != added.pictures.input
        ]
        shapes = {
            spec.name: tuple(rows if side is None else side for side in spec.shape)
            if spec.shape is not None
            else (rows,)
            for spec in others
        }
        ranges = drawing.ranges(self._asked.ranges, {of: self._signatures[of]})
        self.drew += drawing.drew(others, [shapes], ranges)
        if others and self._asked.data:
            self.notes.append(
                f"{', '.join(spec.name for spec in others)} of {added.name} was filled with random values: the data is pictures alone"
            )
        return _narrowed(added, random_inputs.random(others, shapes, self._asked.seed, ranges))

    def _drawn(self, added: Added, of: str) -> None:
        takes = inputs.Takes.one(of, self._original.inputs)
        pictures = self._asked.data and find.find(self._asked.data, self._asked.said).kind == "images"
        request = dataclasses.replace(self._asked, data="") if pictures else self._asked
        chosen = inputs.choose(takes, request, f"{self._folder}/{added.name}", self._sizes)
        self.drew += chosen.drew
        origin: Origin = "data" if of in chosen.own else "random"
        if origin == "random" and self._asked.data:
            self.notes.append(f"the values of {added.name} were random: the data does not fill its inputs")
        if chosen.given is not None and of in chosen.own:
            places = range(len(self.sent), len(self.sent) + len(chosen.calls[of]))
            self.labelled[added.name] = Labelled(tuple(places), chosen.given.rows, chosen.dropped)
        for number, call in enumerate(chosen.calls[of]):
            ours, theirs = _narrowed(added, call.inputs)
            place = self._reference((added.name, number), dataclasses.replace(call, inputs=ours), origin)
            self._send(added, place, theirs, call.rows)

    def _read(self, channels: int) -> tuple[_Picture, ...]:
        """The files of --data, without those that do not decode; drawn pictures without --data. They are decoded once."""
        if channels not in self._read_pictures:
            drawn = ((data, client_side.decoded(data, channels)) for data in _drawn_files(self._asked.seed))
            self._read_pictures[channels] = self._whole(channels) if self._asked.data else tuple(drawn)
        return self._read_pictures[channels]

    def _whole(self, channels: int) -> tuple[_Picture, ...]:
        files = find.find(self._asked.data, self._asked.said)
        if files.kind != "images":
            raise errors.UsageError(
                f"--data={self._asked.data} is {files.kind}, and signatures of pictures were added",
                "give a folder of pictures, or name other signatures in --signature_keys",
            )
        whole, failed, numbers = [], [], []
        for number in find.spread(len(files.files), self._asked.data_rows or len(files.files)):
            path = files.files[number]
            try:
                data = pathlib.Path(path).read_bytes()
                whole.append((data, client_side.decoded(data, channels)))
                numbers.append(number)
            except Exception:  # Pillow raises nearly anything for a damaged file
                failed.append(pathlib.Path(path).name)
                if len(failed) > self._asked.reading.image_error_limit:
                    raise errors.UsageError(
                        f"{path} cannot be decoded", "repair or remove it, or accept some by --image_error_limit"
                    ) from None
        if not whole:
            raise errors.UsageError(f"--data={self._asked.data} has no picture that can be decoded", "give others")
        if failed:
            self.notes.append(f"{len(failed)} pictures could not be decoded: {', '.join(failed[:_NAMED])}")
        self._rows = read.Rows(
            arrays={},
            kind=files.kind,
            names=tuple(files.files[number] for number in numbers),
            numbers=tuple(numbers),
            total=len(files.files),
            failed=tuple(failed),
        )
        return tuple(whole)


def _parts(count: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of the calls. Args: sizes: largest first; rows that fit none are left out."""
    start = 0
    for size in sizes:
        while count - start >= size:
            yield start, start + size
            start += size


def _strings(files: Sequence[bytes]) -> npt.NDArray[Any]:
    array = np.empty(len(files), object)
    array[:] = files
    return array


def _narrowed(added: Added, values: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values for the original and, in its own dtypes, for the added signature."""
    theirs = {name: value.astype(added.types[name]) if name in added.types else value for name, value in values.items()}
    return {name: theirs[name].astype(value.dtype) for name, value in values.items()}, theirs


def _drawn_files(seed: int) -> Iterator[bytes]:
    """Smooth pictures of several sizes, as PNG and as JPEG."""
    import io

    from PIL import Image

    rng = np.random.default_rng(seed)
    for height, width, jpeg in _DRAWN:
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
        file = io.BytesIO()
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(file, "JPEG" if jpeg else "PNG")
        yield file.getvalue()


def compared(
    sent: Sent, original: Mapping[str, npt.NDArray[Any]], given: Mapping[str, npt.NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """(answers as they should be, the answers, problems in words) of one call.

    In place of classes stand the scores that the original gives them: of classes with nearly equal scores either may come first.
    Args: original: the answers of the original. given: of the wrapped model.
    """
    if sent.added is None:
        return dict(original), dict(given), []
    answers, problems, given = sent.added.answers, [], dict(given)
    smaller_inputs = client_side.smaller(sent.added, original)
    if sent.added.marks and given.pop(names.MARK).any():
        problems.append(f"{sent.label}: a picture that Pillow decodes is marked as broken")
    if answers.scores:
        scores, classes = original[answers.scores], given[names.CLASSES]
        labels = given.pop(names.LABELS, None)
        if ((classes < 0) | (classes >= scores.shape[-1])).any():
            return {}, {}, [*problems, f"{sent.label}: a class is none of 0 to {scores.shape[-1] - 1}"]
        if (
            labels is not None
            and (np.array([name.encode() for name in answers.names], object)[classes] != labels).any()
        ):
            problems.append(f"{sent.label}: a label is not the name of its class")
        for side, numbers in ((smaller_inputs, smaller_inputs[names.CLASSES]), (given, classes)):
            picked = numbers if answers.top_k else numbers[..., None]
            side[names.CLASSES] = np.take_along_axis(scores, picked.astype(np.int64), -1)
    return smaller_inputs, given, problems


def of(model: Model) -> Wrapped | None:
    """The record of a wrapped model, None for another one. Raises: TftrtError."""
    record = names.read(model.source.path) if pathlib.Path(model.source.path).is_dir() else None
    return record if record and any(one.name in model.signatures for one in record.signatures) else None
