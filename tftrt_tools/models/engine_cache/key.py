"""What an engine of TF-TRT depends on. Two builds with equal keys may share an engine. Whatever changes what TensorRT is asked for, or
where it runs, changes the key."""

import dataclasses
import hashlib
import json
import os
import typing
from collections.abc import Iterable, Mapping

from tftrt_tools.base import records
from tftrt_tools.base.choices import Precision

if typing.TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Part of every key: raise it when the meaning of a field changes; then no old entry is found any more.
Format = typing.Literal[1]
FORMAT: Format = 1
# Read by TF-TRT or CUDA libraries while an engine is built.
ENVIRONMENT = (
    "NVIDIA_TF32_OVERRIDE",
    "TF_DEBUG_TRT_ALLOW_INEFFICIENT_TRANSPOSE",
    "TF_TRT_ENABLE_LAYOUT_OPTIMIZER",
    "TF_TRT_EXPERIMENTAL_FEATURES",
    "TF_TRT_FIXED_ALGORITHM_ID",
    "TF_TRT_SPARSE_MODE",
)
# For tensors with at most this many elements, TF-TRT puts values and not only shapes into a profile (convert/utils.h,
# IsTrtShapeTensorCompatible).
SHAPE_TENSOR_ELEMENTS = 8


@dataclasses.dataclass(frozen=True)
class DeclaredInput(records.Record):
    """An input as the engine op declares it. dtype: such as "float32". shape: unknown dimensions are None; None for an unknown rank. A
    declared dimension makes another network than an open one."""

    dtype: str
    shape: tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class Fed(records.Record):
    """One input of an engine in one call. shape: concrete. values: the elements of an int32 input that may be a shape tensor (rank 0,
    or rank 1 with at most 8 elements), else None."""

    shape: tuple[int, ...]
    values: tuple[int, ...] | None = None

    @classmethod
    def of(cls, array: "npt.NDArray[typing.Any] | np.generic") -> "Fed":
        """From a NumPy array."""
        small = array.ndim == 0 or (array.ndim == 1 and array.size <= SHAPE_TENSOR_ELEMENTS)
        values = tuple(int(value) for value in array.reshape(-1)) if small and array.dtype.name == "int32" else None
        return cls(tuple(map(int, array.shape)), values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineKey(records.Record):
    """Everything that an engine asset depends on, except the driver: engines hold their own machine code and survive driver updates."""

    # segments.digest(…, names=False).
    segment_digest: str
    # One for each input of the engine op.
    inputs: tuple[DeclaredInput, ...]
    # The shapes to build for, in order: for each call one Fed for each input *of the engine op*. The signature's inputs would not do: the
    # TensorFlow ops between them and the engine op are not in the segment's digest.
    calls: tuple[tuple[Fed, ...], ...]
    precision: Precision
    implicit_batch: bool
    # As the engine op has it.
    profile_strategy: str
    max_workspace_size_bytes: int
    # Engines that the asset may hold in implicit batch mode.
    maximum_cached_engines: int
    # tf.config.experimental.tensor_float_32_execution_enabled() of the process that builds.
    tf32_allowed: bool
    # Version of TensorFlow.
    tensorflow: str
    # Version of TensorRT that is loaded.
    tensorrt: str
    # Version of TensorRT that TensorFlow is linked with.
    tensorrt_linked: str
    # Compute capability of the GPU, such as "9.0".
    compute_capability: str
    # The device's name. TensorRT times kernels on it to choose them: an engine for another device with the same compute capability would
    # run, but slower.
    gpu: str
    # Versions, "" where not known. TensorRT 8 takes kernels from cuDNN and cuBLAS too.
    cuda: str = ""
    cudnn: str = ""
    # Multiprocessors of the device, 0 if not known. Devices of one name can differ in it.
    multiprocessors: int = 0
    use_calibration: bool = False
    explicit_precision: bool = False
    # digest_of_text of the calibration table, "" for none.
    calibration_digest: str = ""
    # segments.digest(…, names=True) with a calibration table, because that has node names; else "".
    names_digest: str = ""
    # {variable: value}, as `environment` gives it.
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    format: Format = FORMAT

    def __post_init__(self) -> None:
        """Raises: ValueError for a key that could find a wrong engine."""
        if self.precision == "INT8" and self.use_calibration and not self.calibration_digest:
            raise ValueError(
                "an engine that is calibrated while it is built depends on the calibration data: it has no key"
            )
        if self.calibration_digest and not self.names_digest:
            raise ValueError("a calibration table speaks of node names: the key needs names_digest")
        if not self.calls or any(len(call) != len(self.inputs) for call in self.calls):
            raise ValueError("there is at least one call, and every call needs one Fed for each input")
        for call in self.calls:
            for declared, fed in zip(self.inputs, call, strict=True):
                if _may_be_shape_tensor(declared.dtype, fed.shape) and fed.values is None:
                    raise ValueError(
                        f"an int32 input of shape {fed.shape} may be a shape tensor: the key needs its values"
                    )

    @property
    def name(self) -> str:
        """As `name_of` says."""
        return name_of(self)


def name_of(key: records.Record) -> str:
    """Hex SHA-256 of a key's canonical JSON: sorted names, no spaces, ASCII."""
    text = json.dumps(key.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def environment(variables: Mapping[str, str] | None = None, names: Iterable[str] = ENVIRONMENT) -> dict[str, str]:
    """The variables that change engines and are set, by name. Args: variables: {name: value}; os.environ by default. names: which."""
    variables = os.environ if variables is None else variables
    return {name: variables[name] for name in names if name in variables}


def digest_of_text(text: str | bytes) -> str:
    """ "sha256:<hex>" of a calibration table's text; "" for an empty one."""
    raw = text.encode() if isinstance(text, str) else text
    return "sha256:" + hashlib.sha256(raw).hexdigest() if raw else ""


def _may_be_shape_tensor(dtype: str, shape: tuple[int, ...]) -> bool:
    return dtype == "int32" and (len(shape) == 0 or (len(shape) == 1 and shape[0] <= SHAPE_TENSOR_ELEMENTS))
