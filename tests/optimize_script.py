"""Commands of `tftrt optimize` that are read and answered, and not run: for its order, its journal and its verdict.

Each call is parsed by the flags of the real command. Then the files that it would make appear, with a result of the form that the command
writes, as far as the order reads it."""

import json
import pathlib

from tests import diagnosed, publish_facts
from tests.example_flags import parsed
from tftrt_tools.base import errors
from tftrt_tools.base.stack.diagnosis import Capability
from tftrt_tools.base.stack.diagnosis import Diagnosis as Machine
from tftrt_tools.base.stack.gpus import Gpu
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.preparation import Preparation
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.studies.diagnosis.finding import Diagnosis, Finding, Trial
from tftrt_tools.studies.optimizing import run
from tftrt_tools.studies.optimizing.asked import Asked
from tftrt_tools.tftrt.conversion.plan import Advice, Plan, Segment, SignaturePlan
from tftrt_tools.tftrt.conversion.settings import Settings

COMMAND = ("optimize", "model", "--data=rows.npz", "--accuracy=top1:max-degradation=0.01", "--output=best")
REPEATS = {
    "kept": 2,
    "calls": ["call"],
    "builds": [
        {
            "number": 1,
            "build_seconds": 60.0,
            "unbuilt": 0,
            "ms": {"call": 1.2},
            "mean_ms": 1.2,
            "kept_is": {"times": 1.2, "low": 1.1, "high": 1.3},
        },
        {"number": 2, "build_seconds": 61.0, "unbuilt": 0, "ms": {"call": 1.0}, "mean_ms": 1.0, "kept_is": None},
    ],
}
IMAGE = InputSpec("image", "float32", (None, 8, 8, 1))


def machine(gpu=True):
    can = [
        Capability(name, True)
        if gpu or name == "convert"
        else Capability(name, False, "no NVIDIA driver here", "use another machine")
        for name in ("convert", "build", "run")
    ]
    card = Gpu(index=0, name="NVIDIA H200", memory_mib=143771, compute_capability="9.0")
    return Machine(
        python="3.10",
        platform="Linux",
        tensorflow="2.14.1",
        distribution="tensorflow",
        folder=None,
        cuda="11.8",
        cudnn="8",
        tensorrt_linked="8.4.3",
        tensorrt_loaded="8.5.3",
        libraries=(),
        driver="580.0" if gpu else None,
        driver_cuda=None,
        driver_error="",
        gpus=(card,) if gpu else (),
        capabilities=tuple(can),
        notes=(),
    )


def plan(*inputs, offered=(), size=3, name="serving_default", **changes):
    segment = Segment(number=0, engine=publish_facts.engine_op("TRTEngineOp_0"), nodes=("a",), feeds=(), results=())
    one = SignaturePlan(
        name=name,
        inputs=inputs or (IMAGE,),
        segments=(segment,),
        preparation=Preparation(offered=offered),
        **{"advice": Advice(size, None, ("right",)), **changes},
    )
    return Plan(model="/model", tags=("serve",), settings=Settings(), tensorflow="2.14.1", signatures=(one,))


def trial(number, precision, ms, kept=True):
    return {
        "number": number,
        "settings": {"precision_mode": precision},
        "kept": kept,
        "latencies": {"call": {"ms": ms}},
    }


MEND = ("convert", "--model=model", "--output=mended", "--minimum_segment_size=9")


def diagnosis(trial=None, command=MEND):
    found = Finding(
        cause="many-engines",
        title="the call crosses many borders",
        call="serving_default(image 1x8x8x1)",
        worth=2e-4,
        basis="ceiling",
        command=command,
        trial=trial,
    )
    return Diagnosis(model="best", original="model", profiled="", gpu="NVIDIA H200", findings=(found,)).to_dict()


def called(words):
    """The command's name; "convert-int8" and "verify-int8" of the model that simulates INT8."""
    return words[0] + "-int8" * any(word.endswith("/int8") for word in words)


