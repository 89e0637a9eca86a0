"""The toolkit's calibration methods by name; `scales` computes them. No NumPy, for commands that only read flags."""

import dataclasses
import typing

from tftrt_tools.base import choices
from tftrt_tools.models.backends import recipe

METHODS = choices.METHODS
AUTO: typing.Final = recipe.AUTO
PERCENTILE = recipe.PERCENTILE


@dataclasses.dataclass(frozen=True)
class Method:
    """One of METHODS. percentile: of |x|, for that method."""

    name: choices.Method
    percentile: float = PERCENTILE

    @property
    def text(self) -> str:
        """Its name in calibration files: "mse", "percentile 99.9"."""
        return f"{self.name} {self.percentile:g}" if self.name == "percentile" else self.name
