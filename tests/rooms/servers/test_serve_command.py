"""`tftrt serve`: flags, checks before the start, readiness, and the end of the server in every way it can come.

The fake tensorflow_model_server below has a real gRPC ModelService; it stands in for the binary where a fault or the arguments matter.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request

import pytest
from absl import flags as absl_flags
from hypothesis import given
from hypothesis import strategies as st

from tests import server_log
from tests.command_here import run_program
from tests.conftest import ROOT
from tests.stacks import here
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import serve as serve_command
from tftrt_tools.servers.serving import metric_names, server_flags
from tftrt_tools.servers.serving.launch import ending, ports, serve_plan, start_preflight
from tftrt_tools.servers.serving.launch.docker import Docker, mounts

FAKE_SERVER = f"""#!{sys.executable}
import concurrent.futures, json, os, pathlib, signal, subprocess, sys, time
sys.path.insert(0, {str(ROOT)!r})
import grpc
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.base.wire import messages

made = messages.classes("fake.proto", "fake", {{
    "ModelSpec": {{"name": (1, "string")}}, "Request": {{"model_spec": (1, ".ModelSpec")}},
    "VersionStatus": {{"version": (1, "int64"), "state": (2, "int32")}}, "Response": {{"model_version_status": (1, "[.VersionStatus]")}}}})

values, fault = server_flags.parse(sys.argv[1:]), os.environ.get("FAKE_FAULT", "")
if values.version:
    print("TensorFlow ModelServer: fake")
    sys.exit(0)
print("pid", os.getpid(), json.dumps(sys.argv[1:]), file=sys.stderr, flush=True)
if fault == "segfault":
    os.kill(os.getpid(), signal.SIGSEGV)
print(os.environ.get("FAKE_LOG", ""), file=sys.stderr, flush=True)
if fault == "cannot load":
    # The real one opens no port until its models are loaded.
    time.sleep(600)
if fault == "refuses":
    print("Failed to start server. Error: UNKNOWN: 1 servable(s) did not become available")
    sys.exit(255)
if fault == "deaf":
    child = subprocess.Popen(["sleep", "600"])
    print("grandchild", child.pid, flush=True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif fault == "docker":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

def status(request, context):
    response = made["Response"]()
    if request.model_spec.name != values.model_name:
        context.abort(grpc.StatusCode.NOT_FOUND, "Could not find any versions of model " + request.model_spec.name)
    gate = os.environ.get("FAKE_GATE")
    state = 30 if not gate or os.path.exists(gate) else 20
    # A version that was unloaded stays in the answer.
    response.model_version_status.add(version=6, state=50)
    response.model_version_status.add(version=7, state=state)
    return response

handler = grpc.unary_unary_rpc_method_handler(status, made["Request"].FromString, lambda m: m.SerializeToString())
server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("tensorflow.serving.ModelService", {{"GetModelStatus": handler}})])
server.add_insecure_port(f"127.0.0.1:{{values.port}}")
server.start()
print(f"Running gRPC ModelServer at 0.0.0.0:{{values.port}} ...", file=sys.stderr, flush=True)
if fault == "dies later":
    time.sleep(1)
    sys.exit(3)
time.sleep(600)
"""

# An engine, an image and a client that runs the fake server "inside".
FAKE_DOCKER = """#!/bin/bash
echo "$*" >> "$FAKE_DOCKER_LOG"
case "$1" in
  version) [ -z "$FAKE_NO_ENGINE" ] || { echo "Cannot connect" >&2; exit 1; } ;;
  image) [ "$3" = "$FAKE_IMAGE" ] ;;
  info) echo '{"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}}' ;;
  run) while [ "$1" != "$FAKE_IMAGE" ]; do shift; done; shift; exec fake_inside "$@" ;;
