"""The clients of TensorFlow Serving. They have the same methods: Client's return the answer, AsyncClient's are awaited."""

from tftrt_tools.servers.client import calls, protocols
from tftrt_tools.servers.client.connection import Awaiting, Blocking, answered, awaited


class Client(Blocking):
    """One connection to one TensorFlow Serving, for any number of threads. A context manager; `close` ends it."""

    protocol = protocols.TENSORFLOW_SERVING
    predict = answered(calls.predict)
    predict_bytes = answered(calls.predict_bytes)
    metadata = answered(calls.metadata)
    status = answered(calls.status)
    reload = answered(calls.reload)


class AsyncClient(Awaiting):
    """The same methods, awaited: `await client.predict(…)`. An async context manager; it belongs to the event loop that first uses it."""

    protocol = protocols.TENSORFLOW_SERVING
    predict = awaited(calls.predict)
    predict_bytes = awaited(calls.predict_bytes)
    metadata = awaited(calls.metadata)
    status = awaited(calls.status)
    reload = awaited(calls.reload)
