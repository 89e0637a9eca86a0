"""A model on disk, and the interface of a kind of models. No runtime is imported here."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from tftrt_tools.base import records, results, terminal
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.execution.run import Runtime
from tftrt_tools.models.savedmodel import tensor_kinds
from tftrt_tools.models.savedmodel.inspection import bytes_text
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.sources.source import Source


@dataclasses.dataclass(frozen=True)
class Signature(records.Record):
    """One function of a model: its inputs and outputs, in the model's order. A dtype is NumPy's name of it, or "string"."""

    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]


@dataclasses.dataclass(frozen=True)
class Engine(records.Record):
    """A part of a model that TensorRT runs, by its name in `trace.CallTrace`."""

    name: str
    precision: Precision


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contents(records.Record):
    """The contents of a model, read without running it."""

    # {name: Signature}.
    signatures: dict[str, Signature]
    # {signature: the one that stands for it}, only for signatures that are one function under several names.
    same: dict[str, str] = dataclasses.field(default_factory=dict)
    # {signature: what --freeze may name besides its inputs}: placeholders with a default that no signature names.
    unnamed: dict[str, tuple[InputSpec, ...]] = dataclasses.field(default_factory=dict)
    # () for a model without TensorRT.
    engines: tuple[Engine, ...] = ()
    # Further facts for people, {"producer": "tf2onnx 1.17.0"}.
    facts: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, tuple[InputSpec, ...]]:
        """{signature: its inputs}."""
        return {name: one.inputs for name, one in self.signatures.items()}

    @property
    def outputs(self) -> dict[str, tuple[InputSpec, ...]]:
        """{signature: its outputs}."""
        return {name: one.outputs for name, one in self.signatures.items()}


@dataclasses.dataclass(frozen=True)
class File(records.Record):
    """A file of a model. name: from the model's folder; bytes: its size."""

    name: str
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Overview(records.Record, results.Result):
    """The contents of a model that TF-TRT does not convert, read without its runtime: the result of `tftrt inspect`."""

    # Absolute path.
    model: str
    # Name of its kind.
    form: str = records.field(key="format")
    # {name: Signature}. For an input that is not a tensor, the dtype says what it is, such as "sequence".
    signatures: dict[str, Signature]
    # {domain: version} of its ops.
    opsets: dict[str, int]
    # {op: nodes}, the most frequent first; graphs within nodes, and functions, are counted too.
    ops: dict[str, int]
    # {dtype: elements} of its constants.
    weights: dict[str, int]
    # Its own file, and files that hold its weights.
    files: tuple[File, ...]
    # Further facts for people, {"producer": "tf2onnx 1.17.0"}.
    facts: dict[str, str]
    # What `tftrt inspect` tells of other models but not of this kind, a line each.
    unasked: tuple[str, ...]

    document: typing.ClassVar[str] = "overview"
    written_too: typing.ClassVar[tuple[str, ...]] = ("bytes",)

    @property
    def bytes(self) -> int:
        """The bytes of all files."""
        return sum(file.bytes for file in self.files)

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.model}: {self.text()}"

    def text(self) -> str:
        """For people, in a line: "ONNX file of 102 MB with 124 ops; opset ai.onnx 13; producer tf2onnx 1.17.0"."""
        opsets, count = (
            ", ".join(f"{domain} {version}" for domain, version in self.opsets.items()),
            sum(self.ops.values()),
        )
        reason = (
            f"{self.form} of {bytes_text(self.bytes)} with {terminal.counted(count, 'op')}",
            f"opset {opsets}" if opsets else "",
            *(f"{name} {self.facts[name]}" for name in ("producer",) if name in self.facts),
        )
        return "; ".join(filter(None, reason))


