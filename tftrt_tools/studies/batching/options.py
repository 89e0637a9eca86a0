"""What the flags of `tftrt bench --tune_batching` ask for."""

import dataclasses
import pathlib
from collections.abc import Mapping

from tftrt_tools.studies.bench import options as bench_options
from tftrt_tools.studies.bench.goal import Bound
from tftrt_tools.studies.tuning.budget import Budget


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """The model, its load, the promise, and the bounds of the search."""

    # A SavedModel directory.
    model: str
    # What serves it, as --launch and --server_image of `tftrt serve`.
    backend: str
    image: str
    # The requests and the search for a rate; the address is filled in for each trial.
    load: bench_options.Options
    budget: Budget
    # Folder of the journal and the results.
    work_dir: pathlib.Path
    # {name that a flag had before: its name}, for a journal that was begun then.
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def bound(self) -> Bound:
        """The percentile that is promised: the first of --slo."""
        assert self.load.goal is not None
        return next(bound for bound in self.load.goal.bounds if bound.percentile is not None)
