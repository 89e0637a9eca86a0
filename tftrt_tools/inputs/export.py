"""Writes rows of a source, read like calibration data, to files that other commands take."""

from __future__ import annotations

import dataclasses
from typing import Any

from tftrt_tools import child, errors
from tftrt_tools.inputs import find
from tftrt_tools.inputs import options as options_module
from tftrt_tools.inputs.labels import Class
from tftrt_tools.inputs.options import DataOptions
from tftrt_tools.savedmodel import describe, signatures
from tftrt_tools.sources.opened import opened
from tftrt_tools.sources.source import Source

_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to write.

    options: DataOptions with the source, and how pictures are read. output: the .npz. signature: a name, "" for the only one or
    serving_default. rows: at most; 0 for all. labels: the .npy of their classes, or "". calibration: another .npz, or "", with at most
    calibration_rows other rows. label_feature: the feature of TFRecords that is the class. classes: names of folders in the order of their
    classes, () for sorted.
    """

    options: DataOptions
    output: str
    signature: str = ""
    rows: int = 0
    labels: str = ""
    calibration: str = ""
    calibration_rows: int = 0
    label_feature: str = ""
    classes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "options": self.options.to_dict(), "classes": list(self.classes)}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Wanted:
        return cls(**{**given, "options": DataOptions.from_dict(given["options"]), "classes": tuple(given["classes"])})


@dataclasses.dataclass(frozen=True)
class Written:
    """What was written. source_kind: of find.Found; rows, calibration_rows: how many; in_both: rows left out of the calibration file,
    because the other file has equal ones; bytes: of the .npz; inputs: {array: "dtype[shape]"}; classes: Classes, () without labels;
    failed: names of pictures that did not decode."""

    wanted: Wanted
    source_kind: str
    rows: int
    calibration_rows: int
    in_both: int
    bytes: int
    inputs: dict[str, str]
    classes: tuple[Class, ...]
    failed: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "wanted": self.wanted.to_dict(), "classes": [dataclasses.asdict(one) for one in self.classes],
                "failed": list(self.failed)}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Written:
        return cls(**{**given, "wanted": Wanted.from_dict(given["wanted"]), "failed": tuple(given["failed"]),
                      "classes": tuple(Class(**one) for one in given["classes"])})


def export(model: str | Source, wanted: Wanted, log_file: str | None = None) -> Written:
    """Write the files. Args: model: path or source.Source; its signature says what a row is. Returns: Written. Raises: UsageError."""
    with opened(model, log_file) as folder:
        described = describe.describe(folder)[0]
    inputs = described.inputs
    walked = signatures.Once.of(signatures.chosen(list(inputs), [wanted.signature] if wanted.signature else []), described.same)
    name = _signature(walked.names)
    found = find.find(wanted.options.source, find.POSITIONAL)
    options_module.check_image_flags(wanted.options, found.kind)
    _check_labels(wanted, found)
    plain = name == signatures.DEFAULT or len(signatures.Once.of(list(inputs), described.same).names) == 1
    request = {"wanted": dataclasses.replace(wanted, signature=name).to_dict(), "specs": [spec.to_dict() for spec in inputs[name]],
               "kind": found.kind, "files": list(found.files), "prefix": "" if plain else f"{name}/"}
    return Written.from_dict(child.run("tftrt_tools.inputs.export_job:job", request, env=_ENV, log_file=log_file).result)


def _signature(names: list[str]) -> str:
    if len(names) > 1 and signatures.DEFAULT not in names:
        raise errors.UsageError(f"the model has the signatures {', '.join(names)}", "choose one by --signature_keys")
    return signatures.DEFAULT if signatures.DEFAULT in names else names[0]


def _check_labels(wanted: Wanted, found: find.Found) -> None:
    kind = found.kind
    if wanted.label_feature and kind != "tfrecords":
        raise errors.UsageError(f"--label_feature speaks of TFRecords, and the data is {kind}", "leave it out")
    if wanted.classes and not found.by_file:
        raise errors.UsageError(f"--classes speaks of folders of pictures or other files, and the data is {kind}", "leave it out")
    if (wanted.label_feature or wanted.classes) and not wanted.labels:
        raise errors.UsageError(f"--{'label_feature' if wanted.label_feature else 'classes'} has no effect without --output_labels",
                                "name the file for the labels, or leave it out")
    if wanted.labels and kind != "tfrecords" and not found.by_file:
        raise errors.UsageError(f"--output_labels: {kind} have no labels that could be read", "labels are the folders of pictures and "
                                "other files, or a feature of TFRecords")
    if wanted.labels and kind == "tfrecords" and not wanted.label_feature:
        raise errors.UsageError("--output_labels: which feature of the records is the class?", "name it by --label_feature")
