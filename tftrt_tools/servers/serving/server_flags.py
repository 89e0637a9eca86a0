"""The flags of tensorflow_model_server 2.14.1: one table for `tftrt serve`, which hands them on, and for the development server.

Names, types and defaults are the server's own (tensorflow/serving 2.14.1, model_servers/main.cc and server.h).
"""

import dataclasses
import os
import re
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal

# As the server's usage text names the kinds.
Kind = Literal["int32", "int64", "bool", "float", "string"]
INT: Kind = "int32"
INT64: Kind = "int64"
BOOL: Kind = "bool"
FLOAT: Kind = "float"
STRING: Kind = "string"
Value = int | bool | float | str
_INTEGERS = {INT: 31, INT64: 63}
_CPUS = len(os.sched_getaffinity(0))


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag: its kind is int32, int64, bool, float or string, as the server's usage text says."""

    name: str
    kind: Kind
    default: Value
    help: str


FLAGS = [
    Flag("port", INT, 8500, "TCP port of the gRPC API"),
    Flag("grpc_socket_path", STRING, "", "also listen for gRPC on this UNIX socket"),
    Flag("rest_api_port", INT, 0, "TCP port of the REST API, which is off where this is 0; not the same as --port"),
    Flag("rest_api_num_threads", INT, 4 * _CPUS, "threads that answer REST calls; by default four for each CPU"),
    Flag(
        "rest_api_timeout_in_ms",
        INT,
        30000,
        "milliseconds until a REST call gets status 504; raise it where calls may build engines",
    ),
    Flag("rest_api_enable_cors_support", BOOL, False, "answer REST calls of browsers with CORS headers"),
    Flag("enable_batching", BOOL, False, "join requests into batches before they run"),
    Flag(
        "allow_version_labels_for_unavailable_models",
        BOOL,
        False,
        "let a new label name a version that is not loaded yet",
    ),
    Flag("batching_parameters_file", STRING, "", "BatchingParameters, text format; needs --enable_batching"),
    Flag(
        "enable_per_model_batching_parameters",
        BOOL,
        False,
        "take batch sizes and timeouts from each model's batching_params.pbtxt, "
        "and only the threads from --batching_parameters_file",
    ),
    Flag(
        "model_config_file",
        STRING,
        "",
        "ModelServerConfig, text format: the models, their versions and labels; --model_name and "
        "--model_base_path then mean nothing",
    ),
    Flag(
        "model_config_file_poll_wait_seconds",
        INT,
        0,
        "seconds between two readings of --model_config_file; 0 reads it once",
    ),
    Flag("model_name", STRING, "default", "name of the model at --model_base_path"),
    Flag("model_base_path", STRING, "", "directory of the model's numbered version directories, not one of them"),
    Flag("num_load_threads", INT, 0, "threads that load models; 0 loads them one after the other"),
    Flag("num_unload_threads", INT, 0, "threads that unload models; 0 unloads them one after the other"),
    Flag("max_num_load_retries", INT, 5, "how often a load that failed is tried again"),
    Flag("load_retry_interval_micros", INT64, 60_000_000, "microseconds between two tries to load"),
    Flag("file_system_poll_wait_seconds", INT, 1, "seconds between two looks for new versions; 0 looks once"),
    Flag("flush_filesystem_caches", BOOL, True, "drop the files of a loaded model from the system's cache"),
    Flag(
        "tensorflow_session_parallelism", INT64, 0, "threads of a session, within and across ops; 0 chooses by the CPUs"
    ),
    Flag(
        "tensorflow_session_config_file",
        STRING,
        "",
        "ConfigProto, text format; --per_process_gpu_memory_fraction overrides its value",
    ),
    Flag("tensorflow_intra_op_parallelism", INT64, 0, "threads within one op; 0 chooses by the CPUs"),
    Flag("tensorflow_inter_op_parallelism", INT64, 0, "ops that run side by side; 0 chooses by the CPUs"),
    Flag("use_alts_credentials", BOOL, False, "Google's ALTS instead of an open port"),
    Flag("ssl_config_file", STRING, "", "SSLConfig, text format: TLS on the gRPC port"),
    Flag(
        "platform_config_file",
        STRING,
        "",
        "PlatformConfigMap, text format, instead of the batching, session and warm-up flags",
    ),
    Flag(
        "per_process_gpu_memory_fraction",
        FLOAT,
        0.0,
        "share of the GPU's memory that TensorFlow takes at the start; 0 lets it choose",
    ),
    Flag("saved_model_tags", STRING, "serve", "tags of the MetaGraph to load, separated by commas"),
    Flag(
        "grpc_channel_arguments",
        STRING,
        "",
        "of the gRPC server, such as grpc.max_connection_age_ms=2000, separated by commas",
    ),
    Flag("grpc_max_threads", INT, 4 * _CPUS, "threads that answer gRPC calls; by default four for each CPU"),
    Flag("enable_model_warmup", BOOL, True, "run the model's warm-up requests inside the load"),
    Flag("num_request_iterations_for_warmup", INT, 0, "how often each warm-up request is run, where more than 0"),
    Flag("version", BOOL, False, "print the server's version and end"),
    Flag(
        "monitoring_config_file", STRING, "", "MonitoringConfig, text format: metrics for Prometheus, on the REST port"
    ),
    Flag(
        "remove_unused_fields_from_bundle_metagraph",
        BOOL,
        True,
        "keep only those parts of the MetaGraph that serving needs",
    ),
    Flag("prefer_tflite_model", BOOL, False, "load model.tflite of a version where there is one"),
    Flag("num_tflite_pools", INT, _CPUS, "pools of TensorFlow Lite interpreters; by default one for each CPU"),
    Flag("num_tflite_interpreters_per_pool", INT, 1, "TensorFlow Lite interpreters in a pool"),
    Flag(
        "enable_signature_method_name_check", BOOL, False, "refuse signatures whose method name is not that of the call"
    ),
    Flag("xla_cpu_compilation_enabled", BOOL, False, "allow XLA on the CPU"),
    Flag("enable_profiler", BOOL, True, "answer TensorFlow's profiler on the gRPC port"),
    Flag("thread_pool_factory_config_file", STRING, "", "ThreadPoolConfig, text format"),
]

