"""A calibration file: the tables of one model's engines, what they were made from, and how. JSON; a converted model carries it too."""

import dataclasses
import json
import os
import pathlib
import statistics
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from tftrt_tools.base import errors, records
from tftrt_tools.base.files import documents, whole_file
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.tftrt.calibration import table as tables
from tftrt_tools.tftrt.calibration.comparison import Comparison
from tftrt_tools.tftrt.calibration.table import Table

KIND = "calibration"
# The method, by the header of a table without a calibration file.
_METHODS = {
    "EntropyCalibration2": "entropy2",
    "EntropyCalibration": "entropy",
    "MinMaxCalibration": "max",
    "LegacyCalibration": "legacy",
}
# Why a tensor has no scale.
NOT_MEASURED = "no TensorFlow tensor holds its values"
NO_RANGE = "zero in all of the data"
_AGAIN = "calibrate again, or give another file"
_OF_ANOTHER_KERAS = (
    "; a Keras file becomes another graph in another Keras: if that made the table, export the model there with model.export('DIR'), "
    "and give DIR"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineTable(records.Record):
    """One engine's table."""

    # "sha256:…" of the segment's graph with its names (savedmodel.job.segments.digest), the keys of the table; "" where it is not known (a
    # table from elsewhere).
    segment: str
    # The names of signature and engine when the table was made; the engine's name changes with the settings, the segment does not.
    signature: str
    engine: str
    table: Table
    # (tensor, reason) of those that have no scale on purpose.
    left_out: tuple[tuple[str, str], ...] = ()
    # {tensor: {"min", "max"}} as seen in the data, or None.
    ranges: dict[str, dict[str, float]] | None = None

    def __post_init__(self) -> None:
        for name, _ in self.left_out:
            if name in self.table.scales:
                raise errors.TftrtError(f"tensor {name!r} has a scale and is left out as well", _AGAIN)

    @property
    def label(self) -> str:
        """The engine's name for people."""
        return self.engine or "the table"

    def to_dict(self) -> dict[str, Any]:
        """Written by hand: left_out is pairs here, and objects in the file."""
        return {**super().to_dict(), "left_out": [{"tensor": name, "reason": reason} for name, reason in self.left_out]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "EngineTable":
        return super().from_dict({**data, "left_out": [(one["tensor"], one["reason"]) for one in data["left_out"]]})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration(records.Record):
    """The INT8 tables of one model."""

    document: ClassVar[str] = KIND
    schema_version: ClassVar[int] = passport.SCHEMA_VERSION
    written_too: ClassVar[tuple[str, ...]] = ("schema_version",)
    written_first: ClassVar[tuple[str, ...]] = ("kind", "schema_version")

    # Version and time, as passport.stamp() gives them.
    tool: str
    created: str
    # "tensorrt" or "toolkit", or both where merged.
    calibrator: str
    # "entropy", "percentile 99.9", "mse", "max", "entropy2" (TensorRT's own), or "edited" and "merged", which `provenance` explains.
    method: str
    # The versions of TensorFlow and TensorRT.
    tensorrt: str
    tensorflow: str
    # Its path, and files.digest of it; "" where not known.
    model: str
    model_digest: str
    # The dict of a record.DataRecord; entries are missing, or None after a merge, where they are not known.
    data: dict[str, Any]
    engines: tuple[EngineTable, ...]
    # A record of each edit or merge, oldest first.
    provenance: tuple[dict[str, Any], ...] = ()
    # The comparison of the methods, None if they were not compared.
    comparison: Comparison | None = None

    def __post_init__(self) -> None:
        _check_record(self.data)

    def write(self, path: str | os.PathLike[str], overwrite: bool = True) -> None:
        """Write it to `path`, whole or not at all. Args and raises: as whole_file.replacing."""
        whole_file.write_text(path, self.text(), overwrite=overwrite)

    def text(self) -> str:
        """The content of its file."""
        return json.dumps(self.to_dict(), indent=2) + "\n"


def of_table(
    table: Table, engine: str = "", signature: str = "", source: str = "", zeros: Iterable[str] = ()
) -> Calibration:
    """A Calibration that holds one table of unknown origin, such as a text file that another tool made. Args: zeros: of tables.read."""
    return Calibration(
        **passport.stamp(),
        calibrator="tensorrt",
        method=_METHODS[table.calibrator],
        tensorrt=table.tensorrt,
        tensorflow="",
        model="",
        model_digest="",
        data={"source": source} if source else {},
        engines=(
            EngineTable(segment="", signature=signature, engine=engine, table=table, left_out=without_range(zeros)),
        ),
    )


def without_range(zeros: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The EngineTable.left_out of tensors that were zero in all of the data."""
    return tuple((name, NO_RANGE) for name in zeros)


def read(path: str | os.PathLike[str]) -> Calibration:
    """Read a calibration file, TensorRT's plain text form, or the calibration file of a converted model (a directory).

    Raises: UsageError if it is none of these, TftrtError where it is damaged or from a newer version, OSError.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise errors.UsageError(
            f"no such file or directory: {path}", "give a calibration file, a table of TensorRT, or a converted model"
        )
    if path.is_dir():
        folder, path = path, passport.folder(path) / passport.CALIBRATION
        if not path.is_file():
            raise errors.UsageError(
                f"{folder} holds no {passport.folder('') / passport.CALIBRATION}",
                "models that `tftrt convert` calibrated have one; else give the calibration file itself",
            )
    try:
        text = documents.read_text(path)
    except ValueError:
        raise _no_calibration(path) from None
    if text.lstrip().startswith("{"):
        return _of_json(path, text)
    if text.startswith("TRT-") or not text.strip():
        table, zeros = tables.read(text, str(path))
        return of_table(table, zeros=zeros)
    raise _no_calibration(path)


def _of_json(path: pathlib.Path, text: str) -> Calibration:
    try:
        document = documents.parse(text, once=_once)
    except ValueError as error:
        cut = isinstance(error, json.JSONDecodeError) and error.pos >= len(text.rstrip()) - 1
        raise errors.TftrtError(f"{path} is damaged{': it ends too early' if cut else ''}: {error}", _AGAIN) from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise _no_calibration(path)
    version = document.get("schema_version")
    if not isinstance(version, int):
        raise errors.TftrtError(f"{path} is damaged: it says no schema_version", _AGAIN)
    if version > passport.SCHEMA_VERSION:
        raise errors.TftrtError(f"{path} was written by a newer tftrt-tools (schema {version})", "upgrade tftrt-tools")
    try:
        return Calibration.from_dict(document)
    except errors.TftrtError as error:
        raise errors.TftrtError(f"{path}: {error.cause}", error.mend) from None
    except KeyError as error:
        raise errors.TftrtError(f"{path} is damaged: it has no {error}", _AGAIN) from None
    except documents.MISREAD as error:
        raise errors.TftrtError(f"{path} is damaged: {documents.reason(error)}", _AGAIN) from None


def _no_calibration(path: pathlib.Path) -> errors.UsageError:
    return errors.UsageError(
        f"{path} is no calibration file and no table of TensorRT",
        f'a calibration file is JSON of "kind": "{KIND}"; TensorRT\'s text begins like TRT-8503-EntropyCalibration2',
    )


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that comes twice: json would keep the last one, and nobody knows which of two scales is meant."""
    document = dict(pairs)
    if len(document) < len(pairs):
        twice = statistics.mode(key for key, _ in pairs)
        raise ValueError(f"{twice!r} stands there twice")
    return document


def _check_record(data: Mapping[str, Any]) -> None:
    """Raise ValueError for what is no data record. A missing entry is not known; a present one must have the right type, because merging
    and showing rely on it."""
    lists = [value for name in ("rows", "warnings", "failed_files") for value in data.get(name, [])]
    texts = [data.get(name, "") for name in ("source", "kind", "digest")]
    if not all(isinstance(text, str) for text in (*lists, *texts)):
        raise ValueError("its data record holds something else where text belongs")


def _no_table(calibration: Calibration, engine: str, segment: str, wanted: int, tensorrt: str) -> errors.TftrtError:
    segments = [table.segment[:19] for table in calibration.engines if table.segment]
    if not segments:
        given = len(calibration.engines)
        return errors.TftrtError(
            f"{engine} has no table: {given} of unknown engines given, and {wanted} engines need one",
            "a plain table of TensorRT serves a model with one engine; else calibrate with tftrt",
        )
    return errors.TftrtError(
        f"{engine} has no table: its graph is {segment[:19]}, and the table was made for another graph "
        f"({', '.join(segments[:3])}{', …' if len(segments) > 3 else ''}{f', of {calibration.model}' if calibration.model else ''})",
        "calibrate this model again, with the settings that decide its engines: segment size, batch mode, kept ops"
        + ("" if all(tensorrt.startswith(one.table.tensorrt) for one in calibration.engines) else _OF_ANOTHER_KERAS),
    )


def for_segments(calibration: Calibration, segments: Mapping[str, str], tensorrt: str) -> dict[str, EngineTable]:
    """Which table goes to which engine.

    Args: segments: {engine: "sha256:…" of its segment's graph}, all engines that need a table. tensorrt: the version that will read the
      tables, such as "8.5.3".

    Returns: {engine: EngineTable as it is in `calibration`}, for every engine. Tables of segments that nobody asks for are no error: a
    model may be converted with fewer signatures. A table of unknown segment ("", from a plain text file) is taken if one engine asks and
    it is the only table; whether it fits cannot be checked here.

    Raises: TftrtError naming the engine that has no table, has several that differ, or has one of another major version of TensorRT or
    another calibrator.
    """
    chosen = {}
    for engine, segment in segments.items():
        engine_table = _only(calibration, engine, segment, len(segments), tensorrt)
        table = engine_table.table
        if table.major != int(tensorrt.split(".")[0]):
            raise errors.TftrtError(
                f"the table of {engine} is of TensorRT {table.tensorrt}, and here it is {tensorrt}",
                "calibrate again with this TensorRT",
            )
        if table.calibrator != tables.TFTRT_CALIBRATOR:
            raise errors.TftrtError(
                f"the table of {engine} was made by {table.calibrator}, and TF-TRT's engines take no other than "
                f"{tables.TFTRT_CALIBRATOR}",
                "calibrate with tftrt, or give another table",
            )
        chosen[engine] = engine_table
    return chosen


def _only(calibration: Calibration, engine: str, segment: str, wanted: int, tensorrt: str) -> EngineTable:
    if wanted == 1 and len(calibration.engines) == 1 and not calibration.engines[0].segment:
        return calibration.engines[0]
    fitting = [table for table in calibration.engines if segment and table.segment == segment]
    if not fitting:
        raise _no_table(calibration, engine, segment, wanted, tensorrt)
    if any(table.table != fitting[0].table for table in fitting):
        names = ", ".join(table.label for table in fitting)
        raise errors.TftrtError(
            f"{engine} could have {len(fitting)} tables that differ: its graph is that of {names}",
            "`tftrt table merge FILE --how=max --output=OTHER` makes one table of them",
        )
    return fitting[0]
