"""`tftrt publish --server=triton`: read, judge the evidence, check against a release, copy, put in place with config.pbtxt."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from tftrt_tools.base import errors, records, results
from tftrt_tools.base.files import plain_file, whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import base_path, placing, verification_check
from tftrt_tools.servers.serving.triton import (
    backends,
    batching,
    config,
    preflight,
    putting,
    python_model,
    releases,
    servable,
    warming,
)
from tftrt_tools.servers.serving.triton.servable import Servable

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


_NAME = re.compile(r"[^/\\:\s\x00-\x1f]+")
# Python writes the bytecode of model.py into a folder of this name, and a Triton that polls takes that for a change of the version and
# loads it again. Where a file is in the way, Python goes without. PYTHONDONTWRITEBYTECODE does not stop the Python backend's 3.12.
NO_BYTECODE = "__pycache__"
# Names in a version that `publish` has for itself.
OWN = frozenset({"model.onnx", "model.py", NO_BYTECODE, files.PASSPORT.parts[0]})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to publish for Triton."""

    # None for the next number.
    version: int | None = None
    allow_older_version: bool = False
    # Publish without valid evidence.
    unverified: bool = False
    # A backends.Name, or "" for the one that fits the model.
    backend: str = ""
    # The server's release and its TensorRT, as --triton_release and --triton_tensorrt; "" for none.
    release: str = ""
    tensorrt: str = ""
    # Of the server's GPU, such as "8.6"; "" where not known.
    compute_capability: str = ""
    # As batching.choose takes them.
    max_batch_size: int | None = None
    preferred_batch_sizes: tuple[int, ...] = ()
    settings: config.Settings = config.Settings()
    # Write config.pbtxt anew although the model has one.
    replace_config: bool = False
    # Whether instances are warmed up, and with which shapes: text of --warmup_shapes.
    warm_up: bool = True
    warmup_shapes: str = ""
    # Of a SavedModel, "" for serving_default.
    signature: str = ""
    # Text that repeats this run.
    command: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfKind(records.Record):
    """The model of one kind of GPU in a version."""

    # The name of its folder in the version.
    gpu_type: str
    # The GPU that it was built on, as the driver calls it, "" where not known; and its compute capability.
    gpu: str
    compute_capability: str
    # The label of nodes with such a GPU, {} where not known.
    node_selector: Mapping[str, str]
    digest: str
    evidence: verification_check.Evidence


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Publication(passport.Stamped, results.Result):
    """A version in a model repository of Triton."""

    document: ClassVar[str] = "triton publication"

    # Path of the model that was published, and the digest of its files; "" for several kinds of GPU, of which each has its own.
    model: str
    digest: str
    model_name: str
    version: int = 0
    # The model repository, and the directory of the version.
    repository: str
    path: str = ""
    backend: backends.Name
    # None where the user named none.
    release: releases.Release | None
    # Of several kinds it is valid if that of each is.
    evidence: verification_check.Evidence
    # Where the version has a model for each kind of GPU: those.
    kinds: tuple[OfKind, ...] = ()
    max_batch_size: int = 0
    # Whether Triton joins requests.
    joined: bool = False
    # How many calls warm an instance up.
    warm_up: int = 0
    # Whether config.pbtxt was there already and stayed as it was.
    config_kept: bool = False
    # Remarks, a line each.
    notes: tuple[str, ...]
    command: str
    # Wall time.
    seconds: float = records.field(digits=2)

    def summary(self) -> str:
        """As Result.summary."""
        kinds = f", for {', '.join(one.gpu_type for one in self.kinds)}" if self.kinds else ""
        return f"{self.path}, for Triton's backend {self.backend}{kinds}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model that may be published, with the config.pbtxt that it needs and remarks."""

    model: Servable
    backend: backends.Backend
    evidence: verification_check.Evidence
    config: config_types.TritonConfig
    notes: tuple[str, ...]


def publish(model: str | os.PathLike[str], model_name: str, repository: str, options: Options) -> Publication:
    """Publish a model as a version in a model repository of Triton: repository/model_name/version, with repository/model_name/config.pbtxt.

    Args: model: an ONNX file, a plan directory, or a SavedModel.
    Returns: Publication. Raises: UsageError; CheckFailed where evidence or release refuse it; TftrtError, OSError. Nothing is then
      published, and what was there is as it was.
    """
    start = time.monotonic()
    base = checked(os.fspath(model), model_name, repository, options)
    ready = prepared(os.fspath(model), model_name, options)
    done = Publication(
        model=str(pathlib.Path(model).absolute()),
        digest=ready.model.digest,
        model_name=model_name,
        repository=str(base.parent),
        backend=ready.backend.name,
        release=release(options),
        evidence=ready.evidence,
        notes=ready.notes,
        command=options.command,
        seconds=time.monotonic() - start,
    )
    return putting.put(
        base, ready.config, ready.backend, options, done, lambda folder: _fill(folder, ready.model, ready.backend)
    )


def release(options: Options) -> releases.Release | None:
    """The server's release, None where the user named none. Raises: UsageError."""
    return releases.release(options.release, options.tensorrt) if options.release else None


