"""What the build of a plan has made: the manifest of a plan directory."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from tftrt_tools.base import records
from tftrt_tools.models.kinds.plan.document import ENGINE, PlanFile
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.plans.settings import Settings

BACKEND = "tensorrt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built(passport.Stamped):
    """A finished build."""

    document: typing.ClassVar[str] = "plan build"
    written_too: typing.ClassVar[tuple[str, ...]] = ("backend", "signatures")

    # Absolute path of the input as given, and its digest.
    source: str
    source_digest: str
    # Digest of the plan directory that was built anew from its own files; "" for a first build.
    before: str = ""
    # Absolute path of the plan directory, None for a dry run.
    output: str | None
    settings: Settings
    # {"tensorrt", "python": version}.
    versions: dict[str, str]
    # The GPU, by execution.job.device.seen.
    gpu: dict[str, str]
    # What plan.json says.
    plan: PlanFile
    # Wall time of all; of reading the ONNX file; of TensorRT's build, also where an earlier command made it.
    seconds: float = records.field(digits=2)
    parse_seconds: float = records.field(digits=2)
    build_seconds: float = records.field(digits=2)
    # Whether the plan came from the engine cache; nothing was built then.
    cached: bool = False
    # Bytes of the timing cache that the build began with; 0 for none, and where nothing was built.
    known_timings: int
    # Tensors that got a range from a calibration table.
    ranged: int = 0
    # Layers that are constrained to FP32: what a file in FP16 leaves in FP32.
    held: int = 0
    # What to know, a line each.
    notes: tuple[str, ...] = ()
    # Why the engine cache did not work, or "".
    cache_problem: str = ""

    @property
    def backend(self) -> str:
        """What made it, beside TF-TRT."""
        return BACKEND

    @property
    def profiles(self) -> tuple[Profile, ...]:
        """As in plan.json."""
        return self.plan.profiles

    @property
    def signatures(self) -> tuple[dict[str, Any], ...]:
        """The entries that a converted SavedModel's manifest has for a signature, as far as a plan has them; under its own name as well."""
        calls = [{name: list(shape) for name, shape in one.opt.items()} for one in self.profiles]
        twins = [self.settings.signature] if self.settings.signature not in ("", DEFAULT) else []
        return (
            {
                "name": DEFAULT,
                "twins": twins,
                "calls": calls,
                "build_seconds": round(self.build_seconds, 2),
                "engines": [{"name": ENGINE, "precision": self.plan.precision}],
                "built": [
                    {
                        "name": ENGINE,
                        "bytes": self.plan.bytes,
                        "seconds": round(self.build_seconds, 2),
                        "cached": self.cached,
                    }
                ],
            },
        )
