"""Makes the calls of a model, from its inputs and from what the user gave. All commands that call a model use this module.

    takes = Takes.of(described.inputs, described.same)
    chosen = choose(takes, Asked(data="pictures/"), folder, sizes=(32,))
    chosen.calls        # {signature: [run.Call]}

The user's data comes first: a source is read into rows (`given`), and rows are cut into calls (`cutting`). Signatures that the data does
not fill get values drawn from a seed (`drawing`), at the user's shapes, at shapes in the model's passport, or at shapes that the
signature allows. Each function is called once, even if it has several names, and an input that the conversion froze gets its value. No
TensorFlow in this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.models.execution import inputs as random_inputs
from tftrt_tools.models.execution import run, runner
from tftrt_tools.models.inputs import cutting, drawing
from tftrt_tools.models.inputs import given as givens
from tftrt_tools.models.inputs.drawing import Shapes
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import fixed_sizes, frozen_inputs, passport, signatures
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.limits import Limit
from tftrt_tools.models.savedmodel.shapes import InputSpec

# The most rows of a call, if neither the user nor the passport gives a number.
DEFAULT_BATCH = 32
# The largest batch size that is accepted: a larger one is a mistake.
_MOST_ROWS = 1_000_000
# Where the calls of a signature come from: the user's data, --shapes, known shapes of the model, or only the signature.
Origin = Literal["data", "shapes", "known", "signature"]
Fallback = Callable[[str, Sequence[InputSpec]], list[Shapes]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """The user's flags about the inputs: texts and numbers."""

    # --data: path, glob or module:function; "" for drawn values.
    data: str = ""
    # How the files of --data are read.
    reading: DataOptions = DataOptions()
    # --data_rows: how many rows are read, 0 for all.
    data_rows: int = 0
    # --shapes.
    shapes: str = ""
    # --ranges, of drawn values.
    ranges: str = ""
    # --seed, of drawn values.
    seed: int = 0
    # The flag that names the data, for messages.
    said: str = givens.FLAG


