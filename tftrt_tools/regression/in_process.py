"""Both models without a server, in one process of the runtime that TensorFlow Serving uses: what serving adds is not in it.

One process and not two, for the reasons that `pair` gives for one server. The answers, and what the engines did, come from a process of
their own before it, since watching the engines costs time.
"""

import pathlib

from tftrt_tools import errors
from tftrt_tools.bench import in_process_model, subject
from tftrt_tools.execution import coverage, run
from tftrt_tools.load import in_process
from tftrt_tools.regression import answers, models, rounds
from tftrt_tools.serving.smoke import evidence, gate
from tftrt_tools.serving.smoke.evidence import CERTAIN, LIKELY, NO, YES, Evidence

THROUGH = "in process"
_LOAD_SECONDS = 1800.0


class InProcess:
    """Args: options: regress.Options. opened: the SavedModels behind its native and its candidate. folder: for what the processes exchange.
    gpus: whether this machine has any."""

    through = THROUGH

    def __init__(self, options, opened, folder, gpus):
        self._options, self._folder = options, pathlib.Path(folder)
        self._opened = dict(zip((rounds.NATIVE, rounds.CANDIDATE), opened, strict=True))
        self.gpus, self.gate_closed = gpus, options.goals.no_engine_fallback
        self.where = {"address": "", "backend": THROUGH, "reason": "both models in one process, without a server"}
        self.models = {}
        self._ran = self._verdict = None

    def sides(self):
        """As OnServer.sides."""
        paths = {rounds.NATIVE: self._options.native, rounds.CANDIDATE: self._options.candidate}
        found = {name: subject.of_files(path).signatures for name, path in self._opened.items()}
        self.models |= {name: models.read(path, name) for name, path in paths.items()}
        return found

    def answers(self, _signature, calls):
        """As OnServer.answers."""
        ran = [self._run(name, calls) for name in self.models]
        return [[one.answer(number) for number in range(len(calls))] for one in ran]

    def engines(self, signature, calls):
        """Whether the candidate's engines ran, by TensorFlow's own trace of each call: evidence.Verdict. Args: calls: the first of those
        that were answered, or all."""
        ran = self._ran or self._run(rounds.CANDIDATE, calls)
        if ran.mode != "gpu":
            one = Evidence("model", "it has no engine op", NO, CERTAIN) if ran.mode == "cpu" else \
                Evidence("GPU", "there is none here: engine ops were replaced by their native segments", NO, CERTAIN)
            return evidence.judge([one], {signature: None})
        found = [one for call, trace in zip(calls, ran.traces[:len(calls)], strict=True) for one in _of_trace(call, trace)]
        self._verdict = evidence.judge(found, {call.text(): None for call in calls})
        return self._verdict

    def asking(self, signature, calls):
        """As OnServer.asking."""
        saved = run.save_calls(calls, self._folder / "timed")
        request = {"models": list(self._opened.values()), "signature": signature, "calls": [path for _, path in saved]}
        # Where an engine is known to fall back, its requests would fail, and nothing would be timed.
        env = {gate.VARIABLE: "False"} if self._verdict and self._verdict.ran else {}
        work = in_process.job_of(f"{__name__}:make", request, self._options.concurrency)
        return rounds.asking_one(work, dict(zip(self.models, (0, len(calls)), strict=True)), len(calls), _LOAD_SECONDS, env,
                                 self._options.concurrency)

    def problem(self):
        """None: there is no server that could have ended."""
        return None

    def _run(self, name, calls):
        folder = self._folder / name
        watched = name == rounds.CANDIDATE and self._options.goals.no_engine_fallback
        try:
            done = run.run(self._opened[name], run.save_calls(calls, folder / "in"), folder / "out", f"the {name} model", trace=watched,
                           log_file=self._options.log_file)
        except errors.CallFailed as error:
            if name != rounds.CANDIDATE:
                raise
            raise answers.Refused(f"the candidate model refuses a request: {error.cause}", error.mend) from None
        if watched:
            self._ran = done
        return done


def make(request):
    """For load.in_process, in the worker: both models, the native one's calls first.

    Args: request: {"models": [directory, directory], "signature": name, "calls": [path of an .npz]}.
    Returns: (function of a call's index, number of calls of both).
    """
    sides = [in_process_model.make({**request, "model": path, "answers": ""}) for path in request["models"]]
    count = len(request["calls"])

    def infer(index):
        sides[index // count][0](index % count)

    return infer, len(sides) * count


def _of_trace(call, trace):
    missed = coverage.misses(call, trace)
    if missed:
        return [Evidence("trace", one, NO, CERTAIN, call.text()) for one in missed]
    if not trace.engine:
        return [Evidence("trace", f"no engine ran in {call.text()}", NO, CERTAIN, call.text())]
    return [Evidence("trace", f"{sum(trace.engine.values())} runs of {len(trace.engine)} engines in {call.text()}, and no native segment",
                     YES, LIKELY if "?" in trace.engine else CERTAIN, call.text())]
