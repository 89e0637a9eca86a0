"""Builds an engine with TensorRT alone: python -m benchmarks._trt_profiles ONNX SHAPES PRECISION

One profile for each of the --shapes, min = opt = max, as strategy Optimal makes them. Prints {"seconds", "build_s", "engines"} as JSON.
"""

import json
import pathlib
import sys
import time

from tftrt_tools.models.savedmodel import shapes as shape_grammar


def profiles(text, names):
    """[{input: shape}] of a --shapes text, whose inputs have to be `names`. Raises: RuntimeError."""
    given = shape_grammar.parse(text)
    listed = {name: shapes for (_, name), shapes in given.items()}
    if set(listed) != set(names):
        raise RuntimeError(f"ONNX has the inputs {', '.join(names)}, --shapes speaks of {', '.join(listed)}")
    return [dict(zip(listed, shapes, strict=True)) for shapes in zip(*listed.values(), strict=True)]


def main(onnx_file, text, precision):
    start = time.monotonic()
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.EXPLICIT_BATCH))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(pathlib.Path(onnx_file).read_bytes()):
        raise RuntimeError("ONNX: " + "; ".join(str(parser.get_error(index)) for index in range(parser.num_errors)))
    config = builder.create_builder_config()
    if precision == "FP16":
        config.set_flag(trt.BuilderFlag.FP16)
    names = [network.get_input(index).name for index in range(network.num_inputs)]
    for call in profiles(text, names):
        profile = builder.create_optimization_profile()
        for name, shape in call.items():
            profile.set_shape(name, shape, shape, shape)
        config.add_optimization_profile(profile)
    building = time.monotonic()
    if builder.build_serialized_network(network, config) is None:
        raise RuntimeError("TensorRT built no engine")
    end = time.monotonic()
    print(json.dumps({"seconds": round(end - start, 1), "build_s": round(end - building, 1), "engines": 1}))


if __name__ == "__main__":
    main(*sys.argv[1:])
