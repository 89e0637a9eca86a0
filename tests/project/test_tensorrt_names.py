"""What the package asks of TensorRT's Python package is in each of its releases, or in one file."""

import ast
import operator
import pathlib

import pytest

import tftrt_tools
from tests.tensorrt_names import RECORDED, RELEASES, everywhere, of

PACKAGE = pathlib.Path(tftrt_tools.__file__).parent
DIFFERENCES = "models/kinds/plan/job/differences.py"
# Members that some of the releases have and others have not. A name that another class has everywhere is not among them.
COME_AND_GO = {
    name for kind in RECORDED if kind for release in RELEASES for name in of(release, kind) - everywhere(kind)
} - {name for kind in RECORDED for name in everywhere(kind)}


def imports_tensorrt(tree):
    return any(
        isinstance(one, ast.Import) and any(each.name == "tensorrt" for each in one.names) for one in ast.walk(tree)
    )


def dotted(node):
    """["trt", "Logger", "ERROR"] of trt.Logger.ERROR; None for what does not begin with a name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else None


def wrong(tree):
    """Names of TensorRT in a file that not every release has."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        parts = dotted(node)
        if parts and parts[0] in ("trt", "tensorrt"):
            name, kind = parts[-1], ".".join(parts[1:-1])
            if not name.startswith("__") and name not in everywhere(kind):
                found.append(".".join(parts))
        elif node.attr in COME_AND_GO:
            found.append(node.attr)
    return found


def files():
    trees = {str(path.relative_to(PACKAGE)): ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")}
    return {name: tree for name, tree in trees.items() if imports_tensorrt(tree)}


def test_names_that_come_and_go_are_in_one_file():
    seen = files()
    assert len(seen) > 8 and DIFFERENCES in seen
    assert {name: said for name, tree in seen.items() if name != DIFFERENCES and (said := wrong(tree))} == {}
    assert {"num_bindings", "device_memory_size_v2"} <= set(wrong(seen[DIFFERENCES]))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("engine.num_bindings", ["num_bindings"]),
        ("self.context.execute_async_v2([], 0)", ["execute_async_v2"]),
        ("builder.max_batch_size", ["max_batch_size"]),
        ("network.add_fully_connected(x)", ["add_fully_connected"]),
        ("trt.BuilderFlag.STRICT_TYPES", ["trt.BuilderFlag.STRICT_TYPES"]),
        ("trt.DataType.BF16", ["trt.DataType.BF16"]),
        ("trt.int64", ["trt.int64"]),
        ("engine.num_io_tensors", []),
        ("trt.DataType.HALF", []),
        ("trt.BuilderFlag.__members__", []),
    ],
)
def test_the_rule_sees_what_it_should(line, found):
    assert wrong(ast.parse(line)) == found


def test_a_class_that_was_never_recorded_is_told():
    with pytest.raises(KeyError, match="IRefitter"):
        wrong(ast.parse("trt.IRefitter.refit"))


def test_the_installed_release_is_as_recorded():
    trt = pytest.importorskip("tensorrt")
    if trt.__version__ not in RELEASES:
        pytest.skip(f"TensorRT {trt.__version__} was not recorded")
    for kind in RECORDED:
        here = {name for name in dir(operator.attrgetter(kind)(trt) if kind else trt) if not name.startswith("_")}
        assert of(trt.__version__, kind) - {"__version__"} == here
