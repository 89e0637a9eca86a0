"""What was tried and what came out of it."""

import dataclasses
import math
import statistics

from tftrt_tools.conversion.settings import Settings
from tftrt_tools.savedmodel import passport

# Standard error of a median of normal values, from their median absolute deviation: 1.2533 * 1.4826 * MAD / sqrt(n).
_MEDIAN_ERROR = 1.858
# Number of the original beside those of the trials.
NATIVE = 0


@dataclasses.dataclass(frozen=True)
class Latency:
    """Of one call at a time, input on the GPU, answer copied to the host. ms: median; mad_ms: median absolute deviation; calls: timed."""

    ms: float
    mad_ms: float
    calls: int

    @property
    def error_ms(self):
        """Standard error of the median."""
        return _MEDIAN_ERROR * self.mad_ms / math.sqrt(max(self.calls, 1))

    @classmethod
    def of(cls, seconds):
        """Of single calls. Args: seconds: of each."""
        median = statistics.median(seconds)
        return cls(1e3 * median, 1e3 * statistics.median(abs(one - median) for one in seconds), len(seconds))

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Measured:
    """A trial's measurements. accuracy: the goal's metric, or None; latencies: {call as text: Latency}; build_seconds: of all engines, as
    long as they took when they were built; cached: engines that came from the engine cache; engine_bytes: of all engines; engines: engine
    ops; coverage: share of the computing ops in them; seconds: wall time of the whole trial; failure: why it gives no usable model, or "";
    kernels: {arithmetic: seconds of the GPU's kernels}, of a call at each timed shape."""

    accuracy: float | None = None
    latencies: dict = dataclasses.field(default_factory=dict)
    build_seconds: float = 0.0
    cached: int = 0
    engine_bytes: int = 0
    engines: int = 0
    coverage: float = 0.0
    seconds: float = 0.0
    failure: str = ""
    kernels: dict = dataclasses.field(default_factory=dict)

    def to_dict(self):
        """JSON has no infinity: an infinite SNR is written as the string "inf"."""
        return {**dataclasses.asdict(self), "accuracy": jsonable(self.accuracy)}

    @classmethod
    def from_dict(cls, data):
        accuracy = data["accuracy"]
        latencies = {name: Latency(**one) for name, one in data["latencies"].items()}
        return cls(**{**data, "accuracy": None if accuracy is None else float(accuracy), "latencies": latencies})


def jsonable(value):
    """A float, or its name where JSON has no number for it."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclasses.dataclass(frozen=True)
class Trial:
    """One conversion that was tried. number: from 1, in the order of the search; high: nodes kept in a higher precision, the most harmful
    first; kept: whether it keeps the goal."""

    number: int
    settings: Settings
    high: tuple
    measured: Measured
    kept: bool

    def latency(self, call):
        """The Latency of a call, or None where it failed."""
        return self.measured.latencies.get(call)

    def to_dict(self):
        return {"number": self.number, "settings": self.settings.to_dict(), "high_precision": list(self.high), "kept": self.kept,
                **self.measured.to_dict()}


def plain(trials, precision):
    """The first of `trials` in a precision with no nodes kept high, or None."""
    return next((one for one in trials if one.settings.precision_mode == precision and not one.high), None)


@dataclasses.dataclass(frozen=True)
class Tuning:
    """A finished search. goal: Goal; original: its metric of the original; calls: texts of the calls whose latency was measured; objective:
    the one that counts; native: {call: Latency} of the original in TensorFlow; trials: Trials; winner: the Trial to take, or None; best:
    the Trial nearest to the goal where none keeps it; ended: why the search ended; notes: decisions of the search, in words; gpu, tensorrt:
    where it was measured; data: {"source", "rows", "dropped", "digest"}; warnings: what to know about the data; final: final.Final of the
    winner, what is nearly as fast, and the original; None where there is none."""

    model: str
    goal: object
    original: float
    calls: tuple
    objective: str
    native: dict
    trials: tuple
    winner: Trial | None
    best: Trial | None
    ended: str
    notes: tuple
    gpu: str
    tensorrt: str
    data: dict
    warnings: tuple = ()
    final: object = None

    @property
    def goal_text(self):
        """For people: "top1 >= 0.975"."""
        return self.goal.text(self.original)

    @property
    def headings(self):
        """What to write over the latencies of each call: without the signature's name where there is but one."""
        one = len({call.partition("(")[0] for call in self.calls}) == 1
        return tuple(f"{call.partition('(')[2].rstrip(')') if one else call}, ms" for call in self.calls)

    def first(self, precision):
        """The plain trial of a precision, or None."""
        return plain(self.trials, precision)

    def winner_speed(self):
        """Returns: (ms at the objective, ["2.31 times as fast as TensorFlow (95 %: 2.28 to 2.35)", and the same of FP16 where that is
        another trial]). The intervals are there where the trials were timed in turns."""
        fp16, mine = self.first("FP16"), self.winner.latency(self.objective)
        others = {"TensorFlow": (NATIVE, self.native[self.objective])}
        if fp16 and fp16 != self.winner and fp16.latency(self.objective):
            others["FP16"] = (fp16.number, fp16.latency(self.objective))
        if not self.final:
            return mine.ms, [f"{other.ms / mine.ms:.2f} times as fast as {name}" for name, (_, other) in others.items()]
        number = self.winner.number
        return self.final.latencies[number].ms, [self.final.faster(number, other).text(name) for name, (other, _) in others.items()
                                                 if other in self.final.rounds]

    def to_dict(self):
        return {"kind": "tuning", **passport.stamp(), "model": self.model, "goal": self.goal.to_dict(), "goal_text": self.goal_text,
                "original": jsonable(self.original), "calls": list(self.calls), "objective": self.objective,
                "native": {call: one.to_dict() for call, one in self.native.items()},
                "trials": [one.to_dict() for one in self.trials], "winner": self.winner.number if self.winner else None,
                "best": self.best.number if self.best else None, "ended": self.ended, "notes": list(self.notes), "gpu": self.gpu,
                "tensorrt": self.tensorrt, "data": self.data, "warnings": list(self.warnings),
                "final": self.final.to_dict() if self.final else None}
