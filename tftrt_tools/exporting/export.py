"""The whole of `tftrt export`: export in a child, check, run against the source, put the files in place. No runtime is imported here."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import pathlib
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tftrt_tools import child, errors, progress, scratch, whole_file
from tftrt_tools.accuracy import verify
from tftrt_tools.execution import run
from tftrt_tools.exporting import parser
from tftrt_tools.exporting.onnx_graph import Node
from tftrt_tools.exporting.result import Departure, Exported, File
from tftrt_tools.exporting.targets import OPSETS, TARGETS, Target
from tftrt_tools.inputs import calls as inputs
from tftrt_tools.inputs import drawing
from tftrt_tools.models import table
from tftrt_tools.savedmodel import describe, files, passport, signatures
from tftrt_tools.savedmodel.shapes import InputSpec
from tftrt_tools.sources import opened
from tftrt_tools.sources.source import Source, of

SUFFIX = ".onnx"
_WEIGHTS = ".data"
_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}
# A message of protobuf holds less than 2 GiB; a graph is more than its variables.
_MOST_INSIDE = 1_900_000_000
# {package of the extra `export`: what people call it}.
_NEEDED = {"tf2onnx": "tf2onnx", "onnx": "onnx", "onnxruntime": "ONNX Runtime"}
# Calls that the search for the first departure looks at.
_SEARCHED_CALLS = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """What to export, and how."""

    # A key of TARGETS.
    target: str
    # 0 for the target's.
    opset: int = 0
    # () for all.
    signature_keys: tuple[str, ...] = ()
    # Weights in a file beside; also without it, if they do not fit into one.
    external_data: bool = False
    # Write the files although the parser refuses nodes.
    allow_refused: bool = False
    # Look for the first tensor that departs, if the answers differ.
    bisect: bool = True
    # How the answers are compared; its signature_keys and log_file are set here.
    comparison: verify.Options = verify.Options()
    # Where to keep what TensorFlow logs.
    log_file: str | None = None


def export(model: str | os.PathLike[str] | Source, output: str | os.PathLike[str], options: Options) -> Exported:
    """Export a model's signatures, each to a file.

    Args: model: a SavedModel, or a file that is exported to one first. output: the file, for several signatures the pattern of their names.
    Returns: Exported, also if a check failed; then nothing was written. Raises: UsageError, TftrtError; nothing was written.
    """
    source = _check(model, output, options)
    target = TARGETS[options.target]
    with opened.opened(source, options.log_file) as saved, scratch.folder("onnx") as folder:
        progress.say("looking at the model")
        described = describe.describe(saved)[0]
        if described.engines:
            raise errors.UsageError(f"{source} is a converted model: its engine ops mean nothing outside TF-TRT",
                                    f"export the model that it was made from{_original(saved)}")
        walked = signatures.Once.of(signatures.chosen(list(described.inputs), options.signature_keys), described.same)
        places = _places(pathlib.Path(output), walked.names)
        _check_inputs(described, walked, options)
        digest = files.digest(source.path)
        made = []
        for name in walked.names:
            made.append(_one(source, saved, name, walked, places[name], pathlib.Path(folder), digest, options, target))
        done = Exported(
            source=str(pathlib.Path(source.path).absolute()), source_digest=digest, target=options.target, remark=target.remark,
            opset=options.opset or target.opset, exporter=made[0][1], files=tuple(one for one, _ in made), written=False,
            refused_allowed=options.allow_refused)
        if done.passed:
            progress.say("writing")
            _write(done.files, pathlib.Path(folder))
            done = dataclasses.replace(done, written=True)
    return done


def _check(model: str | os.PathLike[str] | Source, output: str | os.PathLike[str], options: Options) -> Source:
    """Refuse what cannot work, before the work. Raises: UsageError, TftrtError."""
    source = of(model)
    if not table.kind(source.path).named_signatures:
        raise errors.UsageError(f"{source} is an ONNX file already", "give the TensorFlow model; `tftrt verify` compares the two")
    for package, title in _NEEDED.items():
        if importlib.util.find_spec(package) is None:
            raise errors.TftrtError(f"{title}, which an export needs, is not installed",
                                    "pip install 'tftrt-tools[export]' (in a checkout: pip install '.[export]')")
    if not str(output).lower().endswith(SUFFIX):
        raise errors.UsageError(f"--output={output} does not end in {SUFFIX}", f"such as --output=model{SUFFIX}")
    if options.opset and not OPSETS[0] <= options.opset <= OPSETS[1]:
        raise errors.UsageError(f"--opset={options.opset} is none that tf2onnx writes", f"give one from {OPSETS[0]} to {OPSETS[1]}")
    whole_file.check_place(output)
    return opened.check(source)


def _check_inputs(described: describe.Description, walked: signatures.Once, options: Options) -> None:
    """Refuse, before the work, flags from which no inputs can be drawn. Data is read when it is needed. Raises: UsageError."""
    asked = options.comparison.asked
    takes = inputs.Takes.walking(walked, described.inputs)
    maker = inputs.CallMaker(takes, asked)
    declared, _ = maker.declared(), maker.ranges
    for name, specs in takes.specs.items() if not asked.data else ():
        if name not in declared:
            drawing.default_shapes(name, specs)


def _original(saved: str) -> str:
    source = (passport.read(saved, passport.MANIFEST) or {}).get("source", "")
    return f": {source}" if source else ""


def _places(output: pathlib.Path, names: Sequence[str]) -> dict[str, pathlib.Path]:
    """{signature: its file}: `output` for the only one, else model.SIGNATURE.onnx for model.onnx. Raises: UsageError."""
    if len(names) == 1:
        return {names[0]: output.absolute()}
    found = {name: output.absolute().with_name(f"{output.stem}.{re.sub(r'[^A-Za-z0-9_-]+', '_', name)}{output.suffix}") for name in names}
    whole_file.check_places(found.values())
    return found


def _one(source: Source, saved: str, name: str, walked: signatures.Once, place: pathlib.Path, folder: pathlib.Path, digest: str,
         options: Options, target: Target) -> tuple[File, str]:
    """Export a signature into `folder`, and check it there. Returns: (File, the exporter's name)."""
    progress.say(f"exporting {name}")
    path, frozen = folder / place.name, folder / f"{place.name}.pb"
    size = sum(one.stat().st_size for one in pathlib.Path(saved).glob("variables/*"))
    props = {"tftrt.tool": passport.Stamped().tool, "tftrt.source": pathlib.Path(source.path).name, "tftrt.source_digest": digest,
             "tftrt.signature": name, "tftrt.target": target.title, "tftrt.opset": str(options.opset or target.opset)}
    outside = place.name + _WEIGHTS if options.external_data or size > _MOST_INSIDE else ""
    request = {"model": saved, "signature": name, "output": str(path), "opset": options.opset or target.opset, "properties": props,
               "weights": outside, "frozen": str(frozen)}
    with _told_by_name(source, name):
        answer: Any = child.run("tftrt_tools.exporting.export_job:job", request, env=_ENV, log_file=options.log_file).result
    progress.say(f"checking {name} against {target.title}")
    graph_inputs = tuple(InputSpec.from_dict(one) for one in answer["inputs"])
    found = parser.findings(map(Node.from_dict, answer["nodes"]), target)
    progress.say(f"running {name} under ONNX Runtime")
    compared = dataclasses.replace(options.comparison, signature_keys=(name,), log_file=options.log_file)
    checked = verify.verify(source, path, compared)
    departure = None
    if not checked.passed and options.bisect and frozen.is_file():
        progress.say(f"looking for the first tensor of {name} that departs")
        departure = _departure(graph_inputs, name, path, frozen, answer["renamed"], folder, options)
    beside = path.with_name(outside) if outside else None
    return File(
        signature=name, twins=walked.twins[name], path=str(place), weights=str(place.with_name(beside.name)) if beside else "",
        bytes=sum(one.stat().st_size for one in (path, beside) if one), inputs=graph_inputs,
        outputs=tuple(InputSpec.from_dict(one) for one in answer["outputs"]),
        dimensions={key: tuple(where) for key, where in answer["dimensions"].items()}, nodes=len(answer["nodes"]),
        notes=(*answer["notes"], *_narrowed(graph_inputs, target)), findings=found,
        verification=dataclasses.replace(checked, converted=str(place)), departure=departure), answer["exporter"]


@contextlib.contextmanager
def _told_by_name(source: Source, name: str) -> Iterator[None]:
    """Name the signature in the errors of an export."""
    try:
        yield
    except (child.ChildDied, errors.Interrupted):
        raise
    except errors.TftrtError as error:
        raise type(error)(f"signature {name!r} of {source}: {error.cause}", error.mend) from None


def _narrowed(specs: Sequence[InputSpec], target: Target) -> tuple[str, ...]:
    wide = [one.name for one in specs if one.dtype == "int64"]
    if not wide or not target.narrow:
        return ()
    return (f"{target.title} has no INT64: {', '.join(wide)} becomes INT32 there, and larger values are cut",)


def _departure(specs: Sequence[InputSpec], name: str, path: pathlib.Path, frozen: pathlib.Path,
               renamed: Mapping[str, str], folder: pathlib.Path, options: Options) -> Departure | None:
    """The first tensor that departs, on the first of the calls that were compared; None if none does that both graphs have."""
    takes = inputs.Takes.one(name, {name: specs})
    size = options.comparison.batch_size
    chosen = inputs.choose(takes, options.comparison.asked, str(folder / "rows"), inputs.up_to(size) if size else inputs.batch_sizes(()))
    saved = run.save_calls(chosen.all[:_SEARCHED_CALLS], folder / "searched")
    request = {"onnx": str(path), "frozen": str(frozen), "renamed": dict(renamed), "inputs": saved[0][1]}
    found: Any = child.run("tftrt_tools.exporting.bisect_job:job", request, env=_ENV, log_file=options.log_file).result
    return Departure.from_dict(found) if found else None


def _write(made: Sequence[File], folder: pathlib.Path) -> None:
    """Put all files in place: their contents first, then their names; after an interrupt nothing is left of any, or each is whole."""
    with contextlib.ExitStack() as stack:
        # The names are given in the reverse order, so that weights are there before the file that names them.
        for path in [path for one in made for path in (one.path, one.weights) if path]:
            target = stack.enter_context(whole_file.replacing(path))
            with open(folder / pathlib.Path(path).name, "rb") as content:
                shutil.copyfileobj(content, target)
