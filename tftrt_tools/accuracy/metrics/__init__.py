"""The metrics for how far two answers are apart and how good one is, a file for each family; and the comparison of outputs by them.

`registry.METRICS` has them all, each with its name, direction, column, the measure that accumulates it over calls in float64, and the kinds
of outputs and labels that it applies to. Formulas and their sources are in the docstrings of the families.
"""

from tftrt_tools.accuracy.metrics.comparison import Accumulator, Comparing, Comparison, compare
from tftrt_tools.accuracy.metrics.metric import Metric
from tftrt_tools.accuracy.metrics.registry import ALIASES, METRICS, first_of, shown

__all__ = ["ALIASES", "METRICS", "Accumulator", "Comparing", "Comparison", "Metric", "compare", "first_of", "shown"]
