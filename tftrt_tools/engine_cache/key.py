"""What an engine depends on. Two builds with equal keys may share an engine; anything that changes what TensorRT is asked for, or
where it runs, changes the key."""

import dataclasses
import hashlib
import json
import os

# Part of every key: raise it when the meaning of a field changes, and no old entry is found any more.
FORMAT = 1
# Read by TF-TRT or CUDA libraries while an engine is built.
ENVIRONMENT = ("NVIDIA_TF32_OVERRIDE", "TF_DEBUG_TRT_ALLOW_INEFFICIENT_TRANSPOSE", "TF_TRT_ENABLE_LAYOUT_OPTIMIZER",
               "TF_TRT_EXPERIMENTAL_FEATURES", "TF_TRT_FIXED_ALGORITHM_ID", "TF_TRT_SPARSE_MODE")
# TF-TRT's bound for tensors whose values, not only whose shapes, go into a profile (convert/utils.h, IsTrtShapeTensorCompatible).
SHAPE_TENSOR_ELEMENTS = 8


@dataclasses.dataclass(frozen=True)
class Fed:
    """One input of an engine in one call. shape: concrete; values: the elements of an int32 input that may be a shape tensor (rank 0,
    or rank 1 with at most 8 elements), else None."""

    shape: tuple
    values: tuple | None = None

    @classmethod
    def of(cls, array):
        """From a NumPy array."""
        small = array.ndim == 0 or (array.ndim == 1 and array.size <= SHAPE_TENSOR_ELEMENTS)
        values = tuple(int(value) for value in array.reshape(-1)) if small and array.dtype.name == "int32" else None
        return cls(tuple(map(int, array.shape)), values)

    def to_dict(self):
        return {"shape": list(self.shape), "values": None if self.values is None else list(self.values)}

    @classmethod
    def from_dict(cls, data):
        return cls(tuple(data["shape"]), None if data["values"] is None else tuple(data["values"]))


@dataclasses.dataclass(frozen=True)
class EngineKey:
    """Everything that an engine asset depends on.

    segment_digest: segments.digest(…, names=False). names_digest: segments.digest(…, names=True) where a calibration table is used,
    which is keyed by node names, else "".
    inputs: one (dtype, static shape or None) an input, from the engine op; a shape's unknown dimensions are None. A static dimension
      makes another network than the same dimension left open.
    calls: the shapes to build for, in order: for each call one Fed an input *of the engine op*. The signature's inputs would not do:
      the TensorFlow ops between them and the engine op are not in the segment's digest.
    precision: "FP32", "FP16" or "INT8". calibration_digest: digest_of_text of the table, "" for none.
    max_workspace_size_bytes: bytes. maximum_cached_engines: engines that the asset may hold in implicit batch mode.
    tf32_allowed: tf.config.experimental.tensor_float_32_execution_enabled() of the building process.
    environment: ((variable, value), …), as `environment` gives it.
    tensorflow, tensorrt, tensorrt_linked: versions; cuda, cudnn: versions, "" where not known: TensorRT 8 takes kernels from cuDNN and
      cuBLAS too.
    compute_capability: such as "9.0". gpu: the device's name; kernels are chosen by timing them on it, so that an engine of another
      model with the same compute capability would run, and be slower. multiprocessors: of the device, 0 where not known; devices of one
      name can differ in it.
    The driver is no part: engines hold machine code of their own and outlive driver updates.
    """

    segment_digest: str
    inputs: tuple
    calls: tuple
    precision: str
    implicit_batch: bool
    profile_strategy: str
    max_workspace_size_bytes: int
    maximum_cached_engines: int
    tf32_allowed: bool
    tensorflow: str
    tensorrt: str
    tensorrt_linked: str
    compute_capability: str
    gpu: str
    cuda: str = ""
    cudnn: str = ""
    multiprocessors: int = 0
    use_calibration: bool = False
    explicit_precision: bool = False
    calibration_digest: str = ""
    names_digest: str = ""
    environment: tuple = ()

    def __post_init__(self):
        """Raises: ValueError for a key under which a wrong engine could be found."""
        if self.precision == "INT8" and self.use_calibration and not self.calibration_digest:
            raise ValueError("an engine that is calibrated while it is built depends on the calibration data: it has no key")
        if self.calibration_digest and not self.names_digest:
            raise ValueError("a calibration table speaks of node names: the key needs names_digest")
        if not self.calls or any(len(call) != len(self.inputs) for call in self.calls):
            raise ValueError("every call needs one Fed an input, and there is at least one call")
        for call in self.calls:
            for (dtype, _), fed in zip(self.inputs, call, strict=True):
                if _may_be_shape_tensor(dtype, fed.shape) and fed.values is None:
                    raise ValueError(f"an int32 input of shape {fed.shape} may be a shape tensor: the key needs its values")

    def to_dict(self):
        """Plain JSON values."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"format": FORMAT, **plain,
                "inputs": [{"dtype": dtype, "shape": None if shape is None else list(shape)} for dtype, shape in self.inputs],
                "calls": [[fed.to_dict() for fed in call] for call in self.calls],
                "environment": dict(self.environment)}

    @classmethod
    def from_dict(cls, data):
        """Rebuild from `to_dict`. Raises: ValueError for another format."""
        data = dict(data)
        if data.pop("format", None) != FORMAT:
            raise ValueError("the key has another format")
        inputs = tuple((one["dtype"], None if one["shape"] is None else tuple(one["shape"])) for one in data["inputs"])
        calls = tuple(tuple(map(Fed.from_dict, call)) for call in data["calls"])
        return cls(**{**data, "inputs": inputs, "calls": calls, "environment": tuple(sorted(data["environment"].items()))})

    @property
    def name(self):
        """Hex SHA-256 of the key's canonical JSON: sorted names, no spaces, ASCII."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


def environment(variables=None):
    """The variables that change engines and are set, ((name, value), …) by name. Args: variables: {name: value}; os.environ by default."""
    variables = os.environ if variables is None else variables
    return tuple((name, variables[name]) for name in ENVIRONMENT if name in variables)


def digest_of_text(text):
    """"sha256:<hex>" of a calibration table's text (str or bytes); "" for an empty one."""
    raw = text.encode() if isinstance(text, str) else text
    return "sha256:" + hashlib.sha256(raw).hexdigest() if raw else ""


def _may_be_shape_tensor(dtype, shape):
    return dtype == "int32" and (len(shape) == 0 or (len(shape) == 1 and shape[0] <= SHAPE_TENSOR_ELEMENTS))
