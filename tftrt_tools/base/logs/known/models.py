"""Models that a parser or trtexec did not take."""

from tftrt_tools.base.logs.message import known

NO_IMPORTER = known(
    "op_not_imported",
    "input",
    "error",
    "No importer registered for op: {op}",
    "Plugin not found, are the plugin name, version, and namespace correct?",
    "getPluginCreator could not find plugin: {op}",
    "Cannot deserialize plugin since corresponding IPluginCreator not found in Plugin Registry",
    'op_type: "{op}"',
    meaning="This TensorRT has no layer for an op of the model, and no plugin of that name is loaded.",
    mend="export with an older opset, take the op apart, or load its plugin library (trtexec: --plugins)",
    subject="op",
)
NODE = known(
    "node_not_parsed",
    "input",
    "error",
    "While parsing node number {number} [{node}]:",
    "In node {number} (parseGraph): {kind}: {why}",
    "In node {number} with name: {node}",
    "Failed to parse onnx file",
    "Failure while parsing ONNX file",
    "Failed to parse ONNX model",
    meaning="The ONNX parser stopped at a node.",
    mend="fix what it names; `tftrt inspect FILE.onnx` lists the ops",
    subject="node",
)
FILE = known(
    "file_not_opened",
    "input",
    "error",
    "Could not open file {path}",
    "Error opening engine file: {path}",
    "Error loading engine file: {path}",
    "Cannot open engine file: {path}",
    meaning="A file is not there, or is empty.",
    mend="check the path",
)
NAMES = known(
    "input_unknown",
    "input",
    "error",
    "Cannot find input tensor with name {input} in the",
    "Invalid tensor names found in {flag} flag",
    meaning="A flag names an input that the model does not have.",
    mend="give the model's own names; `tftrt inspect` shows them",
)
SHAPED = known(
    "shape_chosen",
    "input",
    "warning",
    "Dynamic dimensions required for input: {input}, but no shapes were provided. Automatically overriding shape to: {shape}",
    "Shape missing for input with dynamic shape: {input}",
    meaning="Unknown sizes were set to 1: the times are those of a batch of one.",
    mend="--shapes, or --minShapes, --optShapes and --maxShapes",
    subject="input",
)
VERSION = known(
    "opset_too_old",
    "input",
    "warning",
    "TensorRT supports ONNX graphs generated with at least opset 7",
    meaning="The model's opset is older than this parser knows: some ops may be read wrongly.",
    mend="export with opset 13 or later",
)
WRONG_FLAGS = known(
    "flags_refused",
    "input",
    "error",
    "Unknown option: {option}",
    "Model missing or format not recognized",
    meaning="trtexec does not know a flag: another release of it has that one.",
    mend="`trtexec --help`",
)

ALL = (NO_IMPORTER, NODE, FILE, NAMES, SHAPED, VERSION, WRONG_FLAGS)
