"""Each file of a room belongs to the parent or to a child process, and its name says which (docs/dev/house.md)."""

import ast
import functools
import importlib
import re
from typing import Any

import pytest

from tests.conftest import ROOT

RUNTIMES = {
    "tensorflow",
    "tensorflow_serving",
    "keras",
    "h5py",
    "tensorrt",
    "onnxruntime",
    "onnx",
    "onnxslim",
    "tf2onnx",
}
# Where the parent's side begins: what people start or import.
STARTS = ("command_line", "__main__", "client", "api")
# What parents and children stand on alike; and the development server, which is a process of its own.
OF_BOTH = ("base.process.", "base.files.", "servers.serving.local")


@functools.cache
def modules():
    """{module, without the package's name: its syntax tree}."""
    package = ROOT / "tftrt_tools"
    return {
        ".".join(path.relative_to(package).with_suffix("").parts).removesuffix(".__init__"): ast.parse(path.read_text())
        for path in package.rglob("*.py")
    }


def is_child(module):
    """Whether its name says that it runs in a child process."""
    return any(part == "job" or part.endswith("_job") for part in module.split("."))


def in_a_room(module):
    """Whether the rule speaks of it: not of files beside the rooms, nor of OF_BOTH."""
    beside = (
        module.count(".") < 2
        and (ROOT / "tftrt_tools" / (module.replace(".", "/") + ".py")).is_file()
        and not module.startswith("accuracy.")
    )
    return not beside and not module.startswith(OF_BOTH)


def is_job(node):
    """Whether it declares a job: its body runs in the child."""
    return isinstance(node, ast.FunctionDef) and "jobs.job" in map(ast.unparse, node.decorator_list)


def imports(module):
    """Full names of what a module imports, anywhere in it but for types alone and but for the jobs that it declares."""
    todo, found = [modules()[module]], []
    while todo:
        node = todo.pop()
        if is_job(node):
            continue
        if isinstance(node, ast.Import):
            found += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{one.name}" for one in node.names]
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        else:
            todo += ast.iter_child_nodes(node)
    return found


@functools.cache
def imported(module):
    """The package's own modules that a module imports, with the packages that they lie in."""
    found = set()
    for name in imports(module):
        parts = name.removeprefix("tftrt_tools.").split(".") if name.startswith("tftrt_tools.") else []
        found |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
    return found & set(modules())


def test_no_parent_imports_what_runs_in_a_child():
    crossing = [
        f"{module} imports {other}"
        for module in modules()
        if in_a_room(module) and not is_child(module)
        for other in imported(module)
        if is_child(other)
    ]
    assert not crossing, "name it as a process's entry, or split it"


def test_no_parent_imports_a_runtime():
    loading = [
        f"{module} imports {name}"
        for module in modules()
        if in_a_room(module) and not is_child(module)
        for name in imports(module)
        if name.partition(".")[0] in RUNTIMES
    ]
    assert not loading, "what needs it goes into a module of the child"


def test_what_only_children_import_is_named_so():
    reached, todo = set(), [module for module in modules() if module.split(".")[0] in STARTS]
    while todo:
        module = todo.pop()
        if module not in reached and not is_child(module):
            reached.add(module)
            todo += imported(module)
    # A package that nothing imports by itself is no code of either side.
    alone = [
        module
        for module in modules()
        if in_a_room(module)
        and not is_child(module)
        and module not in reached
        and (ROOT / "tftrt_tools" / (module.replace(".", "/") + ".py")).is_file()
    ]
    assert not alone, (
        "no command reaches it but through a child: call it *_job.py, or move it into the room's folder job/"
    )


def texts(pattern):
    """[(module, match)] of the strings in all modules that are like a pattern."""
    return [
        (module, found)
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and (found := re.fullmatch(pattern, node.value))
    ]


def test_no_string_names_the_function_of_a_child():
    assert len(declared()) > 40
    assert not [(module, found[0]) for module, found in texts(r"tftrt_tools\.[\w.]+:\w+")], "declare it: @jobs.job"
    starting = {
        module
        for module, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("child.run", "child.worker")
    }
    assert starting == {"base.process.jobs"}, "declare what it starts: @jobs.job"


def test_a_module_that_a_string_names_is_there_and_runs_in_a_child():
    named = {found[1] for _, found in texts(r"tftrt_tools\.([\w.]+_job)")}
    assert "models.kinds.plan.runner_job" in named, "each kind's runtime names one"
    assert all(is_child(one) and one in modules() for one in named), named


def declared():
    """[(module, name)] of all jobs."""
    return [(module, node.name) for module, tree in modules().items() for node in tree.body if is_job(node)]


@pytest.mark.parametrize("module, name", declared())
def test_a_job_has_types_that_can_be_read_and_a_module_of_the_child(module, name):
    one = getattr(importlib.import_module(f"tftrt_tools.{module}"), name)
    assert len(one._types) == 2 and Any not in one._types
    entry = next(node for node in modules()[module].body if is_job(node) and node.name == name)
    entered = {
        f"{node.module}.{one.name}".removeprefix("tftrt_tools.")
        for node in ast.walk(entry)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    assert entered and all(is_child(one) and one in modules() for one in entered), entered


@pytest.mark.parametrize(
    ("module", "child"),
    [
        ("tftrt.conversion.convert_job", True),
        ("models.savedmodel.job.loading", True),
        ("studies.tuning.tune", False),
        ("models.inputs.sources_job.images", True),
        ("models.execution.run", False),
    ],
)
def test_the_names_are_read_as_the_rule_says(module, child):
    assert module in modules() and in_a_room(module) and is_child(module) == child
