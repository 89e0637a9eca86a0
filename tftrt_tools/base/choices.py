"""The closed sets of words in settings, files and verdicts, as types. Import them from here; nothing here imports the package.

    from tftrt_tools.base.choices import Precision, PRECISIONS

    def lowest(precisions: Iterable[Precision]) -> Precision | Literal[""]: ...

A type checker compares the words at each use. The tuples hold the same words in the order in which messages list them; `records`
refuses a file that has another word in a field of such a type.
"""

import typing
from typing import Literal

# --precision, and the precision of an engine op.
Precision = Literal["FP32", "FP16", "INT8"]
PRECISIONS: tuple[Precision, ...] = typing.get_args(Precision)

# --dynamic_shape_profile_strategy, as TF-TRT spells it.
Strategy = Literal["Range", "Optimal", "Range+Optimal", "ImplicitBatchModeCompatible"]
STRATEGIES: tuple[Strategy, ...] = typing.get_args(Strategy)

# The batch mode has no words: it is a bool everywhere, `dynamic` or `use_dynamic_shape` (False: implicit batch).

# --calibrator: who finds the ranges of INT8.
Calibrator = Literal["toolkit", "tensorrt"]
CALIBRATORS: tuple[Calibrator, ...] = typing.get_args(Calibrator)

# --server of `tftrt publish`, `tune` and `optimize`: what serves a model.
Server = Literal["tensorflow", "triton"]
SERVERS: tuple[Server, ...] = typing.get_args(Server)
# For people.
SERVER_TITLES: dict[Server, str] = {"tensorflow": "TensorFlow Serving", "triton": "Triton"}

# A method of the toolkit's calibrator.
Method = Literal["entropy", "percentile", "mse", "max"]
METHODS: tuple[Method, ...] = typing.get_args(Method)

# --calibration_method: one of them, or the one that harms the outputs least.
CalibrationMethod = Literal["auto", "entropy", "percentile", "mse", "max"]
CALIBRATION_METHODS: tuple[CalibrationMethod, ...] = typing.get_args(CalibrationMethod)

# What happens to a quantization node of a model that was trained for quantization.
NodeFate = Literal["explicit INT8", "dynamic range", "no effect", "stays native", "removed"]

# A metric of one model against the same metric of another (`tftrt regress`).
Verdict = Literal["better", "worse", "same", "cannot tell"]
# A measured value against a goal.
GoalVerdict = Literal["kept", "missed", "cannot tell"]
# A whole comparison, or one of its checks.
RunVerdict = Literal["pass", "fail", "cannot tell", "ended early"]
# How a metric moved; "" where no difference was shown.
Direction = Literal["faster", "slower", "higher", "lower", ""]

# What became of a step of `tftrt optimize`: it ran to its end; it failed; its time was over; it was left out; it needs a GPU.
StepState = Literal["done", "failed", "out of time", "left out", "for a GPU"]
# Whether the result of `tftrt optimize` keeps the goal; open where nothing that was looked at misses it, and no engine has run.
GoalOutcome = Literal["kept", "open", "not kept", "cannot tell"]

# What a known message of a log is about (`tftrt log`), in the order in which it matters.
LogCategory = Literal[
    "build",
    "fallback",
    "memory",
    "version",
    "load",
    "request",
    "device",
    "calibration",
    "precision",
    "conversion",
    "input",
    "speed",
    "machine",
]
LOG_CATEGORIES: tuple[LogCategory, ...] = typing.get_args(LogCategory)
# "error": something was not done; "warning": it was done otherwise than asked for; "note": nothing is wrong.
LogSeverity = Literal["error", "warning", "note"]
LOG_SEVERITIES: tuple[LogSeverity, ...] = typing.get_args(LogSeverity)
# The level of a line: fatal, error, warning, information, verbose; "" where the line does not say.
LogLevel = Literal["F", "E", "W", "I", "V", ""]
LOG_LEVELS: tuple[LogLevel, ...] = typing.get_args(LogLevel)
