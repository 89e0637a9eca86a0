"""A gRPC server in a process of its own that does what a test programs: delays, stalls, errors, wrong answers; it tells what it did.

    with MockServer() as server:
        server.program(delays_ms=[1, 5, 20])
        … generator.run(Target(server.address), …)
        server.report()

It answers any method with the bytes of the request, unless programmed otherwise. `null=True` makes it answer a fixed PredictResponse as
fast as Python's grpc can, and GetModelMetadata, so that perf_analyzer can drive it; that mode cannot be programmed.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time

PROGRAM, REPORT = "/mock.Mock/Program", "/mock.Mock/Report"
METHOD = "/mock.Mock/Echo"
MODEL, INPUT = "null", "x"
_LENGTHS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class MockServer:
    """Args: null: see above. port: 0 for a free one. cores: set of cores to run on, or None. tls: (key, certificate) paths, or None.
    address: after the start."""

    def __init__(self, null=False, port=0, cores=None, tls=None):
        self._settings = {"null": null, "port": port, "cores": sorted(cores) if cores else None, "tls": tls}
        self.port = self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.mock_server", json.dumps(self._settings)],
            stdout=subprocess.PIPE,
            cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        )
        line = self.process.stdout.readline()
        assert line, f"the mock server did not start: exit code {self.process.wait()}"
        self.port = self._settings["port"] = int(line)
        return self

    def program(self, **program):
        """What to do with the requests from now on, counted from 0; what was reported is forgotten.

        delays_ms: used in turn. stall: [from, to], seconds from the first request: what arrives in between is answered at the end of it.
        errors: {"every": n, "code": number, "message": text}. wrong_every: every n-th answer has another first byte. silent: answer
        nothing. shuffled: the request is a message, and its outermost fields come back in any order, as TensorFlow Serving writes a map.
        """
        self._call(PROGRAM, json.dumps(program).encode())

    def report(self):
        """Returns: {"received_ns", "answered_ns" (monotonic), "requests" (first 16 bytes as text)}: lists in the order of arrival."""
        return json.loads(self._call(REPORT, b""))

    def kill(self):
        """SIGKILL, at once."""
        self._end(signal.SIGKILL)

    def _call(self, method, body):
        import grpc

        with grpc.insecure_channel(self.address, _LENGTHS) as channel:
            return channel.unary_unary(method)(body, timeout=30, wait_for_ready=True)

    def _end(self, number):
        self.process.send_signal(number)
        self.process.wait(10)
        self.process.stdout.close()

    def __enter__(self):
        return self.start()

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.kill()


class _Mock:
    """The programmed server's state."""

    def __init__(self):
        self._set({})

    def _set(self, program):
        self._program, self._first = program, None
        self.received, self.answered, self.requests = [], [], []

    async def program(self, request, context):
        self._set(json.loads(request))
        return b""

    async def report(self, request, context):
        return json.dumps(
            {"received_ns": self.received, "answered_ns": self.answered, "requests": self.requests}
        ).encode()

    async def answer(self, request, context):
        import grpc

        now, program, number = time.perf_counter_ns(), self._program, len(self.received)
        answered = self.answered
        self._first = self._first or now
        self.received.append(now)
        answered.append(0)
        self.requests.append(request[:16].decode("latin-1"))
        ready = now
        if delays := program.get("delays_ms"):
            ready += int(delays[number % len(delays)] * 1e6)
        if stall := program.get("stall"):
            start, end = (self._first + int(at * 1e9) for at in stall)
            ready = end if start <= now < end else ready
        if program.get("silent"):
            await asyncio.sleep(3600)
        if ready > now:
            await asyncio.sleep((ready - now) / 1e9)
        answered[number] = time.perf_counter_ns()
        failing = program.get("errors")
        if failing and (number + 1) % failing["every"] == 0:
            codes = {code.value[0]: code for code in grpc.StatusCode}
            await context.abort(codes[failing["code"]], failing["message"])
        if program.get("wrong_every") and (number + 1) % program["wrong_every"] == 0:
            if program.get("shuffled"):  # its first byte says which field comes first
                return _shuffled(request[:-1] + bytes([request[-1] ^ 1]))
            return bytes([request[0] ^ 1]) + request[1:]
        return _shuffled(request) if program.get("shuffled") else request


def _shuffled(message):
    """The same message with its outermost fields, all of them short and delimited, in another order."""
    parts, at = [], 0
    while at < len(message):
        end = at + 2 + message[at + 1]
        parts.append(message[at:end])
        at = end
    random.shuffle(parts)
    return b"".join(parts)


async def _serve_programmed(settings):
    import grpc

    mock = _Mock()
    functions = {PROGRAM: mock.program, REPORT: mock.report}

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(functions.get(details.method, mock.answer))

    server = grpc.aio.server(handlers=(Handler(),), options=_LENGTHS)
    address = f"127.0.0.1:{settings['port']}"
    if settings["tls"]:
        key, certificate = (open(path, "rb").read() for path in settings["tls"])  # noqa: SIM115 (two small files)
        port = server.add_secure_port(address, grpc.ssl_server_credentials([(key, certificate)]))
    else:
        port = server.add_insecure_port(address)
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


def _serve_null(settings):
    """A thread for each request under way is faster than asyncio here: measured, 8,000 against 5,000 small requests a second on a core."""
    from concurrent import futures

    import grpc

    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # the modules of tensorflow-serving-api load TensorFlow
    answer, metadata = _null_answer(), _null_metadata()
    predict = grpc.unary_unary_rpc_method_handler(lambda request, context: answer)
    describe = grpc.unary_unary_rpc_method_handler(lambda request, context: metadata)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return describe if details.method.endswith("/GetModelMetadata") else predict

    server = grpc.server(futures.ThreadPoolExecutor(16), (Handler(),), options=_LENGTHS)
    port = server.add_insecure_port(f"127.0.0.1:{settings['port']}")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def _null_answer():
    """PredictResponse: {"y": float32 [1] 0}."""
    from tensorflow_serving.apis import predict_pb2

    answer = predict_pb2.PredictResponse()
    answer.model_spec.name = MODEL
    answer.outputs["y"].dtype = 1
    answer.outputs["y"].tensor_shape.dim.add(size=1)
    answer.outputs["y"].float_val.append(0.0)
    return answer.SerializeToString()


def _null_metadata():
    """A model with one float input of any length."""
    from tensorflow_serving.apis import get_model_metadata_pb2

    signatures = get_model_metadata_pb2.SignatureDefMap()
    signature = signatures.signature_def["serving_default"]
    signature.method_name = "tensorflow/serving/predict"
    for tensors, name in ((signature.inputs, INPUT), (signature.outputs, "y")):
        tensors[name].name, tensors[name].dtype = f"{name}:0", 1
        tensors[name].tensor_shape.dim.add(size=-1)
    answer = get_model_metadata_pb2.GetModelMetadataResponse()
    answer.model_spec.name = MODEL
    answer.model_spec.version.value = 1
    answer.metadata["signature_def"].Pack(signatures)
    return answer.SerializeToString()


def main(settings):
    if settings["cores"]:
        os.sched_setaffinity(0, settings["cores"])
    if settings["null"]:
        _serve_null(settings)
    else:
        import grpc.aio  # noqa: F401

        asyncio.run(_serve_programmed(settings))


if __name__ == "__main__":
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # ends with the test
    main(json.loads(sys.argv[1]))
