"""What a plan depends on: an engine of TensorRT itself, built from an ONNX file. Beside it, `key` has what TF-TRT's engines depend on."""

import dataclasses
import typing
from collections.abc import Mapping

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.engine_cache import key as keys

# Part of every key: raise it when the meaning of a field changes, or what every build asks of TensorRT. No old entry is found then.
Format = typing.Literal[1]
FORMAT: Format = 1
# Names in libnvinfer 8.5.3: what float32 is computed in, and options of its compiler.
ENVIRONMENT = ("NVIDIA_TF32_OVERRIDE", "__LUNOWUD")
Dims = tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanKey(records.Record):
    """Everything that a plan depends on, except the driver, as with TF-TRT's engines."""

    # Digest of the ONNX file, and of the files beside it that hold its weights.
    onnx: str
    # The optimization profiles in their order: {input: its shapes (min, opt, max)}.
    profiles: tuple[Mapping[str, tuple[Dims, Dims, Dims]], ...]
    # As plans.settings.Settings has them; tactic sources sorted, () for TensorRT's own choice.
    precision: Precision
    max_workspace_size_bytes: int
    strongly_typed: bool
    tf32: bool
    tactic_sources: tuple[str, ...]
    sparse_weights: bool
    version_compatible: bool
    refit: bool
    # Digests of the libraries of plugins, in the order in which they are loaded.
    plugins: tuple[str, ...]
    # Digest of the tensors' ranges of a calibration table, "" for none.
    ranges_digest: str
    # Version of TensorRT that is loaded.
    tensorrt: str
    # Compute capability of the GPU, such as "9.0"; the device's name; its multiprocessors, 0 if not known. TensorRT times kernels on it.
    compute_capability: str
    gpu: str
    multiprocessors: int
    # Versions of the libraries that this process has loaded, "" for none. TensorRT 8 takes kernels from both.
    cudnn: str
    cublas: str
    # {variable: value}, of ENVIRONMENT.
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Layers that are constrained to FP32, because the file computes there in FP32.
    held: int = 0
    format: Format = FORMAT

    @property
    def name(self) -> str:
        """The name of the entry, as EngineKey.name."""
        return keys.name_of(self)
