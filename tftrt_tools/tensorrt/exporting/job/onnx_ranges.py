"""The values of an ONNX graph's tensors over calibration data, and INT8 simulated with each method; in ONNX Runtime on the CPU."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto

from tftrt_tools.base import errors
from tftrt_tools.base.process import progress
from tftrt_tools.models.kinds.onnx import runner_job
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.tensorrt.exporting.job import model_file, qdq
from tftrt_tools.tensorrt.exporting.job.placement import Placement
from tftrt_tools.tftrt.calibration.comparison import Compared
from tftrt_tools.tftrt.calibration.job import kept_back
from tftrt_tools.tftrt.calibration.job.counted import Counted
from tftrt_tools.tftrt.calibration.job.histogram import Histogram
from tftrt_tools.tftrt.calibration.job.kept_back import Batch
from tftrt_tools.tftrt.calibration.job.noise import Noise, check_repeatable
from tftrt_tools.tftrt.calibration.job.passing import Judging
from tftrt_tools.tftrt.calibration.job.shown import Shown
from tftrt_tools.tftrt.calibration.methods import Method

# Tensors that become outputs of one run: all of them live at once then.
_AT_ONCE = 64
_SAID = "the exported graph"
Arrays = dict[str, npt.NDArray[Any]]


class Session:
    """A graph in ONNX Runtime."""

    def __init__(self, model: onnx.ModelProto, more: Iterable[str] = (), optimized: bool = True) -> None:
        """Args: more: tensors that become outputs, too."""
        self.inputs = [one.name for one in model.graph.input]
        if more:
            copy = onnx.ModelProto()
            copy.CopyFrom(model)
            own = {one.name for one in (*model.graph.output, *model.graph.input)}
            copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in more if name not in own)
            model = copy
        if model.ByteSize() <= model_file.MOST_INSIDE:
            self._loaded = runner_job.Loaded(runner_job.opened(model.SerializeToString(), _SAID, optimized))
            return
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/model.onnx"
            model_file.save(model, path)
            self._loaded = runner_job.Loaded(runner_job.opened(path, _SAID, optimized))

    @property
    def remark(self) -> str:
        """What to know of how it was loaded, "" for nothing."""
        return self._loaded.where.remark

    def run(self, batch: Batch) -> Arrays:
        """{output: array}. Raises: TftrtError where it fails."""
        answers: Arrays = self._loaded.ready(DEFAULT, {name: batch[name] for name in self.inputs if name in batch})()
        return answers


class Collector(Counted):
    """Counts |x| of tensors of a graph. Tensors become outputs of it, some at a time."""

    def __init__(self, model: onnx.ModelProto, wanted: Sequence[str]) -> None:
        super().__init__()
        inputs = {one.name for one in model.graph.input}
        self._fed = [name for name in wanted if name in inputs]
        listed = [name for name in wanted if name not in inputs]
        self.histograms = {name: Histogram() for name in wanted}
        self._sessions = [
            (part, Session(model, part))
            for part in (listed[at : at + _AT_ONCE] for at in range(0, len(listed), _AT_ONCE))
        ]

    def add(self, batch: Batch, number: int, total: int | None = None) -> None:
        """As Counted.add."""
        progress.say(f"collecting ranges, batch {number}", number - 1, total)
        for name in self._fed:
            self.histograms[name].add(batch[name])
        for part, session in self._sessions:
            answers = session.run(batch)
            for name in part:
                self.histograms[name].add(answers[name])
        self.check_finite(number)


class Simulated:
    """A graph with and without rounding. floats: names of its outputs that are floats."""

    def __init__(self, model: onnx.ModelProto, placement: Placement) -> None:
        self.placement = placement
        self.floats = [one.name for one in model.graph.output if one.type.tensor_type.elem_type == TensorProto.FLOAT]
        self._fed = qdq.scale_names(model, placement)
        self._plain = Session(model)
        # ONNX Runtime 1.23.2 optimizes for scales that are constants: ResNet-50 kept 2 dB with scales that are fed, and 15 without that.
        self._rounded = Session(
            qdq.with_rounding(model, placement, dict.fromkeys(placement.tensors, 1.0), fed=True), optimized=False
        )

    def plain(self, batch: Batch) -> Arrays:
        """The answers in FP32."""
        return self._plain.run(batch)

    def rounded(self, batch: Batch, scales: Mapping[str, float]) -> Arrays:
        """The answers with everything rounded. Args: scales: {tensor of the placement: float > 0}."""
        fed = {name: np.array(scales[tensor], np.float32) for tensor, name in self._fed.items()}
        return self._rounded.run({**batch, **fed})


def largest(model: onnx.ModelProto, wanted: Sequence[str], calls: Iterable[Batch]) -> dict[str, float]:
    """{tensor: the largest finite |x| over some calls}."""
    found = dict.fromkeys(wanted, 0.0)
    parts = [wanted[at : at + _AT_ONCE] for at in range(0, len(wanted), _AT_ONCE)]
    sessions = [(part, Session(model, part)) for part in parts]
    for number, call in enumerate(calls):
        progress.say(f"looking at the values of call {number + 1}")
        for part, session in sessions:
            for name, array in {**call, **session.run(call)}.items():
                if name in part:
                    found[name] = max(found[name], float(np.abs(array[np.isfinite(array)]).max(initial=0.0)))
    return found


def scales_by_tensor(histograms: Mapping[str, Histogram], scales: Mapping[int, float | None]) -> dict[str, float]:
    """{tensor: scale} of those that have one. Args: scales: {id of a Histogram: its scale}, as Judging has them."""
    return {name: scale for name, histogram in histograms.items() if (scale := scales.get(id(histogram))) is not None}


def compared(
    name: str,
    model: onnx.ModelProto,
    placement: Placement,
    histograms: Mapping[str, Histogram],
    judging: Sequence[Judging],
) -> Compared:
    """Simulate a signature with everything in INT8 that the placement says, by each method. Returns: Compared; if nothing can be
    simulated, it says why."""
    rows, apart = sum(kept_back.rows(one.batches) for one in judging), all(one.apart for one in judging)
    try:
        levels, nothing = _levels(name, model, placement, histograms, judging)
    except errors.TftrtError as error:
        return Compared(signature=name, rows=rows, apart=apart, levels={}, problem=error.cause)
    return Compared.of(name, rows, apart, levels, nothing)


def _levels(
    name: str,
    model: onnx.ModelProto,
    placement: Placement,
    histograms: Mapping[str, Histogram],
    judging: Sequence[Judging],
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """({method: {output: dB}}, as Shown.nothing)."""
    found = [{method: scales_by_tensor(histograms, scales) for method, scales in one.scales.items()} for one in judging]
    # A tensor with a range in only one half is not rounded in either.
    placement = placement.with_scales(set.intersection(*(set(scales) for one in found for scales in one.values())), "")
    if not placement.sites:
        raise errors.TftrtError("no node would be rounded to INT8")
    simulated = Simulated(model, placement)
    if not simulated.floats:
        raise errors.TftrtError("it has no float output, and noise is measured on floats")
    noises: dict[Method, dict[str, Noise]] = {
        method: {output: Noise() for output in simulated.floats} for method in judging[0].scales
    }
    shown, total, done = Shown(name), sum(len(one.batches) for one in judging), 0
    for one, by_method in zip(judging, found, strict=True):
        for batch in one.batches:
            progress.say("simulating INT8", done, total)
            plain = simulated.plain(batch)
            if not done:
                check_repeatable(simulated.floats, plain, simulated.plain(batch))
            for method, scales in by_method.items():
                answers = simulated.rounded(batch, scales)
                for output, noise in noises[method].items():
                    noise.add(plain[output], answers[output])
            shown.add(batch, plain, simulated.floats)
            done += 1
    levels = {
        method.text: {output: noise.level for output, noise in by_output.items()}
        for method, by_output in noises.items()
    }
    return levels, shown.nothing(levels)
