"""Tables in text files: .csv and .tsv. No TensorFlow here."""

import csv
import dataclasses
import pathlib
import sys

from tftrt_tools.base import errors

_DELIMITERS = (",", ";", "\t")


@dataclasses.dataclass(frozen=True)
class Table:
    """A table as it stands in a file. rows: with the header, if there is one, in front; all have as many cells."""

    path: str
    rows: tuple[tuple[str, ...], ...]

    @property
    def width(self) -> int:
        """How many columns there are."""
        return len(self.rows[0])


def read(path: str) -> Table:
    """Read a table. Its delimiter is a tab in a .tsv, else the one of comma, semicolon and tab that is most frequent in the first line;
    empty lines are left out. Raises: UsageError, also for rows of different lengths."""
    csv.field_size_limit(sys.maxsize)
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise errors.UsageError(f"{path} is no UTF-8 text", "save it as UTF-8") from None
    except OSError as error:
        raise errors.UsageError(
            f"{path} cannot be read: {error.strerror}", "check the path and its permissions"
        ) from None
    first = text.partition("\n")[0]
    delimiter = "\t" if path.lower().endswith(".tsv") else max(_DELIMITERS, key=first.count)
    reader = csv.reader(text.splitlines(keepends=True), delimiter=delimiter)
    rows, ends = [], []
    try:
        for row in reader:
            if row:
                rows.append(tuple(row))
                ends.append(reader.line_num)
    except csv.Error as error:
        raise errors.UsageError(
            f"{path}: line {reader.line_num}: {error}", "write it as a table of comma-separated values"
        ) from None
    if not rows:
        raise errors.UsageError(f"{path} is empty", "give a row at least")
    for cells, line in zip(rows, ends, strict=True):
        if len(cells) != len(rows[0]):
            raise errors.UsageError(
                f"{path}: line {line} has {len(cells)} cells, and the first {len(rows[0])}",
                "give all rows the same columns; text with commas goes into quotes",
            )
    return Table(path, tuple(rows))
