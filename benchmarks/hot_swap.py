"""Hot swap of a served model: failures and latency of requests before, during and after a new version takes over.

An open loop: requests start at times drawn beforehand (Poisson, seeded), whether or not earlier ones are answered, and a latency counts
from its scheduled time. A swap is the rename of a new version's folder into place; it lasts from there until the server says that the
old version has ended. Requests that were scheduled within a swap are "during", those before the first one "before", the rest "after".
The server, on this machine, shares the CPUs with the sender. Exit code 1 if a request failed or was answered wrongly.
"""

import argparse
import pathlib
import random
import shlex
import shutil
import sys
import tempfile
import threading
import time

from benchmarks import _models, _report, _stats

NEEDS_GPU = False
MODEL, INPUT, OUTPUT, SIDE = "digits", "image", "probabilities", 8
PHASES = ("before", "during", "after")
_PREDICT = "/tensorflow.serving.PredictionService/Predict"
_END = 50
_TIMEOUT = 10.0  # seconds for one request
_SWAP_TIMEOUT = 120.0


def main(argv=None):
    options = _options(argv)
    results = _report.Results(options.json, "hot_swap")
    results.note("options", {key: str(value) for key, value in vars(options).items()})
    model = _model(options.workdir)
    seconds = options.before + options.swaps * options.gap
    offsets = schedule(options.rate, seconds, options.seed)
    with tempfile.TemporaryDirectory(prefix="hot-swap-") as folder:
        base = pathlib.Path(folder) / MODEL
        for version in range(1, options.swaps + 2):
            _stage(model, base, version)
        _publish(base, 1)
        server = _Server(shlex.split(options.server), base, pathlib.Path(folder) / "server.log")
        try:
            client = _Client(server.address)
            client.warm_up(50)
            swaps = []
            swapper = threading.Thread(target=_swap, args=(options, base, client, swaps), daemon=True)
            start = time.monotonic()
            swapper.start()
            answers = client.send(offsets, start)
            swapper.join(_SWAP_TIMEOUT)
        finally:
            server.stop()
    if len(swaps) < options.swaps:
        print(f"FAILED: only {len(swaps)} of {options.swaps} swaps ended in time")
        return 1
    windows = [(begin - start, end - start) for begin, end in swaps]
    for row in rows(answers, windows):
        results.add(**row)
    lengths = sorted(end - begin for begin, end in windows)
    late = [answer["late_s"] for answer in answers]
    results.note("swaps_s", [round(length, 3) for length in lengths])
    results.note("late_sends_p99_ms", 1e3 * _stats.quantile(late, 0.99))
    print("\n" + summary(results.rows))
    print(
        f"\n{len(swaps)} swaps of {lengths[0]:.2f} to {lengths[-1]:.2f} s; {len(offsets)} requests in {seconds:.0f} s; "
        f"the sender was late by {1e3 * _stats.quantile(late, 0.99):.2f} ms (p99)"
    )
    return 1 if any(row["failed"] or row["wrong"] for row in results.rows) else 0


def _options(argv):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hot_swap", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=100, help="requests a second")
    parser.add_argument("--before", type=float, default=10, help="seconds before the first swap")
    parser.add_argument("--swaps", type=int, default=10)
    parser.add_argument("--gap", type=float, default=4, help="seconds from the start of one swap to that of the next")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--server",
        default=f"{shlex.quote(sys.executable)} -m tftrt_tools.servers.serving.local",
        help="the command, such as tensorflow_model_server; the flags are added",
    )
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/hot_swap.json")
    options = parser.parse_args(argv)
    options.workdir = options.workdir.absolute()
    options.json = (options.json or options.workdir / "hot_swap.json").absolute()
    return options


def schedule(rate, seconds, seed):
    """Start times of a Poisson process. Returns: list of seconds from the start, ascending, all below `seconds`."""
    rng, offsets, at = random.Random(seed), [], 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        offsets.append(at)
    return offsets


def phase(offset, windows):
    """ "before", "during" or "after". Args: offset: seconds from the start; windows: [(start, end)] of the swaps, ascending."""
    if offset < windows[0][0]:
        return "before"
    return "during" if any(begin <= offset <= end for begin, end in windows) else "after"


def rows(answers, windows):
    """A row for each phase. Args: answers: dicts with offset_s, latency_s, version, error, wrong. Latencies are of answered requests."""
    made = []
    for name in PHASES:
        mine = [answer for answer in answers if phase(answer["offset_s"], windows) == name]
        good = [answer["latency_s"] for answer in mine if not answer["error"]]
        found = _stats.summary(good) if good else {"p50_ms": None, "p99_ms": None}
        errors = sorted({answer["error"] for answer in mine if answer["error"]})
        versions = {answer["version"] for answer in mine if answer["version"]}
        made.append(
            {
                "phase": name,
                "requests": len(mine),
                "failed": len(mine) - len(good),
                "wrong": sum(answer["wrong"] for answer in mine),
                "p50_ms": found["p50_ms"],
                "p99_ms": found["p99_ms"],
                "max_ms": 1e3 * max(good) if good else None,
                "versions": len(versions),
                "errors": ", ".join(errors),
            }
        )
    return made


