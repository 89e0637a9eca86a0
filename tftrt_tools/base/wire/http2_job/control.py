"""The frames that are about a connection or a window, not about a message."""

from __future__ import annotations

from tftrt_tools.base.wire.http2_job import frames
from tftrt_tools.base.wire.http2_job.outgoing import Outgoing


def take(kind: int, flags: int, stream: int, content: bytes | memoryview, outgoing: Outgoing, known: bool) -> None:
    """Take in SETTINGS, PING and WINDOW_UPDATE, and answer them; nothing for other frames.

    Args: known: whether the stream is one that waits for a message. Raises: BrokenConnection, OSError.
    """
    if kind == frames.WINDOW_UPDATE:
        outgoing.widen(stream, frames.read_number(content), known)
    elif kind == frames.SETTINGS and not flags & frames.ACK:
        for setting, value in frames.read_settings(content):
            outgoing.set(setting, value)
        outgoing.send(frames.frame(frames.SETTINGS, frames.ACK, 0))
    elif kind == frames.PING:
        if len(content) != 8:
            raise frames.BrokenConnection(frames.FRAME_SIZE_ERROR, "a PING has not 8 bytes")
        if not flags & frames.ACK:
            outgoing.send(frames.frame(frames.PING, frames.ACK, 0, bytes(content)))


def greeting(frame_size: int) -> bytes:
    """The first frames: the server may send frames of this size, and as much as it likes."""
    return frames.settings(
        {frames.INITIAL_WINDOW_SIZE: frames.LARGEST_WINDOW, frames.MAX_FRAME_SIZE: frame_size}
    ) + frames.number(frames.WINDOW_UPDATE, 0, frames.LARGEST_WINDOW - frames.FIRST_WINDOW)
