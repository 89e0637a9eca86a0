"""`tftrt publish --server=triton`: read, judge the evidence, check against a release, copy, write config.pbtxt, put in place."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tftrt_tools.base import errors, records, results
from tftrt_tools.base.files import plain_file, whole_file
from tftrt_tools.base.process import progress
from tftrt_tools.base.wire import triton_config
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.publishing import base_path, placing, verification_check
from tftrt_tools.servers.serving.triton import (
    asked,
    backends,
    batching,
    config,
    growing,
    preflight,
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
# Files of a version that `publish` writes.
_OWN = frozenset({"model.onnx", "model.py", NO_BYTECODE, files.PASSPORT.parts[0]})


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


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Publication(passport.Stamped, results.Result):
    """A version in a model repository of Triton."""

    document: ClassVar[str] = "triton publication"

    # Path of the model that was published, and the digest of its files.
    model: str
    digest: str
    model_name: str
    version: int
    # The model repository, and the directory of the version.
    repository: str
    path: str
    backend: backends.Name
    # None where the user named none.
    release: releases.Release | None
    evidence: verification_check.Evidence
    max_batch_size: int
    # Whether Triton joins requests.
    joined: bool
    # How many calls warm an instance up.
    warm_up: int
    # Whether config.pbtxt was there already and stayed as it was.
    config_kept: bool
    # Remarks, a line each.
    notes: tuple[str, ...]
    command: str
    # Wall time.
    seconds: float = records.field(digits=2)

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.path}, for Triton's backend {self.backend}"


def publish(model: str | os.PathLike[str], model_name: str, repository: str, options: Options) -> Publication:
    """Publish a model as a version in a model repository of Triton: repository/model_name/version, with repository/model_name/config.pbtxt.

    Args: model: an ONNX file, a plan directory, or a SavedModel.
    Returns: Publication. Raises: UsageError; CheckFailed where evidence or release refuse it; TftrtError, OSError. Nothing is then
      published, and what was there is as it was.
    """
    start = time.monotonic()
    base = _checked(os.fspath(model), model_name, repository, options)
    release = releases.release(options.release, options.tensorrt) if options.release else None
    progress.say("reading the model")
    read = servable.read(model, options.signature)
    backend = backends.choose(options.backend, read)
    evidence = _judged(read, options)
    flown = preflight.check(read, backend, release, options.compute_capability)
    if flown.obstacles:
        raise errors.CheckFailed(f"not published: {flown.obstacles[0].text}", flown.obstacles[0].mend)
    sizes = batching.choose(read, options.max_batch_size, options.preferred_batch_sizes)
    calls, unwarmed = (
        warming.plan(read, sizes, options.warmup_shapes) if options.warm_up else ([], "no warm-up: --nowarmup")
    )
    configured = config.make(model_name, read, backend, sizes, options.settings, calls)
    kept = config.kept(base / config.FILE, configured, options.replace_config)
    notes = (
        *_evidence_notes(read, evidence),
        *flown.notes,
        *filter(None, (sizes.why, _queue_note(sizes, options), unwarmed)),
        *([] if kept is None else [_kept_note(base / config.FILE, kept, configured, options)]),
    )
    served = configured if kept is None else kept
    done = Publication(
        model=str(pathlib.Path(model).absolute()),
        digest=read.digest,
        model_name=model_name,
        version=0,
        repository=str(base.parent),
        path="",
        backend=backend.name,
        release=release,
        evidence=evidence,
        max_batch_size=served.max_batch_size,
        joined=served.HasField("dynamic_batching"),
        warm_up=len(served.model_warmup),
        config_kept=kept is not None,
        notes=notes,
        command=options.command,
        seconds=0.0,
    )
    with growing.place(base) as place, placing.staged(place.home, place.workplace) as stage:
        done = dataclasses.replace(done, notes=(*notes, *filter(None, [place.note])))
        _fill(stage.folder, read, backend)
        written = _Written(place.home / config.FILE, stage.folder.parent)

        def complete(number: int) -> None:
            nonlocal done
            done = dataclasses.replace(
                done, version=number, path=str(base / str(number)), seconds=time.monotonic() - start
            )
            passport.write(stage.folder, passport.PUBLISH, done.to_dict())
            placing.flush_folder(passport.folder(stage.folder))
            placing.flush_folder(passport.folder(stage.folder).parent)
            # Another publisher may have been here since.
            if config.kept(written.path, configured, options.replace_config) is None:
                # The last thing before the version gets its name: Triton reads both at its next look.
                written.write(
                    f"# Written by tftrt publish; it holds for all versions.\n{triton_config.render(configured)}"
                )

        try:
            stage.place(options.version, options.allow_older_version, complete)
        except BaseException:
            written.undo()
            raise
    return done


class _Written:
    """A file that is written, and put back as it was if what belongs to it cannot be placed.

    Args: grows_in: where it is before it is renamed; what appears in the model's directory makes Triton load the served version again.
    """

    def __init__(self, path: pathlib.Path, grows_in: pathlib.Path) -> None:
        self.path, self._grows_in = path, grows_in
        self._before: bytes | None = None
        self._text: str | None = None

    def write(self, text: str) -> None:
        self._before = self.path.read_bytes() if self.path.is_file() else None
        self._text = text
        whole_file.write_text(self.path, text, self._grows_in)

    def undo(self) -> None:
        """Put it back, unless somebody else has written it since."""
        with contextlib.suppress(OSError):
            if self._text is None or self.path.read_text() != self._text:
                return
            if self._before is None:
                self.path.unlink()
            else:
                whole_file.write_bytes(self.path, self._before, self._grows_in)


def _checked(model: str, model_name: str, repository: str, options: Options) -> pathlib.Path:
    """Check everything that needs no work. Returns: the directory of the model in the repository. Raises: UsageError."""
    if not _NAME.fullmatch(model_name) or model_name.startswith("."):
        raise errors.UsageError(f"--model_name={model_name!r}: Triton cannot name that", "use letters, digits, - and _")
    base = base_path.of(model, model_name, repository, "the model's directory")
    first = whole_file.nearest(base)
    if not os.access(first, os.W_OK | os.X_OK):
        raise errors.UsageError(
            f"{first} cannot be written to by this user", "choose another --base_path, or mend its rights"
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


def _kept_note(
    path: pathlib.Path, kept: config_types.TritonConfig, written: config_types.TritonConfig, options: Options
) -> str:
    """That a config.pbtxt stays, and which of the user's flags it keeps from having an effect."""
    missed = asked.missed(
        kept,
        written,
        options.settings,
        options.max_batch_size,
        options.preferred_batch_sizes,
        options.warmup_shapes if options.warm_up else None,
    )
    if not missed:
        return f"{path} stays as it is: it holds for all versions; --triton_replace_config writes it anew"
    return (
        f"{path} stays as it is: it holds for all versions, and these flags have no effect: {'; '.join(missed)}. Give "
        "--triton_replace_config to write it anew, or edit it"
    )


