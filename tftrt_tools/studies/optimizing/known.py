"""What is known when the turn of a step comes: the user's words, and the results of the steps before."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from tftrt_tools.accuracy import goal as goals
from tftrt_tools.accuracy import thresholds
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.stack.diagnosis import Diagnosis as Machine
from tftrt_tools.models.inputs import drawing, find
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.models.savedmodel import signatures
from tftrt_tools.studies import backends
from tftrt_tools.studies.diagnosis.finding import Diagnosis, Finding
from tftrt_tools.studies.optimizing import goal_seen as seen
from tftrt_tools.studies.optimizing import mends
from tftrt_tools.studies.optimizing.asked import Asked
from tftrt_tools.studies.optimizing.step import StepResult
from tftrt_tools.tftrt.calibration.comparison import Comparison
from tftrt_tools.tftrt.conversion.plan import Plan, SignaturePlan

# Names of steps whose results others ask for.
MACHINE, INSPECT, MENDED, DATA, CALIBRATE, SENSITIVITY = (
    "doctor",
    "inspect",
    "inspect again",
    "data",
    "calibrate",
    "sensitivity",
)
SIMULATED = "simulate INT8"
TUNE, CONVERT, BUILD, VERIFY, REGRESS, BENCH, PUBLISH = (
    "tune",
    "convert",
    "build",
    "verify",
    "regress",
    "bench",
    "publish",
)
PROFILE, DIAGNOSE, TRIED = "profile", "diagnose", "diagnose --try"
# Results of that step: the model in INT8, without engines, and its verification, which simulates them.
INT8_MADE, INT8_VERIFIED = "convert-int8", "verify-int8"
# Files of the work folder: rows to score, their right answers, and rows to calibrate on.
SCORED, LABELS, HELD_BACK = "scored.npz", "labels.npy", "calibration.npz"


@dataclasses.dataclass(frozen=True)
class Known:
    """asked: Asked. results: what came of the steps so far. documents: {name of a result: the JSON that its command wrote}."""

    asked: Asked
    results: tuple[StepResult, ...] = ()
    documents: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def of(self, step: str) -> StepResult | None:
        """The last result of a step, None before its turn."""
        return next((one for one in reversed(self.results) if one.step == step), None)

    def done(self, step: str) -> bool:
        """Whether the step ran to its end."""
        found = self.of(step)
        return found is not None and found.state == "done"

    def document(self, step: str) -> Mapping[str, Any] | None:
        """The result of a step that ran to its end."""
        found = self.of(step)
        return self.documents.get(found.name) if found and found.state == "done" else None

    # ---- the machine
    @functools.cached_property
    def machine(self) -> Machine:
        """What `doctor` found."""
        return Machine.from_dict(self.documents[MACHINE])

    @property
    def gpu(self) -> bool:
        """Whether engines can be built and run here."""
        return self.machine.can("build").can and self.machine.can("run").can

    @property
    def gpu_name(self) -> str:
        """Of the first GPU, "" without one."""
        return self.machine.gpus[0].name if self.gpu and self.machine.gpus else ""

    @property
    def repeated(self) -> bool:
        """Whether the engines are built several times after the conversion."""
        return self.gpu and self.asked.repeat > 1 and not self.plan_won

    @property
    def plan_won(self) -> bool:
        """Whether the model is made by another back end than the default one."""
        found = self.document(TUNE) or {}
        number = found.get("winner") or found.get("best")
        by = next((one.get("backend") for one in found.get("trials", ()) if one["number"] == number), None)
        return by not in (None, backends.default().name)

    # ---- the graph
    @functools.cached_property
    def first_plan(self) -> Plan:
        """Of `inspect`, before the mends."""
        return Plan.from_dict(self.documents[INSPECT])

    @functools.cached_property
    def plan(self) -> Plan:
        """Of `inspect` with the mends, if that was done."""
        return Plan.from_dict(self.document(MENDED) or self.documents[INSPECT])

    @functools.cached_property
    def mends(self) -> mends.Mends:
        """What the first plan advises."""
        return mends.of_plan(self.first_plan, self.asked.words)

    @property
    def mend_words(self) -> tuple[str, ...]:
        """The flags to take. On a GPU tune searches the segment size, and --shapes asks for profiles."""
        found = ("--minimum_segment_size=", "--use_dynamic_shape") if self.gpu else ()
        return tuple(word for word in self.mends.words if not word.startswith(found))

    @functools.cached_property
    def walked(self) -> tuple[SignaturePlan, ...]:
        """The signatures that can be converted, each function once."""
        return tuple(one for one in self.first_plan.signatures if not one.problem)

    @functools.cached_property
    def calls(self) -> dict[str, list[shape_grammar.Call]]:
        """{signature: shapes of its calls} that have to be fast. Raises: UsageError where more than the batch is open."""
        if self.asked.shapes:
            specs = {one.name: one.inputs for one in self.walked}
            once = signatures.Once({one.name: one.twins for one in self.walked})
            return once.merged(shape_grammar.calls(shape_grammar.parse(self.asked.shapes), once.with_twins(specs)))
        found = {}
        for one in self.walked:
            every = [
                drawing.shapes_of_batch(one.name, one.inputs, batch, "give {flag}") for batch in self.asked.batch_sizes
            ]
            found[one.name] = [call for number, call in enumerate(every) if call not in every[:number]]
        return found

    @functools.cached_property
    def shapes(self) -> str:
        """Text of --shapes. Raises: as `calls`."""
        if self.asked.shapes:
            return self.asked.shapes
        texts = {name: shape_grammar.flag_text(name, calls) for name, calls in self.calls.items()}
        if len(texts) == 1:
            ((name, text),) = texts.items()
            return text.replace(f"{name}/", "")
        return ";".join(texts.values())

    # ---- the rows
    @property
    def data(self) -> list[str]:
        """The words of --data, with those that say how it is read."""
        if self.done(DATA):
            return [f"--data={self.asked.path(SCORED)}"]
        return [f"--data={self.asked.data}", *self.asked.given(("data_rows",)), *self.pictures(self.asked.data)]

    @property
    def labels(self) -> list[str]:
        """The words of --labels, [] without."""
        if not self.asked.labels:
            return []
        if self.done(DATA):
            return [f"--labels={self.asked.path(LABELS)}"]
        return [f"--labels={self.asked.labels}", *self.asked.given(("label_column", "classes"))]

    @property
    def scored_rows(self) -> int | None:
        """How many rows are scored, None if nobody has counted them."""
        found = self.document(DATA)
        return found["rows"] if found else None

    @property
    def calibration(self) -> list[str]:
        """The words of --calibration_data, with those that say how it is read; [] if there is none."""
        if not self.asked.int8:
            return []
        given = self.asked.given(CALIBRATION)
        if self.asked.calibration_data:
            return [
                f"--calibration_data={self.asked.calibration_data}",
                *given,
                *self.pictures(self.asked.calibration_data),
            ]
        return [f"--calibration_data={self.asked.path(HELD_BACK)}", *given] if self.done(DATA) else []

    def pictures(self, source: str) -> list[str]:
        """The words that say how pictures are read, if `source` is pictures."""
        return self.asked.given(PICTURES) if find.find(source).kind == "images" else []

    # ---- the model that was made
    @property
    def right(self) -> bool:
        """Whether it was shown to be right."""
        verified = self.of(VERIFY)
        return verified is not None and verified.passed

    @functools.cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What costs its calls their time, as `diagnose` found it; with what the mends gave, if they were tried."""
        found = self.document(TRIED) or self.document(DIAGNOSE)
        return Diagnosis.from_dict(found).findings if found else ()

    # ---- INT8, and the choice of settings
    @functools.cached_property
    def comparison(self) -> Comparison | None:
        """Of the calibration methods, None if nothing was compared, or nothing told them apart."""
        found = (self.document(CALIBRATE) or {}).get("comparison")
        made = Comparison.from_dict(found) if found else None
        return made if made and made.outputs and not made.blind else None

    @functools.cached_property
    def goal(self) -> goals.Goal:
        """What the model has to keep."""
        return goals.parse(self.asked.goal, where="--accuracy")

    @property
    def goal_in_db(self) -> bool:
        """Whether the simulation of INT8 tells of the goal itself."""
        return self.goal.metric == "snr_db"

    @property
    def wanted_db(self) -> float:
        """What the worst output has to keep in INT8: of the goal, if that is in dB, else what `tftrt verify` asks for."""
        return self.goal.value if self.goal_in_db else thresholds.DEFAULTS["INT8"]["snr_db"]

    @property
    def simulated_db(self) -> float | None:
        """What the worst output kept where INT8 was simulated, None where it was not."""
        return self.comparison.worst(self.comparison.taken) if self.comparison else None

    @property
    def simulated_rows(self) -> int:
        """Rows on which INT8 was simulated."""
        return max((one.rows for one in self.comparison.signatures if one.levels), default=0) if self.comparison else 0

    @functools.cached_property
    def goal_seen(self) -> seen.Seen | None:
        """What `verify` saw of the goal, None if nothing."""
        return self._seen(self.document(VERIFY))

    def _seen(self, document: Mapping[str, Any] | None) -> seen.Seen | None:
        output = "".join(word.partition("=")[2] for word in self.asked.given(("accuracy_output",)))
        return seen.of_verification(self.goal, document, output) if document else None

    @property
    def int8_verification(self) -> Mapping[str, Any] | None:
        """The verification that simulated INT8 on the rows that are scored, None where there is none."""
        document = self.document(SIMULATED)
        return document if document and (document.get("simulation") or {}).get("simulated") else None

    @functools.cached_property
    def int8_seen(self) -> seen.Seen | None:
        """What that saw of the goal, None if nothing."""
        return self._seen(self.int8_verification)

    @property
    def missed(self) -> str:
        """Why what was seen misses the goal, in words; "" where it does not."""
        if self.goal_seen is not None and not self.goal_seen.kept:
            return f"verify: {self.goal_seen.miss}"
        if self.int8_misses and self.precision == "INT8" and not self.done(TUNE):
            return f"INT8, the only precision that is asked for, misses the goal where it was simulated: {self.int8_misses}"
        return ""

    @property
    def int8_misses(self) -> str:
        """What INT8 misses where it was simulated, in words; "" where it misses nothing, or was not simulated. The rows that are scored
        tell of the goal itself; without them, the rows that calibrate tell of the SNR."""
        if document := self.int8_verification:
            if self.int8_seen and not self.int8_seen.kept:
                return self.int8_seen.miss
            return str(document["problems"][0]) if document["problems"] else ""
        if self.simulated_db is not None and self.simulated_db < self.wanted_db:
            return f"the worst output keeps {self.simulated_db:.1f} dB, wanted >= {self.wanted_db:g}"
        return ""

    @property
    def precision(self) -> Precision:
        """The precision if nothing was tuned: FP16, which needs no ranges and loses little; else the first of those asked for."""
        return "FP16" if "FP16" in self.asked.precisions else self.asked.precisions[0]


SOURCE = ("allow_unsafe_deserialization", "custom_objects", "inputs", "op_library", "outputs")
PICTURES = (
    "image_size",
    "image_resize",
    "image_preset",
    "image_scale",
    "image_mean",
    "image_std",
    "image_channels",
    "image_error_limit",
)
CALIBRATION = ("calibration_batch_size", "num_calibration_batches")
GRAPH = (
    "signature_keys",
    "tags",
    "freeze",
    "minimum_segment_size",
    "max_workspace_size_bytes",
    "keep_native_ops",
    "keep_native_nodes",
)
JUDGING = ("allow_constant_outputs", "output_kind")
CACHE = ("engine_cache", "engine_cache_dir", "engine_cache_max_bytes")
