"""A server with one set of batching parameters, for as long as a block lasts."""

import contextlib
import pathlib
from collections.abc import Iterator

from tftrt_tools.base.files import plain_file, scratch
from tftrt_tools.servers.serving.configuration import batching_file
from tftrt_tools.servers.serving.configuration.batching_file import Settings
from tftrt_tools.servers.serving.launch import block
from tftrt_tools.studies.batching.options import Options

MODEL_NAME = "model"
# Two servers are up at once when they are compared, and by default each takes all memory of the GPU.
_ENV = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
_FILE = "batching_parameters.txt"


@contextlib.contextmanager
def started(options: Options, settings: Settings | None) -> Iterator[block.Running]:
    """Serve the model as MODEL_NAME. Args: settings: None for a server that does not batch. Yields: block.Running. Raises: UsageError;
    TftrtError where it does not start."""
    flags: dict[str, object] = {}
    with scratch.folder("batching") as folder:
        if settings is not None:
            path = pathlib.Path(folder) / _FILE
            plain_file.write_text(path, batching_file.text(settings, settings.allowed_batch_sizes or None))
            flags |= {"enable_batching": True, "batching_parameters_file": str(path)}
        with block.served(
            {MODEL_NAME: options.model}, options.backend, options.image, env=_ENV, flags=flags
        ) as running:
            yield running
