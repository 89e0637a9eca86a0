"""An ONNX file as TensorRT's network, and the configuration of its build."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.plan.job import differences
from tftrt_tools.models.kinds.plan.profiles import Profile
from tftrt_tools.tensorrt.plans.job import mixed
from tftrt_tools.tensorrt.plans.settings import Settings

if TYPE_CHECKING:
    import tensorrt

_MOST_TOLD = 5
_TYPES = {"FP16": ("HALF",), "INT8": ("INT8",)}


def parsed(
    trt: ModuleType, builder: tensorrt.Builder, logger: tensorrt.ILogger, path: str, strongly_typed: bool
) -> tuple[tensorrt.INetworkDefinition, tensorrt.OnnxParser]:
    """(network, parser: keep it as long as the network). Raises: TftrtError that names the nodes which the parser refuses."""
    network = builder.create_network(differences.network_flags(trt, strongly_typed))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(path):
        names = _node_names(path)
        said = [differences.parser_error(parser.get_error(index), names) for index in range(parser.num_errors)]
        more = f" and {len(said) - _MOST_TOLD} more" if len(said) > _MOST_TOLD else ""
        why = "; ".join(said[:_MOST_TOLD]) or "no reason given"
        raise errors.TftrtError(
            f"TensorRT {trt.__version__} does not take {path}: {why}{more}",
            "leave these nodes out of the model, export it for this TensorRT (`tftrt export --target=…`), or name a "
            "library that has the op with --plugins",
        )
    return network, parser


def _node_names(path: str) -> list[str]:
    """ "OP NAME" of the file's nodes; [] without the package onnx."""
    try:
        import onnx
    except ImportError:
        return []
    return [f"{node.op_type} {node.name}".strip() for node in onnx.load(path, load_external_data=False).graph.node]


def check_inputs(network: tensorrt.INetworkDefinition) -> None:
    """Refuse what a plan directory cannot say. Raises: TftrtError."""
    for index in range(network.num_inputs):
        if network.get_input(index).is_shape_tensor:
            raise errors.TftrtError(
                f"the values of input {network.get_input(index).name!r} are sizes of other tensors",
                "export the model with that input as a constant",
            )


def configured(
    trt: ModuleType,
    builder: tensorrt.Builder,
    network: tensorrt.INetworkDefinition,
    profiles: Sequence[Profile],
    settings: Settings,
    ranges: Mapping[str, float],
    constrained: bool = False,
) -> tuple[tensorrt.IBuilderConfig, tuple[str, ...]]:
    """The configuration of a build.

    Args: profiles: for the inputs with open dimensions. ranges: {tensor: the largest |x| to keep}, for INT8 without Q/DQ. constrained:
      whether layers have a precision of their own, which has to be kept.
    Returns: (configuration, names of its builder flags). Raises: TftrtError for what this release of TensorRT does not have.
    """
    config = builder.create_builder_config()
    if settings.max_workspace_size_bytes:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, settings.max_workspace_size_bytes)
    # Each layer is told by name, types, tactic and sizes.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    names = [*_flags(trt, network, settings, ranges), *([mixed.FLAG] if constrained else [])]
    for name in names:
        config.set_flag(trt.BuilderFlag.__members__[name])
    if not settings.tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    if settings.tactic_sources:
        config.set_tactic_sources(_sources(trt, settings.tactic_sources))
    _add_profiles(builder, config, network, profiles)
    return config, (*names, *(["TF32"] if settings.tf32 else []))


def _flags(
    trt: ModuleType, network: tensorrt.INetworkDefinition, settings: Settings, ranges: Mapping[str, float]
) -> Iterator[str]:
    typed = differences.typed(trt, settings.strongly_typed)
    if settings.precision_mode == "INT8":
        _check_int8(trt, network, typed, ranges)
    if typed:
        _check_types(trt, network, settings.precision_mode)
    else:
        yield from {"FP32": (), "FP16": ("FP16",), "INT8": ("FP16", "INT8")}[settings.precision_mode]
    for setting, name in (
        ("sparse_weights", "SPARSE_WEIGHTS"),
        ("refit", "REFIT"),
        ("version_compatible", "VERSION_COMPATIBLE"),
    ):
        if getattr(settings, setting):
            yield differences.flag(trt, setting, name).name