class Script:
    """Stands for the commands. failing: {command's name: exit code or exception}; documents: {command's name: its result}."""

    def __init__(self, folder, gpu=True, **documents):
        self.folder, self.calls, self.failing, self.said, self.slow = folder, [], {}, [], {}
        levels = {"serving_default": {"p": 54.0}}
        compared = [
            {"signature": "serving_default", "rows": 100, "apart": True, "levels": {"mse": levels["serving_default"]}}
        ]
        self.documents = {
            "doctor": machine(gpu).to_dict(),
            "inspect": plan().to_dict(),
            "data": {"rows": 300, "calibration_rows": 100, "in_both": 0},
            "calibrate": {
                "method": "mse",
                "comparison": {"taken": "mse", "reason": "harms the outputs least", "signatures": compared},
            },
            "sensitivity": {"flag": "--high_precision_nodes='a'", "missed": []},
            "tune": {
                "trials": [trial(1, "FP32", 2.0), trial(2, "FP16", 1.0)],
                "winner": 2,
                "best": None,
                "objective": "call",
                "ended": "everything was tried",
                "native": {"call": {"ms": 3.0}},
                "goal_text": "top1 >= 0.98",
            },
            "convert": {"signatures": [], "settings": {"precision_mode": "FP16"}},
            "build": {"signatures": [], "repeats": REPEATS},
            "verify": {
                "comparisons": [{"snr_db": 70.0}],
                "accuracy": None,
                "passed": True,
                "problems": [],
                "evidence": "engines watched on X",
            },
            "regress": {"headline": "pass: the candidate is 2.00 times as fast (1.90 to 2.10)"},
            "bench": {
                "trials": [{"number": 1, "rate": 250.0}],
                "winner": 1,
                "goal": "p99<20ms",
                "ended": "everything was tried",
            },
            "profile": diagnosed.profile(
                diagnosed.call((1, 8, 8, 1)), original=(diagnosed.call((1, 8, 8, 1), parts={("op", "GPU"): 3.0}),)
            ).to_dict(),
            "diagnose": diagnosis(),
            "diagnose-try": diagnosis(Trial(command=MEND, before=1e-3, after=8e-4, low=1e-4, high=3e-4)),
            "publish": {"path": "models/best/1"},
            **documents,
        }
        self.documents.setdefault(
            "convert-int8", {"kind": "conversion", **self.documents["convert"], "settings": {"precision_mode": "INT8"}}
        )
        self.documents.setdefault(
            "verify-int8",
            {
                "comparisons": [{"snr_db": 54.0, "signature": "serving_default", "output": "p"}],
                "accuracy": None,
                "passed": True,
                "problems": [],
                "evidence": "INT8 simulated, no engine ran",
                "simulation": {"simulated": {"serving_default": "INT8"}, "rows": 300},
            },
        )

    def __call__(self, words):
        name, *rest = words
        values, _ = parsed(name, [word for word in rest if not word.startswith("--flagfile=")])
        self.calls.append(list(words))
        if name in self.slow:
            self.slow[name]()
        result = self.failing.get(called(words), errors.EXIT_DONE)
        if isinstance(result, BaseException):
            raise result
        for flag in ("output", "output_labels", "output_calibration", "html"):
            if flag in values and values[flag].value:
                self._make(values[flag].value, folder=flag == "output" and name in ("convert", "build", "tune"))
        if name == "tune":
            self._make(f"{values.work_dir}/best.flags")
        if name == "verify":
            passport.write(rest[1], passport.VERIFY, {"passed": True})
        pathlib.Path(values.json).write_text(
            json.dumps(self.documents["diagnose-try" if "--try" in words else called(words)])
        )
        return result

    def _make(self, path, folder=False):
        path = pathlib.Path(path)
        path.mkdir(parents=True, exist_ok=True) if folder else path.parent.mkdir(parents=True, exist_ok=True)
        (path / "saved_model.pb" if folder else path).write_text(
            f"made by call {len(self.names)}" if folder else "same"
        )

    @property
    def names(self):
        """Of the commands that were called."""
        return [called(words) for words in self.calls]

    def words(self, name):
        """Of the only call of a command."""
        (found,) = (words for words in self.calls if called(words) == name)
        return found

    def run(self, max_minutes=60.0, **changes):
        """Returns: run.Done."""
        self.calls.clear()
        return run.run(
            asked(self.folder, **changes),
            run.Doing(call=self, say=self.said.append, max_minutes=max_minutes, command=COMMAND),
        )


def asked(folder, **changes):
    """Asked of the flags; the files that they name are made."""
    for name in ("model/saved_model.pb", "rows.npz", "labels.npy"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(name)
    given = {
        "model": "model",
        "data": "rows.npz",
        "labels": "labels.npy",
        "goal": "top1:max-degradation=0.01",
        "batch_sizes": (1, 32),
        "precisions": ("FP32", "FP16", "INT8"),
        "output": "best",
        "work_dir": "work",
        **changes,
    }
    return Asked(**given)
