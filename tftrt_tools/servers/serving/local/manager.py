"""The models of a server: which exist, which version answers, and how that changes while requests run.

It behaves as tensorflow_model_server 2.14.1 does, with two differences. A swap waits for the requests of the version that leaves, and not
for those of every model. stop() ends the wait between two tries of a load, and so does a version that is no longer wanted.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import grpc

from tftrt_tools.servers.serving.local import base_paths, config_checks, failure, states, version_labels
from tftrt_tools.servers.serving.local.failure import Failure
from tftrt_tools.servers.serving.local.held import Handle, Held
from tftrt_tools.servers.serving.local.version_loading import Loads, Versions

if TYPE_CHECKING:
    from tensorflow_serving.apis import model_pb2

    from tftrt_tools.base.wire import config_types
    from tftrt_tools.servers.serving.local.servable import AnyServable


_LOG = logging.getLogger("tftrt.serving")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ManagerSettings:
    """Flags of tensorflow_model_server, with their names and defaults."""

    file_system_poll_wait_seconds: float = 1  # between two looks at the base paths; 0: one look only, negative: none
    num_load_threads: int = (
        0  # 0: loads run one after another in the manager's own thread. The first models load side by side anyway
    )
    num_unload_threads: int = 0  # the same for unloads
    max_num_load_retries: int = 5  # after the first try
    load_retry_interval_micros: int = 60_000_000
    allow_version_labels_for_unavailable_models: bool = (
        False  # for a new label only; an existing one moves to a loaded version
    )


class Manager:
    """Thread-safe. Call `start` once, then any method at any time, and `stop` at the end."""

    def __init__(self, loader: Loads, settings: ManagerSettings = ManagerSettings()) -> None:
        """Args: loader: function (name, version, path) -> object with close(); raises Failure. It is called in the manager's threads."""
        self._settings = settings
        self._board = states.Board()
        self._changed = self._board.changed
        self._versions = Versions(loader, settings, self._board)
        self._configuring = threading.Lock()  # one configuration at a time
        self._polling = threading.Lock()  # held while the base paths are polled or changed
        self._config: config_types.ModelServerConfig | None = None
        self._labels: version_labels.Labels = {}  # replaced whole
        self._sources: tuple[base_paths.Source, ...] | None = None
        self._thread: threading.Thread | None = None
        self._look_now = False
        self._stopping = False

    def start(self, config: config_types.ModelServerConfig) -> None:
        """Load the models of a ModelServerConfig. Blocks until a version of each is available: for ever if one has no version.

        Raises: Failure as the real server's at start: those of `reload`, UNKNOWN where a model cannot be loaded, CANCELLED by `stop`.
        """
        self._apply(config)

    def reload(self, config: config_types.ModelServerConfig) -> None:
        """Change to another ModelServerConfig, as HandleReloadConfigRequest. Blocks until the models with new names are available.

        Models left out are unloaded. New base paths, policies and labels of known models hold from now on, without waiting.
        Raises: Failure. If the error is about labels or platforms, the next configuration is still compared with this one.
        """
        self._apply(config)

    def handle(self, model_spec: model_pb2.ModelSpec | None) -> Handle[AnyServable]:
        """A context manager that yields the loaded object; it is not closed before the block is left.

        Args: model_spec: ModelSpec, or None where a request has none. Raises, on entering: Failure INVALID_ARGUMENT, NOT_FOUND.
        """
        return Handle(functools.partial(self._acquire, model_spec))

    def status(self, name: str, version: int | None = None) -> list[states.VersionState]:
        """VersionStates of one version or all, the newest first. Raises: Failure NOT_FOUND."""
        return self._board.of(name, version)

    def poll(self) -> None:
        """Poll the base paths now. If one of them cannot be read, nothing is loaded or unloaded for any model."""
        with self._polling:
            try:
                polled = base_paths.poll(self._sources or ())
            except base_paths.PollError as error:
                _LOG.error("file system access error: %s", error)
                return
            self._versions.want(polled)

    def stop(self) -> None:
        """Unload everything and end the threads. Ends a `start` or `reload` that waits. Waits for a load that is running."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join()
        self._versions.stop()

    def _acquire(self, spec: model_pb2.ModelSpec | None) -> Held[AnyServable]:
        if spec is None:
            raise failure.invalid("Missing ModelSpec")
        name = spec.name
        if not name:
            raise failure.invalid("ModelSpec has no name specified.")
        choice = spec.WhichOneof("version_choice")
        if choice == "version":
            version = spec.version.value
        else:
            version = version_labels.resolve(self._labels, name, spec.version_label) if choice else None
        # A version leaves `serving` before it retires, so the next lookup finds another one or none.
        while (held := self._versions.serving.get((name, version))) is not None:
            if held.enter():
                return held
        request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise failure.not_found(f"Servable not found for request: {request}")

    def _apply(self, config: config_types.ModelServerConfig) -> None:
        with self._configuring:
            kind = config.WhichOneof("config")
            if self._config:
                config_checks.check_transition(self._config, config)
            if kind is None:
                _LOG.info("nothing to do for an empty configuration")
                return
            models = config.model_config_list.config
            config_checks.check_list(models)
            if self._config:
                config_checks.check_same_platforms(self._config.model_config_list.config, models)
            self._config = type(config).FromString(config.SerializeToString())
            self._labels = version_labels.assign(
                models,
                self._labels,
                self._board.is_available,
                self._settings.allow_version_labels_for_unavailable_models,
            )
            if kind != config_checks.LIST:
                raise failure.invalid("ModelServer does not yet support custom model config.")
            config_checks.check_platforms(models)
            for model in models:
                _LOG.info("adding or updating model %s at %s", model.name, model.base_path)
            new = tuple(base_paths.Source.of(model) for model in models)
            self._begin(new) if self._sources is None else self._change(new)

    def _begin(self, new: tuple[base_paths.Source, ...]) -> None:
        self._sources = new
        with self._changed:
            if not self._stopping:
                self._versions.begin()
                if self._settings.file_system_poll_wait_seconds >= 0:
                    self._thread = threading.Thread(target=self._poll_forever, name="tftrt-poll", daemon=True)
                    self._thread.start()
        self._wait([source.name for source in new], 0, "servable(s)")
        self._versions.end_first_loads()

    def _change(self, new: tuple[base_paths.Source, ...]) -> None:
        since = self._board.events()
        with self._polling:
            old_names = {source.name for source in self._sources or ()}
            new_names = [source.name for source in new if source.name not in old_names]
            self._versions.want({name: {} for name in old_names - {source.name for source in new}})
            self._sources = new
        if new_names and self._settings.file_system_poll_wait_seconds == 0:
            _LOG.warning(
                "file_system_poll_wait_seconds is 0: the base paths of %s are not looked at", ", ".join(new_names)
            )
        with self._changed:
            self._look_now = True
            self._changed.notify_all()
        self._wait(new_names, since, "model(s)")

    def _wait(self, names: Sequence[str], since: int, what: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._board.reached(names, since) is not None)
            if self._stopping:
                raise Failure(grpc.StatusCode.CANCELLED, "the server was stopped while it waited for its models")
            error = states.unavailable(self._board.reached(names, since) or (), what)
        if error:
            raise error

    def _poll_forever(self) -> None:
        wait = self._settings.file_system_poll_wait_seconds
        while True:
            with self._changed:
                self._look_now = False
            self.poll()
            with self._changed:
                if wait:
                    self._changed.wait_for(lambda: self._stopping or self._look_now, wait)
                if self._stopping or not wait:
                    return
