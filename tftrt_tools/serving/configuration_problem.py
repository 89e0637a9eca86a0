"""Something wrong in a configuration file."""

import dataclasses

ERROR, WARNING = "error", "warning"


@dataclasses.dataclass(frozen=True)
class Problem:
    """line: 1 for the first, 0 where not known; level: ERROR (the server refuses it, or does something else than it says) or WARNING."""

    line: int
    level: str
    text: str
    mend: str = ""

    def to_dict(self):
        return dataclasses.asdict(self)
