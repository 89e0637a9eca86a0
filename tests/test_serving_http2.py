"""The development server's HTTP/2: gRPC's own client, and frames by hand for what that client never does."""

import concurrent.futures
import socket
import struct
import threading
import time

import grpc
import numpy as np
import pytest

from tftrt_tools.serving.local import failure, grpc_methods
from tftrt_tools.serving.local.http2 import http2_server
from tftrt_tools.wire.http2_job import frames, hpack, huffman

_WAIT = 20
_LIMITS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_ECHO, _FAIL, _WAITS, _LARGE, _LEFT = "/test.Test/Echo", "/test.Test/Fail", "/test.Test/Wait", "/test.Test/Large", "/test.Test/Left"
_OTHER_TEXT = "50 % of \u00e4 line\nand more"


class _Served:
    """The server, with methods that tests control. gate: set, and the method Wait answers. arrived: Wait's calls."""

    def __init__(self, threads=64):
        self.gate, self.arrived = threading.Event(), threading.Semaphore(0)
        self.server = http2_server.Http2Server({
            _ECHO: lambda raw, _: [raw], _FAIL: self._fail, _WAITS: self._wait, _LARGE: lambda raw, _: [bytes(int(bytes(raw)))] * 3,
            _LEFT: lambda _, left: [str(left).encode()]}, threads)
        self.port = self.server.listen("127.0.0.1:0")
        self.server.start()

    def _fail(self, raw, _):
        raise failure.Failure(grpc.StatusCode.DATA_LOSS, bytes(raw).decode())

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
    other = http2_server.Http2Server({_ECHO: lambda raw, _: [raw]}, 4)
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
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
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


# By hand


class _Client:
    """A connection, and the frames that come on it."""

    def __init__(self, port, settings=None, receive_buffer=0):
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(_WAIT)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(frames.PREFACE + frames.settings(settings or {}))
        self._bytes = b""

    def send(self, *parts):
        self.socket.sendall(b"".join(parts))

    def next(self, *kinds):
        """(flags, stream, content) of the next frame of one of these kinds; None where the server ends the connection before it."""
        while True:
            while len(self._bytes) < 9 or len(self._bytes) < 9 + frames.read_head(self._bytes, 0)[0]:
                data = self.socket.recv(1 << 16)
                if not data:
                    return None
                self._bytes += data
            size, kind, flags, stream = frames.read_head(self._bytes, 0)
            content, self._bytes = self._bytes[9:9 + size], self._bytes[9 + size:]
            if kind in kinds:
                return flags, stream, content

    def answer(self, stream):
        """The message of the answer on a stream."""
        whole = b""
        while True:
            flags, number, content = self.next(frames.DATA, frames.HEADERS)
            if number == stream and content and not flags & frames.END_HEADERS:
                whole += content
            if number == stream and flags & frames.END_STREAM:
                return whole[5:]


@pytest.fixture
def by_hand(served):
    made = []

    def connect(**options):
        made.append(_Client(served.port, **options))
        return made[-1]

    yield connect
    for one in made:
        one.socket.close()


def _headers(path=_ECHO, **more):
    named = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers", "content-type": "application/grpc", **more}
    return hpack.block([(name.encode(), value.encode()) for name, value in named.items()])


def _message(content):
    return b"\x00" + struct.pack(">I", len(content)) + content


def _call(stream, content, path=_ECHO):
    return (frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers(path)) +
            frames.frame(frames.DATA, frames.END_STREAM, stream, _message(content)))


def test_a_request_byte_by_byte(by_hand):
    client = by_hand()
    for byte in _call(1, b"slowly"):
        client.send(bytes([byte]))
    assert client.answer(1) == b"slowly"


def test_padding_priority_and_continued_headers(by_hand):
    client = by_hand()
    block = _headers()
    client.send(frames.frame(frames.HEADERS, frames.PADDED | frames.HAS_PRIORITY, 1, b"\x03" + bytes(5) + block[:20] + bytes(3)),
                frames.frame(frames.CONTINUATION, 0, 1, block[20:40]), frames.frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[40:]),
                frames.frame(frames.PRIORITY, 0, 1, bytes(5)), frames.frame(77, 0, 1, b"unknown"),
                frames.frame(frames.DATA, frames.PADDED, 1, b"\x02" + _message(b"padded")[:7] + bytes(2)),
                frames.frame(frames.DATA, 0, 1, _message(b"padded")[7:]), frames.frame(frames.DATA, frames.END_STREAM, 1))
    assert client.answer(1) == b"padded"


