"""Lines of TensorRT's verbose log that say where a build is (the words are in libnvinfer.so.8 of 8.5.3, seen on an H100; 10.4 has them,
too)."""

import re

# A kind of kernel is timed for a layer: `layer` in TensorRT's words, `kind` of the runner.
RUNNER = re.compile(r"-- Timing Runner: (?P<layer>.*) \((?P<kind>[\w:]+)(?:\[[^\]]*\])?\)\s*$")
# The network after a pass over it.
LAYERS = re.compile(r"(?P<when>Original|After [\w -]+): (?P<count>\d+) layers")
REFORMATTED = "After reformat layers"
# Formats are tried for the next tensor or layer.
REFORMATS, COSTS = "=============== Computing reformatting costs", "=============== Computing costs for"
COMBINATION = "*************** Autotuning"
PROFILE = re.compile(r"Constructing optimization profile number (?P<number>\d+) \[\d+/(?P<of>\d+)\]")
SELECTED = "Formats and tactics selection completed in"
# Sums of memory that an engine takes, in bytes. TensorRT writes what it has not computed yet as more than NO_BYTES.
MEMORY = re.compile(
    r"Total (?P<what>Host Persistent|Device Persistent|Scratch|Activation|Weights|Device) Memory: (?P<bytes>\d+)"
)
NO_BYTES = 1 << 60
