"""Finds contradictions in a converted SavedModel: graph, engine files, manifest, verification, this machine. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.base import terminal
from tftrt_tools.models.savedmodel import engine_assets, passport, shapes
from tftrt_tools.models.savedmodel.inspection import Finding, bytes_text

if TYPE_CHECKING:
    from tftrt_tools.models.savedmodel.engine_assets import EngineAsset
    from tftrt_tools.models.savedmodel.engine_op import EngineOp
    from tftrt_tools.models.savedmodel.inspection import Inspection

AGAIN = "convert again"
_BUILD = "build the engines again on the GPU that will run them (`tftrt build`)"
_VERIFY = "run `tftrt verify` again"
_REUSE = "convert again here with --calibration_table=MODEL, which keeps the ranges"
_KERAS = (".keras", ".h5", ".hdf5")
# Facts about an engine op that the manifest has and that nothing changes later.
_COMPARED = {
    "precision": "precision",
    "implicit_batch": "implicit batch",
    "use_calibration": "calibration",
    "inputs": "input shapes",
    "ops": "ops",
}


def find(seen: Inspection, tensorrt: str | None = None, capabilities: Sequence[str] = ()) -> tuple[Finding, ...]:
    """Args: seen: Inspection. tensorrt: version on this machine, None where there is none. capabilities: compute capabilities of its
    GPUs, such as "9.0". Returns: (Finding, …), the gravest first."""
    checks = (_of_files, _of_loading, _of_engines, _of_manifest, _of_built, _of_verification)
    findings = [finding for check in checks for finding in check(seen)]
    return (*seen.findings, *findings, *_of_machine(seen, tensorrt, capabilities))


def _of_files(seen: Inspection) -> Iterator[Finding]:
    """Findings on engine files that are damaged, or that belong to no engine op."""
    engines = {engine.name: engine for engine in seen.engines}
    for file in seen.engine_files:
        if file.problem:
            yield Finding(
                file.engine, f"its engine file is {file.problem}; loading the model can hang or end the process", _BUILD
            )
        elif not file.assets:
            yield Finding(file.engine, "its engine file holds no engine: the first request builds one", _BUILD)
        if file.engine not in engines:
            yield Finding(file.engine, "an engine file is named after it, and no engine op has this name", AGAIN)
            continue
        for asset in file.assets:
            if not _fits(asset, engines[file.engine]):
                given = "; ".join(shapes.text(shape) for shape in asset.input_shapes)
                expected = "; ".join(shapes.text(engine_input.shape) for engine_input in engines[file.engine].inputs)
                yield Finding(
                    file.engine, f"an engine was built for inputs {given}, and the engine op takes {expected}", _BUILD
                )


def _fits(asset: EngineAsset, engine: EngineOp) -> bool:
    if len(asset.input_shapes) != len(engine.inputs):
        return False
    pairs = zip(asset.input_shapes, engine.inputs, strict=True)
    return all(one.shape is None or shape is None or _shape_fits(shape, one.shape) for shape, one in pairs)


def _shape_fits(shape: Sequence[int | None], wanted: Sequence[int | None]) -> bool:
    return len(shape) == len(wanted) and all(
        None in (want, got) or want == got for got, want in zip(shape, wanted, strict=True)
    )


def _of_loading(seen: Inspection) -> Iterator[Finding]:
    """Findings on the engine files that the graph reads, compared with those that exist."""
    files = {file.engine for file in seen.engine_files}
    for engine, kept in seen.loads.items():
        count = len(seen.assets(engine))
        if engine not in files:
            yield Finding(
                engine, "the model loads its engine file, and the file is missing", "copy the whole SavedModel again"
            )
        implicit = any(engine_op.name == engine and engine_op.implicit_batch for engine_op in seen.engines)
        if implicit and count > kept:
            yield Finding(
                engine,
                f"{count} engines are saved and {kept} fit into its cache: the others are dropped at loading",
                "convert again with --maximum_cached_engines=" + str(count),
            )
    for engine in sorted(files & {loaded.name for loaded in seen.engines} - set(seen.loads)):
        yield Finding(engine, "its engine file is never loaded: nothing in the graph reads it", AGAIN)


def _of_engines(seen: Inspection) -> Iterator[Finding]:
    """Findings on engine ops that cannot work."""
    for name in seen.ambiguous:
        yield Finding(name, "several different segments share this name, so one would get the engine of another", AGAIN)
    # The build left these without an engine (out of time, say), and the manifest says so.
    left = passport.left_native(seen.manifest)
    for engine in seen.engines:
        built = bool(seen.assets(engine.name))
        if engine.precision == "INT8" and engine.use_calibration and not engine.calibrated:
            yield Finding(
                engine.name,
                "INT8 without a calibration table: it would calibrate in production, for ever, and run natively",
                "calibrate it, or convert again with --precision=FP16",
            )
        if not engine.native_segment:
            lost = (
                "a shape without an engine is an error, and no engine can be built"
                if built
                else "no engine can ever be built for it"
            )
            yield Finding(engine.name, f"its native segment was removed: {lost}", AGAIN)
        if not engine.allow_build_at_runtime and not built and engine.name not in left:
            yield Finding(engine.name, "it has no engine and must not build one: it runs natively, always", _BUILD)
        if not seen.signatures_of(engine.name):
            yield Finding(engine.name, "no signature reaches it", AGAIN)


def _of_manifest(seen: Inspection) -> Iterator[Finding]:
    """Findings on the conversion's manifest, compared with the graph."""
    if seen.manifest is None:
        return
    listed = {
        engine["name"]: engine
        for signature in seen.manifest.get("signatures", ())
        for engine in signature.get("engines", ())
    }
    there = {engine.name: engine for engine in seen.engines}
    for name in sorted(listed.keys() - there.keys()):
        yield Finding(name, "the manifest lists it, and the graph has no such engine op", AGAIN)
    for name in sorted(there.keys() - listed.keys()):
        yield Finding(name, "the graph has it, and the manifest does not list it", AGAIN)
    for name in sorted(there.keys() & listed.keys()):
        now = there[name].to_dict()
        if not there[name].native_segment:
            del now["ops"]  # the op was removed with its segment, which has a finding already
        for field, words in _COMPARED.items():
            if field in now and field in listed[name] and listed[name][field] != now[field]:
                yield Finding(
                    name,
                    f"{words}: the manifest says {_brief(listed[name][field])}, the graph {_brief(now[field])}",
                    AGAIN,
                )
    yield from _of_signatures(seen)


