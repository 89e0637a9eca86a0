"""What a back end is: who makes a model from a recipe. `studies.backends` has those that are known.

A new one is a class with the members of Backend, in a file of its own, and one line in `studies/backends/__init__.py`; one of another
package is an entry point of the group "tftrt_tools.backends". What only some back ends can do is a protocol of its own, as Simulates: a
back end that lacks its members cannot do it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from tftrt_tools.base.choices import Precision, Server
from tftrt_tools.models.backends.recipe import Recipe, Settings
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.sources.source import Source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work(Generic[Settings]):
    """One model to make."""

    # As the user named it.
    source: Source
    # Directory or file to make; None to make it and keep nothing.
    output: str | None
    # As `Backend.check` returned them.
    settings: Settings
    # The data for the calibration of INT8's ranges; None for none.
    data: DataOptions | None = None
    # Replace a model that is at the output.
    overwrite: bool = False
    # The command line that repeats this work; it is kept with the model.
    flag_file: str = ""
    # The file for what the libraries log.
    log_file: str | None = None
    # {"folder", "max_bytes"} of the engine cache; None for none.
    cache: Mapping[str, Any] | None = None
    # The most seconds for all builds together; None for no limit.
    build_minutes: float | None = None
    # Whether to tell in which precision each layer computes.
    layers: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Changes:
    """What `tftrt build` changes of the settings that a model keeps; None and "" keep them. options: flags of the back end's own."""

    shapes: str = ""
    max_workspace_size_bytes: int | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Given:
    """What the user typed. names: of the flags; of_data: those of them that are about calibration data; data: what they say, None for
    no data."""

    names: Collection[str] = ()
    of_data: Sequence[str] = ()
    data: DataOptions | None = None


class Made(Protocol):
    """A finished model, which a command prints and writes as JSON (base/results.json_text). It need not be a results.Result."""

    @property
    def output(self) -> str | None:
        """The path of the model; None where it was not kept."""

    @property
    def complete(self) -> bool:
        """Whether all engines that were asked for are there, but for those that the user's time bound left out."""

    def to_dict(self) -> dict[str, Any]:
        """The values of the JSON document."""

    def text(self) -> Sequence[str]:
        """Lines for people; the last says what was written."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a model that was made tells of itself. build_seconds: of all engines; engine_bytes: of all of them; engines: how many;
    coverage: share of the computing ops in them, 0 to 1; cached: how many came from the engine cache."""

    build_seconds: float
    engine_bytes: int
    engines: int
    coverage: float
    cached: int = 0


class Backend(Protocol[Settings]):
    """A back end: it makes a model from a recipe."""

    # The word of --backend.
    name: str
    # What --help says of it.
    about: str
    # What its flags are for, in messages: "--tf32 is for plans".
    makes: str
    # What one of its models is called: "plan" as in "INT8 as a plan"; "" for the default back end.
    title: str
    # Its settings: the recipe with options.
    settings: type[Settings]
    # More flags of `tftrt convert` and of `tftrt build` that it alone has.
    convert_flags: frozenset[str]
    build_flags: frozenset[str]
    # How the path of one of its models has to end: ".onnx"; "" for a directory.
    suffix: str
    # {precision: the field of its settings that keeps nodes in a higher one}; {} where it cannot.
    keeps_high: Mapping[Precision, str]
    # Whether it cuts a model into segments, of which the least size and the kind of profiles can be chosen.
    has_segments: bool
    # Whether it builds only on a GPU.
    needs_gpu: bool
    # Whether it builds engines where no shapes are given.
    always_builds: bool
    # Whether the engines of an interrupted run are in the engine cache.
    resumes: bool

    def versions(self) -> Mapping[str, str]:
        """What its models depend on besides the recipe, the model, the GPU and TensorRT, {name: version}: what was made and measured with
        others is not taken for it. Cheap: nothing is loaded."""

    def takes(self, source: Source) -> None:
        """Raise UsageError for a model from which it makes none. `tune` asks before it tries; `make` has to find that by itself."""

    def check(self, settings: Settings, given: Given) -> Settings:
        """The settings, with words in their own spelling. Raises: UsageError for what cannot work, or would have no effect."""

    def make(self, work: Work[Settings]) -> Made:
        """Make the model, whole or not at all. Raises: UsageError, TftrtError, CheckFailed; then the output is as it was."""

    def made(self, model: str) -> bool:
        """Whether a path is a model that it made and can rebuild. Cheap: nothing is loaded."""

    def rebuild(self, model: str, changes: Changes, work: Work[Settings]) -> Made:
        """Build a model that was made, for this machine. Args: work: its source, settings and data are not read. Raises: as `make`."""

    def evidence(self, model: str) -> Evidence:
        """The Evidence of a model that this back end made."""


# A back end with any kind of settings.
AnyBackend = Backend[Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rows:
    """What a simulation computes with."""

    # The model, as the user named it.
    source: Source
    # {signature: .npz files of the inputs of its calls} that are scored, as execution.npz reads them.
    calls: Mapping[str, Sequence[str]]
    # The data for INT8's ranges; None where the settings have them, and in another precision.
    data: DataOptions | None = None


@dataclasses.dataclass(frozen=True)
class Ranked:
    """names: of nodes, the most harmful first; first: with how many nodes in a higher precision to begin."""

    names: tuple[str, ...]
    first: int = 1


# Of a back end whose settings are only read.
Taken = TypeVar("Taken", bound=Recipe, contravariant=True)


@runtime_checkable
class Simulates(Protocol[Taken]):
    """A back end that can also tell what rounding costs, before anything is built. `tune` asks it."""

    def rank(self, settings: Taken, rows: Rows) -> Ranked:
        """The nodes that the precision hurts, by their names in the original. Raises: TftrtError where nothing can be simulated."""

    def promise(self, settings: Taken, rows: Rows) -> float:
        """The SNR in dB of the worst output with everything rounded. Raises: TftrtError where nothing can be simulated."""


@runtime_checkable
class Served(Protocol):
    """A back end that names what serves its models. Of one that does not, no server is known."""

    servers: tuple[Server, ...]
