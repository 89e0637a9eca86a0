"""The load generator's connections: against gRPC's server, and against a server whose frames are written by hand."""

import socket
import struct
import threading
import time

import grpc
import pytest

from tftrt_tools.base.wire.http2_job import frames, hpack, huffman
from tftrt_tools.servers.load import http2_calls_job
from tftrt_tools.servers.load.http2_calls_job import Http2Calls
from tftrt_tools.servers.serving.local import failure, grpc_server

_WAIT = 20
_METHOD = "/test.Test/Echo"
_REQUESTS = [b"small", b"", bytes(range(256)) * 4000]


def _calls(port, *, channels=1, timeout_s=_WAIT, connect_s=5.0, requests=_REQUESTS, method=_METHOD):
    return Http2Calls(
        f"127.0.0.1:{port}",
        ("127.0.0.1", port),
        channels=channels,
        method=method,
        requests=requests,
        timeout_s=timeout_s,
        connect_s=connect_s,
    )


def _ended(reply):
    """(error's code or 0, its text or the answer)."""
    done = threading.Event()
    reply.add_done_callback(lambda _: done.set())
    assert done.wait(_WAIT)
    error = reply.exception()
    return (error.code, str(error)) if error else (0, reply.result())


@pytest.fixture
def echo():
    def refuse(raw, _):
        raise failure.Failure(grpc.StatusCode.NOT_FOUND, "50 % of \u00e4")

    server = grpc_server.GrpcServer({_METHOD: lambda raw, _: [raw], "/test.Test/Refuse": refuse}, 8)
    port = server.listen("127.0.0.1:0")
    server.start()
    yield port
    server.stop(_WAIT)


def test_answers_come_back_on_each_connection(echo):
    made = _calls(echo, channels=3)
    replies = [(call(index), index) for _ in range(50) for call in made.calls for index in range(len(_REQUESTS))]
    assert all(_ended(reply) == (0, _REQUESTS[index]) for reply, index in replies)
    made.close()


def test_a_status_has_its_code_name_and_text(echo):
    made = _calls(echo, method="/test.Test/Refuse")
    reply = made.calls[0](0)
    assert _ended(reply) == (5, "50 % of \u00e4")
    assert made.explain(reply.exception()) == (5, "NOT_FOUND", "50 % of \u00e4")
    made.close()


@pytest.mark.parametrize(
    "address, where",
    [
        ("localhost:8500", ("localhost", 8500)),
        ("[::1]:8500", ("::1", 8500)),
        ("unix:/a/b", "/a/b"),
        ("dns:///host:8500", None),
        ("::1:8500", None),
        ("unix:///a", None),
        ("host", None),
    ],
)
def test_addresses(address, where):
    assert http2_calls_job.place(address) == where


# By hand


class _Server:
    """Accepts connections in turn; `serve(connection, requests)` is a test's: requests gives (stream, END_STREAM's message) as they come."""

    def __init__(self, serve, settings=None):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._serve, self._settings = serve, settings or {}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            connection.sendall(frames.settings(self._settings))
            self._serve(connection, self._requests(connection))
            connection.close()

    def _requests(self, connection):
        data, decoder, whole = b"", hpack.Decoder(), {}
        greeted = False
        while True:
            try:
                more = connection.recv(1 << 16)
            except OSError:
                return
            if not more:
                return
            data += more
            if not greeted:
                assert data.startswith(frames.PREFACE)
                data, greeted = data[len(frames.PREFACE) :], True
            while len(data) >= 9 and len(data) >= 9 + frames.read_head(data, 0)[0]:
                size, kind, flags, stream = frames.read_head(data, 0)
                content, data = data[9 : 9 + size], data[9 + size :]
                if kind == frames.HEADERS:
                    assert decoder.read(content)[b":path"] == _METHOD.encode()
                    connection.sendall(frames.number(frames.WINDOW_UPDATE, stream, 1 << 24))
                elif kind == frames.DATA:
                    whole[stream] = whole.get(stream, b"") + content
                if kind in (frames.DATA, frames.HEADERS) and flags & frames.END_STREAM:
                    yield stream, whole.pop(stream)[5:]

    def close(self):
        self._listening.close()


@pytest.fixture
def by_hand():
    made = []

    def start(serve, **options):
        made.append(_Server(serve, **options))
        return made[-1].port

    yield start
    for one in made:
        one.close()


_START = b"\x88" + hpack.block([(b"content-type", b"application/grpc")])  # begins with ":status: 200"
_END = hpack.block([(b"grpc-status", b"0")])


