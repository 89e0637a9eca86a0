"""Which nodes lose the most when a model goes to INT8 or FP16: simulated on any machine; the worst ones measured on a GPU. No TensorFlow
here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from tftrt_tools.accuracy import harm, measurement, simulating
from tftrt_tools.accuracy.simulating import SimulateRequest
from tftrt_tools.base import errors
from tftrt_tools.base import stack as stack_room
from tftrt_tools.base.files import scratch
from tftrt_tools.models.execution import run
from tftrt_tools.models.inputs import calls as inputs
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import describe, files, signatures, tensor_kinds
from tftrt_tools.models.sources.opened import check, opened
from tftrt_tools.tftrt.calibration import file as calibration_file
from tftrt_tools.tftrt.conversion import pass_apart, pass_log
from tftrt_tools.tftrt.conversion.converting import TablesFrom

if TYPE_CHECKING:
    from tftrt_tools.models.execution.run import Call
    from tftrt_tools.models.inputs.given import Given
    from tftrt_tools.models.sources.source import Source
    from tftrt_tools.tftrt.conversion.settings import Settings

Measure = Literal["auto", "gpu", "simulate"]
MEASURE: tuple[Measure, ...] = get_args(Measure)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What is studied, and how far."""

    # Path, glob or module:function of the inputs to score.
    data: str
    # How its files are read, and how many rows (0 for all).
    reading: DataOptions = DataOptions()
    data_rows: int = 0
    # Rows of a call.
    batch_size: int = inputs.DEFAULT_BATCH
    # Regular expression of the nodes to round alone, "" for all.
    nodes: str = ""
    # Whether the worst nodes are measured on a GPU.
    measure: Measure = "auto"
    # The number of nodes to measure.
    measure_nodes: int = 8
    # The data for INT8's ranges, or None.
    calibration: DataOptions | None = None
    # Where to keep what TensorFlow logs.
    log_file: str | None = None


def study(model: str | os.PathLike[str] | Source, settings: Settings, options: Options) -> harm.Sensitivity:
    """Find the harm of each node of a model.

    Args: model: path of an original model, or its source.Source. settings: conversion Settings, INT8 or FP16. options: Options.
    Returns: harm.Sensitivity. Raises: UsageError, TftrtError.
    """
    start = time.monotonic()
    check_asked(settings.precision_mode, options)
    if settings.calibrator != "toolkit" and not options.calibration:
        raise errors.UsageError(
            f"--calibrator={settings.calibrator} needs --calibration_data", "give it, or use --calibrator=toolkit"
        )
    source = check(model)
    stack_room.check_can_convert()
    given = calibration_file.read(settings.calibration_table) if settings.calibration_table else None
    with opened(source, options.log_file) as model, scratch.folder("sensitivity") as folder:
        (seen,) = describe.describe(model)
        if seen.engines:
            raise errors.UsageError(f"{source} is a converted model", "give the original model that it was made from")
        walked = signatures.Once.of(signatures.chosen(list(seen.inputs), settings.signature_keys), seen.same)
        for name in walked.names:
            tensor_kinds.check(name, seen.inputs[name], seen.outputs[name])
        calls = calls_of(inputs.Takes.walking(walked, seen.inputs), options, folder)
        saved = {
            name: tuple(path for _, path in run.save_calls(made_calls, f"{folder}/in/{number}"))
            for number, (name, made_calls) in enumerate(calls.items())
        }
        settings = dataclasses.replace(settings, signature_keys=tuple(calls), use_dynamic_shape=settings.dynamic)
        request = SimulateRequest(
            model=model,
            settings=settings,
            int8=TablesFrom(options=options.calibration, given=given),
            calls=saved,
            nodes=options.nodes,
        )
        answer = pass_apart.run(simulating.simulate, request, env=pass_log.ENV, log_file=options.log_file).result
        harms = [dataclasses.replace(signature, twins=walked.twins[signature.name]) for signature in answer.signatures]
        problem = _why_not_measured(answer.gpu, options)
        if not problem:
            calibration = measurement.calibration(answer.tables, answer.method) if answer.tables else None
            harms = measurement.measured(
                model, settings, calibration, calls, saved, harms, options.measure_nodes, folder
            )
    path = pathlib.Path(source).absolute()
    return harm.Sensitivity(
        model=str(path),
        model_digest=files.digest(path),
        precision=settings.precision_mode,
        settings=settings.to_dict(),
        data=options.data,
        ranges=ranges(settings.precision_mode, settings.calibration_table, options, answer.method),
        signatures=tuple(harms),
        gpu=answer.gpu,
        seconds=time.monotonic() - start,
        measured_problem=problem,
    )


def check_asked(precision: str, options: Options) -> None:
    """Refuse what cannot be studied. Raises: UsageError."""
    if precision not in ("INT8", "FP16"):
        raise errors.UsageError(f"--precision={precision} rounds nothing that could be studied", "use INT8 or FP16")
    if not options.data:
        raise errors.UsageError(
            "--data is missing: harm is measured on inputs",
            "give pictures, arrays, TFRecords, .csv, .txt or module:function, as to `tftrt verify`",
        )
    for flag, value, least in (("batch_size", options.batch_size, 1), ("measure_nodes", options.measure_nodes, 1)):
        if value < least:
            raise errors.UsageError(f"--{flag} is {value}", f"give {least} or more")
    if options.measure not in MEASURE:
        raise errors.UsageError(f"--measure={options.measure} is unknown", "use one of " + ", ".join(MEASURE))
    try:
        re.compile(options.nodes)
    except re.error as error:
        raise errors.UsageError(
            f"--nodes={options.nodes} is no regular expression: {error}", "see Python's `re` syntax"
        ) from None


def calls_of(takes: inputs.Takes, options: Options, folder: str) -> dict[str, list[Call]]:
    """{signature: [run.Call]} of the signatures that the data fills. Args: folder: for the read rows. Raises: UsageError."""
    request = inputs.Asked(data=options.data, reading=options.reading, data_rows=options.data_rows)
    maker = inputs.CallMaker(takes, request)
    # There is data: check_asked made sure of it.
    cut_calls, _ = maker.cut(cast("Given", maker.given(folder)), inputs.up_to(options.batch_size))
    return {name: calls for name, calls in cut_calls.items() if calls}


def _why_not_measured(gpu: Mapping[str, Any] | None, options: Options) -> str:
    if options.measure == "simulate":
        return "simulated only, as --measure=simulate asks"
    if gpu:
        return ""
    if options.measure == "gpu":
        raise errors.TftrtError(
            "--measure=gpu builds engines, and engines need a GPU; none is visible here",
            "leave it out to simulate only",
        )
    return "simulated only: no GPU is visible here"


def ranges(precision: str, table: str, options: Options, method: str) -> str:
    """Where INT8's ranges come from, in words; "" for FP16. Args: table: a calibration file, or ""."""
    if precision != "INT8":
        return ""
    if table:
        return f"of {table}"
    if not options.calibration:
        return f"by {method} of the scored data itself, for want of --calibration_data"
    return f"by {method} of " + ("random data" if options.calibration.random else options.calibration.source)
