"""The batch sizes that a server's batching parameters file allows. No TensorFlow here."""

import dataclasses
import pathlib

from tftrt_tools.base import errors


@dataclasses.dataclass(frozen=True)
class BatchSizes:
    """largest: rows of the largest request that the server takes; stated: whether the file gives it, or it is the server's default;
    allowed: sizes that batches are padded to, ascending, () for any."""

    largest: int
    stated: bool
    allowed: tuple[int, ...]


def read(path: str | pathlib.Path) -> BatchSizes:
    """The BatchSizes of a BatchingParameters file in text form. Raises: UsageError, also where a server would refuse the sizes."""
    from tftrt_tools.servers.serving.local import batching_parameters, failure

    try:
        parameters = batching_parameters.read(pathlib.Path(path))
        parameters.check()
    except failure.Failure as refused:
        raise errors.UsageError(
            f"--batching_parameters_file={path}: {' '.join(refused.message.split())}",
            "a server that is given this file fails to load every model; `tftrt configure --help` makes one",
        ) from None
    default = batching_parameters.BatchingParameters.max_batch_size
    return BatchSizes(parameters.max_batch_size, parameters.max_batch_size != default, parameters.allowed_batch_sizes)
