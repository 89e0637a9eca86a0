"""The whole of `tftrt wrap`: look at the model, decide, write in a child, put the result in place. No TensorFlow here."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Callable

from tftrt_tools.base import errors, records
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.models.savedmodel import files, passport, signatures, staging
from tftrt_tools.models.savedmodel.describe import Description
from tftrt_tools.models.sources import opened
from tftrt_tools.models.sources.source import Source
from tftrt_tools.tftrt.wrapping import added as added_module
from tftrt_tools.tftrt.wrapping import plan
from tftrt_tools.tftrt.wrapping.added import Added, Wrapped
from tftrt_tools.tftrt.wrapping.settings import Settings

_ENV = {"TF_CPP_MIN_LOG_LEVEL": "1", "CUDA_VISIBLE_DEVICES": "-1"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class LookRequest(records.Record):
    """A model to look at. signature: "" for serving_default or the only one."""

    model: str
    signature: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Looked(records.Record):
    """A model before it is wrapped. facts: of the signature; none where the model does not have it."""

    description: Description
    facts: plan.Facts


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteRequest(records.Record):
    """What is written."""

    # Directories: the model's, and the empty one to fill.
    source: str
    output: str
    added: tuple[Added, ...]
    # The new name of serving_default, "" where it stays.
    default_was: str
    # The file of class names, or "".
    classes: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Written(records.Record):
    """What was written. warmup_left: whether warm-up requests were left out."""

    warmup_left: bool


@jobs.job
def look() -> Callable[[LookRequest], Looked]:
    """Look at a model before it is wrapped. Nothing is loaded or run."""
    from tftrt_tools.tftrt.wrapping import look_job

    return look_job.job


@jobs.job
def write() -> Callable[[WriteRequest], Written]:
    """Write a model with added signatures. Nothing of it is loaded or run."""
    from tftrt_tools.tftrt.wrapping import wrap_job

    return wrap_job.job


def wrap(
    source: str | os.PathLike[str] | Source,
    output: str | os.PathLike[str],
    settings: Settings,
    *,
    overwrite: bool = False,
    log_file: str | None = None,
) -> Wrapped:
    """Write a model with added signatures.

    Args: source: path of a SavedModel or Keras file, or its Source. output: directory to make. settings: what is added. overwrite: replace
    a SavedModel that is there. log_file: where to keep what TensorFlow logs.

    Returns: Wrapped. Raises: UsageError, TftrtError; the output is then as it was.
    """
    source = opened.check(source)
    target = staging.check_target(output, overwrite, [source.path])
    with opened.opened(source, log_file) as model, staging.staged(target, overwrite) as stage:
        files.check_links(model)
        progress.say("looking at the model")
        before = added_module.read(model)
        looked = look.run(LookRequest(model=model, signature=settings.signature)).result
        _check_original(plan.wrapped(looked.description, settings), before)
        planned = plan.plan(looked.description, settings, looked.facts)
        progress.say("writing")
        request = WriteRequest(
            source=model,
            output=str(stage),
            added=planned.added,
            default_was=planned.default_was,
            classes=settings.classes_file,
        )
        written = write.run(request, env=_ENV, log_file=log_file).result
        notes = planned.notes + (
            ("the model's warm-up requests ask serving_default as it was: left out",) if written.warmup_left else ()
        )
        done = Wrapped(
            source=str(pathlib.Path(source.path).absolute()),
            output=str(target),
            source_digest=files.digest(source.path),
            signatures=planned.added,
            default_was=planned.default_was,
            notes=notes,
        )
        added_module.write(stage, _with_earlier(done, before))
        _tell_manifest(stage, done)
    return done


def _tell_manifest(model: pathlib.Path, done: Wrapped) -> None:
    """Let the manifest of a converted model tell what was added; it is the manifest's signatures that `inspect` looks for."""
    manifest = passport.read(model, passport.MANIFEST)
    if manifest is None:
        return
    earlier = manifest.get(passport.WRAPPED) or {}
    if done.default_was:
        for entry in manifest.get("signatures", ()):
            entry["name"] = done.default_was if entry["name"] == signatures.DEFAULT else entry["name"]
            entry["twins"] = [
                done.default_was if twin == signatures.DEFAULT else twin for twin in entry.get("twins", ())
            ]
    names = [*earlier.get("signatures", ()), *(signature.name for signature in done.signatures)]
    manifest[passport.WRAPPED] = {
        "signatures": names,
        "default_was": done.default_was or earlier.get("default_was", ""),
    }
    passport.write(model, passport.MANIFEST, manifest)


def _check_original(signature: str, before: Wrapped | None) -> None:
    """Refuse to wrap what was added by an earlier `wrap`."""
    for signature_before in before.signatures if before else ():
        if signature_before.name == signature:
            raise errors.UsageError(
                f"signature {signature!r} is one that `tftrt wrap` has added",
                f"name {signature_before.of} in --signature_keys",
            )


def _with_earlier(done: Wrapped, before: Wrapped | None) -> Wrapped:
    """The record, with what an earlier `wrap` added."""
    if before is None:
        return done
    moved = done.default_was or signatures.DEFAULT
    earlier = [
        dataclasses.replace(signature, of=moved) if signature.of == signatures.DEFAULT else signature
        for signature in before.signatures
    ]
    return dataclasses.replace(
        done, signatures=(*earlier, *done.signatures), default_was=done.default_was or before.default_was
    )
