"""config.pbtxt of a model: made from what is served, and held against the one that is there already."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from tftrt_tools.base import errors
from tftrt_tools.base.wire import triton_config
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT
from tftrt_tools.servers.client.kserve import datatypes
from tftrt_tools.servers.serving.triton.backends import Backend
from tftrt_tools.servers.serving.triton.batching import Batching
from tftrt_tools.servers.serving.triton.servable import Servable

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


FILE = "config.pbtxt"
_SIGNATURE = "TF_SIGNATURE_DEF"
InstanceKind = Literal["auto", "gpu", "cpu"]
KINDS: dict[InstanceKind, int] = {"auto": 0, "gpu": 1, "cpu": 2}
# {input: whole shape} of one call.
Shapes = Mapping[str, tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What the user chose for a model; None where nothing was."""

    # Copies of the model that run at a time, on each GPU; by default 1.
    instances: int | None = None
    # By default "auto".
    instance_kind: InstanceKind | None = None
    # How many of the latest versions are served, by default 1.
    versions: int | None = None
    # Microseconds that a request may wait for others, None for Triton's default.
    queue_delay: int | None = None


def make(
    name: str, model: Servable, backend: Backend, batching: Batching, settings: Settings, warm_up: Sequence[Shapes]
) -> config_types.TritonConfig:
    """The ModelConfig of a model. Args: warm_up: shapes of the calls that warm each instance up."""
    model_config = triton_config.new()
    model_config.name, model_config.max_batch_size = name, batching.largest
    if backend.platform:
        model_config.platform = backend.platform
    else:
        model_config.backend = backend.name
    own = model.engine_dtypes if backend.name == "tensorrt" else {}
    for field, specs in ((model_config.input, model.inputs), (model_config.output, model.outputs)):
        for spec in specs:
            added = field.add(name=spec.name, data_type=_type(spec, own, backend), dims=_dims(spec, batching.largest))
            if _of_one_number(spec, batching.largest):
                added.reshape.SetInParent()
    model_config.version_policy.latest.num_versions = settings.versions or 1
    group = model_config.instance_group.add(count=settings.instances or 1, kind=KINDS[settings.instance_kind or "auto"])
    if backend.name == "tensorrt" and len(model.profiles) > 1:
        group.profile.extend(str(number) for number in range(len(model.profiles)))
    if batching.joined:
        model_config.dynamic_batching.preferred_batch_size.extend(batching.preferred)
        if settings.queue_delay is not None:
            model_config.dynamic_batching.max_queue_delay_microseconds = settings.queue_delay
        model_config.dynamic_batching.SetInParent()
    if backend.name == "tensorflow" and model.signature != DEFAULT:
        model_config.parameters.add(key=_SIGNATURE).value.string_value = model.signature
    for shapes in warm_up:
        _warm_up(model_config, model, own, backend, batching.largest, shapes)
    return model_config


def kept(
    path: pathlib.Path, made: config_types.TritonConfig, backend: Backend, replace: bool
) -> config_types.TritonConfig | None:
    """The ModelConfig in the file that is there and stays as it is, as it holds for all versions of the model; None where there is none.

    Args: path: of the file. made: the ModelConfig that this version needs, of a backend. replace: write it in any case.
    Raises: UsageError where the two do not fit together.
    """
    if replace or not path.is_file():
        return None
    mend = "--triton_replace_config writes it anew, for all versions; or use another --model_name"
    try:
        there = triton_config.parse(path.read_text())
    except (ValueError, UnicodeDecodeError) as error:
        raise errors.UsageError(f"{path} cannot be read: {error}", mend) from None
    for what, ours, other in _compared(there, made, backend):
        if ours != other:
            raise errors.UsageError(
                f"{path} holds for all versions of the model, and this one does not fit it: {what} is {ours} there, and "
                f"{other} here",
                mend,
            )
    return there


def name_files(model_config: config_types.TritonConfig, file_of: Mapping[str, str]) -> None:
    """Let Triton choose by the GPU of an instance. Args: file_of: {compute capability, such as "8.9": path in the version's directory}.

    Triton's own backends take `default_model_filename`, or their own name for a model's file, for a GPU whose compute capability is not
    named, and for a CPU (backend_model_instance.cc of triton-inference-server/backend). Neither is there, so that such an instance fails.
    """
    for capability, path in sorted(file_of.items(), key=lambda one: [int(part) for part in one[0].split(".")]):
        model_config.cc_model_filenames.add(key=capability, value=path)


def differing(one: config_types.TritonConfig, other: config_types.TritonConfig) -> Iterator[tuple[str, str, str]]:
    """What two ModelConfigs of the same settings have otherwise, each as (what, in one, in the other)."""
    for what, told in (
        ("the backend", lambda config: config.platform or config.backend),
        ("the signature", _signature),
        ("the list of inputs", lambda config: _listed(config.input)),
        ("the list of outputs", lambda config: _listed(config.output)),
        ("max_batch_size", lambda config: str(config.max_batch_size)),
        ("the list of profiles", lambda config: _joined(_profiles(config))),
        ("whether Triton joins requests", lambda config: "yes" if config.HasField("dynamic_batching") else "no"),
        ("the list of preferred batches", lambda config: _numbers(config.dynamic_batching.preferred_batch_size)),
        ("the list of warm-up calls", lambda config: "; ".join(call.name for call in config.model_warmup) or "empty"),
    ):
        if told(one) != told(other):
            yield what, told(one), told(other)


