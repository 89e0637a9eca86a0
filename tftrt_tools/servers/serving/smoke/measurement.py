"""Sends the calls and times them."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.base.statistics import interleaving
from tftrt_tools.models.execution import run
from tftrt_tools.servers.client import ServingError
from tftrt_tools.servers.serving.smoke import latency
from tftrt_tools.servers.serving.smoke.engine_evidence import LIKELY, NO, NOTHING, WEAK, YES, Evidence
from tftrt_tools.servers.serving.smoke.plan import Group
from tftrt_tools.servers.serving.smoke.served_model import Asking, Served

_WARM_UP = 5
# Requests to each model in a round.
_REQUESTS = 2
# A first request this many times slower than the later ones built an engine, or did other work of a first use.
SLOW_FIRST = 20
# Below this the network and the launching of kernels are most of a request, and an engine gains little.
_LAUNCH_BOUND_SECONDS = 5e-3


@dataclasses.dataclass(frozen=True)
class Measured:
    """A group's requests. first: seconds of its first request; later: seconds of the others, in order; refused: the server's words if it
    refused the call, else ""; answers: [{output: ndarray}], one for each call of the group, [] where refused."""

    first: float | None
    later: tuple[float, ...]
    refused: str
    answers: tuple[dict[str, npt.NDArray[Any]], ...]

    @property
    def sent(self) -> int:
        """The number of answered requests."""
        return (self.first is not None) + len(self.later)


class Sender:
    """Sends calls to one version of a model.

    Args: client: served_model.Asking. served: served_model.Served. Requests name the version by number, so answers do not mix if the
    server changes to another version.
    """

    def __init__(self, client: Asking, served: Served) -> None:
        self._client, self._served = client, served

    def request(self, call: run.Call) -> bytes:
        """bytes of the request for a run.Call."""
        return self._client.protocol.request_bytes(self._served.name, call.inputs, call.signature, self._served.version)

    def read(self, raw: bytes, call: run.Call) -> dict[str, npt.NDArray[Any]]:
        """{output: ndarray} of an answer. Raises: TftrtError where it cannot be read."""
        protocol = self._client.protocol
        try:
            return protocol.response_arrays(raw)[1]
        except ValueError as error:
            raise errors.TftrtError(
                f"the answer to {call.text()} does not decode: {error}", f"is that a {protocol.server}?"
            ) from None

    def send(self, request: bytes, call: run.Call) -> tuple[bytes, float]:
        """Returns: (bytes of the answer, seconds). Raises as Asking.predict."""
        return self._client.predict(request, call.text())


def group(sender: Sender, one: Group, repeats: int) -> Measured:
    """Send a Group: each of its calls once, then its first call until there are `repeats` later requests.

    Returns: Measured. Raises: TftrtError where no answer came, or one that does not decode.
    """
    first: float | None = None
    later: list[float] = []
    answers: list[dict[str, npt.NDArray[Any]]] = []
    try:
        for number, call in enumerate(one.calls):
            progress.say(f"asking {one.text}", number, len(one.calls))
            raw, seconds = sender.send(sender.request(call), call)
            answers.append(sender.read(raw, call))
            if first is None:
                first = seconds
            else:
                later.append(seconds)
        request = sender.request(one.calls[0])
        while len(later) < repeats:
            later.append(sender.send(request, one.calls[0])[1])
    except ServingError as error:
        return Measured(first, tuple(later), f"{error.code}: {error.line}", ())
    return Measured(first, tuple(later), "", tuple(answers))


def against_native(converted: Sender, native: Sender, call: run.Call, repeats: int) -> latency.Ratio:
    """Time two models on the same inputs, in turns.

    Args: converted, native: Senders. repeats: rounds of four requests. Returns: latency.Ratio, native over converted.
    """
    requests = {sender: sender.request(call) for sender in (converted, native)}

    def seconds(sender: Sender) -> float:
        return sender.send(requests[sender], call)[1]

    for _ in range(_WARM_UP):
        seconds(native), seconds(converted)
    said = progress.each(f"timing {call.text()} against the native model", repeats)
    found = interleaving.in_turns((native, converted), said, seconds, blocks=_REQUESTS)
    return latency.ratio(
        np.column_stack([np.reshape(found[side], (-1, _REQUESTS)).mean(axis=1) for side in (native, converted)])
    )


def first_request(measured: Measured, call: str, builds: bool = True) -> Evidence | None:
    """The Evidence of a first request that took long, or None. Args: builds: whether the server may build an engine inside a request."""
    later = latency.p50(measured.later)
    if measured.first is None or not later or measured.first < SLOW_FIRST * later:
        return None
    what_happened = "an engine was built in it, or something else was made" if builds else "something was made in it"
    return Evidence(
        source="first request",
        seen=f"the first request took {measured.first / later:.0f} times as long as the later ones "
        f"({measured.first:.3g} s): {what_happened} at first use; warm-up does not cover this shape",
        speaks=YES if builds else NOTHING,
        weight=WEAK,
        call=call,
    )


def of_ratio(ratio: latency.Ratio, call: str) -> Evidence:
    """The Evidence of a latency.Ratio."""
    text = (
        f"{ratio.value:.2f} times as fast as the native model (95% interval {ratio.low:.2f} to {ratio.high:.2f}; "
        f"{1e3 * ratio.first:.2f} ms native, {1e3 * ratio.second:.2f} ms converted)"
    )
    if ratio.low >= latency.CLEARLY_FASTER:
        return Evidence(source="native model", seen=text, speaks=YES, weight=LIKELY, call=call)
    if ratio.high <= latency.NOT_FASTER:
        if ratio.first < _LAUNCH_BOUND_SECONDS:
            return Evidence(
                source="native model",
                seen=f"{text}; requests are so short that the model may be only a small part of them",
                speaks=NO,
                weight=WEAK,
                call=call,
            )
        return Evidence(source="native model", seen=text, speaks=NO, weight=LIKELY, call=call)
    return Evidence(
        source="native model",
        seen=f"{text}: neither clearly faster nor clearly not",
        speaks=NOTHING,
        weight=WEAK,
        call=call,
    )
