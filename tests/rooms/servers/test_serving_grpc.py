"""The development server's gRPC: gRPC's own client, and frames by hand for what that client never does."""

import concurrent.futures
import contextlib
import functools
import pathlib
import socket
import struct
import threading
import time
import zlib

import grpc
import numpy as np
import pytest

from tftrt_tools.base.wire.http2_job import frames, hpack
from tftrt_tools.servers.serving.local import failure, grpc_methods, grpc_server

_WAIT = 20
_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_ECHO, _FAIL, _WAITS, _LEFT = "/test.Test/Echo", "/test.Test/Fail", "/test.Test/Wait", "/test.Test/Left"
_LARGE, _SIZE = "/test.Test/Large", "/test.Test/Size"
_MIB = 1 << 20
_OTHER_TEXT = "50 % of \u00e4 line\nand more"


class _Served:
    """The server, with methods that tests control. gate: set, and the method Wait answers. arrived: Wait's calls."""

    def __init__(self, threads=64, **more):
        self.gate, self.arrived = threading.Event(), threading.Semaphore(0)
        self.server = grpc_server.GrpcServer(
            {
                _ECHO: lambda raw, _: [raw],
                _FAIL: self._fail,
                _WAITS: self._wait,
                _LARGE: lambda raw, _: [bytes(int(raw))],
                _SIZE: lambda raw, _: [str(len(raw)).encode()],
                _LEFT: lambda _, left: [str(left).encode()],
            },
            threads,
            **more,
        )
        self.port = self.server.listen("127.0.0.1:0")
        self.server.start()

    def _fail(self, raw, _):
        raise failure.Failure(grpc.StatusCode.DATA_LOSS, raw.decode())

    def _wait(self, raw, _):
        self.arrived.release()
        assert self.gate.wait(_WAIT)
        return [raw]


@pytest.fixture
def served():
    made = _Served()
    yield made
    made.gate.set()
    made.server.stop(_WAIT)


@pytest.fixture
def channel(served):
    with grpc.insecure_channel(f"127.0.0.1:{served.port}", _LIMITS) as made:
        yield made


@pytest.mark.parametrize("size", [0, 1, 1000, 16_379, 16_380, 65_531, 65_536, 100_000, 5_000_000, 70_000_000])
def test_a_message_of_any_size_comes_back(channel, size):
    message = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    for _ in range(2 if size > 10_000_000 else 5):  # windows and frames grow from call to call
        assert channel.unary_unary(_ECHO)(message, timeout=_WAIT) == message


def test_many_calls_at_once_on_one_connection_keep_apart(channel):
    messages = [bytes([number % 256]) * (number * 997 % 300_000) for number in range(200)]
    futures = [channel.unary_unary(_ECHO).future(message, timeout=_WAIT) for message in messages]
    assert [future.result() for future in futures] == messages