@dataclasses.dataclass(frozen=True, kw_only=True)
class Takes:
    """The inputs of a model, and facts about them."""

    # {signature: InputSpecs}, each function under one name.
    specs: Mapping[str, Sequence[InputSpec]]
    # The other names of each function.
    walked: signatures.Once
    # {signature: {input: array of rank 0}}: values that the conversion froze.
    frozen: Mapping[str, Mapping[str, npt.NDArray[Any]]] = dataclasses.field(default_factory=dict)
    # {signature: InputSpecs} of the model's other signatures, which are not called: arrays for them are left aside.
    others: Mapping[str, Sequence[InputSpec]] = dataclasses.field(default_factory=dict)
    # {signature: shapes of calls} that the model's passport names.
    known: Mapping[str, list[Shapes]] = dataclasses.field(default_factory=dict)
    # {signature: its input that takes encoded pictures}, as far as it is known.
    pictures: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(
        cls,
        inputs: Mapping[str, Sequence[InputSpec]],
        *same: Mapping[str, str],
        keys: Sequence[str] = (),
        manifest: Mapping[str, Any] | None = None,
    ) -> Takes:
        """Args: inputs: {signature: InputSpecs} of all signatures. same: of twins.find, of each model that is asked. keys: signatures to
        call, () for all. manifest: of the converted model, or None. Raises: UsageError for a key that is no signature."""
        return cls.walking(
            signatures.Once.of(signatures.chosen(list(inputs), keys), *map(dict, same)), inputs, manifest
        )

    @classmethod
    def one(
        cls,
        signature: str,
        inputs: Mapping[str, Sequence[InputSpec]],
        *same: Mapping[str, str],
        manifest: Mapping[str, Any] | None = None,
    ) -> Takes:
        """The inputs of one signature, called by this name. Args: as of `of`."""
        return cls.walking(signatures.Once.only(signature, inputs, *map(dict, same)), inputs, manifest)

    @classmethod
    def walking(
        cls,
        walked: signatures.Once,
        inputs: Mapping[str, Sequence[InputSpec]],
        manifest: Mapping[str, Any] | None = None,
    ) -> Takes:
        """The inputs of the signatures in `walked`. Args: inputs, manifest: as of `of`."""
        specs = fixed_sizes.of_manifest(manifest or {}, {name: inputs[name] for name in walked.names})
        others = {name: array for name, array in inputs.items() if name not in walked.with_twins(specs)}
        frozen = frozen_inputs.of_manifest(manifest or {}, specs)
        return cls(specs=specs, walked=walked, others=others, frozen=frozen).with_known(built_for(manifest))

    def with_pictures(self, pictures: Mapping[str, str]) -> Takes:
        """A copy that knows which inputs take encoded pictures: {signature: input}."""
        return dataclasses.replace(self, pictures=dict(pictures))

    def with_frozen(self, flag: str) -> Takes:
        """The same with inputs that have one value for good. Args: flag: text of --freeze; what names no input here is left aside. Raises:
        UsageError."""
        frozen_of = {name: frozen_inputs.of_signature(flag, name, listed) for name, listed in self.specs.items()}
        specs = {
            name: [
                InputSpec(spec.name, spec.dtype, ()) if spec.name in frozen_of.get(name, {}) else spec
                for spec in listed
            ]
            for name, listed in self.specs.items()
        }
        frozen = {name: {**self.frozen.get(name, {}), **frozen_of.get(name, {})} for name in self.specs}
        return dataclasses.replace(self, specs=specs, frozen=frozen)

    def limited_by(self, *models: Mapping[str, Sequence[InputSpec]]) -> Takes:
        """The same with the limits and the places of inputs that the files of models tell: a server does not. Args: models: {signature:
        InputSpecs} of each."""

        def limited(name: str, spec: InputSpec) -> InputSpec:
            known = [one for specs in models for one in specs.get(name, ()) if one.name == spec.name]
            limits = [one.limit for one in (spec, *known) if one.limit]
            places = (one.place for one in (spec, *known) if one.place is not None)
            return spec.knowing(functools.reduce(Limit.both, limits) if limits else None, next(places, None))

        return dataclasses.replace(
            self, specs={name: [limited(name, spec) for spec in specs] for name, specs in self.specs.items()}
        )

    def with_known(self, known: Mapping[str, list[Shapes]]) -> Takes:
        """The same with `known` shapes; those that do not fit their signature are left out."""
        fitting = {
            name: listed for name, listed in known.items() if name in self.specs and _fit(listed, self.specs[name])
        }
        return dataclasses.replace(self, known=fitting)


def built_for(manifest: Mapping[str, Any] | None) -> dict[str, list[Shapes]]:
    """{signature: shapes that engines were built for}."""
    return {
        name: [{key: tuple(shape) for key, shape in call.items()} for call in signature["calls"]]
        for name, signature in passport.signatures(dict(manifest or {})).items()
        if signature.get("calls")
    }