def _fill(stage: pathlib.Path, read: Servable, backend: backends.Backend) -> None:
    """Copy the model's files as the backend wants them."""
    if read.kind == "onnx":
        weights = [
            (path, pathlib.Path(path).relative_to(pathlib.Path(read.path).parent))
            for path in onnx_file.outside(read.path)
        ]
        if taken := next((str(name) for _, name in weights if name.parts[0] in _OWN), ""):
            raise errors.UsageError(
                f"{read.path} has weights in {taken}, a name that a version in Triton's repository has for itself",
                f"copy the model with `tftrt export {read.path} --output=NAME.onnx --external_data`",
            )
        _copy([(read.path, "model.onnx"), *((path, name.as_posix()) for path, name in weights)], stage)
        if ONNX.digest(read.path) != read.digest:
            raise errors.TftrtError(f"{read.path} changed while it was copied", "publish it when nothing writes to it")
    else:
        target = stage / "model.savedmodel" if read.kind == "savedmodel" else stage
        target.mkdir(exist_ok=True)
        placing.copy(read.path, target, {(files.PASSPORT / passport.PUBLISH).as_posix()})
        if files.digest(target) != read.digest:
            raise errors.TftrtError(f"{read.path} changed while it was copied", "publish it when nothing writes to it")
        if read.kind == "savedmodel" and passport.folder(target).is_dir():
            # Where a version of any kind has its passport.
            shutil.copytree(passport.folder(target), passport.folder(stage))
    if backend.name == "python":
        plain_file.write_text(stage / "model.py", python_model.text())
        plain_file.write_text(stage / NO_BYTECODE, "")


def _copy(pairs: Sequence[tuple[str, str]], stage: pathlib.Path) -> None:
    for source, name in pairs:
        progress.say(f"copying {name}")
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        plain_file.copy(source, stage / name)
