"""Are the answers right? They must fit the signature, be finite, and be like the original's by the metrics and bounds of `tftrt verify`."""

import contextlib
import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.accuracy import judgement
from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.execution import run
from tftrt_tools.models.kinds import names, opening, table
from tftrt_tools.models.kinds.model import Arithmetic, Contents, Model, Signature
from tftrt_tools.models.kinds.savedmodel import kind as saved_model
from tftrt_tools.models.savedmodel.describe import Description
from tftrt_tools.models.savedmodel.engine_op import lowest_precision
from tftrt_tools.models.savedmodel.shapes import InputSpec, text
from tftrt_tools.models.sources import opened as opened_source
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.servers.serving.smoke import version_on_disk
from tftrt_tools.servers.serving.smoke.gpu_use import Use
from tftrt_tools.servers.serving.smoke.served_model import Served
from tftrt_tools.servers.serving.smoke.steps import Steps

FORM_ONLY = "only their form was checked: without --original nobody can say whether they are right"


def form_problems(
    call: str, answer: Mapping[str, npt.NDArray[Any]], outputs: Iterable[InputSpec], finite: bool = True
) -> list[str]:
    """Errors of an answer by itself, a line each.

    Args: call: its text. answer: {output: ndarray}. outputs: [InputSpec] of the signature. finite: look for NaN and Inf too.
    """
    spec_of, problems = {spec.name: spec for spec in outputs}, []
    problems += [f"{call}: the answer lacks the output {name!r}" for name in spec_of if name not in answer]
    problems += [
        f"{call}: the answer has an output {name!r} that the signature does not have"
        for name in answer
        if name not in spec_of
    ]
    for name, array in answer.items():
        spec = spec_of.get(name)
        if spec is None:
            continue
        dtype = "string" if array.dtype == object else array.dtype.name
        if dtype != spec.dtype or not spec.accepts(array.shape):
            problems.append(
                f"{call}: output {name!r} is {dtype}[{','.join(map(str, array.shape))}], and the signature says {spec.text()}"
            )
        elif finite and (array.dtype.kind in "fc" or dtype == "bfloat16"):
            bad = int(np.sum(~np.isfinite(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))))
            if bad:
                problems.append(f"{call}: output {name!r} has {bad} NaN or Inf among {array.size} elements")
    return problems


def arithmetic(
    model: version_on_disk.Model | None,
    ran: bool | None,
    use: Use | None,
    triton: bool = False,
    original: Arithmetic | None = None,
) -> tuple[str, str]:
    """The key of the bounds in thresholds.DEFAULTS, and why.

    Args: ran: whether the engines ran; None where that is not known. triton: whether a Triton answers, whose models have no files here.
      original: of the original, as of Original.
    """
    if use is not None and use.uses is False and use.weight == "certain":
        if original:
            return original.key, f"the server has no GPU: TensorFlow's float32 there, {original.reason} here"
        return "rewrite", "the server has no GPU: TensorFlow's float32 on both sides"
    if model is None:
        return "FP16", "the model's precision is not known" + (
            "; --thresholds sets other bounds" if triton else " (--model_dir)"
        )
    lowest = lowest_precision(model.precisions)
    if not lowest or ran is False:
        return "TF32", "TensorFlow's own ops, which may use TF32 on a GPU"
    return ("TF32", "FP32 engines, which use TF32 on newer GPUs") if lowest == "FP32" else (lowest, f"{lowest} engines")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Original:
    """The model whose answers are the right ones."""

    # As the user named it.
    source: Source
    model: run.Runnable
    # By the served model's names, as far as they are known.
    contents: Description | Contents
    # What its runtime on the CPU computes with, if that is not TensorFlow's.
    arithmetic: Arithmetic | None = None
    # The process that runs it; None for one of its own.
    started: run.Started | None = None
    # {served signature: its names in the original}, where they differ.
    names: Mapping[str, run.Names] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def opened(
    original: str | os.PathLike[str] | Source, served: Served, called: Sequence[str], steps: Steps
) -> Iterator[Original]:
    """The original, opened. Args: served: what is asked. called: names of its signatures that are. steps: run a SavedModel. Yields:
    Original. Raises: UsageError, TftrtError."""
    source = of(original)
    if table.kind(source.path).named_signatures:
        with opened_source.opened(source) as path:
            yield Original(source=source, model=saved_model.at(path), contents=steps.describe(path), started=steps)
        return
    with opening.opened(source) as (model,):
        if len(called) > 1:
            raise errors.UsageError(
                f"--original={source} has one signature, and {len(called)} are asked: {', '.join(called)}",
                f"--signature_keys={called[0]} names one",
            )
        try:
            matched = names.match(_as_model(served), model, called)
        except errors.UsageError as error:
            raise errors.UsageError(
                f"--original={source}: {error.cause}",
                "give a file with the served model's names, as `tftrt export` writes it",
            ) from None
        _check_inputs(source, served, matched)
        for line in matched.notes:
            progress.note(line)
        yield Original(
            source=source,
            model=model,
            contents=matched.second,
            arithmetic=model.kind.arithmetic(model.path),
            names=matched.names,
        )


