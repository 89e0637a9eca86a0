"""Lines of TF-TRT's engine op that come at each run, however many (kernels/trt_engine_op.cc, TF_CPP_VMODULE=trt_engine_op=1; TF 2.14.1)."""

from tftrt_tools.base.logs.message import Form

EXECUTED = Form("Executing TRT engine: {engine}")
NATIVE = Form("Executing native segment: {engine}")
CALIBRATED = Form("Executing TRT calibration: {engine}")
BUILDING = Form("Building a new TensorRT engine for {engine}")
BUILDING_FOR = Form("Building a new TensorRT engine for {engine} with input shapes: {shapes}")
BUILT = Form("Added new engine to cache of {engine}")
COLLECTING = Form("Native segment is used during collecting shapes for profiles.")


def name(logged: str) -> str:
    """The engine's own name: the log adds the scopes of the calling functions."""
    return logged.rstrip(",:;.").rsplit("/", 1)[-1]
