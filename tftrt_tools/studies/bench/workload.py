"""The calls to send: several different ones of one signature, from the user's data or drawn from a seed. No TensorFlow here."""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs import drawing
from tftrt_tools.models.inputs.read import Rows
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT as DEFAULT_SIGNATURE


@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload:
    """calls: sent in turn. batch_size: the requested one, None if the shapes or the data give it; source: where the values come from, in
    words. files: what was read from files (without the arrays), or None. drew: the inputs whose drawn values keep to what the model
    takes, in words."""

    calls: tuple[run.Call, ...]
    batch_size: int | None
    source: str
    files: Rows | None = None
    drew: str = ""

    @property
    def rows(self) -> float:
        """Mean rows of a request."""
        return sum(call.rows for call in self.calls) / len(self.calls)


def choose_signature(signatures: Collection[str], wanted: str) -> str:
    """The name of the signature to ask. Args: signatures: names. wanted: a name, or "" for the default. Raises: UsageError."""
    if "," in wanted and wanted not in signatures:
        raise errors.UsageError(f"--signature_keys={wanted} names several signatures, and one is asked", "name one")
    if wanted and wanted not in signatures:
        raise errors.UsageError(f"the model has no signature {wanted!r}", "signatures there: " + ", ".join(signatures))
    if wanted:
        return wanted
    if DEFAULT_SIGNATURE in signatures:
        return DEFAULT_SIGNATURE
    if len(signatures) == 1:
        return next(iter(signatures))
    if not signatures:
        raise errors.UsageError(
            "the server tells no signature of the model", "is that the gRPC port of a TensorFlow Serving?"
        )
    raise errors.UsageError("which signature?", "--signature_keys names one of: " + ", ".join(signatures))


def workloads(takes: inputs.Takes, batch_sizes: Sequence[int], asked: inputs.Asked, distinct: int) -> list[Workload]:
    """One Workload for each batch size.

    Args: takes: the inputs of the asked signature. batch_sizes: rows of a request, or [] to take them from the shapes or the data, else
      1. asked: what the user gave. distinct: how many different requests.

    Raises: UsageError.
    """
    ((signature, specs),) = takes.specs.items()
    drawing.check_sendable(signature, specs)
    if asked.data and asked.shapes:
        raise errors.UsageError(
            "--data and --shapes exclude each other", "the data has its own shapes; --batch_size cuts it"
        )
    maker = inputs.CallMaker(takes, asked)
    sizes: Sequence[int | None] = batch_sizes or [None]
    if asked.data:
        return [_from_data(maker, asked, signature, size, distinct) for size in sizes]
    return [_drawn(maker, asked, signature, specs, size, distinct) for size in sizes]


def _drawn(
    maker: inputs.CallMaker,
    asked: inputs.Asked,
    signature: str,
    specs: Sequence[InputSpec],
    batch_size: int | None,
    distinct: int,
) -> Workload:
    listed = maker.declared().get(signature)
    if batch_size and (listed or batch_size > 1):
        _check_batch(signature, specs, batch_size)
    if listed and batch_size:
        listed = [drawing.with_batch(specs, one, batch_size) for one in listed]
    listed = listed or [drawing.shapes_of_batch(signature, specs, batch_size or 1)]
    count = max(distinct, len(listed))
    calls = maker.drawn(signature, [listed[number % len(listed)] for number in range(count)])
    drew = "; ".join(maker.drew(signature, calls))
    source = f"random, seed {asked.seed}" + (f" ({drew})" if drew else "")
    return Workload(calls=tuple(calls), batch_size=batch_size, source=source, drew=drew)


def _from_data(
    maker: inputs.CallMaker, asked: inputs.Asked, signature: str, batch_size: int | None, distinct: int
) -> Workload:
    with scratch.folder("bench") as folder:
        # Read no more rows of files than will be sent.
        most = distinct * (batch_size or 1)
        given = maker.given(folder, files_rows=min(asked.data_rows, most) if asked.data_rows else most)
        assert given is not None
        if given.calls and batch_size:
            raise errors.UsageError(
                "--batch_size does not cut what a function yields", "let it yield calls of that size"
            )
        found, dropped = maker.cut(given, (batch_size or 1,))
        total = len(found.get(signature, []))
        calls = [
            run.Call(call.signature, {name: np.array(array) for name, array in call.inputs.items()})
            for call in found.get(signature, [])[:distinct]
        ]
    if not calls:
        raise errors.UsageError(
            f"the data has fewer rows than a batch of {batch_size or 1}" if batch_size else "the data is empty",
            "give more rows, or a smaller --batch_size",
        )
    source = asked.data
    if len(calls) < total:
        source += f", the first {len(calls)} of {total} requests (--distinct)"
    elif given.rows and given.rows.total > len(given.rows.numbers):
        source += f", {len(given.rows.numbers)} of its {given.rows.total} files"
    if dropped:
        source += f", without the last {'row, which fills' if dropped == 1 else f'{dropped} rows, which fill'} no batch of {batch_size}"
    return Workload(
        calls=tuple(calls),
        batch_size=batch_size,
        source=source,
        files=dataclasses.replace(given.rows, arrays={}) if given.rows else None,
    )


def _check_batch(signature: str, specs: Sequence[InputSpec], batch_size: int) -> None:
    if any(spec.shape is None or (spec.shape and spec.shape[0] in (None, batch_size)) for spec in specs):
        return
    raise errors.UsageError(
        f"--batch_size={batch_size} fits no input of {signature!r}",
        "it takes " + ", ".join(f"{spec.name} {spec.text()}" for spec in specs),
    )
