"""What `tftrt export` made, and what it found."""

from __future__ import annotations

import dataclasses
import typing

from tftrt_tools.accuracy.verify import Verification
from tftrt_tools.base import records, results
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.tensorrt.exporting.parser import Finding
from tftrt_tools.tensorrt.exporting.precision import Written
from tftrt_tools.tensorrt.exporting.rewriting import Rewritten


@dataclasses.dataclass(frozen=True, kw_only=True)
class Departure(records.Record):
    """The first tensor that is another in the ONNX graph than in the source's."""

    # Its name, which both graphs have.
    tensor: str
    # The op that computes it in the source, and the ONNX node behind it.
    source_op: str
    node: str
    # How near it is, in dB of signal to noise; and the tensor compared before it, "" for none.
    snr_db: float
    before: str
    # How many tensors were compared up to there, and how many the file computes.
    compared: int
    tensors: int

    def text(self) -> str:
        """For people."""
        where = f"behind {self.before}, which agrees" if self.before else "the first that both have"
        return (
            f"first departs: {self.tensor} ({self.source_op} in the source, {self.node} in the file): {self.snr_db:.1f} dB; {where}; "
            f"{self.compared} of the file's {self.tensors} tensors have a counterpart up to there"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class File(records.Record):
    """A signature as an ONNX file."""

    signature: str
    # Further names of the same signature.
    twins: tuple[str, ...]
    # Absolute paths: of the file, and of the file with its weights, or "".
    path: str
    weights: str
    # Of all of it.
    bytes: int
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    # {name of an open dimension: where it occurs}, "image:0" each.
    dimensions: dict[str, tuple[str, ...]]
    nodes: int
    # Of the file; a rewrite may need a newer one than was asked for.
    opset: int
    # What became of each rewrite.
    rewrites: tuple[Rewritten, ...]
    # What was written otherwise than tf2onnx does, and what to know; a line each.
    notes: tuple[str, ...]
    # What the target's parser refuses.
    findings: tuple[Finding, ...]
    # The answers under ONNX Runtime against the source's.
    verification: Verification
    # Set if they differ.
    departure: Departure | None = None
    # The precision that was written into it; None for FP32, and where its answers in FP32 differ already.
    precision: Written | None = None

    @property
    def answers(self) -> bool:
        """Whether it answers like its source."""
        judged = self.precision.verification if self.precision else None
        return self.verification.passed and (judged is None or judged.passed)

    @property
    def refused(self) -> tuple[Finding, ...]:
        """The certain findings."""
        return tuple(one for one in self.findings if one.certain)

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """The others."""
        return tuple(one for one in self.findings if not one.certain)


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Exported(passport.Stamped, results.Result):
    """The result of an export."""

    document: typing.ClassVar[str] = "export"
    written_too: typing.ClassVar[tuple[str, ...]] = ("passed",)

    # Path and digest.
    source: str
    source_digest: str
    # A value of --target, and what to know about its parser.
    target: str
    remark: str
    opset: int
    # "tf2onnx 1.17.0" and the like.
    exporter: str
    files: tuple[File, ...]
    # Whether the files were written; not where a check failed.
    written: bool
    # Whether nodes that the parser refuses were accepted by the user.
    refused_allowed: bool = False
    # What was asked for.
    precision: Precision = "FP32"
    # The file with the ranges of all tensors, or "".
    table: str = ""
    # Of `files`, the paths where another file was before.
    replaced: tuple[str, ...] = ()
    # Files with the weights of earlier exports, which were removed; and what is to know of those that were not.
    removed: tuple[str, ...] = ()
    stay: tuple[str, ...] = ()

    def summary(self) -> str:
        """As Result.summary."""
        paths = ", ".join(one.path for one in self.files)
        word = "PASSED" if self.passed else "FAILED"
        return f"{word}: {paths}{'' if self.written else ', not written'}; {self.exporter}, opset {self.opset}"

    @property
    def passed(self) -> bool:
        """Whether every file answers like the source, and the parser is not known to refuse it."""
        return all(one.answers and (self.refused_allowed or not one.refused) for one in self.files)
