"""Rules of the house that neither ruff nor mypy knows."""

import ast
import functools
import importlib
import pathlib

import pytest

import tftrt_tools
from tests import stacks

PACKAGE = pathlib.Path(tftrt_tools.__file__).parent
# So many values may be told apart by their places.
BY_PLACE = 4


def name(node):
    """The last part of a decorator's or a base's name."""
    return ast.unparse(node.func if isinstance(node, ast.Call) else node).partition("[")[0].rpartition(".")[2]


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def dataclasses_of(tree):
    """[(ClassDef, its decorator)]."""
    return [
        (one, mark)
        for one in ast.walk(tree)
        if isinstance(one, ast.ClassDef)
        for mark in one.decorator_list
        if name(mark) == "dataclass"
    ]


def own_fields(one):
    return {
        each.target.id
        for each in one.body
        if isinstance(each, ast.AnnAssign) and "ClassVar" not in ast.unparse(each.annotation)
    }


def by_name_alone(mark):
    return isinstance(mark, ast.Call) and any(
        each.arg == "kw_only" and ast.literal_eval(each.value) for each in mark.keywords
    )


def by_place(trees):
    """["file: Class"] of the dataclasses with more than BY_PLACE fields that take them by place. Args: trees: {file: its ast}."""
    # Names of base classes are looked for everywhere: of two with one name, the larger counts.
    fields = {}
    for tree in trees.values():
        for one, _ in dataclasses_of(tree):
            fields[one.name] = max(fields.get(one.name, set()), own_fields(one), key=len)

    def size(one):
        return len(own_fields(one).union(*(fields.get(name(base), set()) for base in one.bases)))

    return [
        f"{file}: {one.name}"
        for file, tree in trees.items()
        for one, mark in dataclasses_of(tree)
        if size(one) > BY_PLACE and not by_name_alone(mark)
    ]


def test_dataclasses_with_more_than_four_fields_take_them_by_name():
    trees = {str(path.relative_to(PACKAGE)): parsed(path) for path in PACKAGE.rglob("*.py")}
    assert len(trees) > 400 and sum(len(dataclasses_of(tree)) for tree in trees.values()) > 200
    assert by_place(trees) == []


def test_constructors_say_that_they_return_nothing():
    # mypy takes one with typed arguments without that.
    found = [
        f"{path.relative_to(PACKAGE)}:{one.lineno}"
        for path in PACKAGE.rglob("*.py")
        for one in ast.walk(parsed(path))
        if isinstance(one, ast.FunctionDef) and one.name == "__init__" and one.returns is None
    ]
    assert found == []


@pytest.mark.parametrize(
    ("mark", "fields", "found"),
    [
        ("@dataclasses.dataclass", "abcde", True),
        ("@dataclass(frozen=True)", "abcde", True),
        ("@dataclasses.dataclass(kw_only=False)", "abcde", True),
        ("@dataclasses.dataclass(frozen=True, kw_only=True)", "abcde", False),
        ("@dataclasses.dataclass", "abcd", False),
        ("", "abcde", False),
    ],
)
def test_the_rule_sees_what_it_should(mark, fields, found):
    source = f"{mark}\nclass One(Base):\n    kind: ClassVar[str] = 'k'\n" + "".join(
        f"    {one}: int\n" for one in fields
    )
    assert bool(by_place({"a.py": ast.parse(source)})) == found


def test_inherited_fields_count():
    source = "@dataclass(kw_only=True)\nclass Base:\n    a: int\n    b: int\n    c: int\n\n@dataclass\nclass One(Base):\n    d: int\n    e: int\n"
    assert by_place({"a.py": ast.parse(source)}) == ["a.py: One"]


@stacks.needs_bindings
def test_what_benchmarks_import_of_the_house_is_there():
    """Their parts for a GPU run on no other machine, so a module that moved would be missed there alone."""
    wanted = {
        (node.module, one.name)
        for path in sorted((PACKAGE.parent / "benchmarks").rglob("*.py"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] in ("tftrt_tools", "tests", "saved_models", "benchmarks")
        for one in node.names
    }
    assert len(wanted) > 100
    for module, name in sorted(wanted):
        if not hasattr(importlib.import_module(module), name):
            importlib.import_module(f"{module}.{name}")