esac
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def on_path(tmp_path):
    """A function that puts an executable on a PATH of its own; `.env` is the environment with that PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def put(name, text):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    put.env = {"PATH": f"{folder}:/usr/bin:/bin"}
    return put


@pytest.fixture
def base_path(tmp_path):
    """models/digits with versions 6 and 7: saved_model.pb is empty, for the fake server reads none."""
    base = tmp_path / "models" / "digits"
    for version in ("6", "7"):
        (base / version).mkdir(parents=True)
        (base / version / "saved_model.pb").touch()
    return base


class Command:
    """A running `tftrt serve`: its output as it comes."""

    def __init__(self, *arguments, env):
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        around = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tftrt_tools", "serve", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**around, "PYTHONPATH": path, **env},
            start_new_session=True,
        )
        self.lines, self._changed = [], threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.lines.append(None)
            self._changed.notify_all()

    @property
    def text(self):
        return "\n".join(line for line in self.lines if line is not None)

    def wait_for(self, pattern, seconds=90):
        """The match of the first line with `pattern`."""

        def found():
            return next((match for line in self.lines if line is not None if (match := re.search(pattern, line))), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or None in self.lines, seconds)
            match = found()
        assert match, f"no {pattern!r} in:\n{self.text}"
        return match

    def code(self, seconds=60):
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code


@pytest.fixture
def serve(on_path):
    """A function that starts `tftrt serve` with the fake server on PATH; what still runs in the end is killed."""
    started = []

    def start(*arguments, **env):
        started.append(Command(*arguments, env={**on_path.env, **env}))
        return started[-1]

    on_path("tensorflow_model_server", FAKE_SERVER)
    yield start
    for command in started:
        if command.process.poll() is None:
            command.process.kill()
        command.code()


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def gone(pid, seconds=20):
    end = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(pid)


# The table of flags


def test_only_what_differs_from_the_default_is_handed_on():
    values = {
        **server_flags.DEFAULTS,
        "port": 9000,
        "enable_batching": True,
        "enable_model_warmup": False,
        "per_process_gpu_memory_fraction": 0.5,
    }
    assert server_flags.to_arguments(values) == [
        "--port=9000",
        "--enable_batching=true",
        "--per_process_gpu_memory_fraction=0.5",
        "--enable_model_warmup=false",
    ]
    assert server_flags.to_arguments(server_flags.DEFAULTS) == []


_VALUES = {
    server_flags.INT: st.integers(-(2**31), 2**31 - 1),
    server_flags.INT64: st.integers(-(2**63), 2**63 - 1),
    server_flags.BOOL: st.booleans(),
    server_flags.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    server_flags.STRING: st.text(st.characters(exclude_categories=["Cs"])),
}


@given(st.fixed_dictionaries({flag.name: _VALUES[flag.kind] for flag in server_flags.FLAGS}))
def test_what_is_handed_on_is_read_back_as_it_was(values):
    assert vars(server_flags.parse(server_flags.to_arguments(values))) == values


def test_parse_takes_the_last_of_several_and_every_form_of_a_bool():
    parsed = server_flags.parse(
        ["--port=1", "--port=2", "--enable_batching", "--enable_profiler=0", "--enable_model_warmup=False"]
    )
    assert (parsed.port, parsed.enable_batching, parsed.enable_profiler, parsed.enable_model_warmup) == (
        2,
        True,
        False,
        False,
    )
    assert (
        server_flags.parse(
            ["--host=::1"], [server_flags.Flag("host", server_flags.STRING, "127.0.0.1", "address")]
        ).host
        == "::1"
    )


@pytest.mark.parametrize("argument", ["--prot=9", "positional", "--port", "-port=9", "--noenable_profiler", "--"])
def test_parse_names_what_it_does_not_know_and_goes_on(argument, capsys):
    parsed = server_flags.parse(["--model_name=m", argument])
    assert vars(parsed) == {**server_flags.DEFAULTS, "model_name": "m"}
    said = capsys.readouterr().out
    assert said.startswith(f"unknown argument: {argument}\nusage: ")
    assert all(f"--{flag.name}=" in said for flag in server_flags.FLAGS)


@pytest.mark.parametrize(
    "argument",
    [
        "--port=x",
        "--port=",
        "--port=2147483648",
        "--port=1.5",
        "--enable_batching=yes",
        "--per_process_gpu_memory_fraction=half",
        "--help",
    ],
)
def test_parse_ends_with_the_usage_for_a_value_it_cannot_read(argument, capsys):
    with pytest.raises(SystemExit) as ended:
        server_flags.parse([argument])
    assert ended.value.code == 255
    assert capsys.readouterr().out.startswith("usage: ")


def test_serve_has_every_flag_of_the_server_with_its_default():
    values = absl_flags.FlagValues()
    serve_command.define(values)
    assert {flag.name: values[flag.name].default for flag in server_flags.FLAGS} == dict(server_flags.DEFAULTS)


# Before the start


def refused(tmp_path, **changed):
    with pytest.raises(errors.TftrtError) as raised:
        start_preflight.check_files(serve_plan.read({**server_flags.DEFAULTS, **changed}))
    return raised.value


def model_at(path):
    path.mkdir(parents=True)
    (path / "saved_model.pb").touch()
    return path


def test_base_path_of_another_kind_is_named_with_its_mend(tmp_path, base_path):
    error = refused(tmp_path, model_base_path=str(base_path / "7"))
    assert "is a version directory" in error.cause and error.mend.endswith(str(base_path))
    error = refused(tmp_path, model_base_path=str(model_at(tmp_path / "resnet_fp16")))
    assert "is a SavedModel" in error.cause and "tftrt publish" in error.mend
    error = refused(tmp_path, model_base_path=str(base_path.parent))
    assert "has no version directory" in error.cause and str(base_path) in error.mend
    model_at(tmp_path / "unnumbered" / "v1")
    assert "tftrt publish" in refused(tmp_path, model_base_path=str(tmp_path / "unnumbered")).mend
    assert "no directory" in refused(tmp_path, model_base_path=str(tmp_path / "nothing")).cause
    (base_path / "8").mkdir()
    assert "has no saved_model.pb" in refused(tmp_path, model_base_path=str(base_path)).cause


def test_a_configuration_file_is_refused_by_line(tmp_path, base_path):
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{\n  config {{ name: "a" base_path: "{base_path}" model_platfrom: "tensorflow" }}\n}}\n'
    )
    error = refused(tmp_path, model_config_file=str(config))
    assert "models.config:2" in error.cause and "model_platform" in error.mend
    batching = tmp_path / "batching.txt"
    batching.write_text("max_batch_size: 8\n")
    error = refused(
        tmp_path, model_base_path=str(base_path), enable_batching=True, batching_parameters_file=str(batching)
    )
    assert "batching.txt:1" in error.cause and "value" in error.mend
    ssl = tmp_path / "ssl.config"
    ssl.write_text('server_kye: "SECRET"\n')
    error = refused(tmp_path, model_base_path=str(base_path), ssl_config_file=str(ssl))
    assert "ssl.config" in error.cause and "SECRET" not in error.cause + error.mend


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ('config { name: "a" base_path: "BASE" } config { name: "a" base_path: "BASE" }', "lists model a twice"),
        ('config { name: "a" base_path: "models/a" }', "is relative"),
        (
            'config { name: "a" base_path: "BASE" model_version_policy { specific { versions: 9 } } }',
            "has no version 9",
        ),
    ],
)
def test_models_that_a_configuration_lists_are_checked(tmp_path, base_path, lines, cause):
    config = tmp_path / "models.config"
    config.write_text(f"model_config_list {{ {lines.replace('BASE', str(base_path))} }}")
    assert cause in refused(tmp_path, model_config_file=str(config)).cause


def test_labels_of_a_start_need_the_flag_that_allows_them(tmp_path, base_path):
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "a" base_path: "{base_path}" version_labels {{ key: "stable" value: 7 }} }} }}'
    )
    error = refused(tmp_path, model_config_file=str(config))
    assert (
        "a has the label 'stable'" in error.cause and error.mend == "add --allow_version_labels_for_unavailable_models"
    )
    start_preflight.check_files(
        serve_plan.read(
            {
                **server_flags.DEFAULTS,
                "model_config_file": str(config),
                "allow_version_labels_for_unavailable_models": True,
            }
        )
    )


def test_flags_that_need_another_flag(tmp_path, base_path):
    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    base = str(base_path)
    assert (
        "needs --enable_batching"
        in refused(tmp_path, model_base_path=base, batching_parameters_file=str(monitoring)).cause
    )
    assert (
        "needs --rest_api_port" in refused(tmp_path, model_base_path=base, monitoring_config_file=str(monitoring)).cause
    )
    assert "same as --port" in refused(tmp_path, model_base_path=base, rest_api_port=8500).cause
    assert "no file" in refused(tmp_path, model_base_path=base, platform_config_file=str(tmp_path / "none")).cause


def test_sound_models_pass_also_by_uri_and_by_policy(tmp_path, base_path):
    (base_path / "8").mkdir()
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "a" base_path: "{base_path}" model_version_policy {{ specific {{ versions: 6 }} }} }} '
        'config { name: "b" base_path: "gs://bucket/b" } }'
    )
    wanted = serve_plan.read({**server_flags.DEFAULTS, "model_config_file": str(config)})
    start_preflight.check_files(wanted)
    assert wanted.names == ("a", "b")


def test_a_taken_port_names_its_holder_and_the_flag():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(errors.TftrtError) as raised:
            ports.check("127.0.0.1", port, "--rest_api_port")
    assert f"(pid {os.getpid()})" in raised.value.cause
    assert "--rest_api_port=" in raised.value.mend
    ports.check("127.0.0.1", port, "--rest_api_port")


def test_wrong_usage_is_one_line_with_the_mend(tftrt, base_path, tmp_path):
    for arguments, said in (
        (["--model_base_pth=x"], "Did you mean: model_base_path"),
        ([], "nothing to serve"),
        (["models"], "--model_base_path=models"),
        (["--launch=local", f"--model_base_path={base_path / '7'}"], f"name the one above it: {base_path}"),
    ):
        done = tftrt("serve", *arguments)
        assert done.returncode == errors.EXIT_USAGE, done.stderr
        assert said in done.stderr and "Traceback" not in done.stderr


# A server that runs, and its end


def test_flags_reach_the_binary_and_ctrl_c_ends_it_with_exit_code_0(serve, base_path, tmp_path):
    port, ready_file = free_port(), tmp_path / "ready.json"
    command = serve(
        f"--port={port}",
        "--model_name=digits",
        f"--model_base_path={base_path}",
        "--enable_batching",
        "--noenable_profiler",
        f"--json={ready_file}",
        f"--log_file={tmp_path / 'server.log'}",
    )
    command.wait_for(rf"^ready: gRPC 127\.0\.0\.1:{port}, models digits \(version 7\)$")
    command.wait_for(r"^backend: binary \(.*tensorflow_model_server")
    started = command.wait_for(r"^pid (\d+) (.*)")
    assert json.loads(started[2]) == [
        f"--port={port}",
        "--enable_batching=true",
        "--model_name=digits",
        f"--model_base_path={base_path}",
        "--enable_profiler=false",
    ]
    told = json.loads(ready_file.read_text())
    assert told["pid"] == int(started[1]) and told["grpc"] == f"127.0.0.1:{port}" and told["models"] == {"digits": [7]}
    command.process.send_signal(signal.SIGINT)
    assert command.code() == errors.EXIT_DONE
    assert not alive(started[1])
    assert f"Running gRPC ModelServer at 0.0.0.0:{port}" in (tmp_path / "server.log").read_text()


def test_it_is_ready_only_when_a_version_is_available(serve, base_path, tmp_path):
    gate = tmp_path / "gate"
    command = serve(
        f"--port={free_port()}", "--model_name=digits", f"--model_base_path={base_path}", FAKE_GATE=str(gate)
    )
    command.wait_for("^Running gRPC")
    time.sleep(1)
    assert "ready:" not in command.text
    gate.touch()
    command.wait_for("^ready: ")
    command.process.terminate()
    assert command.code() == errors.EXIT_DONE


def test_a_server_that_ignores_sigterm_is_killed_with_its_children(serve, base_path):
    command = serve(
        f"--port={free_port()}",
        "--model_name=digits",
        f"--model_base_path={base_path}",
        "--grace_seconds=0.5",
        FAKE_FAULT="deaf",
    )
    command.wait_for("^ready: ")
    pids = command.wait_for(r"^pid (\d+)")[1], command.wait_for(r"^grandchild (\d+)")[1]
    command.process.terminate()
    assert command.code() == errors.EXIT_DONE
    assert all(gone(pid) for pid in pids)


def test_the_server_goes_when_the_command_is_killed(serve, base_path):
    command = serve(f"--port={free_port()}", "--model_name=digits", f"--model_base_path={base_path}")
    pid = command.wait_for(r"^pid (\d+)")[1]
    command.process.kill()
    assert gone(pid)


def test_a_crash_at_load_is_read_from_signal_and_engines(serve, base_path):
    (base_path / "7" / "assets").mkdir()
    (base_path / "7" / "assets" / "trt-serialized-engine.TRTEngineOp_000_000").touch()
    command = serve(
        f"--port={free_port()}", "--model_name=digits", f"--model_base_path={base_path}", FAKE_FAULT="segfault"
    )
    assert command.code() == errors.EXIT_FAILED
    assert (
        "ended by itself (SIGSEGV)" in command.text
        and "digits carries TensorRT engines" in command.text
        and "tftrt inspect" in command.text
    )
    assert "Traceback" not in command.text


def test_a_server_that_ends_by_itself_is_exit_code_1_with_the_end_of_its_log(serve, base_path):
    flags_of_it = f"--port={free_port()}", "--model_name=digits", f"--model_base_path={base_path}"
    refuses = serve(*flags_of_it, FAKE_FAULT="refuses")
    assert refuses.code() == errors.EXIT_FAILED
    assert "exit code 255: UNKNOWN: 1 servable(s) did not become available" in refuses.text
    later = serve(*flags_of_it, FAKE_FAULT="dies later")
    assert later.code() == errors.EXIT_FAILED
    assert "ready:" in later.text and "ended by itself with exit code 3" in later.text
    assert later.text.count("Running gRPC ModelServer") == 2


@pytest.mark.parametrize(
    ("code", "tail", "engines", "said"),
    [
        (-11, [], ("a",), "another TensorRT"),
        (139, [], ("a",), "another TensorRT"),
        (-6, [], ("a", "b"), "a, b carries"),
        (-9, [], (), "out of memory"),
        (-4, [], (), "instructions"),
        (125, ["docker: could not select device driver"], (), "container toolkit"),
        (125, [], (), "could not start"),
    ],
)
def test_exit_codes_are_read(code, tail, engines, said):
    error = ending.read(code, tail, engines)
    assert said in error.mend
    assert "engines" not in ending.read(-11, [], ()).mend


def test_a_load_that_fails_is_said_while_the_server_tries_again(serve, base_path):
    lines = server_log.load_failure("digits", 7, server_log.NO_KERNEL)
    command = serve(
        f"--port={free_port()}",
        "--model_name=digits",
        f"--model_base_path={base_path}",
        FAKE_FAULT="cannot load",
        FAKE_LOG=lines,
    )
    command.wait_for("^tftrt: warning: digits version 7 did not load: .*it sees no GPU$")
    command.wait_for(
        "^  serve the original model here, or use --launch=local.*; the server tries 5 more times, one each 60 s"
    )
    assert "ready:" not in command.text and command.process.poll() is None
    command.process.send_signal(signal.SIGINT)
    assert command.code() == errors.EXIT_DONE


def test_a_version_that_does_not_load_beside_one_that_serves_is_said_too(serve, base_path):
    lines = server_log.load_failure("digits", 8, server_log.DAMAGED)
    command = serve(f"--port={free_port()}", "--model_name=digits", f"--model_base_path={base_path}", FAKE_LOG=lines)
    command.wait_for("^ready: ")
    command.wait_for("^tftrt: warning: digits version 8 did not load: DATA_LOSS")
    command.process.terminate()
    assert command.code() == errors.EXIT_DONE


def test_version_is_the_servers_own(serve):
    command = serve("--version")
    assert command.code() == 0
    assert "TensorFlow ModelServer: fake" in command.text


# The development server, for real


@pytest.fixture(scope="module")
def doubled(tmp_path_factory):
    """models/doubled/3: y = 2 x for float32 [?, 2]."""
    base = tmp_path_factory.mktemp("models") / "doubled"
    code = (
        "import sys, tensorflow as tf\nmodule = tf.Module()\n"
        "module.call = tf.function(lambda x: {'y': 2 * x}, input_signature=[tf.TensorSpec([None, 2], tf.float32, 'x')])\n"
        "tf.saved_model.save(module, sys.argv[1], signatures=module.call)"
    )
    run_program(code, base / "3")
    return base


def get(url, body=None):
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    return opener.open(urllib.request.Request(url, body), timeout=30).read().decode()


def test_the_development_server_serves_on_ports_it_finds_and_counts(serve, doubled, tmp_path):
    (tmp_path / "monitoring.config").write_text("prometheus_config { enable: true }")
    ready = tmp_path / "ready.json"
    command = serve(
        "--launch=local",
        "--port=0",
        "--rest_api_port=-1",
        "--model_name=doubled",
        f"--model_base_path={doubled}",
        f"--json={ready}",
        f"--monitoring_config_file={tmp_path / 'monitoring.config'}",
    )
    command.wait_for(r"^ready: gRPC 127\.0\.0\.1:\d+, REST http://127\.0\.0\.1:\d+, models doubled \(version 3\)$")
    told = json.loads(ready.read_text())
    assert told["backend"] == "local" and told["models"] == {"doubled": [3]} and told["grpc"] != told["rest"]
    answer = get(f"http://{told['rest']}/v1/models/doubled:predict", b'{"instances": [[1, 2], [3, 4]]}')
    assert json.loads(answer) == {"predictions": [[2, 4], [6, 8]]}
    page = get(f"http://{told['rest']}{metric_names.PATH}")
    named = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    assert metric_names.REQUEST_COUNT.name in named and named <= {metric.name for metric in metric_names.METRICS}
    command.process.terminate()
    assert command.code() == errors.EXIT_DONE
    assert not alive(told["pid"])


def test_a_model_that_does_not_load_ends_the_development_server_with_the_reason(serve, base_path):
    (base_path / "7" / "saved_model.pb").write_bytes(b"no model")
    command = serve("--launch=local", "--port=0", f"--model_base_path={base_path}", "--max_num_load_retries=0")
    assert command.code() == errors.EXIT_FAILED
    assert re.search(
        r"^tftrt: error: the server ended by itself with exit code 255: .*default", command.text, re.MULTILINE
    )


# Which backend


OWN, STOCK = f"tftrt/serving:{here().tensorflow}", f"tensorflow/serving:{here().tensorflow}-gpu"


def test_auto_says_why_it_takes_docker_and_the_container_gets_what_it_needs(on_path, serve, base_path, tmp_path):
    (tmp_path / "bin" / "tensorflow_model_server").rename(tmp_path / "bin" / "fake_inside")
    on_path("docker", FAKE_DOCKER)
    log, port = tmp_path / "docker.log", free_port()
    env = dict(
        FAKE_DOCKER_LOG=str(log),
        FAKE_IMAGE=STOCK,
        FAKE_FAULT="docker",
        TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION="0",
    )
    command = serve(f"--port={port}", "--model_name=digits", f"--model_base_path={base_path}", **env)
    command.wait_for("^ready: ")
    assert f"backend: docker (docker with the image {STOCK}; no tensorflow_model_server on PATH)" in command.text
    command.process.terminate()
    assert command.code() == 0
    ran = next(line for line in log.read_text().splitlines() if line.startswith("run "))
    name = re.search(r"--name (\S+)", ran)[1]
    assert ran == (
        f"run --rm --init --name {name} --gpus all --publish 127.0.0.1:{port}:{port} "
        f"--mount type=bind,source={base_path},target={base_path},readonly --env TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION "
        "--env TF_CPP_MIN_LOG_LEVEL=0 --entrypoint tensorflow_model_server "
        f"{STOCK} --port={port} --model_name=digits --model_base_path={base_path}"
    )
    assert log.read_text().splitlines()[-1] == f"rm --force {name}"


def test_the_log_of_a_container_is_followed_too(on_path, serve, base_path, tmp_path):
    (tmp_path / "bin" / "tensorflow_model_server").rename(tmp_path / "bin" / "fake_inside")
    on_path("docker", FAKE_DOCKER)
    command = serve(
        "--launch=docker",
        f"--port={free_port()}",
        "--model_name=digits",
        f"--model_base_path={base_path}",
        FAKE_DOCKER_LOG=str(tmp_path / "docker.log"),
        FAKE_IMAGE=STOCK,
        FAKE_FAULT="cannot load",
        FAKE_LOG=server_log.load_failure("digits", 7, server_log.NO_TFTRT),
    )
    command.wait_for("^tftrt: warning: digits version 7 did not load: .*built without TF-TRT")
    command.process.terminate()
    assert command.code() == errors.EXIT_DONE


def test_docker_needs_a_client_an_engine_and_the_image(on_path, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", on_path.env["PATH"].split(":")[0])
    assert Docker().available() == (False, "no docker on PATH")
    on_path("docker", FAKE_DOCKER.replace("/bin/bash", shutil.which("bash", path="/usr/bin:/bin")))
    monkeypatch.setenv("FAKE_DOCKER_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("FAKE_IMAGE", "mine:1")
    assert Docker("mine:1").available() == (True, "docker with the image mine:1")
    usable, reason = Docker().available()
    assert not usable and f"no image {OWN} or {STOCK}" in reason
    monkeypatch.setenv("FAKE_NO_ENGINE", "1")
    assert Docker("mine:1").available() == (False, "docker's daemon does not answer")


@pytest.mark.skipif(not shutil.which("docker"), reason="no docker client here")
def test_what_the_real_docker_client_says_is_understood(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")
    assert Docker().available() == (False, "docker's daemon does not answer")


def test_the_stock_image_is_not_started_with_engines_of_another_tensorrt(on_path, base_path, tmp_path, monkeypatch):
    from tests.engine_files import HEAD, engine_file

    on_path("docker", FAKE_DOCKER)
    for name, value in {
        **on_path.env,
        "FAKE_DOCKER_LOG": tmp_path / "log",
        "FAKE_IMAGE": "tensorflow/serving:2.14.1-gpu",
    }.items():
        monkeypatch.setenv(name, str(value))
    (base_path / "7" / "assets").mkdir()
    engine_file(
        base_path / "7" / "assets" / "trt-serialized-engine.TRTEngineOp_000_000", (1, 8), engine=HEAD + b"e" * 100
    )
    wanted = serve_plan.read({**server_flags.DEFAULTS, "model_base_path": str(base_path)})
    with pytest.raises(
        errors.TftrtError, match=r"TensorRT 8\.5\.3\.1, and tensorflow/serving:2\.14\.1-gpu has 8\.4\.3"
    ):
        Docker("tensorflow/serving:2.14.1-gpu").check(wanted)
    monkeypatch.setenv("FAKE_IMAGE", "tftrt/serving:2.14.1")
    Docker("tftrt/serving:2.14.1").check(wanted)
    for image, words in (
        ("tensorflow/serving:2.18.0-gpu", "has no TF-TRT"),
        ("tftrt/serving:2.17.1", r"8\.5\.3\.1, and tftrt/serving:2\.17\.1 has 8\.6\.1"),
    ):
        monkeypatch.setenv("FAKE_IMAGE", image)
        with pytest.raises(errors.TftrtError, match=words):
            Docker(image).check(wanted)
    monkeypatch.setenv("FAKE_IMAGE", "mine:1")
    Docker("mine:1").check(wanted)


def test_every_base_path_of_the_configuration_and_where_links_lead_is_mounted(tmp_path, base_path):
    stored = model_at(tmp_path / "store" / "abc")
    linked = tmp_path / "models" / "linked"
    linked.mkdir()
    (linked / "1").symlink_to(stored)
    config = tmp_path / "models.config"
    config.write_text(
        f'model_config_list {{ config {{ name: "a" base_path: "{base_path}" }} config {{ name: "b" base_path: "{linked}" }} }}'
    )
    assert mounts(serve_plan.read({**server_flags.DEFAULTS, "model_config_file": str(config)})) == sorted(
        [config, base_path, linked, stored]
    )


def test_port_zero_is_refused_for_what_takes_it_as_no_port(serve, base_path):
    command = serve("--port=0", f"--model_base_path={base_path}")
    assert command.code() == errors.EXIT_USAGE
    assert "--launch=local" in command.text
