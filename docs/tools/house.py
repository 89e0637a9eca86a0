"""Counts what the type checker cannot follow in the package: parameters that are Any, children that are named by a string.

python -m docs.tools.untyped [FOLDER]
"""

import ast
import collections
import pathlib
import re
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "tftrt_tools"


def bare_any(tree):
    """[(function, parameter)] of the parameters whose whole annotation is Any."""
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [
        (function.name, one.arg)
        for function in functions
        for one in (
            *function.args.posonlyargs,
            *function.args.args,
            *function.args.kwonlyargs,
            *filter(None, (function.args.vararg, function.args.kwarg)),
        )
        if one.annotation is not None and ast.unparse(one.annotation) in ("Any", "typing.Any")
    ]


def named_by_a_string(tree):
    """The texts "package.module:function" in a file."""
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"tftrt_tools\.[\w.]+:\w+", node.value)
    ]


_KINDS = {"ONNX", "PLAN", "PYTORCH", "SAVED_MODEL", "ONNX_KIND", "TENSORRT", "TFTRT", "BACKEND"}
_BACKENDS = {"tftrt", "tensorrt"}
# Where kinds and back ends are at home.
_AT_HOME = ("models/", "tensorrt/plans/", "servers/serving/triton/")


def branches(tree):
    """The places that ask of a model which kind it is, or of work which back end does it."""
    return [node for node in ast.walk(tree) if _asks(node)]


def _asks(node):
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        parts = [part for side in sides for part in (side.elts if isinstance(side, ast.Tuple) else (side,))]
        told = {ast.unparse(part).rpartition(".")[2] for part in parts}
        words = {part.value for part in parts if isinstance(part, ast.Constant)}
        return bool(told & _KINDS) or bool(words & _BACKENDS) and "calibrator" not in ast.unparse(node)
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        owner, _, method = name.rpartition(".")
        kind = method == "takes" and owner.rpartition(".")[2] in _KINDS
        return kind or method == "is_plan" or name == "isinstance" and ast.unparse(node.args[1]) == "Plans"
    return isinstance(node, ast.Attribute) and node.attr == "is_plan" and not isinstance(node.value, ast.Name)


def main(folder=PACKAGE):
    """Print the counts of a folder's files, the largest first, and the sums."""
    counts = collections.Counter()
    sums = collections.Counter()
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        found = {"Any": len(bare_any(tree)), "strings": len(named_by_a_string(tree))}
        if not any(home in path.as_posix() for home in _AT_HOME):
            found["branches"] = len(branches(tree))
        sums.update(found)
        counts[path] = sum(found.values())
    for path, count in counts.most_common():
        if count:
            print(f"{count:4} {path}")
    print(f"parameters that are Any: {sums['Any']}; children named by a string: {sums['strings']}")
    print(f"branches on a kind or a back end, outside of {', '.join(_AT_HOME)}: {sums['branches']}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