@pytest.mark.parametrize("how", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_packed_message_is_unpacked(served, how):
    with grpc.insecure_channel(f"127.0.0.1:{served.port}", compression=how) as channel:
        assert channel.unary_unary(_ECHO)(b"ab" * 50_000, timeout=_WAIT) == b"ab" * 50_000


def test_a_failure_has_its_code_and_text(channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(_FAIL)(_OTHER_TEXT.encode(), timeout=_WAIT)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.DATA_LOSS, _OTHER_TEXT)


def test_a_method_that_is_not_there_is_unimplemented(channel):
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/test.Test/Nothing")(b"", timeout=_WAIT)
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_the_deadline_reaches_the_method(channel):
    assert 30_000 < int(channel.unary_unary(_LEFT)(b"", timeout=40)) <= 50_000  # gRPC rounds it up
    assert channel.unary_unary(_LEFT)(b"") == b"0"


def test_a_call_that_waits_holds_up_no_other(served, channel):
    waiting = [channel.unary_unary(_WAITS).future(b"late", timeout=_WAIT) for _ in range(20)]
    for _ in waiting:
        assert served.arrived.acquire(timeout=_WAIT)
    assert channel.unary_unary(_ECHO)(b"now", timeout=_WAIT) == b"now"
    served.gate.set()
    assert {future.result() for future in waiting} == {b"late"}


def test_a_cancelled_call_leaves_the_connection_usable(served, channel):
    future = channel.unary_unary(_WAITS).future(b"", timeout=_WAIT)
    assert served.arrived.acquire(timeout=_WAIT)
    future.cancel()
    served.gate.set()
    assert channel.unary_unary(_ECHO)(b"x", timeout=_WAIT) == b"x"


def test_it_listens_on_a_path_too(served, tmp_path):
    other = grpc_server.GrpcServer({_ECHO: lambda raw, _: [raw]}, 4)
    path = f"unix:{tmp_path / 'socket'}"
    other.listen(path)
    other.start()
    with grpc.insecure_channel(path, _LIMITS) as channel:
        assert channel.unary_unary(_ECHO)(b"y" * 3_000_000, timeout=_WAIT) == b"y" * 3_000_000
    other.stop(_WAIT)


def test_a_stop_waits_for_what_runs_and_takes_nothing_new(served, channel):
    future = channel.unary_unary(_WAITS).future(b"kept", timeout=_WAIT)
    assert served.arrived.acquire(timeout=_WAIT)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(served.server.stop, _WAIT)
        with pytest.raises(grpc.RpcError) as caught:
            while True:
                channel.unary_unary(_ECHO)(b"", timeout=_WAIT)
        assert caught.value.code() in (
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.CANCELLED,
        )  # the latter where it was on its way
        served.gate.set()
        assert future.result() == b"kept"
        stopping.result(_WAIT)


def test_the_limit_refuses_one_call_more():
    gate, entered = threading.Event(), threading.Semaphore(0)

    def method(raw, _):
        entered.release()
        assert gate.wait(_WAIT)
        return [raw]

    limited = grpc_methods.Limit(2).around(method)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = [pool.submit(limited, b"x", 0) for _ in range(2)]
        assert entered.acquire(timeout=_WAIT) and entered.acquire(timeout=_WAIT)
        with pytest.raises(failure.Failure, match="Server Threadpool Exhausted") as caught:
            limited(b"x", 0)
        assert caught.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED
        gate.set()
        assert [one.result() for one in running] == [[b"x"]] * 2
    assert limited(b"x", 0) == [b"x"]


@pytest.mark.parametrize(
    "message",
    [b"\x1f\x8b\x08 and no gzip", b"\x78\x9c and no zlib", zlib.compress(b"cut off" * 99)[:-3], b"\x1f", b"\x78"],
)
def test_a_message_that_only_begins_like_a_packed_one_is_left_as_it_is(channel, message):
    assert channel.unary_unary(_ECHO)(message, timeout=_WAIT) == message


def test_a_channel_argument_of_the_users_overrides_a_limit():
    server = grpc_server.GrpcServer(
        {_SIZE: lambda raw, _: [str(len(raw)).encode()]}, 4, [("grpc.max_receive_message_length", 1000)]
    )
    port = server.listen("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}", compression=grpc.Compression.Gzip) as channel:
        assert channel.unary_unary(_SIZE)(bytes(1000), timeout=_WAIT) == b"1000"
        for message in (bytes(1001), np.random.default_rng(0).bytes(1001)):
            with pytest.raises(grpc.RpcError, match="larger than max") as caught:
                channel.unary_unary(_SIZE)(message, timeout=_WAIT)
            assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    server.stop(_WAIT)


# Attacks. After each one a new client is answered, and memory is bounded.


def _headers(path=_ECHO, **more):
    named = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "x",
        "te": "trailers",
        "content-type": "application/grpc",
        **more,
    }
    return hpack.block([(name.encode(), value.encode()) for name, value in named.items()])


def _message(content, packed=False):
    return bytes([packed]) + struct.pack(">I", len(content)) + content


def _call(stream, content, path=_ECHO, packed=False, **more):
    data = _message(content, packed)
    return frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers(path, **more)) + b"".join(
        frames.frame(frames.DATA, frames.END_STREAM if at + 16_384 >= len(data) else 0, stream, data[at : at + 16_384])
        for at in range(0, len(data), 16_384)
    )


@contextlib.contextmanager
def _clients(port, count, sent, settings=None):
    """So many connections, each of which sends `sent` as far as the server takes it, and reads nothing."""
    made = []
    for _ in range(count):
        one = socket.create_connection(("127.0.0.1", port), _WAIT)
        made.append(one)
        one.sendall(frames.PREFACE + frames.settings(settings or {}))
        one.setblocking(False)
    left = dict.fromkeys(made, memoryview(sent))
    until = time.monotonic() + 3
    while any(len(rest) for rest in left.values()) and time.monotonic() < until:
        for one, rest in left.items():
            try:
                left[one] = rest[one.send(rest) :] if len(rest) else rest
            except BlockingIOError:
                pass
            except OSError:
                left[one] = memoryview(b"")  # the server has ended it
        time.sleep(0.001)
    yield made
    for one in made:
        one.close()


def _memory():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def _answers(port, message=b"a"):
    with grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1), *_LIMITS]) as channel:
        return channel.unary_unary(_ECHO)(message, timeout=_WAIT) == message


