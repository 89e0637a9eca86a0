"""Known messages of logs. One is a `Message`: its words as the log has them, what they mean, and what to do about them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from tftrt_tools.base.choices import LogCategory, LogSeverity

_PLACE = re.compile(r"\{(\w+)\}")
# The patterns of places with a fixed form. Other places take any text of one line.
_KINDS = {
    "engine": r"[\w./-]+",
    "number": r"\d[\d.]*",
    "op": r"\w+",
    "shapes": r"\[.*?\](?=[\s;.]|$)",
    "hex": r"(?:0x)?-?[0-9a-f]+",
    "path": r"\S+?(?=[.:,;]?(?:\s|$))",
}
_TEXT = r"[^\n]+"
# The longest text of a place that is kept, in characters.
LONGEST = 300
# The most characters of a line that are searched: a line of 64 Ki that repeats the words of a form would take minutes.
_SEARCHED = 8192


@dataclasses.dataclass(frozen=True)
class Form:
    """The words of a message. text: as in the log, with {names} for what varies; one at the end takes the rest of the line."""

    text: str

    # What finds it in a text; its groups are the places.
    pattern: re.Pattern[str] = dataclasses.field(init=False, repr=False, compare=False)
    # A word that each text of this form contains; "" where no word is sure to stand between spaces.
    key: str = dataclasses.field(init=False, repr=False, compare=False)

    # The number of letters that do not vary.
    weight: int = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "pattern", re.compile("".join(self._parts())))
        object.__setattr__(self, "weight", sum(map(len, self.literals)))
        object.__setattr__(self, "key", max(self._words(), key=len, default=""))

    @property
    def literals(self) -> list[str]:
        """The parts of the text that do not vary."""
        return [part for part in _PLACE.split(self.text)[::2] if part]

    def search(self, text: str) -> re.Match[str] | None:
        """The first place in `text` that has this form. Of long lines the beginning counts."""
        return self.pattern.search(
            text if len(text) <= _SEARCHED else "\n".join(line[:_SEARCHED] for line in text.split("\n"))
        )

    def find(self, text: str) -> dict[str, str] | None:
        """{place: its text} where `text` has this form, else None."""
        found = self.search(text)
        return None if found is None else {name: value.strip()[:LONGEST] for name, value in found.groupdict().items()}

    def all(self, text: str, place: str) -> list[str]:
        """The texts of one place, one for each time that a text of many lines has this form."""
        return [found[place] for found in self.pattern.finditer(text)]

    def _parts(self) -> Iterator[str]:
        pieces = _PLACE.split(self.text)
        for number, piece in enumerate(pieces):
            if number % 2 == 0:
                yield re.escape(piece)
            else:
                last = number == len(pieces) - 2 and not pieces[-1]
                yield f"(?P<{piece}>{_KINDS.get(piece, _TEXT if last else _TEXT + '?')})"

    def _words(self) -> Iterator[str]:
        """The words that stand between spaces of the text itself. What a log writes beside the text may touch its first and last word."""
        for piece in self.literals:
            yield from filter(None, piece.split(" ")[1:-1])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Message:
    """A known message, or several with the same meaning."""

    # Its name in results.
    name: str
    category: LogCategory
    severity: LogSeverity
    # Its words, in each version that has others.
    forms: tuple[Form, ...]
    # What it means, in sentences.
    meaning: str
    # What to do about it, "" for nothing.
    mend: str
    # The place whose texts are counted one by one (the engine, the layer, …), "" for none.
    subject: str = ""

    def find(self, text: str) -> dict[str, str] | None:
        """{place: its text} where `text` has one of the forms, else None."""
        return next((found for form in self.forms if (found := form.find(text)) is not None), None)


def known(
    name: str,
    category: LogCategory,
    severity: LogSeverity,
    *forms: str,
    meaning: str,
    mend: str = "",
    subject: str = "",
) -> Message:
    """Make a Message; `forms` are its texts, one for each version that words it differently."""
    return Message(
        name=name,
        category=category,
        severity=severity,
        forms=tuple(map(Form, forms)),
        meaning=meaning,
        mend=mend,
        subject=subject,
    )
