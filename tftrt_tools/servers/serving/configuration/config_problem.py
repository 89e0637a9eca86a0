"""A problem in a configuration file."""

import dataclasses
from typing import Literal

from tftrt_tools.base import records

Level = Literal["error", "warning"]
ERROR: Level = "error"
WARNING: Level = "warning"


@dataclasses.dataclass(frozen=True)
class Problem(records.Record):
    """line: 1 for the first, 0 where not known; level: ERROR (the server refuses it, or does something else) or WARNING."""

    line: int
    level: Level
    text: str
    mend: str = ""
