"""The result of a smoke test, typed."""

import dataclasses

from tftrt_tools.accuracy import judgement
from tftrt_tools.savedmodel import passport
from tftrt_tools.serving.smoke import evidence, statistics


@dataclasses.dataclass(frozen=True)
class CallResult:
    """One signature at one shape. shapes: {input: shape}; rows: of all its requests that were compared; first_seconds, p50_seconds: of a
    request, None where it was refused; requests: how many were answered; refused: the server's words, or ""; engines: judgement, an
    evidence.Judgement; native: statistics.Ratio or None."""

    signature: str
    shapes: dict
    first_seconds: float | None
    p50_seconds: float | None
    requests: int
    refused: str
    engines: evidence.Judgement
    native: statistics.Ratio | None = None

    def to_dict(self):
        return {"signature": self.signature, "shapes": {name: list(shape) for name, shape in self.shapes.items()},
                "first_seconds": self.first_seconds, "p50_seconds": self.p50_seconds, "requests": self.requests, "refused": self.refused,
                "engines": self.engines.to_dict(), "native": self.native.to_dict() if self.native else None}


@dataclasses.dataclass(frozen=True)
class Smoke:
    """A finished smoke test.

    server: process.Process or None; unseen: why there is none; server_version: as its program says, "" where not known; model:
    model.Model or None; judged: judgement.Judgement, or None where there was no original; arithmetic: whose bounds, with the reason;
    form: problems of the answers by themselves, in words; require_engines: anything but "yes" is a problem.
    """

    address: str
    model_name: str
    model_version: int
    server: object
    unseen: str
    server_version: str
    model: object
    original: str
    shapes_from: dict
    calls: tuple
    judged: judgement.Judgement | None
    arithmetic: tuple
    form: tuple
    gpu: object
    engines: evidence.Verdict
    require_engines: bool
    seed: int
    dropped: int

    @property
    def answer_problems(self):
        """What is wrong with the answers, a line each."""
        refused = [f"{one.signature}({_shapes(one.shapes)}) was refused: {one.refused}" for one in self.calls if one.refused]
        return (*refused, *self.form, *(self.judged.all_problems if self.judged else ()))

    @property
    def problems(self):
        """All that makes the test fail, a line each."""
        if self.require_engines and not self.engines.ran:
            return (*self.answer_problems, f"--require_engines: {self.engines.answer}: {self.engines.reason}")
        return self.answer_problems

    @property
    def passed(self):
        """Whether nothing was found."""
        return not self.problems

    def to_dict(self):
        compared = self.judged
        return {"kind": "smoke", **passport.stamp(), "passed": self.passed, "problems": list(self.problems), "address": self.address,
                "model": {"name": self.model_name, "version": self.model_version, "files": self.model.to_dict() if self.model else None},
                "server": {"version": self.server_version or None, "process": self.server.to_dict() if self.server else None,
                           "unseen": self.unseen, "gpu": self.gpu.to_dict() if self.gpu else None},
                "original": self.original or None, "rightness_judged": compared is not None,
                "arithmetic": self.arithmetic[0] if compared else None,
                "comparisons": [one.to_dict() for one in compared.comparisons] if compared else [],
                "bounds": compared.bounds if compared else {}, "nothing_shown": list(compared.nothing_shown) if compared else [],
                "warnings": list(compared.warnings) if compared else [],
                "shapes_from": self.shapes_from, "seed": self.seed, "dropped": self.dropped,
                "calls": [one.to_dict() for one in self.calls], "engines": self.engines.to_dict()}


def _shapes(shapes):
    from tftrt_tools.savedmodel.shapes import call_text

    return call_text(shapes)