def dropped(path: pathlib.Path, made: config_types.TritonConfig) -> dict[str, str]:
    """{compute capability: file} of those that the config.pbtxt which is there names and the new one does not."""
    try:
        there = files(triton_config.parse(path.read_text()))
    except (OSError, ValueError):  # it is written anew
        return {}
    return {capability: file for capability, file in there.items() if capability not in files(made)}


def _compared(
    there: config_types.TritonConfig, written: config_types.TritonConfig, backend: Backend
) -> Iterator[tuple[str, str, str]]:
    yield "the backend", there.platform or there.backend, written.platform or written.backend
    # A smaller one is the user's choice.
    yield (
        "max_batch_size",
        str(there.max_batch_size),
        str(written.max_batch_size if not 0 < there.max_batch_size <= written.max_batch_size else there.max_batch_size),
    )
    yield "the signature", _signature(there), _signature(written)
    # Triton's Python backend does not read that.
    if backend.name != "python":
        # Further GPUs that take a file which the version has are the user's choice.
        ours, own = files(written), {*files(written).values()} or {backend.file}
        yield (
            "cc_model_filenames, the file for each compute capability,",
            _pairs({key: path for key, path in files(there).items() if key in ours or path not in own}),
            _pairs(ours),
        )
    # Fewer profiles are the user's choice; of one that the plan has not, no instance can be made.
    profiles = _profiles(written) or {"0"}
    yield "the list of profiles", _joined(_profiles(there)), _joined(_profiles(there) & profiles)
    for kind in ("input", "output"):
        yield f"the list of {kind}s", _listed(getattr(there, kind)), _listed(getattr(written, kind))


def _profiles(config: config_types.TritonConfig) -> set[str]:
    """The profiles of a plan that instances are made for; empty where none is named."""
    return {profile for group in config.instance_group for profile in group.profile}


def _joined(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "empty"


def files(config: config_types.TritonConfig) -> dict[str, str]:
    """{compute capability: path in the version's directory}."""
    return {entry.key: entry.value for entry in config.cc_model_filenames}


def _pairs(named: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {path}" for key, path in sorted(named.items())) or "empty"


def _numbers(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "empty"


def _signature(config: config_types.TritonConfig) -> str:
    """The signature of a SavedModel that is served."""
    return next((one.value.string_value for one in config.parameters if one.key == _SIGNATURE), DEFAULT)


def _listed(tensors: Sequence[Any]) -> str:
    return ", ".join(sorted(map(_text, tensors))) or "empty"


def _text(tensor: config_types.TritonTensor) -> str:
    text = f"{tensor.name} {triton_config.type_name(tensor.data_type)}{_shape(tensor.dims)}"
    if not tensor.HasField("reshape") or list(tensor.reshape.shape) == list(tensor.dims):
        return text
    return f"{text} reshaped to {_shape(tensor.reshape.shape)}"


def _shape(sizes: Sequence[int]) -> str:
    return f"[{','.join('?' if size < 0 else str(size) for size in sizes)}]"


def _type(spec: InputSpec, own: Mapping[str, str], backend: Backend) -> str:
    """Such as "TYPE_FP32". Raises: UsageError for a type that Triton has not."""
    dtype = own.get(spec.name) or spec.dtype
    try:
        name = datatypes.of_text(dtype)
    except ValueError:
        raise errors.UsageError(
            f"{spec.name!r} is of {dtype}, which Triton has not", "export the model with another type there"
        ) from None
    if name == "BF16" and backend.name == "python":
        raise errors.UsageError(
            f"{spec.name!r} is of {dtype}, which Triton's Python backend has not",
            "use another --triton_backend, or export the model with another type there",
        )
    return f"TYPE_{'STRING' if name == datatypes.BYTES else name}"


def _dims(spec: InputSpec, largest: int) -> list[int]:
    """The shape as config.pbtxt has it: without the batch where Triton batches."""
    if spec.shape is None:
        raise errors.UsageError(
            f"the rank of {spec.name!r} is not known, and Triton has to know it", "export the model with shapes"
        )
    if not spec.shape:
        raise errors.UsageError(
            f"{spec.name!r} is a scalar, and Triton wants a dimension", "export the model with one of size 1 there"
        )
    if 0 in spec.shape:
        raise errors.UsageError(
            f"{spec.name!r} is {spec.text()}, and Triton has no dimension of 0", "export the model without it"
        )
    if _of_one_number(spec, largest):
        return [1]
    return [-1 if size is None else size for size in spec.shape[1 if largest else 0 :]]


def _of_one_number(spec: InputSpec, largest: int) -> bool:
    """Whether a row is one number. Triton wants a dimension for it, and takes that away before the model."""
    return bool(largest) and spec.shape is not None and len(spec.shape) == 1


def _warm_up(
    written: config_types.TritonConfig,
    model: Servable,
    own: Mapping[str, str],
    backend: Backend,
    largest: int,
    shapes: Shapes,
) -> None:
    """Add a warm-up request: numbers are drawn; integers, and what the graph takes for places in a table, are zeros."""
    first = next(iter(shapes.values()))
    batch = first[0] if largest else 1
    added = written.model_warmup.add(
        name=" ".join(f"{name} {'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items()),
        batch_size=batch,
    )
    for spec in model.inputs:
        shape = shapes[spec.name]
        data = added.inputs.add(key=spec.name).value
        data.data_type = triton_config.type_number(_type(spec, own, backend))
        data.dims.extend([1] if _of_one_number(spec, largest) else shape[1:] if largest else shape)
        if spec.dtype.startswith(("float", "bfloat")) and spec.limit is None:
            data.random_data = True
        else:
            data.zero_data = True
