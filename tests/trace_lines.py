"""Lines of TF-TRT's log and trace."""

HEAD = "2026-11-21 02:08:45.152527: {} tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:1001] "
ENGINE = HEAD.format("I") + "Executing TRT engine: PartitionedCall/TRTEngineOp_37b316205f_0_0\n"
NATIVE = HEAD.format("I") + "Executing native segment: PartitionedCall/TRTEngineOp_37b316205f_0_0\n"
BUILD = (
    HEAD.format("I")
    + "Building a new TensorRT engine for PartitionedCall/TRTEngineOp_37b316205f_0_0 with input shapes: [[8,8,8,1]]\n"
)
WHY = HEAD.format("W") + (
    "TF-TRT Warning: Engine retrieval for input shapes: [[4,8,8,1]] failed. Running native segment for "
    "PartitionedCall/TRTEngineOp_37b316205f_0_0\n"
)
NAME = "TRTEngineOp_37b316205f_0_0"
