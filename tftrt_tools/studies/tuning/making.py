"""What makes the models of each back end that is tried beside TF-TRT."""

from collections.abc import Callable, Sequence

from tftrt_tools.studies import backends
from tftrt_tools.studies.tuning import makers
from tftrt_tools.studies.tuning.makers import Asked, Maker
from tftrt_tools.studies.tuning.plans import Plans
from tftrt_tools.tensorrt.plans.backend import TENSORRT

# Makers that do more than a back end's own `make`.
MAKERS: dict[str, Callable[[Asked], Maker]] = {TENSORRT.name: Plans}


def of(names: Sequence[str], asked: Asked) -> dict[str, Maker]:
    """{back end: what makes its models}. Args: names: of the back ends that are tried."""
    others = [one for one in backends.known()[1:] if one.name in names]
    return {one.name: MAKERS[one.name](asked) if one.name in MAKERS else makers.Direct(one, asked) for one in others}
