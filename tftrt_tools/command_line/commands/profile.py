"""usage: tftrt profile MODEL [--shapes=SHAPES] [--original=MODEL] [--flags]
       tftrt profile A B [--flags]

Where do the milliseconds of a call go? It calls the model on this machine's GPU at each shape and splits the time of the calls: Python,
TensorFlow's executor, each engine op, each op outside the engines, copies, idle GPU. Then it splits each engine: layers, kernels, memory.
The parts add up to the measured latency. With --original it also profiles the model before conversion, in turns with MODEL.

A plan directory is profiled in the same way, without TensorFlow: copies in, the plan, copies out, and what the host does meanwhile. Its
layers carry the names of the nodes in its ONNX file.

With --on=local each shape is measured on a GPU of its own, side by side.

The result is kept with the model. Without a GPU the kept profile is shown; the JSON file of a profile may stand in place of a model.
With two models or files, A and B are compared part by part and layer by layer, and nothing is measured.

examples:
  tftrt profile resnet_fp16 --original=resnet --html=profile.html
  tftrt profile resnet_fp16 --shapes='image:8x224x224x3' --trace=resnet.trace.json.gz
  tftrt profile resnet_fp16 resnet_int8
  tftrt profile resnet_plan --shapes='image:8x224x224x3'
  tftrt profile resnet_fp16 resnet_plan
  tftrt profile profile_of_the_server.json
"""

from __future__ import annotations

import dataclasses
import pathlib
import shlex
from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch, whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.command_line.commands import _flags, _fleet, _next, _output, _source_flags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tftrt_tools.fleet.place import Place
    from tftrt_tools.studies.profiling.measure import Options
    from tftrt_tools.studies.profiling.profile import Profile
    from tftrt_tools.studies.profiling.stored import Stored
    from tftrt_tools.studies.profiling.traces import Track

OUTPUTS = ("html", "trace")
URLS = ("on",)
# Flags of a measurement.
_MEASURING = (
    "shapes",
    "original",
    "signature_keys",
    "ranges",
    "seed",
    "traced_calls",
    "callers",
    "engines",
    "log_file",
    "on",
)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("original", "", "the model before conversion, to be profiled beside it", **text)
    flags.DEFINE_string(
        "shapes",
        "",
        "shapes to profile, as in `tftrt convert`; by default those that engines were built for, else batches 1 and 8",
        **text,
    )
    flags.DEFINE_list(
        "signature_keys", [], "signatures to profile; by default all, or those that --shapes names", **text
    )
    flags.DEFINE_string("ranges", "", "ranges of random inputs, INPUT:LOW:HIGH;…", **text)
    flags.DEFINE_integer("seed", 0, "seed of random inputs", lower_bound=0, **text)
    flags.DEFINE_integer("traced_calls", 20, "calls in a trace, at each shape", lower_bound=1, upper_bound=200, **text)
    flags.DEFINE_list("callers", ["1", "2", "4"], "numbers of concurrent callers to measure", **text)
    flags.DEFINE_boolean("engines", True, "take the engines apart, too: layers, kernels, memory", **text)
    flags.DEFINE_boolean("stored", False, "show the profile that is kept with the model, and measure nothing", **text)
    flags.DEFINE_boolean("write", True, "keep the profile with the model", **text)
    flags.DEFINE_boolean(
        "without_gpu",
        False,
        "measure without a GPU: TensorFlow on the CPU. It says nothing about engines, and is not kept",
        **text,
    )
    flags.DEFINE_integer(
        "top", 12, "rows of ops and layers that are printed; --json and --html have them all", lower_bound=1, **text
    )
    flags.DEFINE_string("html", None, "write a page with pictures to this file", **text)
    flags.DEFINE_string(
        "trace",
        None,
        "write what ran when to this file, for ui.perfetto.dev or chrome://tracing; .gz compresses it",
        **text,
    )
    flags.DEFINE_string("log_file", None, "keep what TensorFlow logs in this file", **text)
    _fleet.define_local(values)
    _source_flags.define(values)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Measure, show or compare. Returns: the exit code."""
    place = _fleet.read_local(values, "profile")
    whole_file.check_places(one for one in (values.json, values.html, values.trace) if one and one != "-")
    from tftrt_tools.studies.profiling import stored

    if len(positional) == 2:
        return _compare(values, *positional)
    path = _flags.one_argument("profile", positional, "MODEL")
    if not (stored.is_file(path) or values.stored) and (values.without_gpu or fingerprint.gpu_here()):
        return _measure(values, path, place)
    found = _stored(values, path)
    for line in found.said:
        _output.console(values.json).print(line, soft_wrap=True)
    _show(values, found.profile)
    return errors.EXIT_DONE


def _stored(values: flags.FlagValues, path: str) -> Stored:
    """The profile that was measured before. Raises: UsageError, TftrtError where there is none."""
    from tftrt_tools.studies.profiling import measure, stored

    if values.trace:
        raise errors.UsageError(
            "--trace needs a measurement, because a kept profile has no timeline", "leave it out, or measure on a GPU"
        )
    found = stored.read(path)
    if found is None:
        measure.check_kind(path)
        here = "" if fingerprint.gpu_here() else ", and this machine has no GPU to measure one"
        raise errors.TftrtError(
            f"{path} carries no profile{here}",
            f"run `{shlex.join(['tftrt', 'profile', path, *_next.measured(values, _MEASURING)])}` on a machine with a GPU",
        )
    return dataclasses.replace(found, said=(*found.said, *not_looked_at(values, _MEASURING, found.profile)))


def not_looked_at(values: flags.FlagValues, names: Iterable[str], found: Profile) -> list[str]:
    """A line for each of these flags that is given, though the profile was measured before."""
    calls = ", ".join(call.text() for call in found.model.calls)
    return [
        f"--{name} was not looked at: the profile was measured before, of {calls}"
        for name in names
        if values[name].present
    ]


def _measure(values: flags.FlagValues, path: str, place: Place | None) -> int:
    from tftrt_tools.studies.profiling import chrome, measure, stored

    options = _options(values, path)
    if place and options.without_gpu:
        progress.note(f"--on={values.on} changes nothing: without a GPU shapes are measured one after the other")
        place = None
    with scratch.folder("profile") as folder:
        with _fleet.beside_each_other(place) as where, progress.on_terminal():
            done = measure.measure(options, folder, where)
        found = done.profile
        _show(values, found)
        if values.trace:
            chrome.write(
                values.trace, [_timeline(found, name, place, file) for (name, place), file in done.traces.items()]
            )
    if values.write and found.on_gpu and not stored.keep(path, found):
        _output.console(values.json).print(f"not kept: {path} has no metadata; --json=FILE keeps it", soft_wrap=True)
    return errors.EXIT_DONE


def _timeline(found: Profile, name: str, place: int, file: pathlib.Path) -> tuple[str, tuple[Track, ...]]:
    """(title, tracks) of a call's timeline, with the layers of engines where they can be told."""
    from tftrt_tools.studies.profiling import chrome, layer_tracks, traces

    side = found.original if name == "original" and found.original else found.model
    tracks = chrome.marked(traces.read(file).tracks)
    return f"{name} {side.calls[place].text()}", (*tracks, *layer_tracks.of(tracks, found.engines))