def _check_inputs(source: Source, served: Served, matched: names.Matched) -> None:
    """Refuse inputs that take no array that the served ones take. Raises: UsageError."""
    for name in matched.names:
        theirs = {spec.name: spec for spec in matched.second.inputs[name]}
        for spec in served.signatures[name].inputs:
            other = theirs.get(spec.name)
            if other and not (spec.dtype == other.dtype and names.fits(spec, other)):
                raise errors.UsageError(
                    f"--original={source} takes {other.text()} where signature {name!r} of {served.name} takes "
                    f"{spec.text()} as {spec.name!r}",
                    "give the model that is served",
                )


def _as_model(served: Served) -> Model:
    """What is served, for names.match."""
    contents = Contents(
        signatures={
            name: Signature(signature.inputs, signature.outputs) for name, signature in served.signatures.items()
        }
    )
    return Model(kind=saved_model.SAVED_MODEL, source=Source(path=served.name), path="", contents=contents)


def reference(original: Original, calls: Sequence[run.Call], folder: str) -> run.Run:
    """The original's answers, on the CPU. Raises: TftrtError."""
    saved = run.save_calls(calls, f"{folder}/in")
    return run.run(
        original.model,
        saved,
        f"{folder}/original",
        "the original",
        exact=True,
        started=original.started,
        names=original.names,
    )


def check_original(original: Source, described: Description | Contents, calls: Iterable[run.Call]) -> None:
    """Refuse an original that cannot be the original, or whose signatures differ. Args: described: its contents. Raises: UsageError."""
    if described.engines:
        raise errors.UsageError(
            f"--original={original} is a converted model itself", "give the model that was converted"
        )
    for call in calls:
        own = {spec.name: spec for spec in described.inputs.get(call.signature, ())}
        if not own or set(own) != set(call.inputs):
            raise errors.UsageError(
                f"--original={original} has no signature {call.signature!r} with the inputs {', '.join(call.inputs)}",
                "give the model that was converted, or choose signatures with --signature_keys",
            )
        for name, value in call.inputs.items():
            if not own[name].accepts(np.shape(value)):
                raise errors.UsageError(
                    f"--original={original}: its input {name!r} is {own[name].text()}, and the model is asked with "
                    f"[{text(np.shape(value))}]",
                    "give the model that was converted",
                )


def compare(
    pairs: Iterable[tuple[run.Call, Mapping[str, npt.NDArray[Any]], Mapping[str, npt.NDArray[Any]]]],
    kind: str,
    own_data: Collection[str],
    rules: judgement.Rules,
) -> judgement.Judgement:
    """Compare the server's answers with the original's.

    Args: pairs: (run.Call, the original's answer, the server's answer). kind: key of thresholds.DEFAULTS. own_data: names of signatures
      with the user's data. rules: judgement.Rules.
    Returns: judgement.Judgement. Raises: UsageError for bounds that fit no output.
    """
    pairs = list(pairs)
    missing = [
        f"{call.signature}: the server has no output {name!r} of the original"
        for call, before, after in pairs
        for name in before
        if name not in after
    ]
    judged = judgement.judge(pairs, kind, own_data, rules)
    return dataclasses.replace(judged, problems=tuple(dict.fromkeys((*missing, *judged.problems))))
