"""Equations of Einsum, as one product of two operands. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Sequence

ELLIPSIS = "..."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equation:
    """An equation of two operands. Letters: batch: of all three; left, right: of one operand and the result; summed: of both operands."""

    first: str
    second: str
    result: str
    batch: str
    left: str
    right: str
    summed: str

    def turned(self) -> Equation:
        """The same with its operands in the other order."""
        return dataclasses.replace(self, first=self.second, second=self.first, left=self.right, right=self.left)


def parsed(text: str) -> Equation | None:
    """The Equation; None for one that is no single product: with an ellipsis, a letter twice in an operand, or one that only one has."""
    operands, _, result = text.replace(" ", "").partition("->")
    first, comma, second = operands.partition(",")
    if (
        not comma
        or not result.isalpha()
        or any(not one.isalpha() or len(set(one)) < len(one) for one in (first, second, result))
    ):
        return None
    batch, summed = (
        "".join(one for one in letters if one in first and one in second)
        for letters in (result, [one for one in first if one not in result])
    )
    left, right = (
        "".join(one for one in result if one in mine and one not in other)
        for mine, other in ((first, second), (second, first))
    )
    found = Equation(first=first, second=second, result=result, batch=batch, left=left, right=right, summed=summed)
    parts = ((first, batch + left + summed), (second, batch + right + summed), (result, batch + left + right))
    return found if summed and all(set(letters) == set(part) for letters, part in parts) else None


def spelled(text: str, ranks: Sequence[int]) -> tuple[str, list[int]] | None:
    """An equation with letters for its ellipses. Args: ranks: of its operands.

    Returns: (it, how many axes the ellipsis of each operand stands for); None where these are of different counts, where the result lacks
    them, or where the alphabet is too short.
    """
    given, _, result = text.replace(" ", "").partition("->")
    operands = given.split(",")
    counts = [
        rank - len(one.replace(ELLIPSIS, "")) if ELLIPSIS in one else 0
        for one, rank in zip(operands, ranks, strict=True)
    ]
    there = {count for count in counts if count}
    free = [letter for letter in string.ascii_lowercase if letter not in text.lower()]
    count = max(there, default=0)
    if min(counts) < 0 or len(there) > 1 or count > len(free) or (count and ELLIPSIS not in result):
        return None
    letters = "".join(free[:count])
    spelled_out = [one.replace(ELLIPSIS, letters if axes else "") for one, axes in zip(operands, counts, strict=True)]
    return f"{','.join(spelled_out)}->{result.replace(ELLIPSIS, letters)}", counts