def summary(lines):
    """A table: a line for each phase."""
    return _report.table(
        [
            ("phase", "phase"),
            ("requests", "requests"),
            ("failed", "failed"),
            ("wrong", "wrong"),
            ("p50_ms", "p50, ms"),
            ("p99_ms", "p99, ms"),
            ("max_ms", "max, ms"),
            ("versions", "versions"),
            ("errors", "errors"),
        ],
        lines,
    )


def _model(workdir):
    target = workdir / MODEL
    with _models.made(target) as partial:
        if partial:
            _models.command("-c", f"import saved_models; saved_models.build('digits_cnn', {str(partial)!r})", gpu=False)
    return target


def _stage(model, base, version):
    """A copy under a name that no server takes for a version; made beforehand, so that copying is no part of what is measured."""
    shutil.copytree(model, base / f".stage-{version}")


def _publish(base, version):
    """One rename makes it visible, whole."""
    (base / f".stage-{version}").rename(base / str(version))


def _swap(options, base, client, swaps):
    started = time.monotonic()
    for number in range(options.swaps):
        time.sleep(max(0.0, started + options.before + number * options.gap - time.monotonic()))
        begin = time.monotonic()
        _publish(base, number + 2)
        while client.states().get(number + 1) != _END:
            if time.monotonic() - begin > _SWAP_TIMEOUT:
                return
            time.sleep(0.02)
        swaps.append((begin, time.monotonic()))


class _Server:
    """The server as a child process, ready when it is made."""

    def __init__(self, command, base, log):
        import socket

        from tftrt_tools.servers.serving.configuration import generation
        from tftrt_tools.servers.serving.launch import backend, readiness, watched_process

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        watch = readiness.Watch(readiness.Probe(host="127.0.0.1", port=port, rest_port=0, models=(MODEL,)))
        argv = (
            *command,
            f"--port={port}",
            f"--model_name={MODEL}",
            f"--model_base_path={base}",
            "--file_system_poll_wait_seconds=1",
            f"--grpc_max_threads={generation.GRPC_THREADS}",
            "--max_num_load_retries=0",
        )
        self._child = watched_process.Child(
            backend.Command(argv=argv, env=_models.environment(gpu=False), ready_probe=None), lambda line: None, log
        )
        try:
            if watched_process.until(watch.ask, self._child) is None:
                raise RuntimeError("the server ended before it was ready:\n" + "\n".join(self._child.tail))
        except BaseException:
            self.stop()
            raise
        finally:
            watch.close()

    def stop(self):
        self._child.end(10)


class _Client:
    """Sends one request again and again; each answer has to be that of the first."""

    def __init__(self, address):
        import grpc
        import numpy as np
        import tensorflow as tf
        from tensorflow_serving.apis import get_model_status_pb2, model_service_pb2_grpc, predict_pb2

        self._channel = grpc.insecure_channel(address)
        self._call = self._channel.unary_unary(_PREDICT)  # bytes to bytes: the sender's own work must stay small
        self._decode = predict_pb2.PredictResponse.FromString
        request = predict_pb2.PredictRequest()
        request.model_spec.name = MODEL
        image = np.random.default_rng(0).random((1, SIDE, SIDE, 1), np.float32)
        request.inputs[INPUT].CopyFrom(tf.make_tensor_proto(image))
        self._request = request.SerializeToString()
        self._expected = list(self._decode(self._call(self._request, timeout=_TIMEOUT)).outputs[OUTPUT].float_val)
        status = get_model_status_pb2.GetModelStatusRequest()
        status.model_spec.name = MODEL
        stub = model_service_pb2_grpc.ModelServiceStub(self._channel)
        self.states = lambda: {
            each.version: each.state for each in stub.GetModelStatus(status, timeout=_TIMEOUT).model_version_status
        }

    def warm_up(self, count):
        for _ in range(count):
            self._call(self._request, timeout=_TIMEOUT)

    def send(self, offsets, start):
        """Send at start + each offset. Returns: a dict for each request, see `rows`."""
        sent = []
        for offset in offsets:
            if (wait := start + offset - time.monotonic()) > 0:
                time.sleep(wait)
            record = {"offset_s": offset, "late_s": time.monotonic() - start - offset}
            future = self._call.future(self._request, timeout=_TIMEOUT)
            future.add_done_callback(lambda _, record=record: record.update(end=time.monotonic()))
            sent.append((record, future))
        return [self._judged(record, future, start) for record, future in sent]

    def _judged(self, record, future, start):
        error = future.exception()  # waits for it
        while "end" not in record:
            time.sleep(0.001)  # the callback runs after the waiter wakes
        answer = None if error else self._decode(future.result())
        wrong = answer is not None and list(answer.outputs[OUTPUT].float_val) != self._expected
        return {
            "offset_s": record["offset_s"],
            "late_s": record["late_s"],
            "latency_s": record["end"] - start - record["offset_s"],
            "version": answer.model_spec.version.value if answer else None,
            "error": error.code().name if error else "",
            "wrong": wrong,
        }


if __name__ == "__main__":
    sys.exit(main())
