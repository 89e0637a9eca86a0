"""Both models without a server, in one process of the runtime that TensorFlow Serving uses, so without the cost of serving.

It is one process for the reasons that `pair` gives for one server. Where one of them runs in the Python of another environment (a plan of
another TensorRT), each has a process, and they are still asked in turn. The answers, and what the engines did, come from an earlier
process, because watching the engines costs time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tftrt_tools.base import errors
from tftrt_tools.base.process import child, progress
from tftrt_tools.models.execution import coverage, run
from tftrt_tools.models.kinds import elsewhere
from tftrt_tools.models.kinds import names as name_matching
from tftrt_tools.servers.load import function_load
from tftrt_tools.servers.serving.smoke import engine_evidence, gate
from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, LIKELY, NO, YES, Evidence
from tftrt_tools.studies.bench import in_process
from tftrt_tools.studies.regression import answers, models, rounds, side_by_side

if TYPE_CHECKING:
    from tftrt_tools.models.execution.trace import CallTrace
    from tftrt_tools.models.kinds.model import Model
    from tftrt_tools.studies.regression.regress import Options

THROUGH = "in process"
LOAD_SECONDS = 1800.0


class InProcess:
    """Args: options: regress.Options. opened: its native and its candidate. matched: the two.
    folder: for files that the processes exchange. gpus: whether this machine has any."""

    through = ran_before = THROUGH
    # Without a GPU it computes engine ops in TensorFlow.
    replaces_engine_ops = True

    def __init__(
        self,
        options: Options,
        opened: Sequence[Model],
        matched: name_matching.Matched,
        folder: str | os.PathLike[str],
        gpus: bool,
    ) -> None:
        self._options, self._folder = options, pathlib.Path(folder)
        self._opened: dict[rounds.Side, Any] = dict(zip((rounds.NATIVE, rounds.CANDIDATE), opened, strict=True))
        self.notes = tuple(matched.notes)
        # {side: what runs its model in another environment}.
        self.elsewhere: dict[rounds.Side, str] = {}
        for side, python in ((rounds.NATIVE, options.native_python), (rounds.CANDIDATE, options.candidate_python)):
            if python:
                self._opened[side], self.elsewhere[side] = elsewhere.placed(
                    self._opened[side], python, f"{side}_python"
                )
                self.notes += (f"the {side} model ran in {self.elsewhere[side]}, {self._opened[side].python}",)
        self._matched = matched
        self._names: dict[rounds.Side, Any] = {rounds.NATIVE: {}, rounds.CANDIDATE: matched.names}
        self.gpus = gpus
        processes = "each model in a process of its own" if self.elsewhere else "both models in one process"
        self.where = {"address": "", "backend": THROUGH, "reason": f"{processes}, without a server"}
        self.models: dict[rounds.Side, models.Model] = {}
        self._ran: Any = None
        # Lines that were printed.
        self._said: list[str] = []
        self._verdict: engine_evidence.Verdict | None = None

    def sides(self) -> dict[rounds.Side, Any]:
        """As OnServer.sides."""
        self.models |= {name: models.of(model, name) for name, model in self._opened.items()}
        native, candidate = self._opened[rounds.NATIVE].signatures, self._matched.second.signatures
        if self._options.paired:
            return {
                name: {key: (one.inputs, one.outputs) for key, one in signatures.items()}
                for name, signatures in ((rounds.NATIVE, native), (rounds.CANDIDATE, candidate))
            }
        return {
            rounds.NATIVE: {name: (self._inputs(name), one.outputs) for name, one in native.items()},
            rounds.CANDIDATE: {name: (one.inputs, one.outputs) for name, one in candidate.items()},
        }

    def _inputs(self, signature: str) -> tuple[Any, ...]:
        """InputSpecs of the native model's inputs, with the shapes that the candidate takes too. Raises: UsageError where it takes none."""
        found = []
        there = self._matched.second.inputs.get(signature, ())
        for one in self._opened[rounds.NATIVE].inputs[signature]:
            other = next((other for other in there if other.name == one.name), one)
            if not name_matching.fits(one, other):
                raise errors.UsageError(
                    f"input {one.name!r} of {signature!r} is {other.text()} in the candidate, native {one.text()}",
                    "compare a model with what was made of it",
                )
            found.append(name_matching.narrowed(one, other))
        return tuple(found)

    def answers(self, calls: Mapping[rounds.Side, Sequence[run.Call]]) -> list[Sequence[answers.Answer]]:
        """As OnServer.answers."""
        ran = [(self._run(name, calls[name]), len(calls[name])) for name in self.models]
        return [[one.answer(number) for number in range(count)] for one, count in ran]

    def engines(self, calls: Sequence[run.Call]) -> engine_evidence.Verdict:
        """Whether the candidate's engines ran, by TensorFlow's own trace of each call: evidence.Verdict. Args: calls: all answered
        calls, or the first ones."""
        ran = self._ran or self._run(rounds.CANDIDATE, calls)
        if ran.mode != "gpu":
            one = (
                Evidence(source="model", seen="it has no engine op", speaks=NO, weight=CERTAIN)
                if ran.mode == "cpu"
                else Evidence(
                    source="GPU",
                    seen="; ".join(
                        filter(
                            None,
                            ("there is none here: engine ops were replaced by their native segments", ran.where.remark),
                        )
                    ),
                    speaks=NO,
                    weight=CERTAIN,
                )
            )
            verdict: engine_evidence.Verdict = engine_evidence.judge([one], {calls[0].signature: None})
            return verdict
        found = [
            one
            for call, trace in zip(calls, ran.traces[: len(calls)], strict=True)
            for one in _of_trace(call, trace, self._left)
        ]
        judged: engine_evidence.Verdict = engine_evidence.judge(found, {call.text(): None for call in calls})
        self._verdict = judged
        return judged

    def asking(
        self, calls: Mapping[rounds.Side, Sequence[run.Call]]
    ) -> contextlib.AbstractContextManager[rounds.Asker]:
        """As OnServer.asking."""
        saved = {name: run.save_calls(calls[name], self._folder / f"timed-{name}") for name in self._opened}
        count = len(calls[rounds.NATIVE])
        requests = {
            name: side_by_side.Side(
                job=in_process.maker(model.kind.runtime).target,
                load=run.LoadRequest(model=model.path, calls=tuple(run.named(saved[name], self._names[name]))),
            )
            for name, model in self._opened.items()
        }
        # If an engine is known to fall back, its requests would fail, and nothing would be timed.
        env = {gate.VARIABLE: "False"} if self._verdict and self._verdict.ran and not self._left else {}
        if self.elsewhere:
            jobs = {
                name: dataclasses.replace(
                    function_load.assignment_of(
                        side_by_side.make, side_by_side.Request((request,)), self._options.concurrency
                    ),
                    python=self._opened[name].python,
                )
                for name, request in requests.items()
            }
            return rounds.asking_each(jobs, count, self._limits, env, self._options.concurrency)
        work = function_load.assignment_of(
            side_by_side.make, side_by_side.Request(tuple(requests.values())), self._options.concurrency
        )
        return rounds.asking_one(
            work, dict(zip(self.models, (0, count), strict=True)), count, self._limits, env, self._options.concurrency
        )

    @property
    def _limits(self) -> rounds.Limits:
        """The first call of a shape may build engines, which takes minutes."""
        call = self._options.timeout
        return rounds.Limits(
            load_seconds=LOAD_SECONDS, first_seconds=max(call, LOAD_SECONDS) if self.gpus else call, call_seconds=call
        )

    @property
    def gate_closed(self) -> bool:
        """Whether a native segment fails its request; what the build left native would."""
        return self._options.goals.no_engine_fallback and not self._left

    @property
    def _left(self) -> Mapping[str, str]:
        """Of passport.left_native of the candidate."""
        return self.models[rounds.CANDIDATE].left_native if rounds.CANDIDATE in self.models else {}

    def problem(self) -> None:
        """None, because there is no server that could have ended."""
        return None

    def _run(self, name: rounds.Side, calls: Sequence[run.Call]) -> Any:
        folder = self._folder / name
        watched = name == rounds.CANDIDATE and self._options.goals.no_engine_fallback
        try:
            done = run.run(
                self._opened[name],
                run.save_calls(calls, folder / "in"),
                folder / "out",
                f"the {name} model",
                trace=watched,
                log_file=self._options.log_file,
                names=self._names[name],
                silence=child.Silence(self._limits.load_seconds, self._limits.first_seconds, "--timeout_seconds"),
            )
        except errors.CallFailed as error:
            if name != rounds.CANDIDATE:
                raise
            raise answers.Refused(f"the candidate model refuses a request: {error.cause}", error.mend) from None
        except child.ChildDied as error:
            raise errors.TftrtError(f"the {name} model: {error.cause}", error.mend) from None
        if watched:
            self._ran = done
        if done.where.remark and done.where.remark not in self._said:
            self._said.append(done.where.remark)
            progress.note(f"note: {done.where.remark}")
        return done


def _of_trace(call: run.Call, trace: CallTrace, left: Mapping[str, str]) -> list[Evidence]:
    missed = coverage.misses(call, trace, left)
    if missed:
        return [Evidence(source="trace", seen=one, speaks=NO, weight=CERTAIN, call=call.text()) for one in missed]
    if not trace.engine:
        return [
            Evidence(
                source="trace", seen=f"no engine ran in {call.text()}", speaks=NO, weight=CERTAIN, call=call.text()
            )
        ]
    native = "; ".join(f"{name} {left[name]}" for name in trace.fallback) or "no native segment"
    seen = f"{sum(trace.engine.values())} runs of {len(trace.engine)} engines in {call.text()}, and {native}"
    return [
        Evidence(
            source="trace", seen=seen, speaks=YES, weight=LIKELY if "?" in trace.engine else CERTAIN, call=call.text()
        )
    ]
