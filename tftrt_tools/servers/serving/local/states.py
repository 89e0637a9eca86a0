"""The state of every version that a server has had: what GetModelStatus answers and what start and reload wait for."""

from __future__ import annotations

import dataclasses
import enum
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from tftrt_tools.servers.serving.local import failure
from tftrt_tools.servers.serving.local.failure import Failure

if TYPE_CHECKING:
    from tensorflow_serving.apis import get_model_status_pb2

    from tftrt_tools.servers.serving.local.manager import Manager


class State(enum.IntEnum):
    """Numbers of ModelVersionStatus.State."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


@dataclasses.dataclass(frozen=True)
class VersionState:
    """version: int. state: State. failure: the Failure that ended it; None if there was none."""

    version: int
    state: State
    failure: Failure | None = None

    def to_dict(self) -> dict[str, Any]:
        """As GetModelStatus tells it, with the failure's code and message beside the state."""
        return {
            "version": self.version,
            "state": self.state.name,
            "error_code": self.failure.code.name if self.failure else "OK",
            "error_message": self.failure.message if self.failure else "",
        }


def label(name: str, version: int) -> str:
    """A version as TensorFlow Serving prints it."""
    return f"{{name: {name} version: {version}}}"


class Board:
    """The last state of each version. It keeps a version that ended; one that was dropped before its load stays at START.

    changed: the one Condition of a manager, notified at each change. It may be held while a method is called.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._states: dict[
            str, dict[int, tuple[int, VersionState]]
        ] = {}  # by name and version, with the number of its event
        self._events = 0

    def set(self, name: str, version: int, state: State, error: Failure | None = None) -> None:
        """Args: state: State. error: Failure or None."""
        with self.changed:
            self._events += 1
            self._states.setdefault(name, {})[version] = (self._events, VersionState(version, state, error))
            self.changed.notify_all()

    def events(self) -> int:
        """The number of events so far: a `since` for `reached`."""
        with self.changed:
            return self._events

    def of(self, name: str, version: int | None = None) -> list[VersionState]:
        """States of one version or all, the newest version first. Raises: Failure NOT_FOUND, as GetModelStatus."""
        with self.changed:
            states = self._states.get(name, {})
            if version is not None:
                if version not in states:
                    raise failure.not_found(f"Could not find version {version} of model {name}")
                return [states[version][1]]
            if not states:
                raise failure.not_found(f"Could not find any versions of model {name}")
            return [states[number][1] for number in sorted(states, reverse=True)]

    def is_available(self, name: str, version: int) -> bool:
        with self.changed:
            event = self._states.get(name, {}).get(version)
            return event is not None and event[1].state is State.AVAILABLE

    def reached(self, names: Iterable[str], since: int) -> list[tuple[str, VersionState]] | None:
        """Of each name the newest version that became available or ended after event number `since`.

        Returns: [(name, VersionState)] by name, or None while a name has none.
        """
        rows = []
        with self.changed:
            for name in sorted(names):
                settled = [
                    state
                    for number, state in self._states.get(name, {}).values()
                    if number > since and state.state in (State.AVAILABLE, State.END)
                ]
                if not settled:
                    return None
                rows.append((name, max(settled, key=lambda state: state.version)))
        return rows


def unavailable(reached: Sequence[tuple[str, VersionState]], what: str) -> Failure | None:
    """The Failure UNKNOWN for models that did not become available, None if all did.

    Args: reached: as of Board.reached. what: "servable(s)" at start, "model(s)" at a reload.
    """
    bad = [(name, state) for name, state in reached if state.state is not State.AVAILABLE]
    if not bad:
        return None
    text = "".join(
        f"{{{label(name, state.version)}{f' due to error: {state.failure.to_text()}' if state.failure else ''}}}, "
        for name, state in bad
    )
    return Failure(grpc.StatusCode.UNKNOWN, f"{len(bad)} {what} did not become available: {{{text}}}")


def response(
    manager: Manager, request: get_model_status_pb2.GetModelStatusRequest
) -> get_model_status_pb2.GetModelStatusResponse:
    """GetModelStatusResponse for a GetModelStatusRequest. The version label is ignored, and a missing name is an unknown model's.

    Raises: Failure INVALID_ARGUMENT without a model spec, NOT_FOUND.
    """
    from tensorflow_serving.apis import get_model_status_pb2  # imports TensorFlow

    if not request.HasField("model_spec"):
        raise failure.invalid("Missing ModelSpec")
    spec = request.model_spec
    answer = get_model_status_pb2.GetModelStatusResponse()
    for state in manager.status(spec.name, spec.version.value if spec.HasField("version") else None):
        status = answer.model_version_status.add(version=state.version, state=int(state.state)).status
        status.SetInParent()
        if state.failure:
            status.error_code, status.error_message = state.failure.number, state.failure.message
    return answer
