"""The whole of `tftrt publish`: read, judge the evidence, hold the model against the target, copy, warm up, put in place. No TensorFlow
here."""

import dataclasses
import os
import pathlib
import re
import time

from tftrt_tools import child, errors, op_libraries, progress, scratch
from tftrt_tools.savedmodel import files, passport
from tftrt_tools.serving import evidence, placing, preflight, targets, versions, warmup, warmup_replay
from tftrt_tools.serving.model_facts import Facts

_RECORD = (files.PASSPORT / passport.PUBLISH).as_posix()
_NAME = re.compile(r"[^/:\s\x00-\x1f]+")


@dataclasses.dataclass(frozen=True)
class Options:
    """version: None for the next number. allow_older_version: accept one that is not the largest. target, compute_capability: as in
    targets.resolve. unverified: publish without valid evidence, and with findings. warm_up: write or keep a warm-up file; replace_warmup:
    not the model's own. requests: what to warm up with; server: what is known of it beside its target. command: text that repeats this
    run. log_file: where to keep TensorFlow's log of the warm-up."""

    version: int | None = None
    allow_older_version: bool = False
    target: str = targets.LOCAL
    compute_capability: str = ""
    unverified: bool = False
    warm_up: bool = True
    replace_warmup: bool = False
    requests: warmup.Options = warmup.Options()
    server: preflight.Options = preflight.Options()
    command: str = ""
    log_file: str | None = None


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """The warm-up file of a published version. kept: the model brought it along; sources: {"data" or "generated": records}, {} for a kept
    file; bytes: of the file; replay: warmup_replay.Replay."""

    kept: bool
    sources: dict
    bytes: int
    replay: warmup_replay.Replay

    def to_dict(self):
        return {"file": warmup.FILE, "kept": self.kept, "sources": self.sources, "bytes": self.bytes, "count": len(self.replay.records),
                **self.replay.to_dict()}


@dataclasses.dataclass(frozen=True)
class Publication:
    """A published version. base_path: the directory of the model, which a server is given; path: of the version; digest: of the model's
    files; engines: engine ops; engine_files: serialized engines; warm_up: WarmUp, or None; notes: what is worth knowing, a line each;
    seconds: wall time."""

    model: str
    model_name: str
    version: int
    base_path: str
    path: str
    digest: str
    target: targets.Target
    tftrt: bool
    engines: int
    engine_files: int
    evidence: evidence.Evidence
    findings: tuple
    warm_up: WarmUp | None
    notes: tuple
    command: str
    seconds: float
    stamp: dict = dataclasses.field(default_factory=passport.stamp)

    def to_dict(self):
        return {"kind": "publication", **self.stamp, "model": self.model, "model_name": self.model_name, "version": self.version,
                "base_path": self.base_path, "path": self.path, "digest": self.digest, "target": self.target.to_dict(),
                "tftrt": self.tftrt, "engine_ops": self.engines, "engines": self.engine_files, "verified": self.evidence.valid,
                "evidence": self.evidence.to_dict(),
                "findings": [one.to_dict() for one in self.findings], "warmup": self.warm_up.to_dict() if self.warm_up else None,
                "notes": list(self.notes), "command": self.command, "seconds": round(self.seconds, 2)}


def publish(model, model_name, base_path, options=None):
    """Publish a SavedModel as a version for TensorFlow Serving.

    Args: model: directory. model_name: as clients will call it. base_path: the version goes to base_path/model_name/version.
      options: Options.
    Returns: Publication. Raises: UsageError; CheckFailed where evidence, target or warm-up refuse it; TftrtError, OSError. Nothing is then
      published, and what was there is as it was.
    """
    start = time.monotonic()
    options = options or Options()
    base = _checked(model, model_name, base_path, options)
    here = targets.machine()
    target = targets.resolve(options.target, options.compute_capability, here)
    with child.worker("tftrt_tools.serving.publish_steps:job", env={"CUDA_VISIBLE_DEVICES": "-1"}) as worker, \
            scratch.folder("publish") as folder:
        facts = Facts.from_dict(worker.call({"step": "read_model", "model": str(model)}).result)
        progress.say("computing the digest")
        digest = files.digest(model)
        judged = _judged(model, facts, digest, options)
        flown = _flown(model, facts, target, options)
        planned = _planned(model, facts, options, folder)
        with placing.staged(base) as stage:
            placing.copy(model, stage.folder, {_RECORD} | (set() if _kept(model, options) else {warmup.FILE}))
            if files.digest(stage.folder) != digest:
                raise errors.TftrtError(f"{model} changed while it was copied", "publish it when nothing writes to it")
            warm_up = _warm_up(stage.folder, model_name, facts, planned, worker, folder, options, here) if options.warm_up else None
            notes = (*_evidence_notes(judged, facts), *flown.notes, *_warm_up_notes(planned, warm_up),
                     *_batching_notes(stage.folder, facts, worker, options.requests.batching))
            done = Publication(
                str(pathlib.Path(model).absolute()), model_name, 0, str(base), "", digest, target, facts.converted, len(facts.seen.engines),
                len(facts.assets), judged, facts.seen.findings, warm_up, notes, options.command, 0.0)

            def complete(number):
                nonlocal done
                done = dataclasses.replace(done, version=number, path=str(base / str(number)), seconds=time.monotonic() - start)
                passport.write(stage.folder, passport.PUBLISH, done.to_dict())
                placing.flush_folder(passport.folder(stage.folder))
                placing.flush_folder(passport.folder(stage.folder).parent)

            stage.place(options.version, options.allow_older_version, complete)
    return done