def _brief(value: object) -> str:
    return str(value) if len(str(value)) < 40 else "something else"


def _of_signatures(seen: Inspection) -> Iterator[Finding]:
    listed = passport.signatures(seen.manifest).keys()
    there = {signature.name for signature in seen.signatures}.difference(passport.added_signatures(seen.manifest))
    for name in sorted(listed - there):
        yield Finding(f"signature {name}", "the manifest lists it, and the graph does not have it", AGAIN)
    for name in sorted(there - listed):
        yield Finding(f"signature {name}", "the graph has it, and the manifest does not list it", AGAIN)


def _of_built(seen: Inspection) -> Iterator[Finding]:
    """Findings on the engines that the conversion built, compared with those that are saved."""
    if seen.manifest is None:
        return
    settings = seen.manifest.get("settings", {})
    sizes: dict[str, list[int]] = {}
    for signature in seen.manifest.get("signatures", ()):
        for built in signature.get("built", ()):
            sizes.setdefault(built["name"], []).append(built["bytes"])
    if not settings.get("save_engines", True):
        sizes = {}
    # Files that are broken, or that belong to no engine op, have a finding already.
    broken = {file.engine for file in seen.engine_files if file.problem}
    for name in sorted({engine.name for engine in seen.engines} - broken):
        saved = [asset.bytes for asset in seen.assets(name)]
        if sorted(saved) != sorted(sizes.get(name, [])):
            told = _engines(sizes.get(name, []))
            yield Finding(name, f"the manifest says {told} built and saved, the model holds {_engines(saved)}", _BUILD)


def _engines(sizes: Sequence[int]) -> str:
    return f"{terminal.counted(len(sizes), 'engine')} ({bytes_text(sum(sizes))})" if sizes else "no engine"


def _of_verification(seen: Inspection) -> Iterator[Finding]:
    if seen.verification is None:
        return
    if seen.verification.get("converted_digest") not in (None, seen.digest):
        yield Finding("verify.json", "the model's files have changed since they were verified", _VERIFY)
    if seen.verification.get("passed") is False:
        problems = seen.verification.get("problems") or ["no reason given"]
        yield Finding(
            "verify.json",
            f"the verification failed: {problems[0]}",
            "its verify.json lists all that failed; convert again, or verify again with other bounds",
        )


def _of_machine(seen: Inspection, tensorrt: str | None, capabilities: Sequence[str]) -> tuple[Finding, ...]:
    """Saved engines and INT8 tables, compared with this machine's TensorRT and GPU: engines by their header, else by the manifest."""
    gpu = (seen.manifest or {}).get("gpu") or {}
    # Each kind of finding once; TensorRT's first, because it is graver.
    releases, devices = {}, {}
    for asset in (asset for file in seen.engine_files for asset in file.assets):
        built, capability = engine_assets.origin(asset, seen.manifest)
        if built and tensorrt and not engine_assets.same_release(built, tensorrt):
            text = f"built with TensorRT {built}; here is {tensorrt}, where loading them ends the process"
            releases[built] = Finding("engine files", text, _BUILD)
        if capability and capabilities and capability not in capabilities:
            devices[capability] = Finding(
                "engine files",
                f"built on {gpu.get('name', 'a GPU')} (compute capability {capability}); the GPU "
                f"here has {capabilities[0]}, where they do not run",
                _BUILD,
            )
    tables = tuple(
        Finding(
            one.name,
            f"its INT8 table is for TensorRT {one.table_tensorrt}; here is {tensorrt}, which may skip it when it builds an engine",
            _reuse(seen),
        )
        for one in seen.engines
        if one.table_tensorrt and tensorrt and not engine_assets.same_release(one.table_tensorrt, tensorrt)
    )
    return (*releases.values(), *devices.values(), *tables[:1])


def _reuse(seen: Inspection) -> str:
    """How to keep the ranges of a table. Another Keras makes another graph of a file, which no table of the first one fits."""
    source = str((seen.manifest or {}).get("source") or "")
    if not source.endswith(_KERAS):
        return _REUSE
    return (
        f"{_REUSE}, from what model.export('DIR') of the Keras that the model was converted with makes of {source}: another Keras makes "
        "another graph of it"
    )
