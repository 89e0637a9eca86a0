"""Are the answers right while the server is under load? They are compared with its own first answers; these can be compared with the
original's."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy.typing as npt

from tftrt_tools.accuracy.judgement import Rules
from tftrt_tools.base import errors
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import child
from tftrt_tools.models.execution import run
from tftrt_tools.models.execution.run import Call
from tftrt_tools.models.kinds import names
from tftrt_tools.models.kinds.model import Model
from tftrt_tools.servers.serving.smoke import answer_check as comparing

# Batches of another size, and engines of another profile, round differently; the precision of the served model is not known here.
_ARITHMETIC = "FP16"
_LOAD_SECONDS = 1800.0
# {output: array} of one request.
Answer = Mapping[str, npt.NDArray[Any]]


class Judge:
    """Compares an answer with the known one, by the metrics and bounds of `tftrt verify`.

    Args: calls: [run.Call]. known: {index: {output: ndarray}}. rules: judgement.Rules. own_data: whether the inputs are the
      user's. read: function of an answer that gives {output: ndarray}, or raises ValueError.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        known: Mapping[int, Answer],
        rules: Rules,
        own_data: bool,
        read: Callable[[bytes], Answer],
    ) -> None:
        self._calls, self._known, self._rules, self._read = calls, known, rules, read
        self._own = {call.signature for call in calls} if own_data else set()

    def problem(self, index: int, answer: bytes) -> str:
        """What is wrong with an answer to call `index`, one line, or ""."""
        try:
            arrays = self._read(answer)
        except ValueError as error:
            return f"the answer cannot be read: {error}"
        return self.of_arrays(index, arrays)

    def of_arrays(self, index: int, arrays: Answer) -> str:
        """The same for {output: ndarray}."""
        found = comparing.compare(
            [(self._calls[index], self._known[index], arrays)], _ARITHMETIC, self._own, self._rules
        )
        return next(iter((*found.problems, *(miss.text() for miss in found.misses))), "")

    def nothing_shown(self) -> str:
        """Why the known answers to all calls show nothing, one line, or ""."""
        known = [(call, self._known[index], self._known[index]) for index, call in enumerate(self._calls)]
        return next(iter(comparing.compare(known, _ARITHMETIC, self._own, self._rules).nothing_shown), "")


class Original:
    """The original model, which gives the right answers.

    Args: measured: the measured model, None where only the server knows it: then names have to be
      the same. signature: the one that is asked. timeout: seconds of a call; one that takes longer hangs. Raises: UsageError where it
      cannot be the original.
    """

    def __init__(self, original: Model, measured: Model | None, signature: str, timeout: float = 60.0) -> None:
        self._timeout = timeout
        self._model, self._contents = original, original.contents
        self._names: Any = None
        self.notes: tuple[str, ...] = ()
        if measured:
            matched = names.match(measured, original, (signature,) if signature in original.signatures else ())
            self._contents, self._names, self.notes = matched.second, matched.names, matched.notes

    def answers(self, calls: Sequence[Call]) -> dict[int, Answer]:
        """{index: {output: ndarray}} to run.Calls, from its runtime on the CPU, in a child process. Raises: TftrtError, UsageError."""
        comparing.check_original(self._model.source, self._contents, calls)
        with scratch.folder("bench") as folder:
            ran = run.run(
                self._model,
                run.save_calls(calls, f"{folder}/in"),
                f"{folder}/original",
                "the original",
                exact=True,
                env={"CUDA_VISIBLE_DEVICES": "-1"},
                names=self._names,
                silence=child.Silence(_LOAD_SECONDS, self._timeout, "--timeout_seconds"),
            )
            return {number: ran.answer(number) for number in range(len(calls))}


def check_first(judge: Judge, first: Mapping[int, Answer]) -> None:
    """Refuse to measure a server whose first answers are wrong.

    Args: judge: knows the original's answers; first: {index: {output: ndarray}}. Raises: CheckFailed.
    """
    nothing = judge.nothing_shown()
    if nothing:
        raise errors.CheckFailed(*nothing.split("; ", 1))
    for index, arrays in sorted(first.items()):
        problem = judge.of_arrays(index, arrays)
        if problem:
            raise errors.CheckFailed(
                f"the answers are not like the original's, so their speed says nothing: {problem}",
                "`tftrt smoke --original=…` compares them; --thresholds sets other bounds",
            )
