"""Facts about a model besides its answers: digest, engines, cost of its conversion. Read from its passport, without TensorFlow."""

import dataclasses
import os
import pathlib
from collections.abc import Mapping
from typing import Any, Literal

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.kinds import model as kinds
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.engine_op import lowest_precision


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model(records.Record):
    """One of the two models. Figures of its engines are None if the passport lacks them."""

    # Its directory, "" if only a name is known.
    path: str
    # Its name on the server.
    name: str
    # The version that answered.
    version: int | None = None
    # sha256 of its files, or "".
    digest: str = ""
    # The lowest precision of its engines, "" without engines.
    precision: Precision | Literal[""] = ""
    # How many engine ops it has.
    engine_ops: int | None = None
    # Seconds that its engines took to build.
    build_seconds: float | None = None
    # Bytes of its engines' files.
    engine_bytes: int | None = None
    # The most bytes of GPU memory during their build.
    gpu_memory_bytes: int | None = None
    # Engine ops that were left native, by passport.left_native.
    left_native: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def title(self) -> str:
        """For people."""
        return self.path or (f"{self.name}, version {self.version}" if self.version is not None else self.name)


def read(path: str | os.PathLike[str], name: str, version: int | None = None) -> Model:
    """The Model in a directory, or only a name if `path` is "". Raises: TftrtError for a damaged passport."""
    if not path:
        return Model(path="", name=name, version=version)
    named = os.fspath(path)
    kind = table.kind(named)
    return _read(named, kind.digest(named), kind.document(named, passport.MANIFEST) or {}, name, version)


def of(model: kinds.Model, name: str) -> Model:
    """The Model of a model on disk."""
    return _read(model.source.path, model.digest(), model.document(passport.MANIFEST) or {}, name)


def _read(path: str, digest: str, manifest: Mapping[str, Any], name: str, version: int | None = None) -> Model:
    engines = [engine for one in manifest.get("signatures", ()) for engine in one.get("engines", ())]
    built = [engine for one in manifest.get("signatures", ()) for engine in one.get("built", ())]
    precision = lowest_precision({engine.get("precision") for engine in engines})
    seconds = [one["build_seconds"] for one in manifest.get("signatures", ()) if one.get("build_seconds") is not None]
    peaks = [one["peak_memory_bytes"] for one in built if one.get("peak_memory_bytes") is not None]
    return Model(
        path=str(pathlib.Path(path).absolute()),
        name=name,
        version=version,
        digest=digest,
        precision=precision,
        engine_ops=len(engines) if manifest else None,
        build_seconds=sum(seconds) if seconds else None,
        engine_bytes=sum(one["bytes"] for one in built) if built else None,
        gpu_memory_bytes=max(peaks) if peaks else None,
        left_native=passport.left_native(manifest),
    )


def arithmetic(native: Model, candidate: Model, gpus: bool | None) -> tuple[str, str]:
    """Which bounds of `tftrt verify` hold for the candidate's answers, and why. Args: native, candidate: Models; gpus: whether the
    server has one, None if that is not known. Returns: (key of thresholds.DEFAULTS, reason)."""
    for model in (candidate, native) if not candidate.precision or gpus is False else ():
        known = table.kind(model.path).arithmetic(model.path) if model.path else None
        if known:
            return known.key, known.reason
    if gpus is False:
        return "rewrite", "the server has no GPU: TensorFlow's float32 on both sides"
    if not candidate.path:
        return "FP16", "the candidate's precision is not known (--candidate_dir names its files)"
    if candidate.precision in ("INT8", "FP16"):
        return candidate.precision, f"{candidate.precision} engines"
    return "TF32", "float32 on a GPU, which may compute in TF32"
