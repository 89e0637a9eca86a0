"""Calibration tables, as this package and TensorRT write them."""

from tftrt_tools.tftrt.calibration.file import Calibration, EngineTable
from tftrt_tools.tftrt.calibration.table import Table

HEADER = "TRT-8503-EntropyCalibration2"
# As TensorRT 8.5.3 wrote it for a small network of convolutions.
WRITTEN = f"""{HEADER}
TensorRTInputPH_0: 3c03156f
StatefulPartitionedCall/model/c1/Conv2D-0-TransposeNHWCToNCHW-LayoutOptimizer: 3c03156f
StatefulPartitionedCall/model/c1/Conv2D: 3bcd4445
StatefulPartitionedCall/model/r1/Relu: 3bd60b79
(Unnamed Layer* 10) [Shuffle]_output: 3b25c70c
(Unnamed Layer* 11) [Fully Connected]_output: 3ada4372
TensorRTOutputPH_0: 3ada4372
"""


def calibration(*engines, **changed):
    data = {
        "source": "a.npz",
        "digest": "sha256:aa",
        "samples": 10,
        "batch_size": 5,
        "batches": 2,
        "random": False,
        "rows": ["r1"],
        "warnings": [],
    }
    fields = dict(
        tool="tftrt-tools 0",
        created="2026-01-01",
        calibrator="toolkit",
        method="entropy",
        tensorrt="8.5.3",
        tensorflow="2.14.1",
        model="/m",
        model_digest="sha256:mm",
        data=data,
        engines=engines or (engine(),),
        provenance=(),
    )
    return Calibration(**{**fields, **changed})


def engine(segment="sha256:s1", name="E_0", left_out=(), ranges=None, header=HEADER, **scales):
    return EngineTable(
        segment=segment,
        signature="serving_default",
        engine=name,
        table=Table(header, scales or {"a": 0.5, "b": 0.25}),
        left_out=left_out,
        ranges=ranges,
    )
