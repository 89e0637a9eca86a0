"""The clients of Triton. They have the same methods: TritonClient's return the answer, AsyncTritonClient's are awaited."""

from tftrt_tools.servers.client import protocols
from tftrt_tools.servers.client.connection import Awaiting, Blocking, answered, awaited
from tftrt_tools.servers.client.kserve import calls
from tftrt_tools.servers.client.kserve.shared_memory import SharedMemory


class TritonClient(Blocking):
    """One connection to one Triton, for any number of threads. A context manager; `close` ends it."""

    protocol = protocols.TRITON
    regions: tuple[SharedMemory, ...] = ()
    predict = answered(calls.predict)
    predict_bytes = answered(calls.predict_bytes)
    metadata = answered(calls.metadata)
    config = answered(calls.config)
    ready = answered(calls.ready)
    repository = answered(calls.repository)
    status = answered(calls.status)
    statistics = answered(calls.statistics)
    register = answered(calls.register)
    unregister = answered(calls.unregister)
    load = answered(calls.load)
    unload = answered(calls.unload)

    def names(self) -> list[str]:
        """The models of the repository, sorted. Raises: ServingError."""
        return sorted({one.name for one in self.repository()})


class AsyncTritonClient(Awaiting):
    """The same methods, awaited: `await client.predict(…)`. An async context manager; it belongs to the event loop that first uses it."""

    protocol = protocols.TRITON
    regions: tuple[SharedMemory, ...] = ()
    predict = awaited(calls.predict)
    predict_bytes = awaited(calls.predict_bytes)
    metadata = awaited(calls.metadata)
    config = awaited(calls.config)
    ready = awaited(calls.ready)
    repository = awaited(calls.repository)
    status = awaited(calls.status)
    statistics = awaited(calls.statistics)
    register = awaited(calls.register)
    unregister = awaited(calls.unregister)
    load = awaited(calls.load)
    unload = awaited(calls.unload)
