"""The whole of `tftrt convert --backend=tensorrt`: ONNX if the model is none, the build in a child, a first call of each profile in
another, and the directory put in place. No runtime is imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import time
from collections.abc import Mapping
from typing import Any

from tftrt_tools.accuracy import verify
from tftrt_tools.base import errors
from tftrt_tools.base.files import plain_file, scratch
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import bindings
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.kinds import opening, table
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import ONNX as ONNX_KIND
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.kinds.plan import kind as plan_kind
from tftrt_tools.models.savedmodel import describe, signatures, staging
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.models.sources import opened
from tftrt_tools.models.sources.source import Source, of
from tftrt_tools.tensorrt.exporting import as_plan, export, parser, precision, targets
from tftrt_tools.tensorrt.exporting.result import Exported
from tftrt_tools.tensorrt.plans import building, making, shaping
from tftrt_tools.tensorrt.plans.result import Built
from tftrt_tools.tensorrt.plans.settings import Settings
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.calibration import table as calibration_table

# The --target whose TensorRT takes tables, and so may choose where to compute in INT8. Release 9 does, too; it has no target of its own.
_CHOOSES = "8.5"


def convert(
    source: str | os.PathLike[str] | Source,
    output: str | os.PathLike[str] | None,
    settings: Settings,
    *,
    overwrite: bool = False,
    flag_file: str = "",
    log_file: str | None = None,
    cache: Mapping[str, Any] | None = None,
    build_minutes: float | None = None,
    asked: precision.Asked | None = None,
) -> Built:
    """Build a plan directory.

    Args:
      source: an ONNX file, or what `tftrt export` takes.
      output: directory to make; None writes nothing.
      settings: as `settings.checked` returned them.
      overwrite: replace a plan directory or SavedModel that is there.
      flag_file: text that repeats it, kept as convert.flags.
      log_file: where to keep what TensorRT logs, with everything that it says of tactics.
      cache: {"folder", "max_bytes"} of the engine cache, where plans and the times of kernels are kept; None for none.
      build_minutes: the build is ended after them; None for no bound.
      asked: the precision that is written into the ONNX file on the way; None for FP32, where an ONNX file is taken as it is.

    Returns: Built. Raises: UsageError, TftrtError, CheckFailed; then the output is as it was.
    """
    start = time.monotonic()
    source = _checked(source, settings)
    if asked or settings.freeze or not _is_onnx(source):
        # An export takes longer than to see whether it can be of use.
        building.check.run(None)
    target = staging.check_target(output, overwrite, [source.path]) if output else None
    with contextlib.ExitStack() as stack:
        if target:
            stage = stack.enter_context(staging.staged(target, overwrite))
        else:
            stage = pathlib.Path(stack.enter_context(scratch.folder("plan")))
        if asked and asked.int8_as == as_plan.AUTO:
            signature, notes = _place_chosen(source, stage, settings, asked, log_file, cache, build_minutes)
        else:
            signature, notes = place_onnx(source, stage, settings, log_file, asked)
        task = making.Task(
            name=str(source),
            source=str(pathlib.Path(source.path).absolute()),
            source_digest=table.kind(source.path).digest(source.path),
            output=target,
            settings=dataclasses.replace(settings, signature_keys=(signature,) if signature else ()),
            ranges=ranges(settings.calibration_table),
            notes=notes,
            flag_file=flag_file,
            log_file=log_file,
            cache=cache,
            build_minutes=build_minutes,
            start=start,
        )
        return making.made(stage, task)


def check_installed() -> None:
    """Raise TftrtError where nothing can be built."""
    if not bindings.installed():
        raise bindings.missing("no plan can be built here")


def _checked(source: str | os.PathLike[str] | Source, settings: Settings) -> Source:
    """Its Source. Raises: UsageError, TftrtError, before any work."""
    shaping.groups(settings.shapes)
    for path in settings.plugins:
        if not pathlib.Path(path).is_file():
            raise errors.UsageError(f"--plugins={path}: no such file", "name the library (.so) that has the plugins")
    named = of(source)
    if table.kind(named.path) is plan_kind.PLAN:
        raise errors.UsageError(
            f"{named} is a plan directory already", f"`tftrt build {named}` builds it anew for this machine"
        )
    if _is_onnx(named):
        if not pathlib.Path(named.path).is_file():
            raise errors.UsageError(f"no such file: {named}", "check the path of the ONNX file")
        for flag, value in {
            "signature_keys": settings.signature,
            "inputs": named.inputs,
            "outputs": named.outputs,
        }.items():
            if value:
                raise errors.UsageError(
                    f"--{flag} has no effect: {named} is an ONNX file, which has no signatures", "leave it out"
                )
        check_installed()
        return named
    check_installed()
    return opening.check(named)


def _place_chosen(
    source: Source,
    stage: pathlib.Path,
    settings: Settings,
    asked: precision.Asked,
    log_file: str | None,
    cache: Mapping[str, Any] | None,
    build_minutes: float | None,
) -> tuple[str, tuple[str, ...]]:
    """As place_onnx, for --int8_as=auto: with the ranges that the data has, and INT8 where a plan that was built with them has it.

    The model is exported once, and all is made from that file, so that all have the same names. Raises: as `convert`."""
    if _are_ranges(settings):
        raise errors.UsageError(
            f"--int8_as={as_plan.AUTO}: a plan for ranges of shapes does not tell the types of its layers",
            "give exact shapes: --shapes=INPUT:1x…,32x…; or name a plan that was built for such",
        )
    log = f"{log_file}.{as_plan.AUTO}" if log_file else None
    progress.say("first a plan whose INT8 TensorRT may choose")
    with scratch.folder("choosing") as temporary:
        exported, measured, plan = (pathlib.Path(temporary) / name for name in ("exported", "measured", "plan"))
        exported.mkdir()
        measured.mkdir()
        known = str(measured / "ranges.json")
        name, notes = place_onnx(source, exported, settings, log, precision.Asked())
        file = Source(path=str(exported / document.ONNX))
        # The file has what was frozen already.
        unnamed = dataclasses.replace(
            settings, signature_keys=(), shapes=shaping.without_signature(settings.shapes, (name,)), freeze=""
        )
        asked = dataclasses.replace(
            asked, data=asked.data and dataclasses.replace(asked.data, shapes=shaping.first_call(unnamed.shapes))
        )
        place_onnx(file, measured, unnamed, log, dataclasses.replace(asked, int8_as="", output_table=known))
        try:
            convert(
                file,
                plan,
                dataclasses.replace(unnamed, calibration_table=known),
                log_file=log,
                cache=cache,
                build_minutes=build_minutes,
            )
        except errors.UsageError:
            raise
        except errors.TftrtError as error:
            raise errors.TftrtError(
                f"--int8_as={as_plan.AUTO} needs a plan whose INT8 TensorRT may choose, and there is none: {error}",
                "leave it out, or name a plan that was built elsewhere",
            ) from None
        chosen = dataclasses.replace(asked, data=None, table=known, int8_as=str(plan), int8_said=as_plan.AUTO)
        return name, (*notes, *place_onnx(file, stage, unnamed, log_file, chosen)[1])


def _are_ranges(settings: Settings) -> bool:
    """Whether no profile is for exact shapes."""
    groups = shaping.groups(settings.shapes)
    return bool(groups) and all(map(shape_grammar.is_range, groups))


def _is_onnx(source: Source) -> bool:
    return table.kind(source.path) is ONNX_KIND


def place_onnx(
    source: Source,
    stage: pathlib.Path,
    settings: Settings,
    log_file: str | None = None,
    asked: precision.Asked | None = None,
) -> tuple[str, tuple[str, ...]]:
    """Put model.onnx, and the files beside it, into the directory. Args: as of `convert`. Returns: (the signature that it is, "" for an
    ONNX file; what to know). Raises: as `convert`."""
    if _is_onnx(source) and asked is None and not settings.freeze:
        beside = onnx_file.outside(source.path)
        plain_file.copy(source.path, stage / document.ONNX)
        for path in beside:
            place = stage / os.path.relpath(path, os.path.dirname(source.path) or ".")
            place.parent.mkdir(parents=True, exist_ok=True)
            plain_file.copy(path, place)
        return "", ()
    if _is_onnx(source):
        return "", _exported(source, stage, settings, (), log_file, asked)
    with opened.opened(source, log_file) as saved:
        name = _signature(source, saved, settings.signature)
        return name, _exported(source, stage, settings, (name,), log_file, asked)


def _exported(
    source: Source,
    stage: pathlib.Path,
    settings: Settings,
    names: tuple[str, ...],
    log_file: str | None,
    asked: precision.Asked | None,
) -> tuple[str, ...]:
    """Export the model into the directory. Returns: what to know. Raises: as `convert`."""
    compared = verify.Options(asked=inputs.Asked(shapes=shaping.first_call(settings.shapes)))
    asked = asked or precision.Asked()
    # Drawn inputs say little of a precision that was calibrated on data: `verify` judges the plan.
    options = export.Options(
        target=targets.here(),
        signature_keys=names,
        comparison=compared,
        log_file=log_file,
        precision=asked,
        freeze=settings.freeze,
        judge_precision=asked.precision == "FP32",
    )
    done = export.export(source, stage / document.ONNX, options)
    if not done.passed:
        raise failed(source, done)
    may_choose = options.target == _CHOOSES and not asked.int8_as and not _are_ranges(settings)
    written = tuple(_written(one.precision, may_choose) for one in done.files if one.precision)
    return (*(note for one in done.files for note in (*one.notes, *parser.lines(one.doubts))), *written)


def _written(found: precision.Written, may_choose: bool) -> str:
    """What to know of the precision in a file. Args: may_choose: whether --int8_as=auto could find where INT8 is worth it."""
    wider = sum(one.reason.startswith(as_plan.WHY) for one in found.left)
    known = f"TensorRT of itself takes a wider type in {wider} others" if wider else ""
    advice = (
        f"some may be faster in a wider type: --int8_as={as_plan.AUTO} builds twice and leaves them out"
        if may_choose
        else ""
    )
    return "; ".join(
        filter(
            None,
            (f"{found.precision} was written into the ONNX file, in {len(found.taken)} of its nodes", known, advice),
        )
    )


def _signature(source: Source, saved: str, asked: str) -> str:
    """The signature that becomes the plan. Raises: UsageError."""
    found = describe.describe(saved)[0]
    names = list(found.inputs)
    if asked:
        return str(signatures.chosen(names, (asked,))[0])
    walked = signatures.Once.of(names, found.same).names
    if len(walked) > 1 and DEFAULT not in walked:
        raise errors.UsageError(
            f"which signature of {source}? A plan has one, and here are {', '.join(walked)}",
            f"--signature_keys={walked[0]} names one",
        )
    return DEFAULT if DEFAULT in walked else str(walked[0])


def failed(source: Source, done: Exported) -> errors.CheckFailed:
    """The error of a model whose export did not pass."""
    one = done.files[0]
    if one.refused and not done.refused_allowed:
        return errors.CheckFailed(
            f"{source} becomes no plan, because TensorRT's parser refuses {'; '.join(parser.lines(one.refused))}",
            "leave that part out of the model; or export it with `tftrt export --allow_refused`, and give the file "
            "with --plugins",
        )
    return errors.CheckFailed(
        f"the ONNX file of {source} answers otherwise than it: {one.verification.problems[0]}",
        "`tftrt export` tells more, with the first tensor that departs",
    )


def ranges(path: str) -> dict[str, float]:
    """{tensor: the largest |x| to keep} of a calibration table: TensorRT's text, or a calibration file. Raises: UsageError, TftrtError."""
    if not path:
        return {}
    if not pathlib.Path(path).is_file():
        raise errors.UsageError(
            f"--calibration_table={path}: no such file", "give a table of TensorRT, or a calibration file"
        )
    if pathlib.Path(path).read_bytes()[:4] == b"TRT-":
        tables = [calibration_table.parse(pathlib.Path(path).read_text(), path)]
    else:
        tables = [one.table for one in calibration_file.read(path).engines]
    return {name: one.range(name) for one in tables for name in one.scales}
