"""What the build of a plan has made: the manifest of a plan directory."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from tftrt_tools.base import records, results
from tftrt_tools.models.kinds.plan.document import ENGINE, PlanFile
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.inspection import bytes_text
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.plans.settings import Settings

BACKEND = "tensorrt"


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Built(passport.Stamped, results.Result):
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
    # Layers that are constrained to FP32: what a file in FP16 leaves in FP32, and spectra whose logarithm is taken.
    held: int = 0
    # Tensors of such a spectrum that TensorRT hands on in FP16 nevertheless.
    narrowed: tuple[str, ...] = ()
    # Reshapes that TensorRT reads otherwise than they are, although the plan was built again with them in FP32.
    misread: tuple[str, ...] = ()
    # What to know, a line each.
    notes: tuple[str, ...] = ()
    # Why the engine cache did not work, or "".
    cache_problem: str = ""

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.output or 'a dry run'}: {self.plan.precision} plan of {bytes_text(self.plan.bytes)} for {self.plan.gpu}"

    @property
    def backend(self) -> str:
        """What made it, beside TF-TRT."""
        return BACKEND

    @property
    def complete(self) -> bool:
        """A plan is whole or not there."""
        return True

    def text(self) -> tuple[str, ...]:
        """Lines for people."""
        plan = self.plan
        times = f", with {bytes_text(self.known_timings)} of times from earlier builds" if self.known_timings else ""
        written = f"written: {self.output}" if self.output else "nothing was written (--dry_run)"
        return (
            f"{plan.precision} plan of {bytes_text(plan.bytes)} for TensorRT {plan.tensorrt} and {plan.gpu}",
            f"it came from the engine cache; its build took {self.build_seconds:.1f} s"
            if self.cached
            else f"built in {self.build_seconds:.1f} s{times}",
            *[f"{self.ranged} tensors have a range of the calibration table"] * bool(self.ranged),
            *[f"{self.held} layers are held in FP32, for the file or the logarithm of a spectrum needs it"]
            * bool(self.held),
            *[
                f"warning: {len(self.narrowed)} tensors of a spectrum are handed on in FP16 nevertheless, which covers its quiet "
                "frequencies: `tftrt verify` says what it costs; a file in FP32 and --precision=FP32 keep them"
            ]
            * bool(self.narrowed),
            *[
                "warning: the answers are likely wrong (`tftrt verify` tells): TensorRT reads packed channels as rows at "
                f"{', '.join(self.misread)}; build for another largest batch in --shapes, or with --precision=FP32"
            ]
            * bool(self.misread),
            *(
                f"plugins: {one.file} ({', '.join(one.creators) or 'none that TensorRT did not have'})"
                for one in plan.plugins
            ),
            *(f"note: {note}" for note in self.notes),
            *[f"the engine cache was not used: {self.cache_problem}"] * bool(self.cache_problem),
            f"{written} ({self.seconds:.1f} s)",
        )

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
