"""The whole of `tftrt publish`: read, judge the evidence, check the model against the target, copy, warm up, put in place. No TensorFlow
here."""

import dataclasses
import os
import pathlib
import re
import time
from collections.abc import Iterator
from typing import Any, ClassVar

from tftrt_tools.base import errors, op_libraries, results
from tftrt_tools.base.files import scratch
from tftrt_tools.base.process import jobs, progress
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.inspection import Finding
from tftrt_tools.models.sources.opened import check, opened
from tftrt_tools.models.sources.source import Source
from tftrt_tools.servers.serving import version_directories
from tftrt_tools.servers.serving.configuration import engine_batch_sizes, unbatched
from tftrt_tools.servers.serving.publishing import base_path as base_paths
from tftrt_tools.servers.serving.publishing import (
    model_facts,
    placing,
    server_target,
    target_preflight,
    verification_check,
)
from tftrt_tools.servers.serving.publishing.model_facts import Facts
from tftrt_tools.servers.serving.warmup import replay_check, warmup_file, warmup_requests
from tftrt_tools.servers.serving.warmup.allowed_batch_sizes import BatchSizes

_RECORD = (files.PASSPORT / passport.PUBLISH).as_posix()
_NAME = re.compile(r"[^/:\s\x00-\x1f]+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """How to publish."""

    # None for the next number.
    version: int | None = None
    # Accept a version that is not the largest.
    allow_older_version: bool = False
    # As in server_target.resolve.
    target: str = server_target.LOCAL
    compute_capability: str = ""
    # Publish without valid evidence, and with findings.
    unverified: bool = False
    # Write a warm-up file, or keep the model's own.
    warm_up: bool = True
    # Do not keep the model's own.
    replace_warmup: bool = False
    # What to warm up with.
    requests: warmup_requests.Options = warmup_requests.Options()
    # Facts about the server besides its target.
    server: target_preflight.Options = target_preflight.Options()
    # Text that repeats this run.
    command: str = ""
    # Where to keep TensorFlow's log of the warm-up.
    log_file: str | None = None


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """The warm-up file of a published version. kept: the model brought it along; sources: {"data" or "generated": records}, {} for a kept
    file; bytes: of the file; replay: warmup_replay.Replay."""

    kept: bool
    sources: dict[str, int]
    bytes: int
    replay: replay_check.Replay

    # Not a Record: the replay's facts stand beside those of the file.
    def to_dict(self) -> dict[str, Any]:
        return {
            "file": warmup_requests.FILE,
            "kept": self.kept,
            "sources": self.sources,
            "bytes": self.bytes,
            "count": len(self.replay.records),
            **self.replay.to_dict(),
        }


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Publication(results.Result):
    """A published version."""

    # Path of the SavedModel that was published.
    model: str
    model_name: str
    version: int
    # The directory of the model, which a server is given.
    base_path: str
    # The directory of the version.
    path: str
    # The digest of the model's files.
    digest: str
    target: server_target.Target
    # TF-TRT converted the model.
    tftrt: bool
    # Engine ops.
    engines: int
    # Serialized engines.
    engine_files: int
    evidence: verification_check.Evidence
    findings: tuple[Finding, ...]
    # None if it was published without one.
    warm_up: WarmUp | None
    # Remarks, a line each.
    notes: tuple[str, ...]
    # Text that repeats this run.
    command: str
    # Wall time.
    seconds: float
    # Versions, date and machine.
    stamp: dict[str, Any] = dataclasses.field(default_factory=passport.stamp)

    document: ClassVar[str] = "publication"

    def summary(self) -> str:
        """As Result.summary."""
        return f"{self.path}, for {self.target.text()}"

    # Not a Record: the stamp stands first, and `verified` is the evidence's.
    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "publication",
            **self.stamp,
            "model": self.model,
            "model_name": self.model_name,
            "version": self.version,
            "base_path": self.base_path,
            "path": self.path,
            "digest": self.digest,
            "target": self.target.to_dict(),
            "tftrt": self.tftrt,
            "engine_ops": self.engines,
            "engines": self.engine_files,
            "verified": self.evidence.valid,
            "evidence": self.evidence.to_dict(),
            "findings": [finding.to_dict() for finding in self.findings],
            "warmup": self.warm_up.to_dict() if self.warm_up else None,
            "notes": list(self.notes),
            "command": self.command,
            "seconds": round(self.seconds, 2),
        }


def publish(
    model: str | os.PathLike[str] | Source, model_name: str, base_path: str, options: Options | None = None
) -> Publication:
    """Publish a model as a version for TensorFlow Serving.

    Args: model: its path, or source.Source; what is no SavedModel is exported as one. model_name: as clients will call it. base_path: the
      version goes to base_path/model_name/version. options: Options.
    Returns: Publication. Raises: UsageError; CheckFailed where evidence, target or warm-up refuse it; TftrtError, OSError. Nothing is then
      published, and what was there is as it was.
    """
    start = time.monotonic()
    options, source = options or Options(), check(model)
    base = _checked(source.path, model_name, base_path, options)
    with opened(source, options.log_file) as folder:
        done = _published(source, folder, base, model_name, options, start)
    return done


def _published(
    source: Source, model: str, base: pathlib.Path, model_name: str, options: Options, start: float
) -> Publication:
    """Args: source: as the user named it. model: the SavedModel behind it. base: the directory of the model's versions. start: of it all,
    of time.monotonic."""
    here = server_target.machine()
    target = server_target.resolve(options.target, options.compute_capability, here)
    with jobs.process(env={"CUDA_VISIBLE_DEVICES": "-1"}) as process, scratch.folder("publish") as folder:
        progress.say("reading the model")
        facts = process.call(model_facts.read, str(model)).result
        progress.say("computing the digest")
        digest = files.digest(model)
        judged = _judged(model, facts, digest, options)
        flown = _flown(model, facts, target, options)
        planned = _planned(model, facts, options, folder)
        with placing.staged(base) as stage:
            placing.copy(model, stage.folder, {_RECORD} | (set() if _kept(model, options) else {warmup_requests.FILE}))
            if files.digest(stage.folder) != digest:
                raise errors.TftrtError(f"{source} changed while it was copied", "publish it when nothing writes to it")
            warm_up = (
                _warm_up(stage.folder, model_name, facts, planned, process, folder, options, here)
                if options.warm_up
                else None
            )
            notes = (
                *_evidence_notes(judged, facts),
                *flown.notes,
                *_warm_up_notes(planned, warm_up),
                *_batching_notes(stage.folder, facts, process, options.requests.batching),
            )
            done = Publication(
                model=str(pathlib.Path(source).absolute()),
                model_name=model_name,
                version=0,
                base_path=str(base),
                path="",
                digest=digest,
                target=target,
                tftrt=facts.converted,
                engines=len(facts.seen.engines),
                engine_files=len(facts.assets),
                evidence=judged,
                findings=facts.seen.findings,
                warm_up=warm_up,
                notes=notes,
                command=options.command,
                seconds=0.0,
            )

            def complete(number: int) -> None:
                nonlocal done
                done = dataclasses.replace(
                    done, version=number, path=str(base / str(number)), seconds=time.monotonic() - start
                )
                passport.write(stage.folder, passport.PUBLISH, done.to_dict())
                placing.flush_folder(passport.folder(stage.folder))
                placing.flush_folder(passport.folder(stage.folder).parent)

            stage.place(options.version, options.allow_older_version, complete)
    return done


def _checked(model: str | pathlib.Path, model_name: str, base_path: str, options: Options) -> pathlib.Path:
    """Check everything that needs no work. Returns: the directory of the model's versions."""
    if not _NAME.fullmatch(model_name) or model_name in (".", ".."):
        raise errors.UsageError(
            f"--model_name={model_name!r}: a request cannot name that", "use letters, digits, - and _"
        )
    base = base_paths.of(model, model_name, base_path, "the base path")
    if options.version is not None:
        version_directories.check(base, options.version, options.allow_older_version)
    if _kept(model, options) and options.requests != warmup_requests.Options():
        raise errors.UsageError(
            "the model brings its own warm-up file, so that flags for a new one have no effect",
            "add --replace_warmup to make a new one, or leave those flags out",
        )
    return base


def _judged(model: str | pathlib.Path, facts: Facts, digest: str, options: Options) -> verification_check.Evidence:
    names = [signature.name for signature in facts.seen.signatures]
    judged = verification_check.judge(model, facts.converted, facts.seen.verification, digest, names)
    if options.unverified:
        return judged
    if judged.needed and not judged.valid:
        raise errors.CheckFailed(
            f"not published: {judged.problem}", f"{judged.mend}; or publish all the same with --unverified"
        )
    if facts.converted and facts.seen.findings:
        first = facts.seen.findings[0]
        raise errors.CheckFailed(
            f"not published: {first.about}: {first.text}",
            f"{first.mend or 'see `tftrt inspect --check`'}; or publish all the same with --unverified",
        )
    return judged


def _flown(
    model: str | pathlib.Path, facts: Facts, target: server_target.Target, options: Options
) -> target_preflight.Preflight:
    flown = target_preflight.check(facts, target, model, options.server)
    if flown.obstacles:
        raise errors.CheckFailed(f"not published for {target.name}: {flown.obstacles[0].text}", flown.obstacles[0].mend)
    return flown


def _kept(model: str | pathlib.Path, options: Options) -> bool:
    """Whether the model's own warm-up file is published with it."""
    return options.warm_up and not options.replace_warmup and warmup_requests.path(model).is_file()


def _planned(model: str | pathlib.Path, facts: Facts, options: Options, folder: str) -> warmup_requests.Plan | None:
    """The warmup.Plan, or None if there is no file to make."""
    if not options.warm_up:
        return None
    if _kept(model, options):
        return None
    return warmup_requests.plan(facts, options.requests, pathlib.Path(folder) / "user")


def _warm_up(
    stage: pathlib.Path,
    model_name: str,
    facts: Facts,
    planned: warmup_requests.Plan | None,
    process: jobs.Process,
    folder: str,
    options: Options,
    here: server_target.Machine,
) -> WarmUp | None:
    """Write the file if one has to be made, read it back, run it. Returns: WarmUp, or None if no signature can be warmed up."""
    from tftrt_tools.models.execution import run

    _check_can_try(facts, here)
    path = warmup_requests.path(stage)
    sources: dict[str, int] = {}
    if planned is not None:
        if not planned.requests:
            return None
        saved = run.save_calls([request.call for request in planned.requests], folder + "/requests")
        progress.say("writing the warm-up")
        process.call(warmup_file.write, warmup_file.ToWrite(path=str(path), model_name=model_name, calls=tuple(saved)))
        for planned_request in planned.requests:
            sources[planned_request.source] = sources.get(planned_request.source, 0) + 1
    progress.say("reading the warm-up back")
    calls = process.call(
        warmup_file.read, warmup_file.ToRead(path=str(path), model=str(stage), folder=folder + "/replay")
    ).result
    replayed = replay_check.replay(stage, calls, _foreign(facts, here), options.log_file)
    return WarmUp(planned is None, sources, path.stat().st_size, replayed)


def _check_can_try(facts: Facts, here: server_target.Machine) -> None:
    """Refuse a warm-up that this machine cannot run, whatever its requests."""
    mend = "publish it where it can run, or without warm-up: --nowarmup"
    if facts.unknown_ops and not op_libraries.named():
        raise errors.TftrtError(
            f"the warm-up cannot be tried here: this TensorFlow has no op {facts.unknown_ops[0]}",
            f"name the library that has it with --op_library=FILE.so; else {mend}",
        )
    if here.compute_capabilities and not _foreign(facts, here):
        return
    lost = [engine.name for engine in facts.seen.engines if not engine.native_segment]
    if lost:
        raise errors.TftrtError(
            f"the warm-up cannot be tried here: {lost[0]} has no native segment, and no GPU here runs its engine", mend
        )


def _foreign(facts: Facts, here: server_target.Machine) -> bool:
    """Whether this machine cannot load the model's engines: another TensorRT built them, or they are for another GPU."""
    mine = dataclasses.replace(server_target.resolve(server_target.LOCAL, "", here), name="here")
    return bool(facts.assets) and any(target_preflight.engine_obstacles(facts, mine))


def _batching_notes(
    stage: pathlib.Path, facts: Facts, process: jobs.Process, batching: BatchSizes | None
) -> Iterator[str]:
    refused = [
        line
        for signature in facts.seen.signatures
        for line in unbatched.of_signature(signature.name, signature.inputs, signature.outputs)
    ]
    if refused and batching is None:
        yield (
            f"{refused[0]}; a server with --enable_batching does not load a version whose warm-up makes such a call: publish with its "
            "--batching_parameters_file, which leaves it out, or serve without batching"
        )
    elif refused:
        yield refused[0]
    if batching is None or not facts.seen.engines:
        return
    (covered,) = process.call(engine_batch_sizes.read, [str(stage)]).result
    if covered.known:
        note = warmup_requests.uncovered(batching, covered.sizes, covered.reason)
        yield from [note] if note else []


def _evidence_notes(judged: verification_check.Evidence, facts: Facts) -> Iterator[str]:
    if not judged.needed and not judged.said:
        yield "this is no TF-TRT model: it was published without evidence"
        return
    if not judged.valid:
        yield f"NOT VERIFIED: {judged.problem}"
    yield from verification_check.of_engines(judged, (one.precision for one in facts.seen.engines))
    yield from passport.in_tensorflow(facts.seen.manifest)
    for finding in facts.seen.findings if facts.converted else ():
        yield f"{finding.about}: {finding.text}"


def _warm_up_notes(planned: warmup_requests.Plan | None, warm_up: WarmUp | None) -> Iterator[str]:
    yield from planned.notes if planned else ()
    if warm_up is None:
        yield "no warm-up: the first requests build engines and load kernels while others wait"
        return
    if not warm_up.replay.records:
        yield "the model's own warm-up file has no whole record, so that nothing is warmed up: --replace_warmup makes a new one"
    yield from warm_up.replay.misses
    if warm_up.replay.mode == "native segments":
        yield "the warm-up was run through TensorFlow here, without engines"
