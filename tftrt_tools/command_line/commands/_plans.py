"""`tftrt convert --backend=tensorrt`: its flags, and what it prints."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _building, _calibration_flags, _next, _output, _source_flags
from tftrt_tools.models.kinds.plan import kind as plan_kind
from tftrt_tools.tensorrt.plans import settings as settings_module

if TYPE_CHECKING:
    from tftrt_tools.models.inputs.options import DataOptions
    from tftrt_tools.tensorrt.plans.result import Built

TFTRT, TENSORRT = "tftrt", "tensorrt"
# Flags for plans alone.
_OWN = (
    "strongly_typed",
    "tf32",
    "tactic_sources",
    "sparse_weights",
    "version_compatible",
    "refit",
    "plugins",
    "int8_as",
)
# Flags that both have.
_BOTH = (
    "backend",
    "input_saved_model_dir",
    "output_saved_model_dir",
    "precision_mode",
    "shapes",
    "signature_keys",
    "max_workspace_size_bytes",
    "calibration_table",
    "overwrite",
    "dry_run",
    "log_file",
    "max_build_minutes",
    "engine_cache",
    "engine_cache_dir",
    "engine_cache_max_bytes",
    "allow_unsafe_deserialization",
    "custom_objects",
    "inputs",
    "outputs",
    "op_library",
    "freeze",
    "json",
    "help",
    "flagfile",
    "undefok",
)
# Flags of the INT8 that is written into the ONNX file; they count with calibration data.
_WRITTEN = (*_calibration_flags.names(), *_calibration_flags.METHOD, "fp32_nodes", "int8_as")

# Flags of `tftrt build` that a plan directory has a use for.
_REBUILT = (
    "shapes",
    "output_saved_model_dir",
    "overwrite",
    "max_workspace_size_bytes",
    "max_build_minutes",
    "engine_cache",
    "engine_cache_dir",
    "engine_cache_max_bytes",
    "log_file",
    "json",
    "help",
    "flagfile",
    "undefok",
)


def define(values: flags.FlagValues) -> None:
    """Define them on FlagValues `values`."""
    default = settings_module.Settings()
    text = dict(flag_values=values)
    flags.DEFINE_enum(
        "backend",
        TFTRT,
        [TFTRT, TENSORRT],
        "tftrt makes a TF-TRT SavedModel; tensorrt builds a plan directory, which runs without TensorFlow (GPU)",
        **text,
    )
    flags.DEFINE_boolean(
        "strongly_typed",
        default.strongly_typed,
        "plan: no layer computes in another type than the ONNX file says (TensorRT 9 and later)",
        **text,
    )
    flags.DEFINE_boolean("tf32", default.tf32, "plan: let float32 be computed in TF32", **text)
    flags.DEFINE_list(
        "tactic_sources",
        [],
        "plan: libraries that TensorRT may take kernels from, by default its own choice: "
        + ",".join(settings_module.TACTIC_SOURCES),
        **text,
    )
    flags.DEFINE_boolean(
        "sparse_weights", default.sparse_weights, "plan: use kernels for weights of which two of four are zero", **text
    )
    flags.DEFINE_boolean(
        "version_compatible",
        default.version_compatible,
        "plan: let later releases run it (TensorRT 8.6 and later)",
        **text,
    )
    flags.DEFINE_boolean("refit", default.refit, "plan: let its weights be replaced", **text)
    flags.DEFINE_string(
        "int8_as",
        "",
        "plan: of the INT8 that --calibration_data writes into the file: another plan directory, which was "
        "built with --calibration_table; only the nodes that TensorRT computes in INT8 there get it. auto builds one first",
        **text,
    )
    flags.DEFINE_multi_string(
        "plugins",
        [],
        "plan: a library of TensorRT plugins that the ONNX file needs (.so); once for each. It is kept with the plan",
        **text,
    )


def check_flags(values: flags.FlagValues) -> None:
    """Refuse flags of the other backend. Raises: UsageError."""
    given = [values[name].name for name in values if values[name].present]
    if values.backend == TFTRT:
        wrong = [name for name in given if name in _OWN]
        if wrong:
            typed = f"--{'no' * (values[wrong[0]].value is False)}{wrong[0]}"
            raise errors.UsageError(f"{typed} is for plans", "add --backend=tensorrt, or leave it out")
        return
    wrong = [name for name in given if name not in (*_OWN, *_BOTH, *_WRITTEN)]
    if wrong:
        raise errors.UsageError(f"--{wrong[0]} has no effect with --backend=tensorrt: it is for TF-TRT", "leave it out")
    idle = [name for name in given if name in _WRITTEN]
    if idle and not calibrates(values):
        raise errors.UsageError(
            f"--{idle[0]} has no effect with --backend=tensorrt where nothing is calibrated",
            "give --calibration_data with it, or leave it out",
        )


def calibrates(values: flags.FlagValues) -> bool:
    """Whether INT8 is written into the ONNX file of a plan, with ranges from data."""
    return bool(values.calibration_data or values.calibrate_on_random_data)


def run(values: flags.FlagValues, flag_file: str, cache: dict[str, Any] | None, data: DataOptions | None) -> int:
    """Build a plan directory. Args: data: of the calibration, or None. Returns: the exit code."""
    keys = [one for one in values.signature_keys if one]
    if len(keys) > 1:
        raise errors.UsageError(
            f"--signature_keys={','.join(keys)}: a plan has one signature", "name one, and build a plan for each"
        )
    settings = settings_module.checked(
        settings_module.Settings(
            precision_mode=values.precision_mode,
            shapes=values.shapes,
            signature=keys[0] if keys else "",
            max_workspace_size_bytes=values.max_workspace_size_bytes
            if values["max_workspace_size_bytes"].present
            else 0,
            calibration_table=values.calibration_table,
            strongly_typed=values.strongly_typed,
            tf32=values.tf32,
            tactic_sources=tuple(one for one in values.tactic_sources if one),
            sparse_weights=values.sparse_weights,
            version_compatible=values.version_compatible,
            refit=values.refit,
            plugins=tuple(values.plugins),
            freeze=values.freeze,
        )
    )
    from tftrt_tools.tensorrt.exporting import precision
    from tftrt_tools.tensorrt.plans import convert, shaping

    asked = (
        precision.Asked(
            precision="INT8",
            data=dataclasses.replace(data, shapes=shaping.first_call(settings.shapes)),
            fp32_nodes=tuple(filter(None, (values.fp32_nodes,))),
            method=values.calibration_method,
            percentile=values.calibration_percentile,
            int8_as=values.int8_as,
        )
        if data
        else None
    )
    source = _source_flags.read(values, values.input_saved_model_dir)
    with progress.on_terminal():
        done = convert.convert(
            source,
            None if values.dry_run else values.output_saved_model_dir,
            settings,
            overwrite=values.overwrite,
            flag_file=flag_file,
            log_file=values.log_file,
            cache=cache,
            build_minutes=_building.minutes(values, always=True),
            asked=asked,
        )
    _print(done, values)
    _output.write_json(done, values.json)
    if done.output:
        _next.show(values, _next.verify(values, values.input_saved_model_dir, values.output_saved_model_dir))
    return errors.EXIT_DONE


def build(values: flags.FlagValues, plan: str, cache: dict[str, Any] | None) -> int:
    """Build a plan directory anew. Returns: the exit code."""
    given = [values[name].name for name in values if values[name].present]
    wrong = [name for name in given if name not in _REBUILT]
    if wrong:
        raise errors.UsageError(
            f"--{wrong[0]} has no effect: {plan} is a plan directory, and it is for TF-TRT", "leave it out"
        )
    from tftrt_tools.tensorrt.plans import build as building

    options = building.Options(shapes=values.shapes, max_workspace_size_bytes=values.max_workspace_size_bytes)
    with progress.on_terminal():
        done = building.build(
            plan,
            values.output_saved_model_dir,
            options,
            overwrite=values.overwrite,
            cache=cache,
            log_file=values.log_file,
            build_minutes=_building.minutes(values, always=True),
        )
    _print(done, values)
    _output.write_json(done, values.json)
    made = values.output_saved_model_dir or plan
    if original := _next.original(made):
        _next.show(values, _next.verify(values, original, made))
    return errors.EXIT_DONE


def _print(done: Built, values: flags.FlagValues) -> None:
    from tftrt_tools.models.savedmodel.inspection import bytes_text

    console = _output.console(values.json)
    rows = [(number, plan_kind.text(one)) for number, one in enumerate(done.profiles)]
    console.print(_output.table("Profiles", [">profile", "shapes"], rows))
    plan = done.plan
    times = f", with {bytes_text(done.known_timings)} of times from earlier builds" if done.known_timings else ""
    lines = [
        f"{plan.precision} plan of {bytes_text(plan.bytes)} for TensorRT {plan.tensorrt} and {plan.gpu}",
        f"it came from the engine cache; its build took {done.build_seconds:.1f} s"
        if done.cached
        else f"built in {done.build_seconds:.1f} s{times}",
    ]
    lines += [f"{done.ranged} tensors have a range of the calibration table"] * bool(done.ranged)
    lines += [f"{done.held} layers are held in FP32, as the file has them"] * bool(done.held)
    lines += [
        f"plugins: {one.file} ({', '.join(one.creators) or 'none that TensorRT did not have'})" for one in plan.plugins
    ]
    lines += [f"note: {note}" for note in done.notes]
    for line in lines:
        console.print(f"  {line}", soft_wrap=True)
    if done.cache_problem:
        console.print(f"the engine cache was not used: {done.cache_problem}", soft_wrap=True)
    written = f"written: {done.output}" if done.output else "nothing was written (--dry_run)"
    console.print(f"{written} ({done.seconds:.1f} s)", soft_wrap=True)
