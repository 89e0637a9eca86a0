"""`tftrt bench --tune_batching`: what the engines serve, the search, the comparison at its end, and the winner's file."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.stack import fingerprint
from tftrt_tools.models.kinds import table
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.configuration import batching_file, engine_batch_sizes
from tftrt_tools.servers.serving.configuration.batching_file import Settings
from tftrt_tools.servers.serving.configuration.engine_batch_sizes import Covered
from tftrt_tools.studies.batching import journal, measure, search, space, trial, turns
from tftrt_tools.studies.batching.options import Options
from tftrt_tools.studies.batching.tuned import Tuned
from tftrt_tools.studies.bench import live, subject, summary, workload

PARAMETERS = "batching_parameters.txt"
# Flags that do not change what a trial measures.
_FREE = ("tune_batching", "work_dir", "max_trials", "max_minutes")


def tune(options: Options, view: live.Lines) -> Tuned:
    """Search.

    Args: options: Options. view: live.Lines. Returns: Tuned, with the winner's parameters written; `winner` is None where nothing kept the
      promise. Raises: UsageError; TftrtError where the server without batching cannot be measured; errors.Interrupted.
    """
    files.check(options.model)
    digest, machine = table.kind(options.model).digest(options.model), fingerprint.fingerprint()
    flags = {name: value for name, value in options.load.given.items() if name not in _FREE}
    of = {"model": digest, "machine": machine.digest, "flags": flags}
    kept = journal.Journal(options.work_dir, of, options.renamed)
    rows = options.load.batch_sizes[0] if options.load.batch_sizes else 1
    _check_inputs(options)
    covered = _covered(options.model)
    tried = space.space(covered.sizes, rows, options.bound.limit, len(os.sched_getaffinity(0)))
    result = search.search(
        lambda *wanted: _trial(options, view, kept, *wanted), tried, options.budget, options.load.resolution
    )
    best, compared = result.best, None
    if best and best.settings and best.rate:
        compared = kept.turns(best.settings, best.rate)
        if compared is None:
            compared = turns.turns(options, best.settings, best.rate, result.trials[0].rate or 0.0, view)
            kept.put_turns(best.settings, compared)
    done = Tuned(
        stamp=passport.stamp(),
        model=options.model,
        model_digest=digest,
        machine=machine,
        backend=options.backend,
        settings=options.load.given,
        goal=options.load.goal.text if options.load.goal else "",
        percentile=summary.name(options.bound.percentile or 0.0),
        sizes=batching_file.text_of(covered.sizes),
        source=covered.reason,
        trials=result.trials,
        ended=result.ended,
        turns=compared,
        files={"journal": str(kept.path)},
    )
    parameters = _written(options, best.settings, covered) if best and best.settings and done.winner else {}
    return dataclasses.replace(done, files={**done.files, **parameters})


def _trial(
    options: Options,
    view: live.Lines,
    kept: journal.Journal,
    number: int,
    settings: Settings | None,
    floor: float | None,
) -> trial.Trial:
    """A finished Trial of the journal, or a new one."""
    first = f", which first has to keep {floor:g}/s" if floor else ""
    earlier = kept.get(settings, floor)
    view.note(f"trial {number}: {trial.text(settings)}{' (from the journal)' if earlier else first}")
    if earlier:
        return dataclasses.replace(earlier, number=number)
    measured = measure.trial(options, view, number, settings, floor)
    kept.put(measured)
    if measured.failure:
        view.note(f"trial {number} failed: {measured.failure}")
    return measured


def _check_inputs(options: Options) -> None:
    """Refuse a signature whose requests the server cannot join. Raises: UsageError."""
    with subject.on_disk({"tune_batching": options.model}) as named:
        signatures: Mapping[str, Any] = subject.of_files(named["tune_batching"]).signatures
    name = workload.choose_signature(signatures, options.load.signature_name)
    inputs: tuple[InputSpec, ...] = signatures[name][0]
    for spec in inputs:
        if spec.shape is not None and (not spec.shape or spec.shape[0] is not None):
            what = "has no batch dimension" if not spec.shape else f"takes batches of {spec.shape[0]} only"
            raise errors.UsageError(
                f"input {spec.name!r} of {name!r} {what}: the server cannot join requests",
                "export the model with a batch dimension that is not fixed, or ask another signature "
                "(--signature_keys)",
            )


def _covered(model: str) -> Covered:
    """What batch sizes the engines serve. Raises: UsageError where the files do not tell."""
    (sizes,) = engine_batch_sizes.covered([model])
    if not sizes.known:
        raise errors.UsageError(
            f"which batch sizes the engines of {model} serve is not known: {sizes.reason}",
            "build its engines (`tftrt build`), or publish it with warm-up requests (`tftrt publish`)",
        )
    return sizes


def _written(options: Options, settings: Settings, covered: Covered) -> dict[str, str]:
    """{what: path} of the winner's file, which is written here."""
    path = options.work_dir / PARAMETERS
    whole_file.write_text(path, batching_file.text(settings, covered.sizes))
    return {"parameters": str(path)}
