"""What a converted SavedModel holds, read from its files alone. No TensorFlow here; `inspector` fills these in."""

import dataclasses

from tftrt_tools.savedmodel import passport
from tftrt_tools.savedmodel.engine_assets import EngineAsset
from tftrt_tools.savedmodel.engine_op import EngineOp
from tftrt_tools.savedmodel.flops import Flops
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.savedmodel.signatures import Once


@dataclasses.dataclass(frozen=True)
class EngineFile:
    """An asset file of built engines. engine: the engine op it is named after; assets: the EngineAssets in it; bytes: of the file;
    problem: why it cannot be read, "" for a sound one."""

    engine: str
    assets: tuple
    bytes: int
    problem: str = ""

    def to_dict(self):
        return {"engine": self.engine, "assets": [one.to_dict() for one in self.assets], "bytes": self.bytes, "problem": self.problem}

    @classmethod
    def from_dict(cls, data):
        return cls(data["engine"], tuple(map(EngineAsset.from_dict, data["assets"])), data["bytes"], data["problem"])


@dataclasses.dataclass(frozen=True)
class Node:
    """A node that TensorFlow runs. function: the function that holds it, "" for the main graph."""

    name: str
    op: str
    function: str = ""

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class SignatureGraph:
    """A signature of a saved graph. engines: names of its engine ops; native: Nodes that compute something in TensorFlow, those of a
    function that is called twice listed once; inside: computing ops in the engines' segments; same_as: the signature of the same function
    that stands for it, or ""."""

    name: str
    inputs: tuple
    outputs: tuple
    engines: tuple
    native: tuple
    inside: int
    same_as: str = ""

    @property
    def coverage(self):
        """Share of the computing ops that the engines hold, 0 to 1."""
        total = self.inside + len(self.native)
        return self.inside / total if total else 0.0

    def to_dict(self):
        return {"name": self.name, "inputs": [one.to_dict() for one in self.inputs], "outputs": [one.to_dict() for one in self.outputs],
                "engines": list(self.engines), "ops_in_tensorrt": self.inside, "ops": self.inside + len(self.native),
                "coverage": round(self.coverage, 4), "native": [one.to_dict() for one in self.native], "same_as": self.same_as}

    @classmethod
    def from_dict(cls, data):
        inputs, outputs = (tuple(map(InputSpec.from_dict, data[key])) for key in ("inputs", "outputs"))
        return cls(data["name"], inputs, outputs, tuple(data["engines"]), tuple(Node(**one) for one in data["native"]),
                   data["ops_in_tensorrt"], data.get("same_as", ""))


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something in a model that does not fit the rest of it. about: an engine, a file; mend: what to do."""

    about: str
    text: str
    mend: str = ""

    def to_dict(self):
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Inspection:
    """A converted SavedModel.

    tensorflow: version that saved it. graph_bytes: of saved_model.pb. engines: EngineOps, one for each name; ambiguous: names that
    stand for different segments. loads: {engine: how many built engines it keeps} of the engine files that loading the model reads.
    manifest, verification, calibration: documents of the passport, or None. digest: of the model's files, None where nothing asks for it.
    """

    model: str
    tags: tuple
    tensorflow: str
    graph_bytes: int
    signatures: tuple
    engines: tuple
    ambiguous: tuple
    engine_files: tuple
    loads: dict
    manifest: dict | None
    verification: dict | None
    digest: str | None = None
    findings: tuple = ()
    calibration: dict | None = None

    def assets(self, engine):
        """The built engines that the model carries for engine op `engine`."""
        return [asset for file in self.engine_files if file.engine == engine for asset in file.assets]

    def flops(self, signature: str) -> Flops | None:
        """What the manifest says of a signature's computation; None where it says nothing."""
        return Flops.from_dict(passport.signatures(self.manifest).get(signature, {}).get("flops"))

    @property
    def once(self) -> dict[str, SignatureGraph]:
        """Its signatures, each function once: {its names, for tables: SignatureGraph}."""
        known = {one.name: one for one in self.signatures}
        walked = Once.of(list(known), {name: one.same_as or name for name, one in known.items()})
        return {walked.label(name): known[name] for name in walked.names}

    def only(self, keys):
        """The signatures `keys` and their engines; what disagrees stays whole."""
        signatures = tuple(one for one in self.signatures if one.name in keys)
        called = {name for one in signatures for name in one.engines}
        return dataclasses.replace(self, signatures=signatures, engines=tuple(one for one in self.engines if one.name in called))

    def signatures_of(self, engine):
        """Names of the signatures that call engine op `engine`."""
        return [one.name for one in self.signatures if engine in one.engines]

    def to_dict(self):
        engines = [one.to_dict() | {"signatures": self.signatures_of(one.name), "compute_ops": one.compute_ops,
                                    "built": [asset.to_dict() for asset in self.assets(one.name)]} for one in self.engines]
        return {"kind": "inspection", "model": self.model, "tags": list(self.tags), "tensorflow": self.tensorflow,
                "graph_bytes": self.graph_bytes, "signatures": [one.to_dict() for one in self.signatures], "engines": engines,
                "ambiguous": list(self.ambiguous), "engine_files": [one.to_dict() for one in self.engine_files], "loads": self.loads,
                "manifest": self.manifest, "verification": self.verification, "digest": self.digest,
                "calibration": self.calibration,
                "disagreements": [one.to_dict() for one in self.findings]}

    @classmethod
    def from_dict(cls, data):
        extra = ("signatures", "compute_ops", "built")
        engines = ({key: value for key, value in one.items() if key not in extra} for one in data["engines"])
        return cls(data["model"], tuple(data["tags"]), data["tensorflow"], data["graph_bytes"],
                   tuple(map(SignatureGraph.from_dict, data["signatures"])), tuple(map(EngineOp.from_dict, engines)),
                   tuple(data["ambiguous"]), tuple(map(EngineFile.from_dict, data["engine_files"])), data["loads"], data["manifest"],
                   data["verification"], data["digest"], tuple(Finding(**one) for one in data["disagreements"]),
                   data["calibration"])


def bytes_text(count):
    """Bytes for people: 63 MB."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= least:
            return f"{count / least:.3g} {unit}"
    return f"{count} B"