def _fit(calls: Iterable[Shapes], specs: Sequence[InputSpec]) -> bool:
    return all(
        set(call) == {spec.name for spec in specs} and all(spec.accepts(call[spec.name]) for spec in specs)
        for call in calls
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calls:
    """The calls that were chosen."""

    # {signature: its calls, in order}.
    calls: dict[str, list[run.Call]]
    # {signature: where its calls come from}.
    origins: dict[str, Origin]
    # The user's data, None without.
    given: givens.Given | None
    # Rows of the data that no batch size fits.
    dropped: int
    # The inputs whose drawn values keep to what the model's ops take, a line each.
    drew: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[run.Call, ...]:
        """The calls of all signatures, one signature after the other."""
        return tuple(call for calls in self.calls.values() for call in calls)

    @property
    def rows(self) -> dict[str, int]:
        """{signature: rows of its calls}."""
        return {name: sum(call.rows for call in calls) for name, calls in self.calls.items()}

    @property
    def items(self) -> tuple[str, ...]:
        """The signatures whose calls are whole items, of unlike rows, as far as they are."""
        return tuple(name for name, calls in self.calls.items() if any(call.whole for call in calls))

    @property
    def own(self) -> tuple[str, ...]:
        """The signatures whose calls come from the user's data."""
        return tuple(name for name, origin in self.origins.items() if origin == "data")


class CallMaker:
    """Makes the calls of a model. Args: takes: what it takes. asked: what the user gave."""

    def __init__(self, takes: Takes, asked: Asked) -> None:
        self._takes, self._asked = takes, asked

    def given(self, folder: str | pathlib.Path, files_rows: int = 0) -> givens.Given | None:
        """The user's data, read; None without. Args: folder, files_rows: as of given.given. Raises: UsageError."""
        takes, request = self._takes, self._asked
        if not request.data:
            return None
        optional = {name: frozenset(values) for name, values in takes.frozen.items()}
        return givens.given(
            request.data,
            takes.specs,
            folder,
            request.reading,
            request.data_rows,
            request.said,
            files_rows,
            takes.walked,
            optional,
            takes.others,
        )

    def cut(self, given: givens.Given, sizes: Sequence[int]) -> tuple[dict[str, list[run.Call]], int]:
        """Calls of the signatures that the data fills. Args: sizes: rows of a call, largest first. Returns: ({signature: calls}, rows
        dropped). Raises: UsageError, also where the data has another value for a frozen input."""
        rows, dropped = given.cut(self._to_fill(given), sizes)
        return {
            name: [dataclasses.replace(call, inputs=self._with_frozen(name, call.inputs)) for call in rows[name]]
            for name in self._takes.specs
            if name in rows
        }, dropped

    def declared(self) -> dict[str, list[Shapes]]:
        """{signature: shapes of calls} of --shapes; shapes of a twin count for the signature that is called. Raises: UsageError."""
        if not self._asked.shapes:
            return {}
        walked = self._takes.walked
        by_name = shape_grammar.calls(
            shape_grammar.parse(self._asked.shapes), walked.with_twins(dict(self._takes.specs))
        )
        return walked.merged(by_name)

    def drawn(self, signature: str, shapes: Sequence[Shapes]) -> list[run.Call]:
        """One drawn call for each of `shapes`. Raises: UsageError where --ranges names no input."""
        calls = drawing.calls(signature, self._takes.specs[signature], shapes, self._asked.seed, self.ranges)
        fixed = self._takes.frozen.get(signature, {})
        name = self._takes.pictures.get(signature)
        drawn = [
            {name: random_inputs.pictures(call.inputs[name].shape, self._asked.seed + number)} if name else {}
            for number, call in enumerate(calls)
        ]
        return [
            dataclasses.replace(call, inputs={**call.inputs, **pictures, **fixed})
            for call, pictures in zip(calls, drawn, strict=True)
        ]

    def drew(self, signature: str, calls: Sequence[run.Call]) -> tuple[str, ...]:
        """Which inputs have values in a limit of the model's, a line each. Args: calls: of `drawn`."""
        others = {*self.ranges, *self._takes.frozen.get(signature, {}), self._takes.pictures.get(signature, "")}
        return drawing.drew(self._takes.specs[signature], [call.shapes for call in calls], others)

    @functools.cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """{input: (low, high)} of --ranges. Raises: UsageError."""
        return drawing.ranges(self._asked.ranges, self._takes.specs)

    def filled(self, given: givens.Given) -> dict[str, dict[str, npt.NDArray[Any]]]:
        """{signature: {input: array, rows in front}} of the signatures that the data fills. Args: given: arrays, not of a function.
        Raises: UsageError as `cut`."""
        filled_rows = cutting.filled(
            given.arrays,
            self._to_fill(given),
            self._asked.said if self._asked.said != givens.FLAG else "the data",
            given.aside,
        )
        return {name: self._with_frozen(name, arrays) for name, arrays in filled_rows.items()}

    def _to_fill(self, given: givens.Given) -> dict[str, list[InputSpec]]:
        """The inputs that the data has to fill: those that the conversion froze only if the data has them."""
        frozen, own = self._takes.frozen, [name for name in given.arrays if name not in given.aside]
        return {name: cutting.without(frozen.get(name, {}), specs, own) for name, specs in self._takes.specs.items()}

    def _with_frozen(self, signature: str, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """The user's inputs together with the frozen ones. Raises: UsageError where the user's data has other values for these."""
        frozen = self._takes.frozen.get(signature, {})
        for name, value in frozen.items():
            if name in inputs and (inputs[name] != value).any():
                raise errors.UsageError(
                    f"the data gives input {name!r} of {signature!r} another value than {value.item()}, to which it "
                    "was frozen",
                    f"leave {name} out of the data: it is sent as {value.item()}",
                )
        return {**inputs, **frozen}


def choose(
    takes: Takes,
    asked: Asked,
    folder: str | pathlib.Path,
    sizes: Sequence[int],
    fallback: Fallback = drawing.default_shapes,
) -> Calls:
    """The calls of all signatures: from the user's data for each signature that it fills, else drawn.

    Args: folder: for the read rows; has to live as long as the calls. sizes: rows of a call of the data, largest first. fallback: gives
      the shapes of a signature of which nothing else is known.

    Raises: UsageError, also where the data has too few rows for a call.
    """
    maker = CallMaker(takes, asked)
    given = maker.given(folder)
    filled, dropped = maker.cut(given, sizes) if given else ({}, 0)
    origins: dict[str, Origin] = {}
    declared, _ = maker.declared(), maker.ranges
    for name, specs in takes.specs.items():
        if name in filled:
            origins[name] = "data"
            continue
        origins[name] = "shapes" if name in declared else "known" if name in takes.known else "signature"
        filled[name] = maker.drawn(name, declared.get(name) or takes.known.get(name) or fallback(name, specs))
    empty = [name for name, calls in filled.items() if not calls]
    if empty:
        raise errors.UsageError(
            f"the data has fewer rows than the smallest batch of signature {empty[0]!r} ({min(sizes)})",
            "give more rows, or --batch_size",
        )
    drew = tuple(
        line for name, origin in origins.items() if origin != "data" for line in maker.drew(name, filled[name])
    )
    return Calls(
        calls={name: filled[name] for name in takes.specs},
        origins=origins,
        given=given,
        dropped=dropped,
        drew=tuple(dict.fromkeys(drew)),
    )


@contextlib.contextmanager
def explained(origins: Mapping[str, Origin], flags: str = "--shapes, --ranges or --data") -> Iterator[None]:
    """Tell the user that the values of a refused call were drawn. Args: origins: as in Calls. flags: those that give others."""
    try:
        yield
    except errors.CallFailed as error:
        drawn = {
            name for name, origin in origins.items() if origin != "data" and f"signature {name!r} fails" in error.cause
        }
        if not drawn or error.mend != runner.CHECK_INPUTS:
            raise
        shapes = (
            "and its shapes are those of --shapes" if origins[drawn.pop()] == "shapes" else "and so were its shapes"
        )
        raise errors.CallFailed(error.cause, f"its values were random, {shapes}: give others by {flags}") from None


def batch_sizes(shapes: Iterable[Shapes]) -> tuple[int, ...]:
    """Rows of a call, largest first: the batches of `shapes`, so that engines built for these serve data of any length; without shapes,
    all up to DEFAULT_BATCH."""
    known = {shape[0] for call in shapes for shape in call.values() if shape}
    return tuple(sorted(known, reverse=True)) or up_to(DEFAULT_BATCH)


def up_to(largest: int) -> tuple[int, ...]:
    """All batch sizes from `largest` to 1: data of any length is used to its last row. Raises: UsageError for more than a million."""
    if largest > _MOST_ROWS:
        raise errors.UsageError(f"--batch_size={largest}: a call takes at most {_MOST_ROWS} rows", "give fewer")
    return tuple(range(largest, 0, -1))


def only(names: Collection[str], takes: Takes) -> Takes:
    """`takes` of the named signatures alone."""
    return dataclasses.replace(
        takes,
        specs={name: specs for name, specs in takes.specs.items() if name in names},
        walked=signatures.Once({name: twins for name, twins in takes.walked.twins.items() if name in names}),
    )
