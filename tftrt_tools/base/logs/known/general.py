"""What is said of a message where nothing more is known: TensorRT's kinds of errors."""

from tftrt_tools.base.logs.message import known

ASSERTION = known(
    "tensorrt_assertion",
    "build",
    "error",
    "Internal Error (Assertion {what} failed. {where})",
    "Assertion {what} failed",
    meaning="TensorRT's own check failed: a bug of this release, or a network that it does not expect.",
    mend="leave the node that the lines before name to TensorFlow, or try another release of TensorRT",
)
USAGE = known(
    "tensorrt_usage",
    "build",
    "error",
    "Error Code 3: API Usage Error ({why})",
    "Error Code 4: API Usage Error ({why})",
    "Error Code 3: Internal Error ({why})",
    "Error Code 4: Internal Error ({why})",
    "Parameter check failed at: {place}",
    meaning="TensorRT was asked for something that it does not do: a network, a shape or a setting that it refuses.",
    mend="fix what stands in brackets",
)
CODE = known(
    "tensorrt_error",
    "build",
    "error",
    "Error Code {number}: {kind} ({why})",
    meaning="TensorRT reports an error of a kind that is not listed here.",
    mend="what stands in brackets names it",
)

ALL = (ASSERTION, USAGE, CODE)
