"""The models of a server: which there are, which version answers, and how that changes while requests run.

Behaves as tensorflow_model_server 2.14.1 does, with two differences: a swap waits for the requests of the version that leaves and not for
those of every model, and stop() and an unwanted version end the wait between two tries of a load.
"""

import dataclasses
import functools
import logging
import threading

import grpc

from tftrt_tools.serving.local import failure, labels, reload, sources, states
from tftrt_tools.serving.local.failure import Failure
from tftrt_tools.serving.local.held import Handle
from tftrt_tools.serving.local.versions import Versions

_LOG = logging.getLogger("tftrt.serving")


@dataclasses.dataclass(frozen=True)
class ManagerSettings:
    """Flags of tensorflow_model_server, with their names and defaults."""

    file_system_poll_wait_seconds: float = 1  # between two looks at the base paths; 0: one look only, negative: none
    num_load_threads: int = 0  # 0: loads run one after another in the manager's own thread. The first models load side by side anyway
    num_unload_threads: int = 0  # the same for unloads
    max_num_load_retries: int = 5  # after the first try
    load_retry_interval_micros: int = 60_000_000
    allow_version_labels_for_unavailable_models: bool = False  # for a new label only; an existing one moves to a loaded version


class Manager:
    """Thread-safe. `start` once, then anything at any time, `stop` at the end."""

    def __init__(self, loader, settings=ManagerSettings()):
        """Args: loader: function (name, version, path) -> object with close(); raises Failure. It is called in the manager's threads."""
        self._settings = settings
        self._board = states.Board()
        self._changed = self._board.changed
        self._versions = Versions(loader, settings, self._board)
        self._configuring = threading.Lock()  # one configuration at a time
        self._polling = threading.Lock()  # none changes the base paths during a look at them
        self._config = None
        self._labels = {}  # {name: {label: version}}, replaced whole
        self._sources = None
        self._thread = None
        self._look_now = False
        self._stopping = False

    def start(self, config):
        """Load the models of a ModelServerConfig. Blocks until a version of each is available: for ever where one has no version.

        Raises: Failure as the real server's at start: those of `reload`, UNKNOWN where a model cannot be loaded, CANCELLED by `stop`.
        """
        self._apply(config)

    def reload(self, config):
        """Change to another ModelServerConfig, as HandleReloadConfigRequest. Blocks until the models with new names are available.

        Models left out are unloaded; new base paths, policies and labels of known models hold from now on, without waiting.
        Raises: Failure. One about labels or platforms comes after the configuration was taken over as the one to compare the next with.
        """
        self._apply(config)

    def handle(self, model_spec):
        """A context manager that yields the loaded object; it is not closed before the block is left.

        Args: model_spec: ModelSpec, or None where a request has none. Raises, on entering: Failure INVALID_ARGUMENT, NOT_FOUND.
        """
        return Handle(functools.partial(self._acquire, model_spec))

    def status(self, name, version=None):
        """VersionStates of one version or all, the newest first. Raises: Failure NOT_FOUND."""
        return self._board.of(name, version)

    def poll(self):
        """Look at the base paths now. One that cannot be read ends the look for all: then nothing is loaded or unloaded."""
        with self._polling:
            try:
                found = sources.poll(self._sources or ())
            except sources.PollError as error:
                _LOG.error("file system access error: %s", error)
                return
            self._versions.want(found)

    def stop(self):
        """Unload everything and end the threads; ends a `start` or `reload` that waits. Returns after a load that is running."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread:
            self._thread.join()
        self._versions.stop()

    def _acquire(self, spec):
        if spec is None:
            raise failure.invalid("Missing ModelSpec")
        name = spec.name
        if not name:
            raise failure.invalid("ModelSpec has no name specified.")
        choice = spec.WhichOneof("version_choice")
        if choice == "version":
            version = spec.version.value
        else:
            version = labels.resolve(self._labels, name, spec.version_label) if choice else None
        # A version retires after it has left `serving`: then the next look finds another, or none.
        while (held := self._versions.serving.get((name, version))) is not None:
            if held.enter():
                return held
        request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
        raise failure.not_found(f"Servable not found for request: {request}")

    def _apply(self, config):
        with self._configuring:
            kind = config.WhichOneof("config")
            if self._config:
                reload.check_transition(self._config, config)
            if kind is None:
                _LOG.info("nothing to do for an empty configuration")
                return
            models = config.model_config_list.config
            reload.check_list(models)
            if self._config:
                reload.check_same_platforms(self._config.model_config_list.config, models)
            self._config = type(config).FromString(config.SerializeToString())
            self._labels = labels.assign(models, self._labels, self._board.is_available,
                                         self._settings.allow_version_labels_for_unavailable_models)
            if kind != reload.LIST:
                raise failure.invalid("ModelServer does not yet support custom model config.")
            reload.check_platforms(models)
            for model in models:
                _LOG.info("adding or updating model %s at %s", model.name, model.base_path)
            new = tuple(sources.Source.of(model) for model in models)
            self._begin(new) if self._sources is None else self._change(new)

    def _begin(self, new):
        self._sources = new
        with self._changed:
            if not self._stopping:
                self._versions.begin()
                if self._settings.file_system_poll_wait_seconds >= 0:
                    self._thread = threading.Thread(target=self._poll_forever, name="tftrt-poll", daemon=True)
                    self._thread.start()
        self._wait([source.name for source in new], 0, "servable(s)")
        self._versions.end_first_loads()

    def _change(self, new):
        since = self._board.events()
        with self._polling:
            old_names = {source.name for source in self._sources}
            new_names = [source.name for source in new if source.name not in old_names]
            self._versions.want({name: {} for name in old_names - {source.name for source in new}})
            self._sources = new
        if new_names and self._settings.file_system_poll_wait_seconds == 0:
            _LOG.warning("file_system_poll_wait_seconds is 0: the base paths of %s are not looked at", ", ".join(new_names))
        with self._changed:
            self._look_now = True
            self._changed.notify_all()
        self._wait(new_names, since, "model(s)")

    def _wait(self, names, since, what):
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or self._board.reached(names, since) is not None)
            if self._stopping:
                raise Failure(grpc.StatusCode.CANCELLED, "the server was stopped while it waited for its models")
            error = states.unavailable(self._board.reached(names, since), what)
        if error:
            raise error

    def _poll_forever(self):
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
