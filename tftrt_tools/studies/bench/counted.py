"""Where a server's own counters are read, before and after a measurement, and what they say of the time between."""

from typing import Protocol, TypeVar

from tftrt_tools.servers.client import TritonClient
from tftrt_tools.servers.client.kserve.statistics_messages import Duration, Statistics
from tftrt_tools.studies.bench import server_metrics
from tftrt_tools.studies.bench.server_metrics import ServerSide

# What a read gives.
Counts = TypeVar("Counts")


class Counters(Protocol[Counts]):
    """A server's counters."""

    def read(self) -> Counts:
        """Them now. Raises: TftrtError where they cannot be read."""

    def between(self, before: Counts, after: Counts) -> ServerSide:
        """What was counted between two reads."""


class Page:
    """The page for Prometheus of a TensorFlow Serving. Args: url: of the page; model: name."""

    def __init__(self, url: str, model: str) -> None:
        self._url, self._model = url, model

    def read(self) -> server_metrics.Samples:
        """As Counters.read."""
        return server_metrics.fetch(self._url)

    def between(self, before: server_metrics.Samples, after: server_metrics.Samples) -> ServerSide:
        """As Counters.between."""
        return server_metrics.difference(before, after, self._model)


class Triton:
    """A Triton's statistics of a model. Args: version: None for all that are loaded."""

    def __init__(self, client: TritonClient, model: str, version: int | None) -> None:
        self._client, self._model, self._version = client, model, version

    def read(self) -> list[Statistics]:
        """As Counters.read."""
        return self._client.statistics(self._model, self._version)

    def between(self, before: list[Statistics], after: list[Statistics]) -> ServerSide:
        """As Counters.between. A version that was loaded anew counts from 0."""
        known = {one.version: one for one in before}
        pairs = [(known.get(one.version), one) for one in after]
        grown = [(None if old and old.success.count > new.success.count else old, new) for old, new in pairs]
        well, queue, infer = (_sum(grown, name) for name in ("success", "queue", "infer"))
        failed = _sum(grown, "fail").count
        rows, executions = (
            sum(getattr(new, name) - (getattr(old, name) if old else 0) for old, new in grown)
            for name in ("rows", "executions")
        )
        requests = {name: count for name, count in (("OK", well.count), ("failed", failed)) if count}
        batches: dict[str, int] = {}
        for old, new in grown:
            for size, count in sorted(new.batches.items()):
                more = count - (old.batches.get(size, 0) if old else 0)
                if more:
                    batches[str(size)] = batches.get(str(size), 0) + more
        return ServerSide(
            requests=requests,
            request_ms=_mean(well),
            runtime_ms=_mean(infer),
            queuing_ms=_mean(queue),
            input_rows=rows / well.count if well.count else None,
            processed_rows=rows / executions if executions else None,
            padding_rows=None,
            batches=batches,
            graph_runs=executions,
        )


def _sum(grown: list[tuple[Statistics | None, Statistics]], name: str) -> Duration:
    parts = [(getattr(old, name) if old else Duration(), getattr(new, name)) for old, new in grown]
    return Duration(sum(new.count - old.count for old, new in parts), sum(new.ns - old.ns for old, new in parts))


def _mean(all_of_them: Duration) -> float | None:
    """Milliseconds."""
    return all_of_them.ns / all_of_them.count / 1e6 if all_of_them.count else None