def _answer(stream, content):
    return (
        frames.frame(frames.HEADERS, frames.END_HEADERS, stream, _START),
        frames.frame(frames.DATA, 0, stream, b"\x00" + struct.pack(">I", len(content)) + content),
        frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, _END),
    )


def test_an_answer_byte_by_byte_with_padding_and_continued_headers(by_hand):
    def serve(connection, requests):
        for stream, content in requests:
            message = b"\x00" + struct.pack(">I", len(content)) + content
            for byte in b"".join(
                [
                    frames.frame(frames.HEADERS, 0, stream, _START[:3]),
                    frames.frame(frames.CONTINUATION, frames.END_HEADERS, stream, _START[3:]),
                    frames.frame(frames.DATA, frames.PADDED, stream, b"\x02" + message + bytes(2)),
                    frames.frame(99, 0, stream),
                    frames.frame(frames.PING, 0, 0, bytes(8)),
                    _answer(stream, b"")[2],
                ]
            ):
                connection.sendall(bytes([byte]))

    made = _calls(by_hand(serve))
    assert _ended(made.calls[0](0)) == (0, b"small")
    made.close()


@pytest.mark.parametrize(
    "settings", [{frames.INITIAL_WINDOW_SIZE: 1000}, {frames.HEADER_TABLE_SIZE: 0}, {frames.MAX_FRAME_SIZE: 1 << 20}]
)
def test_requests_keep_to_the_servers_settings(by_hand, settings):
    def serve(connection, requests):
        connection.sendall(frames.number(frames.WINDOW_UPDATE, 0, 1 << 25))
        for stream, content in requests:
            connection.sendall(b"".join(_answer(stream, struct.pack(">I", len(content)))))

    made = _calls(by_hand(serve, settings=settings))
    replies = [made.calls[0](index) for index in (0, 2, 0)]
    assert [_ended(reply) for reply in replies] == [
        (0, struct.pack(">I", len(_REQUESTS[index]))) for index in (0, 2, 0)
    ]
    made.close()


@pytest.mark.parametrize(
    "ending, code, text",
    [
        (lambda stream: frames.number(frames.RST_STREAM, stream, 7), 14, "reset the call with code 7"),
        (lambda stream: frames.frame(frames.GOAWAY, 0, 0, bytes(8)), 14, "takes no more calls"),
        (lambda stream: b"", 14, "Socket closed"),
        (lambda stream: frames.head(frames.DATA, 0, stream, 1 << 23), 14, "broke HTTP/2"),
        (lambda stream: frames.frame(frames.HEADERS, frames.END_HEADERS, stream, b"\xff\xff"), 14, "broke HTTP/2"),
        (
            lambda stream: frames.frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, _START),
            13,
            "without a gRPC status, HTTP 200",
        ),
        (lambda stream: frames.frame(frames.DATA, frames.END_STREAM, stream, b""), 13, "has no status"),
    ],
)
def test_a_call_that_a_server_breaks_off_fails_and_the_next_is_sent_on_a_new_connection(by_hand, ending, code, text):
    broken = []

    def serve(connection, requests):
        for stream, content in requests:
            if not broken:
                broken.append(stream)
                connection.sendall(ending(stream))
                if not ending(stream):
                    return
            else:
                connection.sendall(b"".join(_answer(stream, content)))

    made = _calls(by_hand(serve))
    found = _ended(made.calls[0](0))
    assert found[0] == code and text in found[1], found
    until = time.monotonic() + _WAIT
    while (found := _ended(made.calls[0](0)))[0]:
        assert found[0] == 14 and time.monotonic() < until, found
        time.sleep(0.05)
    assert found == (0, b"small")
    made.close()


def test_a_call_past_its_deadline_ends_and_its_stream_is_reset(by_hand):
    made = _calls(by_hand(lambda connection, requests: list(requests)), timeout_s=0.2)
    assert _ended(made.calls[0](0)) == (4, "Deadline Exceeded")
    made.close()


def test_what_is_given_up_is_cancelled(by_hand):
    made = _calls(by_hand(lambda connection, requests: list(requests)))
    reply = made.calls[0](0)
    made.close()
    assert _ended(reply)[0] == 1


def test_no_server_and_no_http2_are_said_in_time():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(http2_calls_job.NoServer):
            _calls(port, connect_s=0.3)
    with pytest.raises(http2_calls_job.NoServer):
        _calls(port, connect_s=0.3)


# HPACK


def test_huffman_code_is_complete_and_reads_the_standards_example():
    assert sum(2.0**-length for length in huffman._LENGTHS) == 1
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
