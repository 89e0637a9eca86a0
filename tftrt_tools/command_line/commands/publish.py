"""usage: tftrt publish MODEL --model_name=NAME --base_path=DIRECTORY [--flags]

Puts a SavedModel where TensorFlow Serving looks for it, as BASE_PATH/NAME/VERSION; the server's --model_base_path is BASE_PATH/NAME. A
Keras file (.keras, .h5) or a graph becomes a SavedModel there. The version appears whole or not at all. It carries warm-up requests,
which publish has tried.

It refuses (exit 3) a TF-TRT model of which exactly these files did not pass `tftrt verify`; a model that the server cannot run (engines
of another TensorRT end the server that loads them); and a warm-up that fails. A model without TF-TRT needs no verification.

MODEL may be a folder that `tftrt build --on` wrote, with a model for each kind of GPU. Each goes to BASE_PATH/KIND/NAME/VERSION, for the
servers on nodes with such GPUs. All get the same version number.

By default the server is one on this machine. --server_image names another: tftrt/serving, tensorflow/serving:2.14.1-gpu, …

With --server=triton BASE_PATH is the model repository of a Triton, and MODEL a plan directory, an ONNX file or a SavedModel. The
version goes to BASE_PATH/NAME/VERSION, and BASE_PATH/NAME/config.pbtxt tells Triton how to batch and warm up the model. A plan that the
TensorRT of --triton_release does not run is refused (exit 3), and a release that runs it is named. A folder of `tftrt build --on`
becomes one version with a folder for each kind of GPU; Triton takes the one for its GPU.

examples:
  tftrt publish resnet_fp16 --model_name=resnet --base_path=/models
  tftrt publish resnet_portable --model_name=resnet --base_path=/models --server_image=tensorflow/serving:2.14.1-gpu \
      --warmup_shapes='image:32x224x224x3'
  tftrt publish encoder_fp16 --model_name=encoder --base_path=/models --warmup_data=requests.npz --batching_parameters_file=batching.txt
  tftrt publish resnet_plan --server=triton --model_name=resnet --base_path=/repository --triton_release=23.03
  tftrt publish resnet_built --server=triton --model_name=resnet --base_path=/repository
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import (
    _calibration_flags,
    _calling,
    _data_flags,
    _flags,
    _next,
    _output,
    _source_flags,
    _triton_flags,
)
from tftrt_tools.models.inputs.options import image_flags
from tftrt_tools.models.kinds import table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import TypeIs

    from tftrt_tools.models.sources.source import Source
    from tftrt_tools.servers.serving.publishing.publish import Publication, WarmUp
    from tftrt_tools.servers.serving.publishing.several import Publications
    from tftrt_tools.servers.serving.triton.publish import Publication as OfTriton

_PATHS = ("base_path", "batching_parameters_file", "warmup_data")


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("model_name", None, "name of the model, as requests call it", **text)
    flags.DEFINE_string(
        "base_path", None, "directory that holds the models: the version goes to BASE_PATH/MODEL_NAME/VERSION", **text
    )
    flags.DEFINE_integer("model_version", None, "version number; by default the one after the largest", **text)
    flags.DEFINE_boolean(
        "allow_older_version",
        False,
        "accept a --model_version below the largest, which a server of the latest never loads",
        **text,
    )
    flags.DEFINE_string(
        "server_image",
        "local",
        "what will serve it: local (a server on this machine), tftrt/serving:TAG, or tensorflow/serving:TAG",
        **text,
    )
    flags.DEFINE_string(
        "compute_capability",
        "",
        "of the server's GPU, such as 8.6; by default that of this machine for --server_image=local, "
        "and not compared for an image",
        **text,
    )
    flags.DEFINE_boolean(
        "unverified",
        False,
        "publish without a valid verification, and in spite of what `tftrt inspect --check` finds; the record says so",
        **text,
    )
    _source_flags.define(values)
    flags.DEFINE_list("custom_ops", [], "custom ops that the server has", **text)
    flags.DEFINE_boolean("allow_unknown_engines", False, "publish engines whose TensorRT is unknown", **text)
    flags.DEFINE_boolean("warmup", True, "let the version carry warm-up requests", **text)
    flags.DEFINE_boolean("replace_warmup", False, "make new warm-up requests even if the model has its own", **text)
    flags.DEFINE_string(
        "warmup_shapes",
        "",
        "shapes to warm up with, as --shapes of `tftrt convert`; by default the server's batch sizes "
        "and the shapes that engines were built for",
        **text,
    )
    flags.DEFINE_string(
        "warmup_data",
        "",
        "values to warm up with: arrays, pictures, TFRecords, .csv, .txt or module:function, as --data "
        "of `tftrt verify`; by default they are random",
        **text,
    )
    _calibration_flags.define_images(values)
    flags.DEFINE_string(
        "batching_parameters_file", "", "the server's batching parameters: warm up its allowed_batch_sizes", **text
    )
    flags.DEFINE_list("signature_keys", [], "signatures to warm up, by default all", **text)
    flags.DEFINE_string(
        "log_file", None, "keep what TensorFlow and TensorRT log while the warm-up runs in this file", **text
    )
    _triton_flags.define(values)


def result(values: flags.FlagValues, positional: list[str]) -> Publication | Publications | OfTriton:
    """Publish."""
    model = _source_flags.read(values, _flags.one_argument("publish", positional, "MODEL"))
    for name in ("model_name", "base_path"):
        if not values[name].value:
            raise errors.UsageError(f"--{name} is missing", "the version goes to BASE_PATH/MODEL_NAME/VERSION")
    if not values.warmup:
        for name in ("replace_warmup", "warmup_shapes", "warmup_data", "batching_parameters_file", "signature_keys"):
            if values[name].value:
                raise errors.UsageError(f"--{name} and --nowarmup exclude each other", "give one of them")
    from tftrt_tools.servers.serving.publishing import several

    kinds = several.kinds(model.path)
    if _triton_flags.check(values):
        return _triton_flags.result(values, model.path, bool(kinds), _command(values, model))
    kind = table.kind(next(iter(kinds.values()), model.path))
    if not kind.of_tensorflow and kind.onnx(model.path):
        raise errors.UsageError(
            f"TensorFlow Serving serves SavedModels, and {model} is {kind.forms[0]}",
            "--server=triton publishes it for a Triton, into a model repository",
        )
    from tftrt_tools.servers.serving.publishing import publish, target_preflight
    from tftrt_tools.servers.serving.warmup import allowed_batch_sizes, warmup_requests

    batching = allowed_batch_sizes.read(values.batching_parameters_file) if values.batching_parameters_file else None
    reading = _data_flags.reading(values)
    of_pictures = image_flags(reading)
    if of_pictures and not values.warmup_data:
        raise errors.UsageError(
            f"{of_pictures[0]} has no effect without --warmup_data", "leave it out, or name the pictures"
        )
    options = publish.Options(
        version=values.model_version,
        allow_older_version=values.allow_older_version,
        target=values.server_image,
        compute_capability=values.compute_capability,
        unverified=values.unverified,
        warm_up=values.warmup,
        replace_warmup=values.replace_warmup,
        requests=warmup_requests.Options(
            shapes=values.warmup_shapes,
            data=values.warmup_data,
            batching=batching,
            signature_keys=_listed(values.signature_keys),
            reading=reading,
        ),
        server=target_preflight.Options(_listed(values.custom_ops), values.allow_unknown_engines),
        command=_command(values, model),
        log_file=values.log_file,
    )
    with progress.on_terminal():
        if kinds:
            return several.publish_all(model.path, values.model_name, values.base_path, options)
        return publish.publish(model, values.model_name, values.base_path, options)


def show(done: Publication | Publications | OfTriton, values: flags.FlagValues) -> None:
    """Print what was published."""
    if _of_several(done):
        for one in done.kinds:
            _print(one.publication, values.json, one.node)
    elif _of_triton(done):
        _triton_flags.show(done, values)
    else:
        _print(done, values.json)


def write(done: Publication | Publications | OfTriton, values: flags.FlagValues) -> None:
    """Write --json."""
    _output.write_json(done, values.json)


def failure(done: Publication | Publications | OfTriton, values: flags.FlagValues) -> None:
    """What cannot be published has no result."""


def _of_triton(done: Publication | Publications | OfTriton) -> TypeIs[OfTriton]:
    return done.document == "triton publication"


def _of_several(done: Publication | Publications | OfTriton) -> TypeIs[Publications]:
    return done.document == "publications"


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Publish. Returns: the exit code."""
    done = result(values, positional)
    show(done, values)
    write(done, values)
    if _of_triton(done):
        _next.show(values, _next.smoke_triton(done.model_name))
    else:
        served = done.kinds[0].publication if _of_several(done) else done
        _next.show(values, _next.serve(values, done.model_name, served.base_path))
    return errors.EXIT_DONE