def test_calls_whose_data_come_in_turn(by_hand):
    client = by_hand()
    client.send(*(frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _headers()) for stream in (1, 3)))
    parts = {stream: _message(bytes([stream]) * 200_000) for stream in (1, 3)}
    for at in range(0, 200_005, 70_000):
        for stream, data in parts.items():
            client.send(frames.frame(frames.DATA, frames.END_STREAM if at == 140_000 else 0, stream, data[at:at + 70_000]
                                     if at < 140_000 else data[at:]))
    client.send(frames.number(frames.WINDOW_UPDATE, 0, 1 << 20), *(frames.number(frames.WINDOW_UPDATE, stream, 1 << 20) for stream in (1, 3)))
    found = {}
    while len(found) < 2 or any(not ended for _, ended in found.values()):
        flags, stream, content = client.next(frames.DATA, frames.HEADERS)
        whole, _ = found.get(stream, (b"", False))
        found[stream] = whole + (content if not flags & frames.END_HEADERS else b""), bool(flags & frames.END_STREAM)
    assert {stream: whole for stream, (whole, _) in found.items()} == parts


def test_an_answer_keeps_to_the_windows(by_hand):
    client = by_hand(settings={frames.INITIAL_WINDOW_SIZE: 10})
    client.send(_call(1, bytes(range(100))))
    assert len(client.next(frames.DATA)[2]) == 10
    client.send(frames.number(frames.WINDOW_UPDATE, 1, 20))
    assert len(client.next(frames.DATA)[2]) == 20
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 30}))
    assert len(client.next(frames.DATA)[2]) == 20
    client.send(frames.settings({frames.INITIAL_WINDOW_SIZE: 0}), frames.number(frames.WINDOW_UPDATE, 1, 30))
    client.send(frames.frame(frames.PING, 0, 0, b"12345678"))
    assert client.next(frames.PING, frames.DATA) == (frames.ACK, 0, b"12345678"), "the window is empty again"
    client.send(frames.number(frames.WINDOW_UPDATE, 1, 1000))
    assert client.answer(1)[-1] == 99


def test_a_client_that_reads_nothing_holds_no_thread(served, by_hand):
    """Its answers wait in memory; as many such calls as there are threads, and others are answered."""
    client = by_hand(settings={frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW}, receive_buffer=4096)
    client.send(frames.number(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW - frames.FIRST_WINDOW))
    for number in range(80):
        client.send(_call(2 * number + 1, b"1000000", _LARGE))
    other = by_hand()
    other.send(_call(1, b"not held up"))
    assert other.answer(1) == b"not held up"
    answers = 0
    while answers < 80:
        flags, _, _ = client.next(frames.DATA, frames.HEADERS)
        answers += bool(flags & frames.END_STREAM)


def test_what_was_given_up_is_not_answered(by_hand, served):
    client = by_hand()
    client.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, _headers()), frames.frame(frames.DATA, 0, 1, _message(b"half")[:7]),
                frames.number(frames.RST_STREAM, 1, 8), frames.frame(frames.DATA, frames.END_STREAM, 1, b"lf"), _call(3, b"next"))
    flags, stream, _ = client.next(frames.HEADERS)
    assert stream == 3 and not flags & frames.END_STREAM


