"""The workers' entry for each request that ended: six whole numbers with names."""

import time
import typing
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

# Instants in ns. On Linux it reads CLOCK_MONOTONIC: it is the same in all processes of a machine, and setting the machine's clock does not
# move it (NTP may slew it, by 0.05 % at most), so that neither shows in a latency.
clock = time.perf_counter_ns
# One entry as the workers write it: six int64.
FIELDS = ("scheduled_ns", "sent_ns", "done_ns", "code", "payload", "flags")
CHECKED, DIFFERS, HELD = 1, 2, 4  # bits of flags
DEADLINE_EXCEEDED, UNAVAILABLE = 4, 14  # of gRPC, as `code`
_ENTRY = np.dtype([(name, np.int64) for name in FIELDS])

Column: typing.TypeAlias = npt.NDArray[np.int64]
Mask: typing.TypeAlias = npt.NDArray[np.bool_]


class Entries:
    """Requests that ended. Each column is int64 [n]; instants are nanoseconds on CLOCK_MONOTONIC.

    `entries[which]` takes a slice, a mask (bool [n]) or an order (int64 [m]), and gives the entries it names.
    """

    __slots__ = ("_table",)

    def __init__(self, table: npt.NDArray[np.void]) -> None:
        """Args: table: structured array [n] with FIELDS. Use `read`, `of` or `joined`."""
        self._table = table

    @classmethod
    def read(cls, body: bytes) -> "Entries":
        """Entries as a worker sends them: n times six int64."""
        return cls(np.frombuffer(body, _ENTRY))

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Entries":
        """Entries of six numbers each, in the order of FIELDS."""
        return cls(np.array([tuple(row) for row in rows], _ENTRY))

    @classmethod
    def of_columns(cls, columns: Sequence[Column]) -> "Entries":
        """Entries of six columns, int64 [n] each, in the order of FIELDS."""
        table = np.zeros(len(columns[0]), _ENTRY)
        for name, column in zip(FIELDS, columns, strict=True):
            table[name] = column
        return cls(table)

    @classmethod
    def joined(cls, parts: Iterable["Entries"]) -> "Entries":
        """All entries of several parts, one part after the other."""
        return cls(np.concatenate([np.zeros(0, _ENTRY), *(part._table for part in parts)]))

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, which: slice | Mask | npt.NDArray[np.integer[typing.Any]]) -> "Entries":
        return Entries(self._table[which])

    @property
    def scheduled_ns(self) -> Column:
        """When each request was due."""
        return self._column("scheduled_ns")

    @property
    def sent_ns(self) -> Column:
        """When each request was sent."""
        return self._column("sent_ns")

    @property
    def done_ns(self) -> Column:
        """When each request ended."""
        return self._column("done_ns")

    @property
    def code(self) -> Column:
        """gRPC's status codes; 0 is OK."""
        return self._column("code")

    @property
    def payload(self) -> Column:
        """Indices of the requests in the payload."""
        return self._column("payload")

    @property
    def flags(self) -> Column:
        """Bits: CHECKED, DIFFERS, HELD."""
        return self._column("flags")

    @property
    def ok(self) -> Mask:
        """bool [n]: answered with OK."""
        result: Mask = self.code == 0
        return result

    @property
    def latency_ns(self) -> Column:
        """Nanoseconds from the instant when a request was due to its end."""
        return self.done_ns - self.scheduled_ns

    @property
    def service_ns(self) -> Column:
        """Nanoseconds from the send to the end."""
        return self.done_ns - self.sent_ns

    def by_sent(self) -> "Entries":
        """The same entries in the order in which they were sent."""
        return self[np.argsort(self.sent_ns, kind="stable")]

    def _column(self, name: str) -> Column:
        column: Column = self._table[name]
        return column
