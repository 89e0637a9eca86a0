"""Loads the wanted versions and unloads the others, one step after another, without a gap in serving.

`want` sets the wanted versions. A thread asks the policy for the next step and has it done. `serving` has the versions that can be served.

Two traps of TensorFlow Serving are kept. A version that was no longer wanted and is wanted again must first be unloaded; until then
nothing else changes for its model. And a version whose load has failed for good is not tried again while it is wanted, not even if its
directory disappears and comes back while the version before it serves. A version with a new number is loaded.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

import grpc

from tftrt_tools.servers.serving.local import policies
from tftrt_tools.servers.serving.local.failure import Failure
from tftrt_tools.servers.serving.local.held import Held
from tftrt_tools.servers.serving.local.policies import Phase
from tftrt_tools.servers.serving.local.servable import AnyServable
from tftrt_tools.servers.serving.local.states import Board, State, label
from tftrt_tools.servers.serving.local.thread_pool import Workers

if TYPE_CHECKING:
    from tftrt_tools.servers.serving.local.manager import ManagerSettings

# Loads a version: (model, version, path). Raises: Failure.
Loads: TypeAlias = Callable[[str, int, str], AnyServable]
_LOG = logging.getLogger("tftrt.serving")
# The first models load side by side, whatever num_load_threads says.
_INITIAL_LOAD_THREADS = 4 * (os.cpu_count() or 1)


class _Version:
    """wanted: once False it stays so; a version that is wanted again gets a new object. held: while it is loaded."""

    __slots__ = ("name", "number", "path", "phase", "wanted", "held")

    def __init__(self, name: str, number: int, path: str) -> None:
        self.name, self.number, self.path = name, number, path
        self.phase, self.wanted = Phase.NEW, True
        self.held: Held[AnyServable] | None = None

    def __str__(self) -> str:
        return label(self.name, self.number)


class Versions:
    """All versions of all models.

    serving: {(name, version): Held}, and (name, None) for the largest loaded version; replaced whole, so that it is read without a lock.
    """

    def __init__(self, loader: Loads, settings: ManagerSettings, board: Board) -> None:
        """Args: loader: function (name, version, path) -> object with close(); raises Failure. settings: ManagerSettings. board: Board."""
        self.serving: dict[tuple[str, int | None], Held[AnyServable]] = {}
        self._loader = loader
        self._settings = settings
        self._board = board
        self._changed = board.changed
        self._managed: dict[str, dict[int, _Version]] = {}  # by name and number
        self._pending: dict[
            str, Mapping[int, str]
        ] = {}  # paths by name and number: wanted, but not yet seen by the thread
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._submitting = threading.Lock()
        self._loads = Workers(_INITIAL_LOAD_THREADS, "tftrt-first-load")
        self._pools = [self._loads, Workers(settings.num_unload_threads, "tftrt-unload")]

    def begin(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="tftrt-versions", daemon=True)
        self._thread.start()

    def end_first_loads(self) -> None:
        """Wait for the loads that are under way; from then on num_load_threads holds."""
        with self._submitting:
            first, self._loads = self._loads, Workers(self._settings.num_load_threads, "tftrt-load")
            self._pools.append(self._loads)
        first.close()

    def want(self, found: Mapping[str, Mapping[int, str]]) -> None:
        """Args: found: {name: {version: path}}: all wanted versions of these models."""
        with self._changed:
            self._pending.update(found)
            self._changed.notify_all()

    def stop(self) -> None:
        """Unload everything and end the threads. Waits for a load that is running. A version in use is closed by its last request."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join()
        for pool in self._pools:
            pool.close()
        with self._changed:
            left = [
                version
                for versions in self._managed.values()
                for version in versions.values()
                if version.phase is Phase.READY
            ]
            for removed in left:
                removed.phase = Phase.UNLOADING
        for one in left:
            self._unload(one)

    def _run(self) -> None:
        while True:
            with self._changed:
                action = None
                while not self._stopping and (action := self._next()) is None:
                    self._changed.wait()
                if self._stopping or action is None:
                    return
            kind, version = action
            if kind is policies.UNLOAD:
                self._pools[1].submit(functools.partial(self._unload, version))
            else:
                with self._submitting:
                    self._loads.submit(functools.partial(self._load, version))

    def _next(self) -> tuple[policies.Action, _Version] | None:
        """The next step, with its version marked as taken. Unloads come first, to make room."""
        self._forget()
        while self._look():
            self._forget()
        actions = [
            action for name in sorted(self._managed) if (action := policies.next_action(self._managed[name].values()))
        ]
        action = min(actions, key=lambda action_pair: action_pair[0] is policies.LOAD, default=None)
        if action:
            action[1].phase = Phase.LOADING if action[0] is policies.LOAD else Phase.UNLOADING
        return action

    def _forget(self) -> None:
        """Drop versions that are neither wanted nor loaded. A version that was never loaded stays at START for ever, as in TensorFlow
        Serving."""
        for name, versions in list(self._managed.items()):
            for version in list(versions.values()):
                if not version.wanted and version.phase in (Phase.NEW, Phase.ENDED):
                    del versions[version.number]
            if not versions:
                del self._managed[name]

    def _look(self) -> bool:
        """Take over the wanted versions. Returns: whether there were any."""
        taken = False
        for name, loading in list(self._pending.items()):
            versions: dict[int, _Version] = self._managed.get(name, {})
            # A version that is wanted again must be unloaded first. Until then nothing else changes for this model.
            if any(number in versions and not versions[number].wanted for number in loading):
                continue
            del self._pending[name]
            taken = True
            for number in versions.keys() - loading.keys():
                versions[number].wanted = False
                self._changed.notify_all()  # ends the wait between two tries
            for number in sorted(loading.keys() - versions.keys()):
                self._managed.setdefault(name, {})[number] = _Version(name, number, loading[number])
                self._board.set(name, number, State.START)
        return taken

    def _load(self, version: _Version) -> None:
        self._board.set(version.name, version.number, State.LOADING)
        loaded, failure = self._try(version)
        with self._changed:
            if loaded is not None and not self._given_up(version):
                version.held = Held(loaded)
                version.phase = Phase.READY
                self._show()
                self._board.set(version.name, version.number, State.AVAILABLE)
                _LOG.info("loaded servable version %s", version)
                return
        if loaded is not None:
            self._close(version, loaded)
            failure = _cancelled()
        self._end(version, failure)

    def _try(self, version: _Version) -> tuple[AnyServable | None, Failure | None]:
        """Load it, with repeated tries. Returns: (loaded object, None) or (None, Failure)."""
        retries = max(self._settings.max_num_load_retries, 0)
        failure = None
        for attempt in range(retries + 1):
            with self._changed:
                if attempt:
                    self._changed.wait_for(
                        lambda: self._look_again(version), self._settings.load_retry_interval_micros / 1e6
                    )
                if self._given_up(version):
                    return None, failure or _cancelled()
            if attempt:
                _LOG.info("loading %s again, retry %d of %d", version, attempt, retries)
            else:
                _LOG.info("loading servable version %s from %s", version, version.path)
            try:
                return self._loader(version.name, version.number, version.path), None
            except Failure as error:
                failure = error
                _LOG.error("loading %s failed: %s", version, error.to_text())
            except Exception as error:  # noqa: BLE001  the thread must outlive any loader
                failure = Failure(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")
                _LOG.exception("a fault of the development server: loading %s failed", version)
        _LOG.error("servable %s cannot be loaded: %s", version, failure.to_text() if failure else "")
        return None, failure

    def _given_up(self, version: _Version) -> bool:
        return self._stopping or not version.wanted

    def _look_again(self, version: _Version) -> bool:
        """If the load runs in the manager's own thread, take over the wanted versions here, because no other thread does."""
        self._look()
        return self._given_up(version)

    def _unload(self, version: _Version) -> None:
        """Remove it from `serving`, wait for its last request and close it. If the server stops meanwhile, that request closes it."""
        with self._changed:
            self._board.set(version.name, version.number, State.UNLOADING)
            self._show()
        _LOG.info("unloading servable version %s", version)
        held = version.held
        assert held is not None
        held.retire(self._wake)
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or held.is_idle())
        finish = functools.partial(self._finish, version, held)
        if held.retire(finish):
            finish()

    def _finish(self, version: _Version, held: Held[AnyServable]) -> None:
        self._close(version, held.loaded)
        self._end(version)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _end(self, version: _Version, failure: Failure | None = None) -> None:
        with self._changed:
            version.phase = Phase.ENDED
            version.held = None
            self._board.set(version.name, version.number, State.END, failure)

    def _close(self, version: _Version, loaded: AnyServable) -> None:
        try:
            loaded.close()
            _LOG.info("unloaded servable version %s", version)
        except Exception:  # noqa: BLE001  one that cannot be closed must not keep the others
            _LOG.exception("a fault of the development server: unloading %s failed", version)

    def _show(self) -> None:
        serving: dict[tuple[str, int | None], Held[AnyServable]] = {}
        for name, versions in self._managed.items():
            for number in sorted(versions):
                held = versions[number].held
                if versions[number].phase is Phase.READY and held is not None:
                    serving[name, number] = serving[name, None] = held
        self.serving = serving


def _cancelled() -> Failure:
    return Failure(grpc.StatusCode.CANCELLED, "Loading of servable cancelled")