def _options(values: flags.FlagValues, path: str) -> Options:
    from tftrt_tools.models.inputs import calls as inputs
    from tftrt_tools.studies.profiling import measure

    try:
        callers = tuple(sorted({int(one) for one in values.callers if one}))
    except ValueError:
        callers = (0,)
    if callers and callers[0] < 1:
        raise errors.UsageError(
            f"--callers={','.join(values.callers)} are no numbers of callers", "such as --callers=1,2,4"
        )
    model, *original = _source_flags.read_each(values, *filter(None, (path, values.original)))
    return measure.Options(
        model=model,
        original=original[0] if original else None,
        signature_keys=tuple(filter(None, values.signature_keys)),
        traced=values.traced_calls,
        callers=callers,
        asked=inputs.Asked(shapes=values.shapes, ranges=values.ranges, seed=values.seed),
        engines=values.engines,
        without_gpu=values.without_gpu,
        log_file=values.log_file,
    )


def _show(values: flags.FlagValues, found: Profile) -> None:
    from tftrt_tools.command_line.commands import _profile_tables

    _profile_tables.show(_output.console(values.json), found, values.top)
    _output.write_json(found, values.json)
    if values.html:
        from tftrt_tools.command_line.report import profile as report

        report.write_page(found, values.html)


def _compare(values: flags.FlagValues, first: str, second: str) -> int:
    """Two kept profiles, side by side."""
    from tftrt_tools.command_line.commands import _profile_tables
    from tftrt_tools.studies.profiling import comparison

    found = [_stored(values, path) for path in (first, second)]
    console = _output.console(values.json)
    for path, one in zip((first, second), found, strict=True):
        for line in one.said:
            console.print(f"{path}: {line}", soft_wrap=True)
    done = comparison.compare(*(one.profile for one in found))
    _profile_tables.compared(console, done, values.top)
    _output.write_json(done, values.json)
    if values.html:
        from tftrt_tools.command_line.report import profile as report

        report.write_comparison(done, values.html)
    return errors.EXIT_DONE
