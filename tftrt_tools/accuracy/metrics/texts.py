"""Word error: wer = (substitutions + deletions + insertions) / words of the reference, over all texts together; the least edits that make
the answer of the reference (Levenshtein 1966), word by word, as speech recognition counts them (Jurafsky and Martin, Speech and Language
Processing). Words are what white space divides; upper and lower case differ."""

from typing import Any

import numpy.typing as npt

from tftrt_tools.accuracy import labels
from tftrt_tools.accuracy.kinds import TEXTS
from tftrt_tools.accuracy.metrics.metric import Measure, Metric, fixed


class WordErrors(Measure[npt.NDArray[Any]]):
    """wer."""

    def __init__(self, epsilon: float = 1e-3) -> None:
        super().__init__(epsilon)
        self._edits = self._words = 0

    def add(self, reference: npt.NDArray[Any], answer: npt.NDArray[Any]) -> None:
        for wanted, given in zip(reference.reshape(-1), answer.reshape(-1), strict=True):
            words = decoded(wanted).split()
            self._words += len(words)
            self._edits += edits(words, decoded(given).split())

    def values(self) -> dict[str, float]:
        if not self._words:
            return {"wer": float(bool(self._edits))}
        return {"wer": self._edits / self._words}


def decoded(value: bytes | str) -> str:
    """A string of an answer as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def edits(reference: list[str], answer: list[str]) -> int:
    """The least number of words to exchange, leave out or put in."""
    if reference == answer:
        return 0
    row = list(range(len(answer) + 1))
    for number, expected in enumerate(reference, 1):
        before, row[0] = row[0], number
        for place, given in enumerate(answer, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (expected != given))
    return row[-1]


METRICS = (
    Metric(
        name="wer",
        higher=False,
        column="word errors",
        show=fixed(4),
        measure=WordErrors,
        kinds=frozenset((TEXTS,)),
        labels=frozenset((labels.TEXTS,)),
        first_of=frozenset((labels.TEXTS,)),
        meaning="texts: words to change / words of the reference",
    ),
)
