"""usage: tftrt publish MODEL --model_name=NAME --base_path=DIRECTORY [--flags]

Puts a SavedModel where TensorFlow Serving looks for it, as BASE_PATH/NAME/VERSION; a server's --model_base_path is BASE_PATH/NAME. The
version appears whole or not at all, with requests to warm up with, which have been run.

Refused (exit 3): a TF-TRT model without a verification that passed and speaks of these files; one that the target cannot run, such as
engines of another TensorRT, which end a server that loads them; a warm-up that fails. A model without TF-TRT needs no verification.

The default target is a server on this machine. Others are images: tftrt/serving, tensorflow/serving:2.14.1-gpu, …

examples:
  tftrt publish resnet_fp16 --model_name=resnet --base_path=/models
  tftrt publish resnet_portable --model_name=resnet --base_path=/models --target=tensorflow/serving:2.14.1-gpu \
      --warmup_shapes='image:32x224x224x3'
  tftrt publish encoder_fp16 --model_name=encoder --base_path=/models --warmup_data=requests.npz --batching_parameters_file=batching.txt
"""

from absl import flags

from tftrt_tools import errors, progress
from tftrt_tools.commands import _flags, _output, _source_flags

_PATHS = ("base_path", "batching_parameters_file", "warmup_data")


def define(values):
    """Define the command's flags on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_string("model_name", None, "name of the model, as requests call it", **text)
    flags.DEFINE_string("base_path", None, "directory that holds the models: the version goes to BASE_PATH/MODEL_NAME/VERSION", **text)
    flags.DEFINE_integer("version", None, "version number; by default the one after the largest", **text)
    flags.DEFINE_boolean("allow_older_version", False, "accept a --version below the largest, which a server of the latest never loads",
                         **text)
    flags.DEFINE_string("target", "local", "what will serve it: local (a server on this machine), tftrt/serving, or tensorflow/serving:TAG",
                        **text)
    flags.DEFINE_string("compute_capability", "", "of the server's GPU, such as 8.6; by default that of this machine for --target=local, "
                        "and not compared for an image", **text)
    flags.DEFINE_boolean("unverified", False, "publish without a valid verification, and in spite of what `tftrt inspect --check` finds; "
                         "the record says so", **text)
    _source_flags.define_op_library(values)
    flags.DEFINE_list("custom_ops", [], "ops beyond TensorFlow's own that the server has", **text)
    flags.DEFINE_boolean("allow_unknown_engines", False, "publish engines of which nothing says which TensorRT built them", **text)
    flags.DEFINE_boolean("warmup", True, "let the version carry warm-up requests", **text)
    flags.DEFINE_boolean("replace_warmup", False, "make new warm-up requests where the model brings its own", **text)
    flags.DEFINE_string("warmup_shapes", "", "shapes to warm up with, as --shapes of `tftrt convert`; by default the server's batch sizes "
                        "and the shapes that engines were built for", **text)
    flags.DEFINE_string("warmup_data", "", "values to warm up with: .npz, .npy or module:function, as --data of `tftrt verify`; by default "
                        "they are drawn", **text)
    flags.DEFINE_string("batching_parameters_file", "", "the server's: warm up its allowed_batch_sizes", **text)
    flags.DEFINE_list("signature_keys", [], "signatures to warm up, by default all", **text)
    flags.DEFINE_string("log_file", None, "keep what TensorFlow and TensorRT log while the warm-up runs in this file", **text)


def run(values, positional):
    """Publish. Returns: the exit code."""
    model = _flags.one_argument("publish", positional, "MODEL")
    for name in ("model_name", "base_path"):
        if not values[name].value:
            raise errors.UsageError(f"--{name} is missing", "the version goes to BASE_PATH/MODEL_NAME/VERSION")
    if not values.warmup:
        for name in ("replace_warmup", "warmup_shapes", "warmup_data", "batching_parameters_file", "signature_keys"):
            if values[name].value:
                raise errors.UsageError(f"--{name} and --nowarmup exclude each other", "give one of them")
    from tftrt_tools.serving import preflight, publish, warmup, warmup_batching

    batching = warmup_batching.read(values.batching_parameters_file) if values.batching_parameters_file else None
    options = publish.Options(
        values.version, values.allow_older_version, values.target, values.compute_capability, values.unverified, values.warmup,
        values.replace_warmup, warmup.Options(values.warmup_shapes, values.warmup_data, batching, _listed(values.signature_keys)),
        preflight.Options(_listed(values.custom_ops), values.allow_unknown_engines), _command(values, model), values.log_file)
    with progress.on_terminal():
        done = publish.publish(model, values.model_name, values.base_path, options)
    _print(done, values.json)
    _output.write_json(done, values.json)
    return errors.EXIT_DONE


def _listed(names):
    return tuple(filter(None, names))


def _command(values, model):
    """The command that publishes the same again, from any directory."""
    import os
    import shlex

    words = ["tftrt", "publish", os.path.abspath(model)]
    for name in sorted(values):
        flag = values[name]
        if name != flag.name or name in ("help", "json", "flagfile", "undefok", "log_file", "version") or flag.value == flag.default:
            continue
        if isinstance(flag, flags.MultiFlag):
            words += [f"--{name}={os.path.abspath(one)}" for one in flag.value]
            continue
        value = os.path.abspath(flag.value) if name in _PATHS and (name == "base_path" or os.path.exists(flag.value)) else flag.value
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no{name}")
        else:
            words.append(f"--{name}={','.join(value) if isinstance(value, list) else value}")
    return shlex.join(words)


def _print(done, json_path):
    console = _output.console(json_path)

    def say(label, text):
        console.print(f"{label:<12}{text}", markup=False, soft_wrap=True)

    console.print(f"published: {done.path}", markup=False, soft_wrap=True)
    say("target", done.target.text())
    if done.tftrt:
        engines = _output.counted(done.engine_files, "saved engine") if done.engine_files else "no saved engines"
        say("engines", f"{_output.counted(done.engines, 'engine op')}, {engines}")
        said = done.evidence.said or {}
        say("verified", f"on {said.get('created')}: {said.get('evidence')}" if done.evidence.valid else "NO")
    if done.warm_up:
        say("warm-up", _warm_up(done.warm_up))
    for note in done.notes:
        say("note", note)
    say("next", f"tftrt serve --model_name={done.model_name} --model_base_path={done.base_path}")


def _warm_up(warm_up):
    records = warm_up.replay.records
    built = sum(one.built or 0 for one in records)
    whence = "the model's own" if warm_up.kept else ", ".join(f"{count} {source}" for source, count in warm_up.sources.items())
    where = "" if warm_up.replay.mode != "gpu" else f" on {warm_up.replay.gpu['name']}" + (f", {built} engines built" if built else "")
    return f"{_output.counted(len(records), 'record')} ({whence}), {warm_up.bytes} bytes; run in {warm_up.replay.seconds:.1f} s{where}"
