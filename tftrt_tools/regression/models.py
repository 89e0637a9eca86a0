"""What is known of a model beside its answers: digest, engines, what its conversion took. Read from its passport, without TensorFlow."""

import dataclasses
import pathlib

from tftrt_tools.savedmodel import files, passport
from tftrt_tools.savedmodel.engine_op import lowest_precision


@dataclasses.dataclass(frozen=True)
class Model:
    """path: directory, "" where only a name is known; name: as served; version: that answered. digest: of its files, "". precision: the
    lowest of its engines, "" without; engine_ops: how many. build_seconds, engine_bytes, gpu_memory_bytes: of its engines, None where the
    passport does not say."""

    path: str
    name: str
    version: int | None = None
    digest: str = ""
    precision: str = ""
    engine_ops: int | None = None
    build_seconds: float | None = None
    engine_bytes: int | None = None
    gpu_memory_bytes: int | None = None

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data):
        return cls(**data)

    @property
    def title(self):
        """For people."""
        return self.path or (f"{self.name}, version {self.version}" if self.version is not None else self.name)


def read(path, name, version=None):
    """The Model in a directory, or of a name alone where `path` is "". Raises: TftrtError for a damaged passport."""
    if not path:
        return Model("", name, version)
    manifest = passport.read(path, passport.MANIFEST) or {}
    engines = [engine for one in manifest.get("signatures", ()) for engine in one.get("engines", ())]
    built = [engine for one in manifest.get("signatures", ()) for engine in one.get("built", ())]
    precision = lowest_precision({engine.get("precision") for engine in engines})
    seconds = [one["build_seconds"] for one in manifest.get("signatures", ()) if one.get("build_seconds") is not None]
    peaks = [one["peak_memory_bytes"] for one in built if one.get("peak_memory_bytes") is not None]
    return Model(str(pathlib.Path(path).absolute()), name, version, files.digest(path),
                 precision, len(engines) if manifest else None,
                 sum(seconds) if seconds else None, sum(one["bytes"] for one in built) if built else None, max(peaks) if peaks else None)


def arithmetic(candidate, gpus):
    """Whose bounds of `tftrt verify` the candidate's answers are held against, and why. Args: candidate: Model; gpus: whether the server
    has one, None where that is not known. Returns: (key of thresholds.DEFAULTS, reason)."""
    if gpus is False:
        return "rewrite", "the server has no GPU: TensorFlow's float32 on both sides"
    if not candidate.path:
        return "FP16", "the candidate's precision is not known (--candidate_dir names its files)"
    if candidate.precision in ("INT8", "FP16"):
        return candidate.precision, f"{candidate.precision} engines"
    return "TF32", "float32 on a GPU, which may compute in TF32"
