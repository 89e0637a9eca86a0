"""Serves both models in one server process, which is the fair way, or finds them on a running server.

It is one server and not two, because everything besides the models is then the same: one build and one set of flags, one process with one
allocator, one pool of threads and one GPU context, one port, warmed up together. Two servers differ in where their memory and threads
happen to lie by more than a small regression ("Producing wrong data without doing anything obviously wrong", Mytkowicz and others, ASPLOS
2009), and on a GPU the contexts of two processes take turns. The price is that both models are in memory at once, and that one must not
make the other wait: only one gets requests at a time. Both names have equally many letters, so that the requests have equally many
bytes.

Two servers are compared where they are what the user wants to know about: servers of two kinds, or two deployments. The verdict is then
about each model with its server, and a note says so.
"""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping

from tftrt_tools.base import errors
from tftrt_tools.servers.serving.launch import block
from tftrt_tools.studies.regression import rounds

NATIVE, CANDIDATE = "model-native", "model-tested"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Server:
    """A server that has both models, or two that have one each."""

    # HOST:PORT; and that of another server, which has the candidate, "" where one has both.
    address: str
    candidate_address: str = ""
    # Names of the models there.
    native: str
    candidate: str
    # The backend, and why it was chosen; "" for a server that ran before.
    backend: str = ""
    reason: str = ""
    # Id of the process started here, or 0.
    pid: int = 0
    # Says why the server ended, or None while it runs.
    problem: Callable[[], errors.TftrtError | None] = lambda: None

    @property
    def addresses(self) -> dict[rounds.Side, str]:
        """{side: the address that has its model}."""
        return {rounds.NATIVE: self.address, rounds.CANDIDATE: self.candidate_address or self.address}


@contextlib.contextmanager
def served(
    native: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    backend: str = "local",
    image: str = "",
    log_file: str | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Serve two SavedModel directories.

    Args: native, candidate: directories, which may be the same. backend: as --launch of `tftrt serve`. image: of Docker. log_file: where
      the server's log is kept, None for nowhere. env: variables to set in the server, {name: text}.
    Yields: Server. Raises: UsageError; TftrtError where the server does not start.
    """
    with block.served({NATIVE: native, CANDIDATE: candidate}, backend, image, log_file, env) as running:
        yield Server(
            address=running.address,
            native=NATIVE,
            candidate=CANDIDATE,
            backend=running.backend,
            reason=running.reason,
            pid=running.pid,
            problem=running.problem,
        )