def _check_int8(
    trt: ModuleType, network: tensorrt.INetworkDefinition, typed: bool, ranges: Mapping[str, float]
) -> None:
    quantized = any(network.get_layer(index).type == trt.LayerType.QUANTIZE for index in range(network.num_layers))
    if ranges and quantized:
        raise errors.TftrtError(
            "the ONNX file has QuantizeLinear nodes with scales of their own, and a calibration table came as well",
            "leave --calibration_table out",
        )
    if ranges and typed:
        raise errors.TftrtError(
            f"TensorRT {trt.__version__} takes no calibration table here: the graph's types decide",
            "write the scales into the ONNX file as QuantizeLinear and DequantizeLinear nodes",
        )
    if not ranges and not quantized:
        raise errors.TftrtError(
            "INT8 needs ranges, and the ONNX file has no QuantizeLinear node",
            "give a file that has them, or --calibration_table with ranges of its tensors",
        )


def _check_types(trt: ModuleType, network: tensorrt.INetworkDefinition, precision: str) -> None:
    """A strongly typed network computes in FP16 only what the graph says."""
    wanted = {getattr(trt.DataType, name) for name in _TYPES.get(precision, ())}
    found = {
        network.get_layer(index).get_output_type(number)
        for index in range(network.num_layers)
        for number in range(network.get_layer(index).num_outputs)
    }
    if wanted and not wanted & found:
        raise errors.TftrtError(
            f"nothing in the ONNX file is {precision}, and in a strongly typed network only the file's types count",
            "export it with that precision, or build with --precision=FP32",
        )


def _sources(trt: ModuleType, names: Sequence[str]) -> int:
    known = trt.TacticSource.__members__
    for name in names:
        if name not in known:
            raise errors.TftrtError(
                f"--tactic_sources={name}: TensorRT {trt.__version__} has no such source", "it has " + ", ".join(known)
            )
    return sum(1 << int(known[name]) for name in names)


def _add_profiles(
    builder: tensorrt.Builder,
    config: tensorrt.IBuilderConfig,
    network: tensorrt.INetworkDefinition,
    profiles: Sequence[Profile],
) -> None:
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    opened = [one.name for one in inputs if -1 in tuple(one.shape)]
    if opened:
        _tell_apart(inputs, profiles)
    for profile in profiles if opened else ():
        one = builder.create_optimization_profile()
        for name in opened:
            held = profile.inputs[name]
            one.set_shape(name, held.min, held.opt, held.max)
        if config.add_optimization_profile(one) < 0:
            raise errors.TftrtError(
                f"TensorRT refuses the profile {profile.text()}",
                "its log says why (--log_file); every dimension has to grow from min over opt to max",
            )


def _tell_apart(inputs: Sequence[tensorrt.ITensor], profiles: Sequence[Profile]) -> None:
    """Give open dimensions of one name, for which the profiles have other sizes, names of their own. TensorRT takes one name for one size,
    and some exporters write the same name ("?") for all. The first keeps it: TensorRT wants each name that it has read at some input."""
    first: dict[str, list[int]] = {}
    for one in inputs:
        for axis, size in enumerate(tuple(one.shape)):
            name = one.get_dimension_name(axis)
            if size == -1 and name:
                held = [profile.inputs[one.name] for profile in profiles]
                sizes = [shape[axis] for each in held for shape in (each.min, each.opt, each.max)]
                if first.setdefault(name, sizes) != sizes:
                    one.set_dimension_name(axis, f"{one.name}_{axis}")


def set_ranges(network: tensorrt.INetworkDefinition, ranges: Mapping[str, float]) -> int:
    """Set the ranges of tensors by name (TensorRT 8 and 9). Returns: how many were set. Raises: TftrtError where they are of another
    graph."""
    inputs = (network.get_input(index) for index in range(network.num_inputs))
    layers = (network.get_layer(index) for index in range(network.num_layers))
    outputs = (layer.get_output(number) for layer in layers for number in range(layer.num_outputs))
    done = set()
    for tensor in (*inputs, *outputs):
        if tensor.name in ranges:
            tensor.set_dynamic_range(-ranges[tensor.name], ranges[tensor.name])
            done.add(tensor.name)
    if len(done) * 2 < len(ranges):
        lost = next(name for name in ranges if name not in done)
        raise errors.TftrtError(
            f"the calibration is of another graph: {len(ranges) - len(done)} of its {len(ranges)} tensors are not in "
            f"this one, such as {lost!r}",
            "calibrate this ONNX file, or give one with QuantizeLinear nodes",
        )
    return len(done)