def _checked(model, model_name, base_path, options):
    """What can be refused at once. Returns: the directory of the model's versions."""
    files.check(model)
    if not _NAME.fullmatch(model_name) or model_name in (".", ".."):
        raise errors.UsageError(f"--model_name={model_name!r}: a request cannot name that", "use letters, digits, - and _")
    if "://" in base_path:
        raise errors.UsageError(f"--base_path={base_path} is no local directory", "mount the storage, or copy a version that was published "
                                "to a local one")
    base = pathlib.Path(os.path.abspath(base_path)) / model_name
    source, real = pathlib.Path(os.path.realpath(model)), pathlib.Path(os.path.realpath(base))
    if source == real or source in real.parents:
        raise errors.UsageError(f"the base path {base} lies inside the model {model}", "choose another --base_path")
    for folder in (base, *base.parents):
        if folder.exists():
            if not folder.is_dir():
                raise errors.UsageError(f"{folder} is no directory", "choose another --base_path")
            break
    if options.version is not None:
        versions.check(base, options.version, options.allow_older_version)
    if _kept(model, options) and options.requests != warmup.Options():
        raise errors.UsageError("the model brings its own warm-up file, so that flags for a new one have no effect",
                                "add --replace_warmup to make a new one, or leave those flags out")
    return base


def _judged(model, facts, digest, options):
    names = [one.name for one in facts.seen.signatures]
    judged = evidence.judge(model, facts.converted, facts.seen.verification, digest, names)
    if options.unverified:
        return judged
    if judged.needed and not judged.valid:
        raise errors.CheckFailed(f"not published: {judged.problem}", f"{judged.mend}; or publish all the same with --unverified")
    if facts.converted and facts.seen.findings:
        first = facts.seen.findings[0]
        raise errors.CheckFailed(f"not published: {first.about}: {first.text}",
                                 f"{first.mend or 'see `tftrt inspect --check`'}; or publish all the same with --unverified")
    return judged


def _flown(model, facts, target, options):
    flown = preflight.check(facts, target, model, options.server)
    if flown.obstacles:
        raise errors.CheckFailed(f"not published for {target.name}: {flown.obstacles[0].text}", flown.obstacles[0].mend)
    return flown


def _kept(model, options):
    """Whether the model's own warm-up file goes along."""
    return options.warm_up and not options.replace_warmup and warmup.path(model).is_file()


def _planned(model, facts, options, folder):
    """The warmup.Plan, or None where there is nothing to make."""
    if not options.warm_up:
        return None
    if _kept(model, options):
        return None
    return warmup.plan(facts, options.requests, pathlib.Path(folder) / "user")


def _warm_up(stage, model_name, facts, planned, worker, folder, options, here):
    """Write the file where it is to be made, read it back, run it. Returns: WarmUp, or None where no signature can be warmed."""
    from tftrt_tools.execution import run

    _check_can_try(facts, here)
    path, sources = warmup.path(stage), {}
    if planned is not None:
        if not planned.requests:
            return None
        saved = run.save_calls([one.call for one in planned.requests], folder + "/requests")
        worker.call({"step": "write_warmup", "path": str(path), "model_name": model_name, "calls": saved})
        for one in planned.requests:
            sources[one.source] = sources.get(one.source, 0) + 1
    calls = worker.call({"step": "read_warmup", "path": str(path), "model": str(stage), "folder": folder + "/replay"}).result
    replayed = warmup_replay.replay(stage, calls, _foreign(facts, here), options.log_file)
    return WarmUp(planned is None, sources, path.stat().st_size, replayed)


def _check_can_try(facts, here):
    """Refuse a warm-up that nothing here can run, whatever it holds."""
    mend = "publish it where it can run, or without warm-up: --nowarmup"
    if facts.unknown_ops and not op_libraries.named():
        raise errors.TftrtError(f"the warm-up cannot be tried here: this TensorFlow has no op {facts.unknown_ops[0]}",
                                f"name the library that has it with --op_library=FILE.so; else {mend}")
    if here.compute_capabilities and not _foreign(facts, here):
        return
    lost = [one.name for one in facts.seen.engines if not one.native_segment]
    if lost:
        raise errors.TftrtError(f"the warm-up cannot be tried here: {lost[0]} has no native segment, and no GPU here runs its engine", mend)


def _foreign(facts, here):
    """Whether this machine cannot load the model's engines: another TensorRT built them, or they are for another GPU."""
    mine = dataclasses.replace(targets.resolve(targets.LOCAL, "", here), name="here")
    return bool(facts.assets) and any(preflight.engine_obstacles(facts, mine))


def _batching_notes(stage, facts, worker, batching):
    if batching is None or not facts.seen.engines:
        return
    covered = worker.call({"step": "covered", "model": str(stage)}).result
    if covered["known"]:
        note = warmup.uncovered(batching, covered["sizes"], covered["reason"])
        yield from [note] if note else []


def _evidence_notes(judged, facts):
    if not facts.converted:
        yield "this is no TF-TRT model: it was published without evidence"
        return
    if not judged.valid:
        yield f"NOT VERIFIED: {judged.problem}"
    elif judged.said and judged.said.get("mode") != "gpu" and facts.engine_ops:
        yield "verified without a GPU: nothing is known of the engines' arithmetic"
    for one in facts.seen.findings:
        yield f"{one.about}: {one.text}"


def _warm_up_notes(planned, warm_up):
    yield from planned.notes if planned else ()
    if warm_up is None:
        yield "no warm-up: the first requests build engines and load kernels while others wait"
        return
    yield from warm_up.replay.misses
    if warm_up.replay.mode == "native segments":
        yield "the warm-up was run through TensorFlow here, without engines"
