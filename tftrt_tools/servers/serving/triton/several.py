"""`tftrt publish --server=triton` of what `tftrt build --on` made: one version that has a model for each kind of GPU, each in a folder.

Triton's backends `tensorrt` and `tensorflow` choose by the compute capability of an instance's GPU: `cc_model_filenames` of config.pbtxt
names the file or the folder for each. Its Python backend does not read that; model.py looks into the folders.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Iterator, Mapping

from tftrt_tools.base import errors
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.servers.serving.publishing import nodes, several, verification_check
from tftrt_tools.servers.serving.triton import backends, config, publish, putting
from tftrt_tools.servers.serving.triton.publish import OfKind, Options, Prepared, Publication
from tftrt_tools.servers.serving.triton.servable import Range

_CAPABILITY = re.compile(r"[0-9]+\.[0-9]+")


def publish_all(model: str | os.PathLike[str], model_name: str, repository: str, options: Options) -> Publication:
    """Publish the model of each kind of GPU as a folder of one version: repository/model_name/VERSION/KIND.

    Args: model: a directory that publishing.several.kinds knows. options: a compute capability has to be that of a kind.
    Returns: Publication, with `kinds`. Raises: as publish.publish; UsageError for kinds that one version cannot hold. Nothing is published
      then, of no kind.
    """
    start = time.monotonic()
    paths, model = several.kinds(os.fspath(model)), os.fspath(model)
    base = publish.checked(model, model_name, repository, options)
    release = publish.release(options)
    _check_names(model, paths)
    _check_onnx(paths, options)
    gpus = {kind: _gpu(path) for kind, path in paths.items()}
    _check_capabilities(model, {kind: capability for kind, (_, capability) in gpus.items()}, options.compute_capability)
    ready = {kind: _prepared(kind, path, model_name, options, gpus[kind][1]) for kind, path in paths.items()}
    first = next(iter(ready.values()))
    _check_alike(model, ready)
    within = first.backend.file_of_kind
    if within is not None:
        _check_on_gpus(model, options)
        config.name_files(first.config, {gpus[kind][1]: f"{kind}/{within}".rstrip("/") for kind in ready})
    done = Publication(
        model=str(pathlib.Path(model).absolute()),
        digest="",
        model_name=model_name,
        repository=str(base.parent),
        backend=first.backend.name,
        release=release,
        evidence=_together(ready),
        kinds=tuple(
            OfKind(
                gpu_type=kind,
                gpu=gpus[kind][0],
                compute_capability=gpus[kind][1],
                node_selector=nodes.selector(gpus[kind][0]),
                digest=one.model.digest,
                evidence=one.evidence,
            )
            for kind, one in ready.items()
        ),
        notes=(*_notes(ready), *_cpu_note(ready)),
        command=options.command,
        seconds=time.monotonic() - start,
    )
    return putting.put(base, first.config, first.backend, options, done, lambda folder: _fill(folder, ready))


def _gpu(path: str) -> tuple[str, str]:
    """(name, compute capability) of the GPU that a model was built on; "" where it does not say. Raises: TftrtError."""
    if os.path.isfile(os.path.join(path, document.DOCUMENT)):
        plan = document.read(path)
        return plan.gpu, plan.compute_capability
    gpu = (passport.read(path, passport.MANIFEST) or {}).get("gpu") or {}
    return gpu.get("name") or "", gpu.get("compute_capability") or ""


def _prepared(kind: str, path: str, model_name: str, options: Options, capability: str) -> Prepared:
    """As publish.prepared; what is refused names the kind."""
    try:
        return publish.prepared(path, model_name, dataclasses.replace(options, compute_capability=capability), kind)
    except OSError as refused:
        raise several.of_kind(errors.from_os_error(refused), kind) from refused
    except errors.TftrtError as error:
        raise several.of_kind(error, kind) from error


def _check_names(model: str, paths: Mapping[str, str]) -> None:
    # A folder with the name of a backend's file would be what Triton takes for a GPU of no kind.
    if taken := next((kind for kind in paths if kind in publish.OWN or kind in backends.FILES), ""):
        raise errors.UsageError(
            f"{model} has a kind {taken}, a name that a version in Triton's repository has for itself",
            "rename that folder, for example to the GPU's name",
        )


def _check_capabilities(model: str, capability_of: Mapping[str, str], asked: str) -> None:
    """Raise UsageError where Triton cannot tell the kinds apart, CheckFailed where none is for the GPU that was asked for."""
    kind_of: dict[str, str] = {}
    for kind, capability in capability_of.items():
        if not _CAPABILITY.fullmatch(capability):
            raise errors.UsageError(
                f"{kind}: the model does not say for which compute capability it was built, and Triton chooses by that",
                "build it with `tftrt build --on`, on a machine that has such a GPU",
            )
        if capability in kind_of:
            raise errors.UsageError(
                f"{kind_of[capability]} and {kind} both are for compute capability {capability}, and Triton cannot tell them apart",
                f"publish each with a --model_name of its own: `tftrt publish {os.path.join(model, kind)} --server=triton …`",
            )
        kind_of[capability] = kind
    if asked and asked not in kind_of:
        built = ", ".join(f"{kind} is for {capability}" for kind, capability in capability_of.items())
        raise errors.CheckFailed(
            f"not published: the server has compute capability {asked}, and no kind was built for it: {built}",
            "build it for that kind of GPU too, `tftrt build MODEL --on=… --gpu_types=…`",
        )


def _check_alike(model: str, ready: Mapping[str, Prepared]) -> None:
    """Raise UsageError where one config.pbtxt cannot be that of all kinds."""
    (kind, one), *others = ready.items()
    for other_kind, other in others:
        for what, ours, theirs in (*config.differing(one.config, other.config), *_other_profiles(one, other)):
            raise errors.UsageError(
                f"{kind} and {other_kind} do not fit one config.pbtxt: {what} is {ours} for {kind}, and {theirs} for {other_kind}",
                "build all kinds from one model with the same --shapes, as `tftrt build --on` does; or publish each with a --model_name "
                f"of its own: `tftrt publish {os.path.join(model, kind)} --server=triton …`",
            )


def _other_profiles(one: Prepared, other: Prepared) -> Iterator[tuple[str, str, str]]:
    """As config.differing: profiles that do not take the same calls, or are not tuned for the same sizes. Of batches, those up to Triton's
    largest count; for which ones Triton waits is compared there."""
    largest = one.config.max_batch_size
    if _ranges(one, largest) != _ranges(other, largest):
        yield "the list of profiles", _profiles_text(one), _profiles_text(other)


def _ranges(ready: Prepared, largest: int) -> list[dict[str, tuple[tuple[int, ...], ...]]]:
    def counted(bounds: Range) -> tuple[tuple[int, ...], ...]:
        if not largest:
            return bounds
        least, tuned, most = bounds
        return (min(least[0], largest), *least[1:]), tuned[1:], (min(most[0], largest), *most[1:])

    return [{name: counted(bounds) for name, bounds in profile.items()} for profile in ready.model.profiles]


def _profiles_text(ready: Prepared) -> str:
    """Such as "x 1x4 to 32x4, tuned for 8x4"."""
    return (
        " and ".join(
            ", ".join(
                "{} {} to {}, tuned for {}".format(name, *("x".join(map(str, one)) for one in (least, most, tuned)))
                for name, (least, tuned, most) in profile.items()
            )
            for profile in ready.model.profiles
        )
        or "empty"
    )


def _check_onnx(paths: Mapping[str, str], options: Options) -> None:
    first = next(iter(paths.values()))
    if options.backend == "onnxruntime" and files.is_plan(first):
        raise errors.UsageError(
            "--triton_backend=onnxruntime runs the ONNX file, which is for no kind of GPU",
            f"publish that of one kind: `tftrt publish {first} --server=triton --triton_backend=onnxruntime …`",
        )


def _check_on_gpus(model: str, options: Options) -> None:
    if options.settings.instance_kind == "cpu":
        raise errors.UsageError(
            f"--triton_instance_kind=cpu: {model} has models for GPUs alone, and Triton finds none for a CPU",
            "leave it out",
        )


def _together(ready: Mapping[str, Prepared]) -> verification_check.Evidence:
    """What the evidence of all kinds amounts to."""
    bad = next(((kind, one.evidence) for kind, one in ready.items() if not one.evidence.valid), None)
    return verification_check.Evidence(
        valid=bad is None,
        needed=any(one.evidence.needed for one in ready.values()),
        problem=f"{bad[0]}: {bad[1].problem}" if bad and bad[1].problem else "",
        mend=bad[1].mend if bad else "",
    )


def _notes(ready: Mapping[str, Prepared]) -> list[str]:
    """The remarks on all kinds; what is not said of all has the kind before it."""
    lists = [one.notes for one in ready.values()]
    common = [note for note in lists[0] if all(note in notes for notes in lists)]
    return [*common, *(f"{kind}: {note}" for kind, one in ready.items() for note in one.notes if note not in common)]


def _cpu_note(ready: Mapping[str, Prepared]) -> list[str]:
    """Which ONNX file a CPU runs, where they are not the same."""
    first = next(iter(ready.values()))
    if first.backend.name != "python":
        return []
    listed = [os.path.join(one.model.path, document.ONNX) for one in ready.values()]
    digests = {ONNX.digest(path) for path in listed if os.path.isfile(path)}
    return (
        [f"the ONNX files of the kinds differ; on a CPU that of {next(iter(ready))} runs"] if len(digests) > 1 else []
    )


def _fill(stage: pathlib.Path, ready: Mapping[str, Prepared]) -> None:
    for kind, one in ready.items():
        publish.copy_folder(one.model, stage / kind)
    publish.write_program(stage, next(iter(ready.values())).backend)
