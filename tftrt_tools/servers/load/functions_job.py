"""The functions that a worker calls in place of a server; it may load TensorFlow."""

import concurrent.futures
from collections.abc import Callable, Mapping
from typing import Any

from tftrt_tools.base.process import jobs
from tftrt_tools.servers.load.drive_job import Call

_UNKNOWN = 2  # gRPC's code


class Functions:
    """Functions that a worker calls instead of sending on channels. Each request under way has a thread of its own."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        """Args: head: of an Assignment: "factory", "request" and "threads"."""
        factory = jobs.named(head["factory"])
        function: Callable[[int], object]
        function, self.count = factory.load()(factory.read_request(head["request"]))
        self._threads = concurrent.futures.ThreadPoolExecutor(head["threads"])
        self.calls: list[Call] = [lambda index: self._threads.submit(function, index)]

    def explain(self, error: BaseException) -> tuple[int, str, str]:
        """(code, its name, message)."""
        return _UNKNOWN, "UNKNOWN", f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Start no more calls, and do not wait for those under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)
