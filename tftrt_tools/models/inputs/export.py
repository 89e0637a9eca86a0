"""Writes rows of a source, read like calibration data, to files that other commands take."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs
from tftrt_tools.models.execution import arrays as array_reader
from tftrt_tools.models.inputs import find
from tftrt_tools.models.inputs import options as options_module
from tftrt_tools.models.inputs.labels import Class
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel import describe, signatures
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.sources.opened import opened
from tftrt_tools.models.sources.source import Source

# Rows to calibrate on, if nobody says how many.
DEFAULT_CALIBRATION_ROWS = 500
_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wanted(records.Record):
    """The rows and files to write."""

    # The source, and how pictures are read.
    options: DataOptions
    # The .npz.
    output: str
    # The signature's name; "" for the only one or serving_default.
    signature: str = ""
    # The most rows; 0 for all.
    rows: int = 0
    # The .npy of their classes, or "".
    labels: str = ""
    # Another .npz, or "", with at most so many other rows; 0 for DEFAULT_CALIBRATION_ROWS, or a quarter of all if that is less.
    calibration: str = ""
    calibration_rows: int = 0
    # The feature of TFRecords that is the class.
    label_feature: str = ""
    # Names of folders in the order of their classes, or of the classes of `answers`; () for sorted.
    classes: tuple[str, ...] = ()
    # A file with the right answer of each row of the source, as inputs.labels.read takes it, or ""; and its column, if it is a table.
    answers: str = ""
    label_column: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written(records.Record):
    """The files that were written, and their rows."""

    wanted: Wanted
    # The kind, of find.Found.
    source_kind: str
    # How many rows each file has.
    rows: int
    calibration_rows: int
    # Rows left out of the calibration file, because the other file has equal ones.
    in_both: int
    # Size of the .npz.
    bytes: int
    # {array: "dtype[shape]"}.
    inputs: dict[str, str]
    # () without labels.
    classes: tuple[Class, ...]
    # Names of pictures that did not decode.
    failed: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request(records.Record):
    """Rows to read and write."""

    # With the signature's name.
    wanted: Wanted
    # Of the signature.
    specs: tuple[InputSpec, ...]
    # As of the request to a source.
    others: tuple[str, ...] = ()
    # Of find.Found.
    kind: str
    files: tuple[str, ...]
    # Of the names of the written arrays.
    prefix: str = ""
    # Whether files may be replaced.
    overwrite: bool = False


@jobs.job
def write() -> Callable[[Request], Written]:
    """Read rows, and write them to files. Raises: UsageError."""
    from tftrt_tools.models.inputs import export_job

    return export_job.job


def export(model: str | Source, wanted: Wanted, log_file: str | None = None, overwrite: bool = False) -> Written:
    """Write the files. Args: model: path or source.Source; its signature says what a row is. overwrite: replace files that are
    there at the end. Returns: Written. Raises: UsageError."""
    with opened(model, log_file) as folder:
        described = describe.describe(folder)[0]
    inputs = described.inputs
    walked = signatures.Once.of(
        signatures.chosen(list(inputs), [wanted.signature] if wanted.signature else []), described.same
    )
    name = _signature(walked.names)
    files = find.find(wanted.options.source, find.POSITIONAL)
    options_module.check_image_flags(wanted.options, files.kind)
    _check_labels(wanted, files)
    plain = name == signatures.DEFAULT or len(signatures.Once.of(list(inputs), described.same).names) == 1
    others = array_reader.input_names(inputs) - array_reader.input_names({name: inputs[name]})
    request = Request(
        wanted=dataclasses.replace(wanted, signature=name),
        specs=inputs[name],
        others=tuple(sorted(others)),
        kind=files.kind,
        files=files.files,
        prefix="" if plain else f"{name}/",
        overwrite=overwrite,
    )
    return write.run(request, env=_ENV, log_file=log_file).result


def _signature(names: list[str]) -> str:
    if len(names) > 1 and signatures.DEFAULT not in names:
        raise errors.UsageError(f"the model has the signatures {', '.join(names)}", "choose one by --signature_keys")
    return signatures.DEFAULT if signatures.DEFAULT in names else names[0]


def _check_labels(wanted: Wanted, files: find.Found) -> None:
    kind = files.kind
    if wanted.answers:
        _check_answers(wanted)
        return
    if wanted.label_feature and kind != "tfrecords":
        raise errors.UsageError(f"--label_feature is about TFRecords, and the data is {kind}", "leave it out")
    if wanted.classes and not files.by_file:
        raise errors.UsageError(
            f"--classes is about folders of pictures or other files, and the data is {kind}", "leave it out"
        )
    if (wanted.label_feature or wanted.classes) and not wanted.labels:
        raise errors.UsageError(
            f"--{'label_feature' if wanted.label_feature else 'classes'} has no effect without --output_labels",
            "name the file for the labels, or leave it out",
        )
    if wanted.labels and kind != "tfrecords" and not files.by_file:
        raise errors.UsageError(
            f"--output_labels: {kind} have no labels that could be read",
            "labels are the folders of pictures and "
            "other files, or a feature of TFRecords; --labels=FILE has them apart",
        )
    if wanted.labels and kind == "tfrecords" and not wanted.label_feature:
        raise errors.UsageError(
            "--output_labels: which feature of the records is the class?", "name it by --label_feature"
        )


def _check_answers(wanted: Wanted) -> None:
    if wanted.label_feature:
        raise errors.UsageError("--labels and --label_feature exclude each other", "give one of them")
    if not wanted.labels:
        raise errors.UsageError(
            "--labels has no effect without --output_labels", "name the file for the labels of the rows to score"
        )
    if (
        wanted.answers.lower().endswith(".npz")
        and pathlib.Path(wanted.answers).is_file()
        and "boxes" in array_reader.names(wanted.answers)
    ):
        raise errors.UsageError(
            f"--labels={wanted.answers} holds boxes, which are not parted here",
            "give rows to calibrate on apart from those to score",
        )
