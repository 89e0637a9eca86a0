"""Lines of TF-TRT's segmentation of a graph (segment/segment.cc, TF_CPP_VMODULE=segment=2; TF 2.14.1)."""

import re

LEFT = re.compile(
    r"(Not a|Denylisted as) TF-TRT candidate, \(Op type: (.*?)\), \(Op name: (.*?)\)(?:, \(Reason: (.*)\))?\s*$",
    re.DOTALL,
)
# A line of the report of ops that stay in TensorFlow: the op, and how often it is there.
REPORTED = re.compile(r"^\s*- (\w+) -> (\d+)x$", re.MULTILINE)