@pytest.mark.parametrize("data, code", [
    (frames.frame(frames.DATA, 0, 5, b"x"), frames.PROTOCOL_ERROR),
    (frames.frame(frames.HEADERS, frames.END_HEADERS, 2, _headers()), frames.PROTOCOL_ERROR),
    (frames.frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), frames.COMPRESSION_ERROR),
    (frames.frame(frames.HEADERS, 0, 1, _headers()) + frames.frame(frames.PING, 0, 0, bytes(8)), frames.PROTOCOL_ERROR),
    (frames.frame(frames.HEADERS, frames.PADDED, 1, b"\xff"), frames.PROTOCOL_ERROR),
    (frames.frame(frames.SETTINGS, 0, 0, bytes(5)), frames.FRAME_SIZE_ERROR),
    (frames.frame(frames.PING, 0, 0, bytes(7)), frames.FRAME_SIZE_ERROR),
    (frames.settings({frames.MAX_FRAME_SIZE: 5}), frames.PROTOCOL_ERROR),
    (frames.settings({frames.INITIAL_WINDOW_SIZE: 1 << 31}), frames.FLOW_CONTROL_ERROR),
    (frames.number(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW), frames.FLOW_CONTROL_ERROR),
    (frames.head(frames.PING, 0, 0, 1 << 23), frames.FRAME_SIZE_ERROR),
    (frames.frame(frames.PUSH_PROMISE, 0, 1, bytes(8)), frames.PROTOCOL_ERROR),
])
def test_frames_that_break_the_rules_end_the_connection(by_hand, served, data, code):
    client = by_hand()
    client.send(data)
    found = client.next(frames.GOAWAY)
    assert found and struct.unpack(">II", found[2])[1] == code
    other = by_hand()
    other.send(_call(1, b"others go on"))
    assert other.answer(1) == b"others go on"


@pytest.mark.parametrize("content, code", [(b"", 13), (b"\x00\x00", 13), (_message(b"one")[:6], 13), (_message(b"one") + b"more", 13),
                                           (b"\x00\xff\xff\xff\xff", 8), (b"\x01" + _message(b"zip")[1:], 12)])
def test_a_request_that_is_no_message_is_refused(by_hand, content, code):
    client = by_hand()
    client.send(frames.frame(frames.HEADERS, frames.END_HEADERS, 1, _headers(**{"grpc-encoding": "snappy"})),
                frames.frame(frames.DATA, frames.END_STREAM, 1, content))
    flags, _, block = client.next(frames.HEADERS)
    assert flags & frames.END_STREAM and hpack.Decoder().read(block)[b"grpc-status"] == str(code).encode()


def test_connections_that_ended_are_forgotten(served, by_hand):
    for _ in range(20):
        client = _Client(served.port)
        client.send(_call(1, b"bye"))
        client.socket.close()
    until = time.monotonic() + _WAIT
    while served.server._connections and time.monotonic() < until:
        time.sleep(0.01)
    assert not served.server._connections


# HPACK


def test_huffman_code_is_complete_and_reads_the_standards_example():
    assert sum(2.0 ** -length for length in huffman._LENGTHS) == 1
    assert huffman.decode(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == b"www.example.com"
    for wrong in ("f1e3c2e5f23a6ba0ab90f400", "ffffffff", "ff"):
        with pytest.raises(ValueError, match="Huffman"):
            huffman.decode(bytes.fromhex(wrong) + b"\xff" * (wrong == "ff"))


def test_the_standards_requests_with_huffman_code_and_a_table():
    """RFC 7541, C.4."""
    decoder = hpack.Decoder()
    first = decoder.read(bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"))
    assert first == {b":method": b"GET", b":scheme": b"http", b":path": b"/", b":authority": b"www.example.com"}
    assert decoder.read(bytes.fromhex("828684be5886a8eb10649cbf")) == {**first, b"cache-control": b"no-cache"}
    third = decoder.read(bytes.fromhex("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"))
    assert third == {**first, b":scheme": b"https", b":path": b"/index.html", b"custom-key": b"custom-value"}


def test_a_table_that_is_full_forgets_the_oldest():
    decoder = hpack.Decoder()
    for number in range(100):
        value = b"%03d" % number * 20
        decoder.read(b"\x40\x01x" + bytes([len(value)]) + value)
    assert decoder.read(b"\xbe") == {b"x": b"099" * 20}
    with pytest.raises(ValueError, match="no header"):
        decoder.read(b"\xff\x20")  # the 64th but 32 more


@pytest.mark.parametrize("block", ["80", "ff80", "ffffffffffffff", "40", "4001", "400178", "3fe27f", "8282ff", "00ff"])
def test_broken_header_blocks(block):
    with pytest.raises(ValueError):  # noqa: PT011
        hpack.Decoder().read(bytes.fromhex(block))