def prepared(model: str, model_name: str, options: Options, folder: str = "") -> Prepared:
    """Read a model and judge it. Nothing is written. Args: folder: where it will be in the version. Raises: as `publish`."""
    server = release(options)
    progress.say(f"reading {model}")
    read = servable.read(model, options.signature)
    read = dataclasses.replace(read, plugins=tuple(os.path.join(folder, one) for one in read.plugins))
    backend = backends.choose(options.backend, read)
    evidence = _judged(read, options)
    flown = preflight.check(read, backend, server, options.compute_capability)
    if flown.obstacles:
        raise errors.CheckFailed(f"not published: {flown.obstacles[0].text}", flown.obstacles[0].mend)
    sizes = batching.choose(read, options.max_batch_size, options.preferred_batch_sizes)
    calls, unwarmed = (
        warming.plan(read, sizes, options.warmup_shapes) if options.warm_up else ([], "no warm-up: --nowarmup")
    )
    return Prepared(
        model=read,
        backend=backend,
        evidence=evidence,
        config=config.make(model_name, read, backend, sizes, options.settings, calls),
        notes=(
            *_evidence_notes(read, evidence),
            *flown.notes,
            *filter(None, (sizes.why, _queue_note(sizes, options), unwarmed)),
        ),
    )


def checked(model: str, model_name: str, repository: str, options: Options) -> pathlib.Path:
    """Check everything that needs no work. Returns: the directory of the model in the repository. Raises: UsageError."""
    if not _NAME.fullmatch(model_name) or model_name.startswith("."):
        raise errors.UsageError(f"--model_name={model_name!r}: Triton cannot name that", "use letters, digits, - and _")
    base = base_path.of(model, model_name, repository, "the model's directory")
    first = whole_file.nearest(base)
    if not os.access(first, os.W_OK | os.X_OK):
        raise errors.UsageError(
            f"{first} cannot be written to by this user", "choose another --base_path, or fix its rights"
        )
    if options.version is not None:
        version_directories.check(base, options.version, options.allow_older_version)
    if options.tensorrt and not options.release:
        raise errors.UsageError("--triton_tensorrt has no effect without --triton_release", "name the release too")
    return base


def _judged(read: Servable, options: Options) -> verification_check.Evidence:
    """Raises: CheckFailed where there is no valid evidence for a converted model."""
    verification = passport.read(read.path, passport.VERIFY) if read.kind != "onnx" else None
    judged = verification_check.judge(read.path, read.converted, verification, read.digest, (read.signature,))
    if judged.needed and not judged.valid and not options.unverified:
        raise errors.CheckFailed(
            f"not published: {judged.problem}", f"{judged.mend}; or publish all the same with --unverified"
        )
    return judged


def _evidence_notes(read: Servable, judged: verification_check.Evidence) -> list[str]:
    if not judged.needed and not judged.said:
        if read.kind == "onnx":
            return [f"an ONNX file carries no evidence; `tftrt verify ORIGINAL {read.path}` compares them"]
        return ["this is no TF-TRT model: it was published without evidence"]
    left = passport.in_tensorflow(verification_check.manifest(read.path))
    return [
        *([] if judged.valid else [f"NOT VERIFIED: {judged.problem}"]),
        *verification_check.of_engines(judged, read.precisions),
        *left,
    ]


def _queue_note(sizes: batching.Batching, options: Options) -> str:
    if sizes.joined or options.settings.queue_delay is None:
        return ""
    return "--triton_queue_delay_us has no effect: Triton does not join requests to this model"


def _fill(stage: pathlib.Path, read: Servable, backend: backends.Backend) -> None:
    """Copy the model's files as the backend wants them."""
    if read.kind == "onnx":
        weights = [
            (path, pathlib.Path(path).relative_to(pathlib.Path(read.path).parent))
            for path in onnx_file.outside(read.path)
        ]
        if taken := next((str(name) for _, name in weights if name.parts[0] in OWN), ""):
            raise errors.UsageError(
                f"{read.path} has weights in {taken}, a name that a version in Triton's repository has for itself",
                f"copy the model with `tftrt export {read.path} --output=NAME.onnx --external_data`",
            )
        _copy([(read.path, "model.onnx"), *((path, name.as_posix()) for path, name in weights)], stage)
        if ONNX.digest(read.path) != read.digest:
            raise errors.TftrtError(f"{read.path} changed while it was copied", "publish it when nothing writes to it")
    else:
        target = stage / backend.file if read.kind == "savedmodel" else stage
        copy_folder(read, target)
        if read.kind == "savedmodel" and passport.folder(target).is_dir():
            # Where a version of any kind has its passport.
            shutil.copytree(passport.folder(target), passport.folder(stage))
    write_program(stage, backend)


def copy_folder(read: Servable, target: pathlib.Path) -> None:
    """Copy a plan directory or a SavedModel, with its passport. Raises: UsageError, TftrtError, OSError."""
    target.mkdir(exist_ok=True)
    placing.copy(read.path, target, {(files.PASSPORT / passport.PUBLISH).as_posix()})
    if files.digest(target) != read.digest:
        raise errors.TftrtError(f"{read.path} changed while it was copied", "publish it when nothing writes to it")


def write_program(stage: pathlib.Path, backend: backends.Backend) -> None:
    """Write what Triton's Python backend runs, where that is the backend."""
    if backend.name == "python":
        plain_file.write_text(stage / backend.file, python_model.text())
        plain_file.write_text(stage / NO_BYTECODE, "")


def _copy(pairs: Sequence[tuple[str, str]], stage: pathlib.Path) -> None:
    for source, name in pairs:
        progress.say(f"copying {name}")
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        plain_file.copy(source, stage / name)
