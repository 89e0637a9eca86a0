"""The requests to send, as bytes made before the run, and their expected answers."""

import dataclasses
from collections.abc import Callable

from tftrt_tools.base import errors


@dataclasses.dataclass(frozen=True)
class Payload:
    """Requests that are sent in turn: request k of a run is `requests[k % len(requests)]`, whichever process sends it.

    method: the full gRPC method, such as "/tensorflow.serving.PredictionService/Predict". requests: messages on the wire. expected: for
    each request the answer's bytes, or None where nothing is known; () for nothing known of any. same: function (index, answer bytes) ->
    "" where that answer to request `index` is right, else what is wrong, one line; it judges, in this process and after the run, the
    answers that are not `expected` byte for byte (Target.unordered says when another order is equal). None: every such answer is wrong.
    """

    method: str
    requests: tuple[bytes, ...]
    expected: tuple[bytes | None, ...] = ()
    same: Callable[[int, bytes], str] | None = None

    def __post_init__(self) -> None:
        if not self.requests:
            raise errors.UsageError("there is no request to send", "give at least one")
        if not self.method.startswith("/") or self.method.count("/") != 2:
            raise errors.UsageError(f"no gRPC method: {self.method!r}", "write it as /package.Service/Method")
        if self.expected and len(self.expected) != len(self.requests):
            raise errors.UsageError(
                f"{len(self.expected)} expected answers for {len(self.requests)} requests",
                "give one for each, or none at all",
            )

    def wrong(self, index: int, answer: bytes) -> str:
        """Judge an answer. Returns: "", or what is wrong with it."""
        if self.same is not None:
            return self.same(index, answer)
        expected = self.expected[index] or b""
        if answer == expected:
            return ""
        if len(answer) != len(expected):
            return f"{len(answer)} bytes, expected {len(expected)}"
        place = next(at for at, (byte, other) in enumerate(zip(answer, expected, strict=True)) if byte != other)
        return f"byte {place} of {len(answer)} differs"
