"""plan.json: what a plan directory says of its plan. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import typing

from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import Precision
from tftrt_tools.base.files import documents
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.engine_op import Shape
from tftrt_tools.models.savedmodel.shapes import InputSpec

PLAN, ONNX, DOCUMENT, PLUGINS = files.PLAN, "model.onnx", files.PLAN_DOCUMENT, "plugins"
# Further documents of the passport.
LAYER_INFORMATION, TIMING_CACHE, RANGES = "engine_layers.json", "timing.cache", "plan_ranges.json"
# The plan's name among the engines of a model.
ENGINE = "plan"
_MEND = "build it anew: `tftrt build PLAN_DIR`"


@dataclasses.dataclass(frozen=True)
class Tensor(records.Record):
    """An input or output. dtype, shape: of the ONNX file. engine_dtype: what the engine computes with, if it has not that dtype."""

    name: str
    dtype: str
    shape: Shape
    engine_dtype: str

    @property
    def spec(self) -> InputSpec:
        """The InputSpec, as other kinds of models have it."""
        return InputSpec(self.name, self.dtype, self.shape)


@dataclasses.dataclass(frozen=True)
class Plugin(records.Record):
    """A library of plugins. file: its path in the plan directory. digest: "sha256:…". creators: what it added to TensorRT's registry, "name
    version" each."""

    file: str
    digest: str
    creators: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanFile(passport.Stamped):
    """The contents of plan.json."""

    document: typing.ClassVar[str] = "plan"

    # The version that built it, such as "8.5.3.1".
    tensorrt: str
    # Of the GPU that it was built on, such as "9.0"; and the GPU's name.
    compute_capability: str
    gpu: str
    # The precision that the user asked for.
    precision: Precision
    # Whether the types of the ONNX file decide the precision of each layer.
    strongly_typed: bool = False
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    # The profiles, in the order of TensorRT's numbers.
    profiles: tuple[Profile, ...]
    plugins: tuple[Plugin, ...] = ()
    # Builder flags, by TensorRT's names.
    builder_flags: tuple[str, ...] = ()
    # Whether another release of TensorRT may run it; whether its weights can be replaced.
    version_compatible: bool = False
    refittable: bool = False
    # The size of the plan.
    bytes: int
    # The digest of the plan: "sha256:…".
    digest: str

    @property
    def dynamic(self) -> bool:
        """Whether an input has an open dimension."""
        return any(one.shape is None or None in one.shape for one in self.inputs)


def read(path: str | os.PathLike[str]) -> PlanFile:
    """The PlanFile of a plan directory. Raises: UsageError, TftrtError where the directory is not whole."""
    folder = pathlib.Path(path)
    for name in (DOCUMENT, PLAN):
        if not (folder / name).is_file():
            raise errors.UsageError(
                f"{path} is no whole plan directory: it has no {name}", f"copy it again, or {_MEND}"
            )
    with documents.reading(folder / DOCUMENT, _MEND):
        document: PlanFile = PlanFile.from_dict(documents.read(folder / DOCUMENT))
    size = (folder / PLAN).stat().st_size
    if size != document.bytes:
        raise errors.TftrtError(
            f"{folder / PLAN} is truncated or another one: it has {size} bytes, and {DOCUMENT} says {document.bytes}",
            f"copy the directory again, or {_MEND}",
        )
    return document
