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


def main(folder=PACKAGE):
    """Print the counts of a folder's files, the largest first, and the sum."""
    counts = collections.Counter()
    sums = collections.Counter()
    for path in sorted(pathlib.Path(folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        found = {"Any": len(bare_any(tree)), "strings": len(named_by_a_string(tree))}
        sums.update(found)
        counts[path] = sum(found.values())
    for path, count in counts.most_common():
        if count:
            print(f"{count:4} {path}")
    print(f"parameters that are Any: {sums['Any']}; children named by a string: {sums['strings']}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
