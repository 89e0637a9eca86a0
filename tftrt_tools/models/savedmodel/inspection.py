"""The contents of a converted SavedModel, read only from its files. No TensorFlow here; `inspector` fills these in."""

import dataclasses
import typing
from collections.abc import Collection
from typing import Any

from tftrt_tools.base import records, results
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel.engine_assets import EngineAsset
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.flops import Flops
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import Once


@dataclasses.dataclass(frozen=True)
class EngineFile(records.Record):
    """An asset file of built engines. engine: the engine op it is named after; assets: the engines in it; bytes: of the file;
    problem: why it cannot be read, "" for a sound one."""

    engine: str
    assets: tuple[EngineAsset, ...]
    bytes: int
    problem: str = ""


@dataclasses.dataclass(frozen=True)
class Node(records.Record):
    """A node that TensorFlow runs. function: the function that holds it, "" for the main graph."""

    name: str
    op: str
    function: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SignatureGraph(records.Record):
    """A signature of a saved graph."""

    name: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    # Names of its engine ops.
    engines: tuple[str, ...]
    # Nodes that compute something in TensorFlow; a node of a function that is called twice is listed once.
    native: tuple[Node, ...]
    # Computing ops in the engines' segments.
    inside: int = records.field(key="ops_in_tensorrt")
    # The signature that stands for it because it is the same function, or "".
    same_as: str = ""

    written_too: typing.ClassVar = ("ops",)
    written_digits: typing.ClassVar = {"coverage": 4}

    @property
    def ops(self) -> int:
        """All computing ops."""
        return self.inside + len(self.native)

    @property
    def coverage(self) -> float:
        """Share of the computing ops that the engines hold, 0 to 1."""
        return self.inside / self.ops if self.ops else 0.0


@dataclasses.dataclass(frozen=True)
class Finding(records.Record):
    """Something in a model that does not fit the rest of it. about: an engine, a file; mend: what to do; nodes: those that keep the engine
    from being built."""

    about: str
    text: str
    mend: str = ""
    nodes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Inspection(records.Record, results.Result):
    """A converted SavedModel."""

    # Absolute path of its directory.
    model: str
    # The tags of its MetaGraph.
    tags: tuple[str, ...]
    # The version that saved it.
    tensorflow: str
    # The bytes of saved_model.pb.
    graph_bytes: int
    signatures: tuple[SignatureGraph, ...]
    # Engine ops, one for each name.
    engines: tuple[EngineOp, ...]
    # Names of engine ops that stand for different segments.
    ambiguous: tuple[str, ...]
    engine_files: tuple[EngineFile, ...]
    # {engine: how many built engines it keeps} of the engine files that loading the model reads.
    loads: dict[str, int]
    # Documents of the passport, or None.
    manifest: dict[str, Any] | None
    verification: dict[str, Any] | None
    # Digest of the model's files, "sha256:…"; None if nothing needs it.
    digest: str | None = None
    # Contradictions between the parts of the model.
    findings: tuple[Finding, ...] = records.field(key="disagreements", default=())
    # The document of the INT8 tables, or None.
    calibration: dict[str, Any] | None = None

    document: typing.ClassVar = "inspection"

    def summary(self) -> str:
        """As Result.summary."""
        found = f"; {len(self.findings)} contradictions, first {self.findings[0].text}" if self.findings else ""
        return f"{self.model}, converted: {len(self.engines)} engine ops{found}"

    def assets(self, engine: str) -> list[EngineAsset]:
        """The built engines that the model carries for engine op `engine`."""
        return [asset for file in self.engine_files if file.engine == engine for asset in file.assets]

    def flops(self, signature: str) -> Flops | None:
        """The Flops of a signature that the manifest states; None if it states none."""
        said = passport.signatures(self.manifest).get(signature, {}).get("flops")
        return Flops.from_dict(said) if said else None

    @property
    def once(self) -> dict[str, SignatureGraph]:
        """The signatures, each function once: {its names, for tables: SignatureGraph}."""
        known = {one.name: one for one in self.signatures}
        walked = Once.of(list(known), {name: one.same_as or name for name, one in known.items()})
        return {walked.label(name): known[name] for name in walked.names}

    def only(self, keys: Collection[str]) -> "Inspection":
        """The signatures `keys` and their engines; all findings stay."""
        signatures = tuple(signature for signature in self.signatures if signature.name in keys)
        called = {name for signature in signatures for name in signature.engines}
        return dataclasses.replace(
            self, signatures=signatures, engines=tuple(engine for engine in self.engines if engine.name in called)
        )

    def signatures_of(self, engine: str) -> list[str]:
        """Names of the signatures that call engine op `engine`."""
        return [one.name for one in self.signatures if engine in one.engines]

    def to_dict(self) -> dict[str, Any]:
        """The document. Beside each engine op it has the other facts about this engine, which `from_dict` ignores."""
        engines = [
            engine.to_dict()
            | {
                "signatures": self.signatures_of(engine.name),
                "compute_ops": engine.compute_ops,
                "built": records.plain(self.assets(engine.name)),
            }
            for engine in self.engines
        ]
        return super().to_dict() | {"engines": engines}


def bytes_text(count: float) -> str:
    """A number of bytes as messages show it: 63 MB."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count} B"