@functools.cache
def _bomb(size):
    stream = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join(stream.compress(bytes(_MIB)) for _ in range(size // _MIB)) + stream.flush()


def _status(channel, path, message):
    try:
        channel.unary_unary(path)(message, timeout=_WAIT)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def test_packed_messages_are_unpacked_one_at_a_time(served):
    """Sixty clients whose 64 KB each unpack to 64 MiB: 3.75 GiB if all were held at once."""
    before = _memory()
    with _clients(served.port, 60, _call(1, _bomb(64 * _MIB), _SIZE, packed=True, **{"grpc-encoding": "gzip"})):
        assert _answers(served.port)
        peak = 0
        for _ in range(100):
            peak = max(peak, _memory() - before)
            time.sleep(0.01)
    assert peak < 1536 * _MIB, peak >> 20


def test_a_message_that_unpacks_to_more_than_the_limit_is_refused(monkeypatch):
    monkeypatch.setitem(grpc_server._LIMITS, "grpc.max_receive_message_length", 8 * _MIB)
    small = _Served()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{small.port}", compression=grpc.Compression.Gzip) as channel:
            assert channel.unary_unary(_SIZE)(bytes(8 * _MIB), timeout=_WAIT) == b"%d" % (8 * _MIB)
            assert _status(channel, _SIZE, bytes(9 * _MIB)) == "RESOURCE_EXHAUSTED"
    finally:
        small.server.stop(_WAIT)


def test_streams_that_send_no_message_hold_no_thread_and_end(monkeypatch):
    served = _Served(threads=4, patience_s=2)
    begun = b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers())
        + frames.frame(frames.DATA, 0, stream, b"\x00\x0f\xff\xff\xff")
        for stream in range(1, 101, 2)
    )
    try:
        with _clients(served.port, 10, begun) as clients:
            assert _answers(served.port)
            for one in clients:
                one.settimeout(_WAIT)
                said = b""
                while said.count(b"no message came") < 50:
                    said += one.recv(1 << 16)
    finally:
        served.server.stop(_WAIT)


def test_answers_that_nobody_takes_are_dropped_and_meanwhile_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(grpc_server, "_MOST_HELD", 32 * _MIB)
    served = _Served(threads=4, patience_s=3)
    before = _memory()
    asked = b"".join(_call(stream, b"4000000", _LARGE) for stream in range(1, 41, 2))
    try:
        with (
            _clients(served.port, 20, asked, {frames.INITIAL_WINDOW_SIZE: 0}),
            grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel,
        ):
            until = time.monotonic() + _WAIT
            while (status := _status(channel, _ECHO, b"a")) == "OK" and time.monotonic() < until:
                time.sleep(0.02)
            assert status == "RESOURCE_EXHAUSTED"
            assert _memory() - before < 512 * _MIB, "of the 1600 MB that were asked for"
            while _status(channel, _ECHO, b"a") != "OK" and time.monotonic() < until:
                time.sleep(0.1)
            assert _answers(served.port)
    finally:
        served.server.stop(_WAIT)


_BIG = b"\x40\x01x\x7f\x81\x1e" + b"a" * 3968  # a header of 3968 bytes, into the table
_BLOCK = hpack.block([(b"x", b"y" * 16_000)])
ATTACKS = {
    "a header block without an end": frames.frame(frames.HEADERS, 0, 1, _headers())
    + frames.frame(frames.CONTINUATION, 0, 1, _BLOCK) * 500,
    "headers that name one large one": b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers() + _BIG * (stream == 1) + b"\xbe" * 4000)
        for stream in range(1, 21, 2)
    ),
    "headers that are no text": b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers() + b"\x00\x01x\x7f\x01" + b"\xbe" * 128)
        for stream in range(1, 401, 2)
    ),
    "PING": frames.frame(frames.PING, 0, 0, bytes(8)) * 2000,
    "SETTINGS": frames.settings({frames.INITIAL_WINDOW_SIZE: 1000}) * 5000,
    "WINDOW_UPDATE": frames.number(frames.WINDOW_UPDATE, 0, 1) * 10_000,
    "PRIORITY": frames.frame(frames.PRIORITY, 0, 1, bytes(5)) * 10_000,
    "unknown frames": frames.frame(77, 0, 1) * 10_000,
    "DATA without data": frames.frame(frames.HEADERS, frames.END_HEADERS, 1, _headers())
    + frames.frame(frames.DATA, 0, 1) * 10_000,
    "streams that are reset at once": b"".join(
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers())
        + frames.number(frames.RST_STREAM, stream, 8)
        for stream in range(1, 2001, 2)
    ),
    "no HTTP/2": bytes(range(256)) * 4000,
}


def _answers_in_time(port):
    """gRPC cancels calls while more than 1000 wait to be taken; these may be asked for again."""
    until = time.monotonic() + _WAIT
    while True:
        try:
            return _answers(port)
        except grpc.RpcError as error:
            assert (
                error.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED)
                and time.monotonic() < until
            )
            time.sleep(0.05)


@pytest.mark.parametrize("attack", ATTACKS)
def test_other_clients_are_answered_while_the_attackers_stay(served, attack):
    before = _memory()
    with _clients(served.port, 20, ATTACKS[attack]):
        assert _answers_in_time(served.port)
        assert _memory() - before < 1024 * _MIB
    assert _answers_in_time(served.port)


@pytest.mark.parametrize("content", [b"", b"\x00\x00", _message(b"one")[:6], b"\x00\xff\xff\xff\xff"])
def test_a_request_that_is_no_message_is_refused(served, content):
    sent = frames.frame(frames.HEADERS, frames.END_HEADERS, 1, _headers()) + frames.frame(
        frames.DATA, frames.END_STREAM, 1, content
    )
    with _clients(served.port, 1, sent) as (client,):
        client.settimeout(_WAIT)
        said = b""
        while b"grpc-status" not in said and b"\x00\x00\x04\x03" not in said and (more := client.recv(1 << 16)):
            said += more
    assert b"grpc-status\x010" not in said and _answers(served.port)