@dataclasses.dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of a model, if its kind decides it: a key of the bounds on answers (accuracy.thresholds), and the reason."""

    key: str
    reason: str


class Kind(Protocol):
    """The interface of a kind of models."""

    @property
    def name(self) -> str:
        """The kind's name in messages, such as "SavedModel"."""

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of a model of this kind, for people, such as "an ONNX file (.onnx)": first those that run as they are, then those
        that are exported first."""

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs models of this kind."""

    @property
    def named_signatures(self) -> bool:
        """Whether signatures have names of their own. Otherwise a model has one signature, which is matched with another model's by the
        names and shapes of inputs and outputs."""

    @property
    def alone(self) -> bool:
        """Whether TensorRT runs the whole model, without TensorFlow and only on a GPU."""

    @property
    def of_tensorflow(self) -> bool:
        """Whether TensorFlow runs it and TensorFlow Serving serves it."""

    def onnx(self, path: str) -> str:
        """The ONNX file that a model is, or holds; "" for none."""

    def weights(self, path: str) -> Sequence[str]:
        """Files beside the one that is named, which hold weights; () for none, and where the model is a directory."""

    def arithmetic(self, path: str) -> Arithmetic | None:
        """The arithmetic of a model; None if its engines and the machine decide it."""

    @property
    def unconverted(self) -> tuple[str, str] | None:
        """Why TF-TRT converts no model of this kind, and what to do instead; None for a kind that it converts."""

    def takes(self, path: str) -> bool:
        """Whether a path names a model of this kind; nothing is opened."""

    def check(self, source: Source, as_it_is: bool) -> None:
        """Refuse a path that cannot be a whole model of this kind. Args: as_it_is: also refuse what would have to be exported first.
        Raises: UsageError, TftrtError; also if the runtime is not installed, with what to install."""

    def opened(self, source: Source, log_file: str | None) -> AbstractContextManager[str]:
        """The path that the runtime loads, for a path that `check` accepts; exported, if needed, for as long as the context lasts."""

    def contents(self, paths: Sequence[str]) -> list[Contents]:
        """The contents of each model, by the paths of `opened`. Raises: TftrtError."""

    def overview(self, path: str) -> Overview | None:
        """The contents of a model of a kind that TF-TRT does not convert, read without its runtime; None for other kinds, about which
        the graph pass tells more. Raises: UsageError, TftrtError if it is not a whole model."""

    def digest(self, path: str) -> str:
        """ "sha256:…" of all files that the answers depend on. Args: path: as the user named it."""

    def document(self, path: str, name: str) -> dict[str, Any] | None:
        """The document `name` of the model's passport (savedmodel.passport), None where there is none. Raises: TftrtError."""

    def keep(self, path: str, name: str, document: Mapping[str, Any]) -> bool:
        """Put a document into the model's passport. Returns: whether models of this kind have one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
    """A model on disk, opened."""

    # The kind of the model.
    kind: Kind
    # As the user named it.
    source: Source
    # The path that its runtime loads.
    path: str
    # The contents of the model.
    contents: Contents
    # The interpreter of another environment that runs it; None for this one.
    python: str | None = None

    @property
    def runtime(self) -> Runtime:
        """The runtime that runs it."""
        return dataclasses.replace(self.kind.runtime, python=self.python)

    @property
    def signatures(self) -> dict[str, Signature]:
        """{name: Signature}."""
        return self.contents.signatures

    @property
    def inputs(self) -> dict[str, tuple[InputSpec, ...]]:
        """As Contents.inputs."""
        return self.contents.inputs

    def check_dense(self, names: Iterable[str]) -> None:
        """Refuse signatures with an input or output that is no dense tensor. Args: names: of signatures. Raises: TftrtError."""
        for name in names:
            tensor_kinds.check(name, self.inputs[name], self.outputs[name])

    def freezable(self, names: Iterable[str]) -> dict[str, list[InputSpec]]:
        """{signature: what --freeze may name}. Args: names: of signatures."""
        return {name: [*self.inputs[name], *self.contents.unnamed.get(name, ())] for name in names}

    @property
    def outputs(self) -> dict[str, tuple[InputSpec, ...]]:
        """As Contents.outputs."""
        return self.contents.outputs

    @property
    def engines(self) -> tuple[Engine, ...]:
        """As Contents.engines."""
        return self.contents.engines

    @property
    def title(self) -> str:
        """The model's name in messages: its path as the user named it."""
        return str(self.source)

    def digest(self) -> str:
        """ "sha256:…" of all of its files."""
        return self.kind.digest(self.source.path)

    def document(self, name: str) -> dict[str, Any] | None:
        """The document `name` of its passport, or None."""
        return self.kind.document(self.source.path, name)
