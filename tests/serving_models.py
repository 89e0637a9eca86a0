"""Base paths with tiny models that the server's manager loads for real: a version is a directory with a file that says what it is."""

import contextlib
import pathlib
import shutil
import threading
import time

import grpc
from tensorflow_serving.apis import model_pb2
from tensorflow_serving.config import model_server_config_pb2

from tftrt_tools.servers.serving.local.failure import Failure
from tftrt_tools.servers.serving.local.manager import Manager, ManagerSettings

WAIT = 30  # seconds until a test gives up; nothing is measured


def eventually(predicate):
    """Wait until it holds. Returns: what it returned."""
    end = time.monotonic() + WAIT
    while not (result := predicate()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)
    return result


def spec(name="m", version=None, label=None):
    made = model_pb2.ModelSpec(name=name)
    if version is not None:
        made.version.value = version
    if label is not None:
        made.version_label = label
    return made


def config(*models):
    """ModelServerConfig. Args: models: dicts of ModelConfig's fields; the platform is TensorFlow where none is given."""
    made = model_server_config_pb2.ModelServerConfig()
    made.model_config_list.SetInParent()
    for model in models:
        made.model_config_list.config.add(**{"model_platform": "tensorflow", **model})
    return made


class Shelf:
    """A base path."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.mkdir(parents=True)

    def put(self, version, text="good"):
        """Publish a version by one rename. text: "good", or "bad" for one that cannot be loaded."""
        stage = self.path / f".stage-{version}"
        stage.mkdir()
        (stage / "model").write_text(text)
        stage.rename(self.path / str(version))

    def drop(self, version):
        # In one step, so that no half of it is loaded.
        trash = self.path / f".trash-{version}"
        (self.path / str(version)).rename(trash)
        shutil.rmtree(trash)

    def model(self, name="m", **fields):
        return {"name": name, "base_path": str(self.path), **fields}


class Model:
    """What the loader returns. open: False once it is closed."""

    def __init__(self, loader, name, version):
        self.loader, self.name, self.version, self.open = loader, name, version, True

    def close(self):
        assert self.open, "closed twice"
        self.open = False
        self.loader.closed.append((self.name, self.version))


class Loader:
    """loads, closed: [(name, version)] in order. gates: {version: Event} that a load waits for. loading: how many at the moment."""

    def __init__(self):
        self.loads, self.closed, self.gates, self.models = [], [], {}, []
        self.loading = self.most_loading = 0
        self._lock = threading.Lock()

    def __call__(self, name, version, path):
        with self._lock:
            self.loads.append((name, version))
            self.loading += 1
            self.most_loading = max(self.most_loading, self.loading)
        try:
            if version in self.gates:
                assert self.gates[version].wait(WAIT)
            try:
                text = (pathlib.Path(path) / "model").read_text()
            except OSError:
                raise Failure(grpc.StatusCode.NOT_FOUND, f"no model in {path}") from None
            if text != "good":
                raise Failure(grpc.StatusCode.INVALID_ARGUMENT, f"version {version} is {text}")
            model = Model(self, name, version)
            self.models.append(model)
            return model
        finally:
            with self._lock:
                self.loading -= 1


@contextlib.contextmanager
def serving(*models, loader=None, start=True, **settings):
    """A manager with a Loader as `manager.loader`; polls often, and tries no load twice, where the settings say nothing else."""
    loader = loader or Loader()
    manager = Manager(
        loader, ManagerSettings(**{"file_system_poll_wait_seconds": 0.01, "max_num_load_retries": 0, **settings})
    )
    manager.loader = loader
    try:
        if start:
            manager.start(config(*models))
        yield manager
    finally:
        manager.stop()


def states(manager, name="m"):
    """{version: name of its state}."""
    return {one.version: one.state.name for one in manager.status(name)}


def available(manager, name="m"):
    return sorted(version for version, state in states(manager, name).items() if state == "AVAILABLE")


def answering(manager, **which):
    """The version that answers a request."""
    with manager.handle(spec(**which)) as model:
        assert model.open
        return model.version
