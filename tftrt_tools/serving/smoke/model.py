"""The version directory of what is served: its engine ops, its passport, its warm-up; and whether it really is what the server serves."""

import dataclasses
import os
import pathlib

from tftrt_tools import errors
from tftrt_tools.savedmodel import files, passport
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.serving import versions


@dataclasses.dataclass(frozen=True)
class Engine:
    """An engine op. hole: a way past the gate that is open in it, in words, or ""; silent: it surely runs natively without a word."""

    name: str
    precision: str
    hole: str
    silent: bool


@dataclasses.dataclass(frozen=True)
class Model:
    """path: pathlib.Path of the version directory. same: the server's own command line names it. engines: {signature: (Engine, …)};
    signatures: {name: {"inputs", "outputs": (InputSpec, …), "tensors"}}; warmup_records: how many requests the version brings."""

    path: pathlib.Path
    same: bool
    engines: dict
    signatures: dict
    warmup_records: int

    def engines_of(self, signature):
        """The Engines that a signature runs."""
        return self.engines.get(signature, ())

    @property
    def precisions(self):
        """Of all engines."""
        return {engine.precision for engines in self.engines.values() for engine in engines}

    def to_dict(self):
        names = {engine.name for engines in self.engines.values() for engine in engines}
        return {"path": str(self.path), "named_by_server": self.same, "engine_ops": len(names), "precisions": sorted(self.precisions),
                "warmup_records": self.warmup_records}


def locate(model_dir, served, server):
    """Where the files of the served version lie.

    Args: model_dir: text of --model_dir, "" to take the server's own word. served: client.Served. server: process.Process or None.
    Returns: (pathlib.Path or None, whether the server's command line names it). Raises: UsageError where --model_dir is not it.
    """
    own = _of_server(server, served) if server and server.known else None
    if not model_dir:
        return own, own is not None
    given = pathlib.Path(model_dir)
    if not files.is_saved_model(given):
        listed = {one.number: one.path for one in versions.listing(given)} if given.is_dir() else {}
        if served.version not in listed:
            files.check(given)  # says what is there instead
            raise errors.UsageError(f"--model_dir={model_dir} has no version {served.version}, which the server serves",
                                    "versions there: " + ", ".join(map(str, listed)))
        given = listed[served.version]
    number = versions.parse(given.resolve().name)
    if number is not None and number != served.version:
        raise errors.UsageError(f"--model_dir={model_dir} is version {number}, and version {served.version} of {served.name} answers",
                                "give the base path, or ask for that version: --model_version")
    if own and not os.path.samefile(own, given) and files.digest(own) != files.digest(given):
        raise errors.UsageError(f"the server serves {own}, and {model_dir} is another model",
                                "give the directory that it was published from")
    return given, own is not None


def _of_server(server, served):
    """The version directory by the server's command line, or None."""
    try:
        base = _base_paths(server).get(served.name)
        if not base or "://" in base:
            return None
        listed = {one.number: one.path for one in versions.listing(server.path(base))}
    except OSError:
        return None
    found = listed.get(served.version)
    return found if found and files.is_saved_model(found) else None


def names(server):
    """Names of the models that a server was started with, as far as its command line and configuration file say. Never raises."""
    return list(_base_paths(server))


def _base_paths(server):
    """{name: base path} by the server's command line."""
    config = server.flag("model_config_file")
    if not config:
        return {server.flag("model_name") or "default": server.flag("model_base_path")}
    from tftrt_tools.serving import configuration_protos

    try:
        parsed = configuration_protos.parse(configuration_protos.MODELS, server.path(config).read_text())
    except (configuration_protos.SyntaxProblem, OSError, UnicodeDecodeError):
        return {}
    return {one.name: one.base_path for one in parsed.model_config_list.config}


def declared_shapes(path):
    """The shapes that the passport of a version names: those engines were built for, else those that it warms up with.

    Returns: ({signature: [{input: shape}]}, which document in words); ({}, "") without any. Raises: TftrtError.
    """
    manifest = passport.read(path, passport.MANIFEST) or {}
    declared = {name: _tuples(one["calls"]) for name, one in passport.signatures(manifest).items() if one.get("calls")}
    if declared:
        return declared, "the shapes that engines were built for (manifest.json)"
    published = passport.read(path, passport.PUBLISH) or {}
    found = {}
    for record in (published.get("warmup") or {}).get("records", ()):
        shapes, = _tuples([record["shapes"]])
        if shapes not in found.setdefault(record["signature"], []):
            found[record["signature"]].append(shapes)
    return found, f"the shapes that it warms up with ({passport.PUBLISH})" if found else ""


def _tuples(calls):
    return [{name: tuple(shape) for name, shape in call.items()} for call in calls]


def from_step(path, same, data):
    """The Model of what `read` returned for `path`."""
    engines = {name: tuple(Engine(**one) for one in listed) for name, listed in data["engines"].items()}
    signatures = {name: {"inputs": _specs(one["inputs"]), "outputs": _specs(one["outputs"]), "tensors": one["tensors"]}
                  for name, one in data["signatures"].items()}
    return Model(path, same, engines, signatures, data["warmup_records"])


def _specs(listed):
    return tuple(map(InputSpec.from_dict, listed))


def check_same(model, served):
    """Refuse files whose signatures are not those that the server answers with. Raises: UsageError."""
    for name, one in served.signatures.items():
        mine = model.signatures.get(name)
        if mine is None or mine["tensors"] != one.tensors or {spec.name: spec.dtype for spec in mine["inputs"]} != {
                spec.name: spec.dtype for spec in one.inputs}:
            raise errors.UsageError(f"{model.path} is not what the server serves: signature {name!r} differs",
                                    "give the directory of the served version")


def read(path):
    """What `from_step` takes, of a version directory; in a child process. Raises: TftrtError, UsageError."""
    from tftrt_tools.savedmodel import graph, inspector, protos, signatures

    meta = protos.meta_graph(protos.read(path), ())
    known = signatures.definitions(meta)
    generating = {graph.engine_name(node.name) for node in graph.engine_nodes(meta.graph_def) if node.attr["_profile_generation_mode"].b}
    ops = {one.name: dataclasses.asdict(Engine(one.name, one.precision, *_hole(one, one.name in generating)))
           for one in graph.engine_ops(meta.graph_def)}
    return {"engines": {one.name: [ops[name] for name in one.engines] for one in inspector.signature_graphs(meta)},
            "signatures": {name: {"inputs": [spec.to_dict() for spec in graph.specs(one.inputs)],
                                  "outputs": [spec.to_dict() for spec in graph.specs(one.outputs)],
                                  "tensors": {f"{kind}/{key}": info.name for kind in ("inputs", "outputs")
                                              for key, info in getattr(one, kind).items()}} for name, one in known.items()},
            "warmup_records": _warmup_records(path)}


def _hole(engine, generating):
    if generating:
        return f"{engine.name} was left in profile generation mode, which runs natively", True
    if engine.precision == "INT8" and engine.use_calibration and not engine.calibrated:
        return f"{engine.name} has no calibration table and would calibrate, natively, for ever", True
    if engine.implicit_batch and len(engine.inputs) > 1:
        return f"{engine.name} runs natively, past the gate, where its {len(engine.inputs)} inputs have unequal batch sizes", False
    return "", False


def _warmup_records(path):
    import tensorflow as tf

    from tftrt_tools.serving import warmup

    file = warmup.path(path)
    if not file.is_file():
        return 0
    try:
        return sum(1 for _ in tf.data.TFRecordDataset([str(file)]))
    except tf.errors.OpError:
        return 0
