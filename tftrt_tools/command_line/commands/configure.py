"""usage: tftrt configure --output=DIR --model=NAME=BASE_PATH[:OPTION]… [--flags]
       tftrt configure --check_files FILE…

Writes TensorFlow Serving's configuration files for the models that it serves: models.config, with batching also batching_parameters.txt,
with --monitoring also monitoring.config. BASE_PATH is the directory of a model's numbered versions. Options of a model:

  latest=N        serve the latest N versions; the default is latest=1
  all             serve all versions
  versions=N,N    serve these versions
  LABEL=N         give this version a label that clients can ask for, such as stable=1 or canary=2

Batch sizes come from the engines of the versions that will be served. If the engines accept every size up to a maximum, the server pads
nothing. Otherwise it pads batches up to allowed_batch_sizes. Sizes that you give must be among those of the engines.

--check_files reads existing files and names each error with its line: unknown fields, and values that the server would refuse or
misread. The exit code is 3 if there is an error.

examples:
  tftrt configure --output=config --model=digits=/models/digits --enable_batching --monitoring
  tftrt configure --output=config --model=digits=/models/digits:versions=1,2:stable=1:canary=2 --model=ranker=/models/ranker
  tftrt configure --output=config --model=digits=build/models/digits --mount=build/models:/models --allowed_batch_sizes=1,8,32
  tftrt configure --check_files config/models.config config/batching_parameters.txt
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _next, _output

if TYPE_CHECKING:
    from tftrt_tools.servers.serving.configuration.batching_file import Settings
    from tftrt_tools.servers.serving.configuration.generation import Configuration

# The server reads these with TensorFlow's file systems.
URLS = ("model",)
_BATCHING = (
    "allowed_batch_sizes",
    "max_batch_size",
    "batch_timeout_micros",
    "num_batch_threads",
    "max_enqueued_batches",
)


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("output", None, "folder to write the files to", **text)
    flags.DEFINE_multi_string("model", [], "NAME=BASE_PATH and options, as above; once for each model", **text)
    flags.DEFINE_multi_string(
        "mount",
        [],
        "HERE:THERE: base paths below HERE are written as the server sees them, below THERE; as in `docker run -v`",
        **text,
    )
    flags.DEFINE_boolean(
        "enable_batching", False, "write batching_parameters.txt; implied by the flags of batching", **text
    )
    flags.DEFINE_list(
        "allowed_batch_sizes", [], "batch sizes to pad up to, the smallest first; by default from the engines", **text
    )
    flags.DEFINE_integer(
        "max_batch_size", None, "rows in a batch at most; by default the largest of the engines", lower_bound=1, **text
    )
    flags.DEFINE_integer(
        "batch_timeout_micros",
        None,
        "microseconds that a batch waits for more requests; the server's default is 0",
        lower_bound=0,
        **text,
    )
    flags.DEFINE_integer(
        "num_batch_threads",
        None,
        "batches that run side by side, of all models together; the server's default is one for each CPU",
        lower_bound=1,
        **text,
    )
    flags.DEFINE_integer(
        "max_enqueued_batches",
        None,
        "batches that wait for a thread; more are refused; the server's default is 10",
        lower_bound=1,
        **text,
    )
    flags.DEFINE_boolean("monitoring", False, "write monitoring.config: metrics for Prometheus", **text)
    flags.DEFINE_boolean(
        "allow_uncovered",
        False,
        "go on with batch sizes that the engines do not cover, or whose engines cannot be read here",
        **text,
    )
    flags.DEFINE_boolean("overwrite", False, "replace files that exist", **text)
    flags.DEFINE_boolean("check_files", False, "check the given files, and write none", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Write, or check. Returns: the exit code."""
    if values.check_files:
        return _check(values, positional)
    if positional:
        raise errors.UsageError(
            f"usage: tftrt configure --output=DIR --model=NAME=BASE_PATH; got {' '.join(positional)}",
            "files to look at go with --check_files",
        )
    if not values.output:
        raise errors.UsageError("--output is missing", "name the folder to write the files to")
    from tftrt_tools.servers.serving.configuration import generation, model_config

    options = generation.Options(
        models=tuple(map(model_config.parse, values.model)),
        batching=_batching(values),
        monitoring=values.monitoring,
        mounts=tuple(map(model_config.parse_mount, values.mount)),
        allow_uncovered=values.allow_uncovered,
        overwrite=values.overwrite,
    )
    with progress.on_terminal():
        done = generation.configure(values.output, options)
    _print(done, values.json)
    _output.write_json(done, values.json)
    if not values.mount:  # otherwise the files have paths in the container
        _next.show(values, ["serve", *done.server_flags()])
    return errors.EXIT_DONE


def _batching(values: flags.FlagValues) -> Settings | None:
    if not values.enable_batching and not any(values[name].present for name in _BATCHING):
        return None
    from tftrt_tools.servers.serving.configuration import batching_file

    sizes = [size.strip() for size in values.allowed_batch_sizes if size.strip()]
    if not all(size.isdecimal() for size in sizes):
        raise errors.UsageError(
            f"--allowed_batch_sizes={','.join(sizes)} are no numbers", "write --allowed_batch_sizes=1,8,32"
        )
    return batching_file.Settings(
        allowed_batch_sizes=tuple(map(int, sizes)), **{name: values[name].value for name in _BATCHING[1:]}
    )


def _check(values: flags.FlagValues, positional: list[str]) -> int:
    if not positional:
        raise errors.UsageError("--check_files names no file", "write tftrt configure --check_files FILE…")
    from tftrt_tools.servers.serving.configuration import config_check

    done = config_check.check(positional)
    console = _output.console(values.json)
    for file in done.files:
        for one in file.problems:
            console.print(f"{file.file}:{one.line}: {one.level}: {one.text}", soft_wrap=True)
            if one.mend:
                console.print(f"  {one.mend}", soft_wrap=True)
        if not file.problems:
            console.print(f"{file.file}: nothing wrong", soft_wrap=True)
    _output.write_json(done, values.json)
    return errors.EXIT_DONE if done.passed else errors.EXIT_CHECK


def _print(done: Configuration, json_path: str | None) -> None:
    from tftrt_tools.servers.serving.configuration.batching_file import text_of

    console = _output.console(json_path)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True)

    rows = [
        (
            one.name,
            one.base_path,
            ", ".join(map(str, one.served_text())),
            ", ".join(f"{label}={version}" for label, version in one.labels.items()),
        )
        for one in done.models
    ]
    console.print(_output.table(None, ["model", "base path", "versions", "labels"], rows))
    for one in done.covered:
        sizes = text_of(one.sizes) if one.known else "not known"
        say(f"batch sizes of {one.path}: {sizes} ({one.reason})")
    if done.batching:
        padded = done.batching.allowed_batch_sizes
        say(
            f"batches: padded to {text_of(padded)}"
            if padded
            else f"batches: up to {done.batching.max_batch_size or 1000}, nothing padded"
        )
    for warning in done.warnings:
        say(f"  warning: {warning}")
    for path in done.files.values():
        say(f"written: {path}")
    say(f"server: {' '.join(done.server_flags())}")