def _listed(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(filter(None, names))


def _command(values: flags.FlagValues, model: Source) -> str:
    """The command that publishes the same again, from any directory."""
    import os
    import shlex

    words, remarks = ["tftrt", "publish", os.path.abspath(model)], ""
    for name in sorted(values):
        flag = values[name]
        if (
            name != flag.name
            or name in ("help", "json", "flagfile", "undefok", "log_file", "model_version")
            or flag.value == flag.default
        ):
            continue
        value = flag.value
        if isinstance(value, str) and value in _calling.TEMPORARY:
            remarks += f"  # --{name}: arrays that a program gave"
            continue
        if isinstance(flag, flags.MultiFlag):
            value = [os.path.abspath(one) for one in value]
        elif name in _PATHS and (name == "base_path" or os.path.exists(value)):
            value = os.path.abspath(value)
        words += _flags.words(flag, value)
    return shlex.join(words) + remarks


def _print(done: Publication, json_path: str | None, nodes: str = "") -> None:
    """Args: nodes: the label of those that can serve it."""
    console = _output.console(json_path)

    def say(label: str, text: str) -> None:
        console.print(f"{label:<12}{text}", soft_wrap=True)

    console.print(f"published: {done.path}", soft_wrap=True)
    say("target", done.target.text())
    if done.tftrt:
        engines = terminal.counted(done.engine_files, "saved engine") if done.engine_files else "no saved engines"
        say("engines", f"{terminal.counted(done.engines, 'engine op')}, {engines}")
    if done.tftrt or done.evidence.said:
        said = done.evidence.said or {}
        say("verified", f"on {said.get('created')}: {said.get('evidence')}" if done.evidence.valid else "NO")
    if done.warm_up:
        say("warm-up", _warm_up(done.warm_up))
    for note in done.notes:
        say("note", note)
    if nodes:
        say("nodes", nodes)


def _warm_up(warm_up: WarmUp) -> str:
    records = warm_up.replay.records
    built = sum(one.built or 0 for one in records)
    whence = (
        "the model's own"
        if warm_up.kept
        else ", ".join(f"{count} {source}" for source, count in warm_up.sources.items())
    )
    where = ""
    if warm_up.replay.mode == "gpu" and warm_up.replay.gpu:
        where = f" on {warm_up.replay.gpu['name']}" + (f", {built} engines built" if built else "")
    return f"{terminal.counted(len(records), 'record')} ({whence}), {warm_up.bytes} bytes; run in {warm_up.replay.seconds:.1f} s{where}"
