"""Are the answers right while the server is under load? Compared with its own first answers, which can be held against the original's."""

from tftrt_tools import errors, scratch
from tftrt_tools.serving.smoke import answers as comparing
from tftrt_tools.serving.smoke import steps
from tftrt_tools.sources.opened import opened

# Batches of another size, and engines of another profile, round differently; the precision of what is served is not known here.
_ARITHMETIC = "FP16"


class Judge:
    """Says whether an answer is like the known one, by the metrics and bounds of `tftrt verify`.

    Args: calls: [run.Call]. known: {index: {output: ndarray}}. rules: judgement.Rules. own_data: whether the inputs are the
      user's. read: function of an answer that gives {output: ndarray}, or raises ValueError.
    """

    def __init__(self, calls, known, rules, own_data, read):
        self._calls, self._known, self._rules, self._read = calls, known, rules, read
        self._own = {call.signature for call in calls} if own_data else set()

    def problem(self, index, answer):
        """What is wrong with an answer to call `index`, one line, or ""."""
        try:
            arrays = self._read(answer)
        except ValueError as error:
            return f"the answer cannot be read: {error}"
        return self.of_arrays(index, arrays)

    def of_arrays(self, index, arrays):
        """The same for {output: ndarray}."""
        found = comparing.compare([(self._calls[index], self._known[index], arrays)], _ARITHMETIC, self._own, self._rules)
        return next(iter((*found.problems, *(miss.text() for miss in found.misses))), "")

    def nothing_shown(self):
        """Why the known answers to all calls show nothing, one line, or ""."""
        known = [(call, self._known[index], self._known[index]) for index, call in enumerate(self._calls)]
        return next(iter(comparing.compare(known, _ARITHMETIC, self._own, self._rules).nothing_shown), "")


def of_original(original, calls):
    """{index: {output: ndarray}} of a model (path or source.Source), from TensorFlow on the CPU, in a child process. Raises: TftrtError,
    UsageError."""
    with opened(original) as model, scratch.folder("bench") as folder, steps.worker() as worker:
        comparing.check_original(original, worker.describe(model), calls)
        ran = comparing.reference(model, list(calls), folder, worker)
        return {number: ran.answer(number) for number in range(len(calls))}


def check_first(judge, first):
    """Refuse to measure a server whose first answers are wrong.

    Args: judge: with the original's answers; first: {index: {output: ndarray}}. Raises: CheckFailed.
    """
    nothing = judge.nothing_shown()
    if nothing:
        raise errors.CheckFailed(*nothing.split("; ", 1))
    for index, arrays in sorted(first.items()):
        problem = judge.of_arrays(index, arrays)
        if problem:
            raise errors.CheckFailed(f"the answers are not like the original's, so their speed says nothing: {problem}",
                                     "`tftrt smoke --original=…` compares them; --thresholds sets other bounds")
