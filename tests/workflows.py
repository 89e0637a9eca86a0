"""Workflows of GitHub as data: what each step runs, with the variables that its job and the workflow set."""

import dataclasses
import itertools
import re

import yaml

_EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?")


@dataclasses.dataclass(frozen=True)
class Step:
    """A step that runs something. job: its name. env: the variables that the workflow sets. run: the text. condition: its `if`, or "". name: its id, or ""."""

    job: str
    env: dict
    run: str
    condition: str = ""
    name: str = ""

    def expanded(self):
        """The text with the variables that are known in their place."""
        return _VARIABLE.sub(lambda found: self.env.get(found[1], found[0]), self.run)


def read(path):
    """The document. YAML 1.1 reads the key `on` as true."""
    document = yaml.safe_load(path.read_text())
    document["on"] = document.pop(True)
    return document


def steps(document, known):
    """Every Step, in the order of the jobs as written, once for each value of a matrix. Args: known: {expression: value}."""
    for name, job in document["jobs"].items():
        matrix = job.get("strategy", {}).get("matrix", {})
        for values in itertools.product(*matrix.values()):
            here = known | {f"matrix.{key}": value for key, value in zip(matrix, values, strict=True)}
            for step in job["steps"]:
                if "run" in step:
                    env = document.get("env", {}) | job.get("env", {}) | step.get("env", {})
                    env = {key: _filled(value, here) for key, value in env.items()}
                    yield Step(name, env, step["run"], step.get("if", ""), step.get("id", ""))


def _filled(value, known):
    return _EXPRESSION.sub(lambda found: str(known[found[1]]), str(value))
