"""The flags of `tftrt publish --server=triton`, its run and its output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

from tftrt_tools.base import errors, terminal
from tftrt_tools.base.choices import SERVERS
from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _output

if TYPE_CHECKING:
    from tftrt_tools.servers.serving.publishing.verification_check import Evidence
    from tftrt_tools.servers.serving.triton.publish import Publication

_PREFIX = "triton_"
# The largest number that config.pbtxt holds: int32.
_MOST = 2**31 - 1
# Flags that speak of TensorFlow Serving, or of the way to a SavedModel.
_FOREIGN = (
    "server_image",
    "custom_ops",
    "allow_unknown_engines",
    "replace_warmup",
    "warmup_data",
    "batching_parameters_file",
    "log_file",
    "allow_unsafe_deserialization",
    "custom_objects",
    "inputs",
    "outputs",
)


def define(values: flags.FlagValues) -> None:
    """Define them on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_enum(
        "server",
        "tensorflow",
        SERVERS,
        "what will serve it: TensorFlow Serving, or Triton: BASE_PATH is then its model "
        "repository, and MODEL may be a plan directory or an ONNX file too",
        **text,
    )
    flags.DEFINE_enum(
        "triton_backend",
        None,
        ["tensorrt", "onnxruntime", "python", "tensorflow"],
        "what runs it in Triton; by default "
        "tensorrt for a plan, onnxruntime for an ONNX file, tensorflow for a SavedModel. python: a model.py that runs the "
        "plan on a GPU and ONNX Runtime on a CPU",
        **text,
    )
    flags.DEFINE_string(
        "triton_release", "", "the container's release, such as 24.05: compare its TensorRT with the model's", **text
    )
    flags.DEFINE_string("triton_tensorrt", "", "TensorRT of that release, where it is not known here", **text)
    flags.DEFINE_integer(
        "triton_max_batch_size",
        None,
        "rows that Triton may join to a batch; by default the largest of the plan's "
        "profiles, without profiles 0: shapes are whole, and nothing is joined",
        lower_bound=0,
        upper_bound=_MOST,
        **text,
    )
    flags.DEFINE_list(
        "triton_preferred_batch_sizes",
        [],
        "batches for which Triton does not wait longer; by default those that the profiles were tuned for",
        **text,
    )
    flags.DEFINE_integer(
        "triton_queue_delay_us",
        None,
        "microseconds that a request waits for others at most",
        lower_bound=0,
        upper_bound=_MOST,
        **text,
    )
    flags.DEFINE_integer(
        "triton_instances",
        1,
        "copies of the model that run at a time, on each GPU",
        lower_bound=1,
        upper_bound=_MOST,
        **text,
    )
    flags.DEFINE_enum("triton_instance_kind", "auto", ["auto", "gpu", "cpu"], "where they run", **text)
    flags.DEFINE_integer(
        "triton_versions", 1, "how many of the latest versions Triton serves", lower_bound=1, upper_bound=_MOST, **text
    )
    flags.DEFINE_boolean(
        "triton_replace_config", False, "write config.pbtxt anew, though the model has one for all its versions", **text
    )


def check(values: flags.FlagValues) -> bool:
    """Whether Triton is meant. Raises: UsageError for flags of the other server."""
    triton = values.server == "triton"
    given = [
        name for name in values if values[name].present and (name in _FOREIGN if triton else name.startswith(_PREFIX))
    ]
    if given:
        other = "without" if not triton else "with"
        raise errors.UsageError(f"--{given[0]} has no effect {other} --server=triton", "leave it out")
    result: bool = triton
    return result


def result(values: flags.FlagValues, model: str, of_kinds: bool, command: str) -> Publication:
    """Publish for Triton. Args: of_kinds: whether the model is a folder with one for each kind of GPU. command: text that repeats this
    run."""
    from tftrt_tools.servers.serving.triton import config, publish, several

    keys = tuple(filter(None, values.signature_keys))
    if len(keys) > 1:
        raise errors.UsageError(
            "--signature_keys names several signatures, and a model of Triton has one",
            "publish each as a model of its own",
        )
    given = {
        name: values[f"triton_{name}"].value if values[f"triton_{name}"].present else None
        for name in ("instances", "instance_kind", "versions")
    }
    options = publish.Options(
        version=values.model_version,
        allow_older_version=values.allow_older_version,
        unverified=values.unverified,
        backend=values.triton_backend or "",
        release=values.triton_release,
        tensorrt=values.triton_tensorrt,
        compute_capability=values.compute_capability,
        max_batch_size=values.triton_max_batch_size,
        preferred_batch_sizes=_sizes(values.triton_preferred_batch_sizes),
        replace_config=values.triton_replace_config,
        settings=config.Settings(**given, queue_delay=values.triton_queue_delay_us),
        warm_up=values.warmup,
        warmup_shapes=values.warmup_shapes,
        signature="".join(keys),
        command=command,
    )
    put = several.publish_all if of_kinds else publish.publish
    with progress.on_terminal():
        return put(model, values.model_name, values.base_path, options)


def _sizes(texts: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(text) for text in filter(None, texts))
    except ValueError:
        raise errors.UsageError(
            f"--triton_preferred_batch_sizes={','.join(texts)} are no numbers", "such as 8,32"
        ) from None


def show(done: Publication, values: flags.FlagValues) -> None:
    """Print what was published."""
    from tftrt_tools.servers.serving.publishing import nodes

    console = _output.console(values.json)

    def say(label: str, text: str) -> None:
        console.print(f"{label:<11} {text}", soft_wrap=True)

    console.print(f"published: {done.path}", soft_wrap=True)
    say("backend", done.backend + (f", {done.release.text()}" if done.release else ""))
    joined = "Triton joins requests to batches" if done.joined else "requests are not joined"
    say("batch", f"at most {done.max_batch_size}; {joined}" if done.max_batch_size else f"shapes are whole; {joined}")
    say(
        "config",
        f"{done.repository}/{done.model_name}/config.pbtxt" + (", which was there" if done.config_kept else ""),
    )
    for one in done.kinds:
        verified = f"; verified {_verified(one.evidence) or 'NO'}" if _judged(one.evidence) else ""
        say(one.gpu_type, f"for compute capability {one.compute_capability}{verified}")
    if not done.kinds and _judged(done.evidence):
        say("verified", _verified(done.evidence) or "NO")
    if done.warm_up:
        say("warm-up", f"{terminal.counted(done.warm_up, 'call')} in each instance")
    for note in done.notes:
        say("note", note)
    names = dict.fromkeys(name for one in done.kinds for name in one.node_selector.values())
    if names:
        say("nodes", f"{nodes.LABEL}: {' or '.join(names)}")


def _judged(evidence: Evidence) -> bool:
    """Whether there is something to say of it: a model that TF-TRT did not make needs none."""
    return bool(evidence.needed or evidence.said)


def _verified(evidence: Evidence) -> str:
    """When and with what, "" where there is no valid evidence."""
    said = evidence.said or {}
    return f"on {said.get('created')}: {said.get('evidence')}" if evidence.valid else ""