_BY_NAME = {flag.name: flag for flag in FLAGS}
DEFAULTS = types.MappingProxyType({flag.name: flag.default for flag in FLAGS})


def to_arguments(values: Mapping[str, Any]) -> list[str]:
    """The server's command line.

    Args: values: flag name -> value; names that are not flags of the server are left out, and so are default values.

    Returns: such as ["--port=9000", "--enable_batching=true"], in the table's order.
    """
    return [
        f"--{flag.name}={_text(values[flag.name])}"
        for flag in FLAGS
        if flag.name in values and values[flag.name] is not None and values[flag.name] != flag.default
    ]


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse(
    argv: Sequence[str], own: Sequence[Flag] = (), program: str = "tensorflow_model_server"
) -> types.SimpleNamespace:
    """Read a command line as the server does: only --name=value (a bool also as --name), the last of several counts.

    For unknown arguments (a mistyped flag or a positional argument) it prints their names and the usage on stdout, and goes on.

    Args:
      argv: arguments without the program's name.
      own: further Flags that the server does not have.
      program: name for the usage text.

    Returns: a SimpleNamespace with a value for every flag.

    Raises: SystemExit(255) after the usage, for a value that does not fit its flag and for --help.
    """
    table = [*FLAGS, *own]
    named = {flag.name: flag for flag in table}
    values: dict[str, Value] = {flag.name: flag.default for flag in table}
    unknown: list[str] = []
    wrong = False
    for place, argument in enumerate(argv):
        if argument == "--":
            unknown += argv[place:]
            break
        name, equals, text = argument.removeprefix("--").partition("=")
        flag = named.get(name) if argument.startswith("--") else None
        if flag is None or not equals and flag.kind != BOOL:
            unknown.append(argument)
            continue
        try:
            values[name] = _value(flag, text if equals else "true")
        except ValueError:
            print(f"Couldn't interpret value {text} for flag {name}.", file=sys.stderr)
            wrong = True
    if wrong or unknown[:1] == ["--help"]:
        print(usage(program, own))
        raise SystemExit(255)
    if unknown:
        print(f"unknown argument: {unknown[0]}\n{usage(program, own)}", flush=True)
    return types.SimpleNamespace(**values)


def _value(flag: Flag, text: str) -> Value:
    if flag.kind == STRING:
        return text
    if flag.kind == BOOL:
        words = {"true": True, "1": True, "false": False, "0": False}
        if text.lower() not in words:
            raise ValueError(text)
        return words[text.lower()]
    if flag.kind == FLOAT:
        return float(text)
    if (
        not re.fullmatch(r"[+-]?\d+", text, re.ASCII)
        or not -(2 ** _INTEGERS[flag.kind]) <= int(text) < 2 ** _INTEGERS[flag.kind]
    ):
        raise ValueError(text)
    return int(text)


def usage(program: str = "tensorflow_model_server", own: Sequence[Flag] = ()) -> str:
    """The list of all flags with their defaults."""
    lines = [f"usage: {program}", "Flags:"]
    for flag in [*FLAGS, *own]:
        default = f'"{flag.default}"' if flag.kind == STRING else _text(flag.default)
        lines.append(f"\t{f'--{flag.name}={default}':<50}\t{flag.kind}\t{flag.help}")
    return "\n".join(lines)
