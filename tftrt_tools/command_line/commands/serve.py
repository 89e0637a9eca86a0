"""usage: tftrt serve --model_base_path=DIR | --model_config_file=FILE [--flags]

Starts TensorFlow Serving and stays until Ctrl-C. It checks paths, ports and configuration files, starts the server, shows its log, says
when its models are loaded and warm, and ends the server whatever happens to this command.

--launch=auto uses tensorflow_model_server from PATH, else the GPU image in Docker, else the development server of this package. It says
which one, and why. All flags except --launch, --server_image, --host, --grace_seconds, --log_file and --json are those of
tensorflow_model_server, with its defaults, and are passed on.

--json=FILE is written when the server is ready: its addresses, models and process. After Ctrl-C or SIGTERM the exit code is 0. If the
server ends by itself, the exit code is 1, and the command shows the end of its log and the meaning of its signal.

examples:
  tftrt serve --model_name=digits --model_base_path=models/digits --rest_api_port=8501
  tftrt serve --launch=local --port=0 --model_name=digits --model_base_path=models/digits
  tftrt serve --launch=docker --model_config_file=models.config --enable_batching --batching_parameters_file=batching_parameters.txt
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _next, _output, _places, _source_flags
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving import server_flags as server_flags

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tftrt_tools.servers.serving.launch.serve import Serving

# What the server itself reads, with TensorFlow's file systems.
URLS = (
    "model_base_path",
    "batching_parameters_file",
    "tensorflow_session_config_file",
    "ssl_config_file",
    "platform_config_file",
    "monitoring_config_file",
    "thread_pool_factory_config_file",
)
_DEFINE = {
    server_flags.INT: flags.DEFINE_integer,
    server_flags.INT64: flags.DEFINE_integer,
    server_flags.BOOL: flags.DEFINE_boolean,
    server_flags.FLOAT: flags.DEFINE_float,
    server_flags.STRING: flags.DEFINE_string,
}


def define(values: flags.FlagValues) -> None:
    """Define the command's flags on FlagValues `values`."""
    for flag in server_flags.FLAGS:
        _DEFINE[flag.kind](flag.name, flag.default, flag.help, flag_values=values)
    text = dict(flag_values=values)
    _source_flags.define_op_library(values)
    flags.DEFINE_enum("launch", "auto", ["auto", "binary", "docker", "local"], "what serves", **text)
    flags.DEFINE_string(
        "server_image",
        "",
        "image of --launch=docker; by default tftrt/serving:2.14.1 (2.17.1 with a newer TensorFlow), else the stock one",
        **text,
    )
    flags.DEFINE_string(
        "host",
        "",
        "address to listen on; by default 127.0.0.1 with --launch=local and docker; the binary listens on all",
        **text,
    )
    flags.DEFINE_float(
        "grace_seconds", 10.0, "seconds a server gets to end after SIGTERM, before SIGKILL", lower_bound=0, **text
    )
    flags.DEFINE_string("log_file", None, "write the server's log to this file too", **text)


def run(values: flags.FlagValues, positional: list[str]) -> int:
    """Serve. Returns: the exit code."""
    if positional:
        raise errors.UsageError(
            f"tftrt serve takes flags only; got {' '.join(positional)}", f"--model_base_path={positional[0]}?"
        )
    wanted = {flag.name: values[flag.name].value for flag in server_flags.FLAGS}
    from tftrt_tools.servers.serving.launch import choose, serve

    if wanted["version"]:
        return serve.version(choose.choose(values.launch, values.server_image)[0], wanted)
    _check_model_flags(wanted, values)
    backend, reason = choose.choose(values.launch, values.server_image)
    if values.op_library and backend.name != "local":
        raise errors.UsageError(
            f"--op_library has no effect with --launch={backend.name}: such a server has its ops built in",
            "leave it out, or use --launch=local",
        )
    if backend.name == "local":
        _places.check(values, URLS)
    console = _output.console(values.json)
    console.print(f"backend: {backend.name} ({reason})", soft_wrap=True)

    def ready(serving: Serving) -> None:
        _output.write_json(serving, values.json)
        console.print(_ready_line(serving), soft_wrap=True)
        if serving.ready.models and not wanted["ssl_config_file"]:
            name, versions = serving.ready.models[0]
            command = ["smoke", serving.ready.grpc, f"--model_name={name}"]
            base_path = next(one.base_path for one in plan.models if one.name == name)
            folder = _here(base_path, versions)
            original = _next.original(folder) if folder else ""
            if files.is_saved_model(original):  # others may need flags to be read
                command.append(f"--original={original}")
            _next.show_with_inputs(values, command, _open_input(folder) if folder else "")

    try:
        plan = serve.prepare(backend, wanted, values.host)
        serve.run(backend, reason, plan, values.grace_seconds, ready, values.log_file)
    except KeyboardInterrupt:
        pass
    return errors.EXIT_DONE


def _here(base_path: str, versions: Sequence[int]) -> str:
    """The folder of the first served version, "" for none and for another machine's."""
    return os.path.join(base_path, str(versions[0])) if versions and "://" not in base_path else ""


def _open_input(folder: str) -> str:
    """The input of a served version whose sizes nobody knows, "" for none."""
    from tftrt_tools.models.inputs import calls
    from tftrt_tools.servers.serving.warmup import warmup_requests

    known = warmup_requests.path(folder).is_file() or calls.built_for(_next.document(folder, passport.MANIFEST))
    return "" if known else _next.open_input(folder)


def _check_model_flags(wanted: Mapping[str, Any], values: flags.FlagValues) -> None:
    if not wanted["model_base_path"] and not wanted["model_config_file"]:
        raise errors.UsageError("nothing to serve", "give --model_base_path=DIR or --model_config_file=FILE")
    if wanted["model_config_file"] and (wanted["model_base_path"] or values["model_name"].present):
        given = "--model_base_path" if wanted["model_base_path"] else "--model_name"
        raise errors.UsageError(f"with --model_config_file the server ignores {given}", "leave one of them out")


def _ready_line(serving: Serving) -> str:
    models = (
        ", ".join(name + (f" ({_versions(versions)})" if versions else "") for name, versions in serving.ready.models)
        or "none"
    )
    rest = f", REST http://{serving.ready.rest}" if serving.ready.rest else ""
    return f"ready: gRPC {serving.ready.grpc}{rest}, models {models}"


def _versions(numbers: Sequence[int]) -> str:
    return f"version{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
