"""The result of a smoke test, typed."""

import dataclasses
from typing import Any

from tftrt_tools.accuracy import judgement
from tftrt_tools.base import records
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.serving.smoke import engine_evidence, latency
from tftrt_tools.servers.serving.smoke.gpu_use import Use
from tftrt_tools.servers.serving.smoke.server_process import Process
from tftrt_tools.servers.serving.smoke.version_on_disk import Model


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallResult(records.Record):
    """One signature at one shape."""

    signature: str
    # {input: shape}
    shapes: dict[str, tuple[int, ...]]
    # Seconds of its first request, and the median of the later ones; None if it was refused.
    first_seconds: float | None
    p50_seconds: float | None
    # How many were answered.
    requests: int
    # The server's words, or "".
    refused: str
    # Did the engines run.
    engines: engine_evidence.Judgement
    # Against the native model, where there is one.
    native: latency.Ratio | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Smoke:
    """A finished smoke test."""

    # The address of the server's gRPC port.
    address: str
    model_name: str
    model_version: int
    # The server's process; None where it is not seen.
    server: Process | None
    # Why it is not seen, or "".
    unseen: str
    # By its program; "" if not known.
    server_version: str
    # The files of the served version; None where they are not seen.
    model: Model | None
    # The original model as it was named, or "".
    original: str
    # {signature: where its shapes are from}
    shapes_from: dict[str, str]
    calls: tuple[CallResult, ...]
    # None where there was no original.
    judged: judgement.Judgement | None
    # The key of the bounds, and why.
    arithmetic: tuple[str, str]
    # Errors of the answers by themselves, a line each.
    form: tuple[str, ...]
    # None where the server's process is not seen.
    gpu: Use | None
    # Did the engines run.
    engines: engine_evidence.Verdict
    # Whether any answer but "yes" is a problem.
    require_engines: bool
    # The seed of drawn inputs.
    seed: int
    # Rows of the data that no batch size fits.
    dropped: int
    # The inputs whose drawn values keep to what the model's ops take, a line each.
    drew: tuple[str, ...] = ()
    # {signature: other names of its function}: its result holds for them too.
    twins: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    # Why the served version is that of another kind of GPU than this machine's, or "".
    wrong_kind: str = ""

    @property
    def answer_problems(self) -> tuple[str, ...]:
        """Errors of the answers, a line each."""
        refused = [
            f"{call.signature}({_shapes(call.shapes)}) was refused: {call.refused}"
            for call in self.calls
            if call.refused
        ]
        return (*refused, *self.form, *(self.judged.all_problems if self.judged else ()))

    @property
    def problems(self) -> tuple[str, ...]:
        """The reasons why the test fails, a line each."""
        found = (*filter(None, [self.wrong_kind]), *self.answer_problems)
        if self.require_engines and not self.engines.ran:
            return (*found, f"--require_engines: {self.engines.answer}: {self.engines.reason}")
        return found

    @property
    def passed(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    @property
    def verdict(self) -> str:
        """The verdict in words, with what it is about where nothing was compared, or engines were served and not seen to run."""
        if not self.passed:
            return "FAILED"
        about = "the answers" if self.original else "the form of the answers"
        if self.model is None or not self.model.precisions or self.engines.ran:
            return "PASSED" if self.original else f"PASSED ({about})"
        seen = "no engine ran" if self.engines.answer == engine_evidence.NO else "not all engines were seen to run"
        return f"PASSED ({about}; {seen})"

    # Not a Record: it is written by topic, with derived values.
    def to_dict(self) -> dict[str, Any]:
        compared = self.judged
        return {
            "kind": "smoke",
            **passport.stamp(),
            "passed": self.passed,
            "verdict": self.verdict,
            "problems": list(self.problems),
            "address": self.address,
            "model": {
                "name": self.model_name,
                "version": self.model_version,
                "files": self.model.to_dict() if self.model else None,
            },
            "server": {
                "version": self.server_version or None,
                "process": self.server.to_dict() if self.server else None,
                "unseen": self.unseen,
                "gpu": self.gpu.to_dict() if self.gpu else None,
            },
            "original": self.original or None,
            "rightness_judged": compared is not None,
            "arithmetic": self.arithmetic[0] if compared else None,
            "comparisons": [comparison.to_dict() for comparison in compared.comparisons] if compared else [],
            "bounds": compared.bounds if compared else {},
            "functions": dict(compared.functions) if compared else {},
            "nothing_shown": list(compared.nothing_shown) if compared else [],
            "warnings": list(compared.warnings) if compared else [],
            "shapes_from": self.shapes_from,
            "twins": {name: list(twins) for name, twins in self.twins.items()},
            "seed": self.seed,
            "drew": list(self.drew),
            "dropped": self.dropped,
            "calls": [call.to_dict() for call in self.calls],
            "engines": self.engines.to_dict(),
        }


def _shapes(shapes: dict[str, tuple[int, ...]]) -> str:
    from tftrt_tools.models.savedmodel.shapes import call_text

    return call_text(shapes)
