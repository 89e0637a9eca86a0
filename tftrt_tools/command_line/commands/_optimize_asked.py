"""What `tftrt optimize` is asked for, from its flags: all that can never work is told at once, before the first step."""

from __future__ import annotations

import pathlib
import re
import sys
from typing import TYPE_CHECKING, cast

from tftrt_tools.base import errors
from tftrt_tools.base.choices import PRECISIONS, Precision
from tftrt_tools.base.files import whole_file
from tftrt_tools.base.process import interpreter
from tftrt_tools.command_line.commands import _flags, _fleet, _source_flags
from tftrt_tools.command_line.commands import convert as convert_command
from tftrt_tools.command_line.commands import verify as verify_command
from tftrt_tools.models.savedmodel import files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from absl import flags

    from tftrt_tools.accuracy.goal import Goal
    from tftrt_tools.models.savedmodel.describe import Description
    from tftrt_tools.studies.optimizing.asked import Asked
    from tftrt_tools.studies.optimizing.known import Known

# Flags of `tune` with the same meaning here.
OF_TUNE = ("accuracy_output", "objective_shape", "server", "on")
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
# Rows that are looked at before the first step, where all of them would take long to read.
_FIRST_ROWS = 32


def asked(values: flags.FlagValues, model: str, outputs: Sequence[str]) -> Asked:
    """The Asked. Args: outputs: names of flags with files to write.

    Raises: UsageError with everything that is known to be wrong.
    """
    for name, what in (
        ("data", "the rows to score"),
        ("accuracy", "what the model has to keep"),
        ("output", "the directory to make"),
    ):
        if not values[name].value:
            raise errors.UsageError(f"--{name} is missing: {what}", "`tftrt optimize --help` shows examples")
    _check_model(values, model)
    from tftrt_tools.studies.optimizing import known
    from tftrt_tools.studies.optimizing.asked import Asked

    wrong = errors.Wrong()
    wrong.passes(lambda: _flags.check_places(values, outputs))
    wrong.passes(lambda: _fleet.read_local(values, "optimize"))
    metric = wrong.result(lambda: _metric(_checked_goal(values)), "")
    wrong.passes(lambda: _check_sizes(values))
    given = Asked(
        model=model,
        data=values.data,
        labels=values.labels,
        calibration_data=values.calibration_data,
        goal=values.accuracy,
        shapes=values.shapes,
        batch_sizes=wrong.result(lambda: _batch_sizes(values.batch_size), ()),
        precisions=wrong.result(lambda: _precisions(values), ()),
        slo=values.slo,
        rate=values.rate,
        repeat=values.repeat,
        output=values.output,
        publish=values.publish,
        server=values.server or "",
        work_dir=values.work_dir or f"optimize-{pathlib.Path(model).absolute().name}",
        words={name: tuple(_flags.words(values[name])) for name in repeated() if values[name].present},
    )
    wrong.passes(lambda: _check_promise(given))
    wrong.passes(lambda: _check_publish(given))
    wrong.passes(lambda: _check_settings(given.given(known.GRAPH)))
    if wrong.passes(lambda: _check_work_dir(given)):
        wrong.passes(lambda: _check_output(given, values))
    _check_rows(given, values, metric, wrong)
    wrong.check()
    return given


def _check_model(values: flags.FlagValues, model: str) -> None:
    """Refuse what is no model, or a converted one. Raises: UsageError."""
    from tftrt_tools.models.kinds import opening
    from tftrt_tools.models.savedmodel import passport
    from tftrt_tools.studies import backends

    if made_by := backends.of_made(model):
        raise errors.UsageError(
            f"{model} is a converted model itself, which {made_by.name} made",
            "optimize the original"
            + ("; its manifest in assets.extra/tftrt names it" if opening.document(model, passport.MANIFEST) else ""),
        )
    backends.default().takes(_source_flags.read(values, model))


def _check_settings(words: Sequence[str]) -> None:
    """Refuse flags of the graph that `convert` would refuse. Raises: UsageError."""
    values, _ = _flags.parse("convert", convert_command, words)
    assert values is not None
    convert_command.read_settings(values)


def _check_sizes(values: flags.FlagValues) -> None:
    from tftrt_tools.models.savedmodel import shapes as shape_grammar

    if values.shapes:
        shape_grammar.parse(values.shapes)
    if values.objective_shape:
        from tftrt_tools.studies.tuning import tune

        tune.check_objective(values.objective_shape, values.shapes)
    if values.shapes and values["batch_size"].present:
        raise errors.UsageError("--shapes and --batch_size exclude each other", "give one of them")
    if not 0 < values.max_minutes < float("inf"):
        raise errors.UsageError(f"--max_minutes={values.max_minutes:g} is no budget", "give minutes above 0")


# ---- rows and labels, against the model


def _check_rows(asked: Asked, values: flags.FlagValues, metric: str, wrong: errors.Wrong) -> None:
    """Look for the rows and the labels, and hold what is there against what the model takes. A model that is no SavedModel has to be
    exported first, so that its steps look at that. Args: metric: as of _check_labels."""
    from tftrt_tools.models.inputs import find

    data = wrong.passes(lambda: find.find(values.data, "--data"))
    labels = wrong.passes(lambda: _check_label_file(values)) and bool(values.labels)
    calibration = wrong.passes(lambda: values.calibration_data and find.find(values.calibration_data))
    if not files.is_saved_model(asked.model):
        return
    from tftrt_tools.models.savedmodel import describe

    (seen,) = describe.describe(asked.model)
    if not wrong.passes(lambda: _check_signatures(seen, values)):
        return
    freeze = values.freeze or _of_training(seen)
    if data:
        wrong.passes(lambda: _check_inputs(asked, asked.data, freeze, labels, metric))
    if calibration and asked.calibration_data:
        wrong.passes(lambda: _check_inputs(asked, asked.calibration_data, freeze, False, metric))


def _check_label_file(values: flags.FlagValues) -> None:
    """Refuse labels that cannot be read. Raises: UsageError."""
    from tftrt_tools.accuracy import labels
    from tftrt_tools.models.inputs import find
    from tftrt_tools.models.inputs import labels as label_files

    if values.labels in ("", label_files.FOLDERS):
        return
    try:
        found = find.find(values.data, "--data")
    except errors.UsageError:  # which is told apart
        found = find.Found("", ())
    path = pathlib.Path(values.labels)
    if found.by_file and path.is_file() and path.suffix.lower() in (".csv", ".tsv"):
        return  # a table beside files is read by the files' names, which are not known yet
    read = labels.read(values.labels, None, values.label_column, values.classes)
    if found.by_file and not read.boxes and len(read.array) != len(found.files):
        raise errors.UsageError(
            f"--labels={values.labels} holds {len(read.array)} values, and {values.data} {len(found.files)} rows",
            "give one for each row, in their order",
        )


def _check_signatures(seen: Description, values: flags.FlagValues) -> None:
    """Refuse names and sizes that the model does not have. Raises: UsageError."""
    from tftrt_tools.models.inputs import drawing
    from tftrt_tools.models.savedmodel import frozen_inputs, signatures
    from tftrt_tools.models.savedmodel import shapes as shape_grammar
    from tftrt_tools.studies.tuning import tune

    keys = list(filter(None, values.signature_keys))
    walked = signatures.Once.of(signatures.chosen(list(seen.inputs), keys), seen.same)
    specs = {name: seen.inputs[name] for name in walked.names}
    wrong = errors.Wrong()
    wrong.passes(lambda: frozen_inputs.check(values.freeze, walked.with_twins(specs), walked.twins))
    wrong.passes(
        lambda: tune.check_output(
            values.accuracy_output, {name: [spec.name for spec in seen.outputs[name]] for name in specs}
        )
    )
    if values.shapes:
        declared = lambda: shape_grammar.calls(shape_grammar.parse(values.shapes), walked.with_twins(specs))  # noqa: E731
        wrong.passes(declared)
    elif len(specs) == 1:  # of several, some may not be converted
        ((name, inputs),) = specs.items()
        wrong.passes(lambda: drawing.shapes_of_batch(name, inputs, 1, "give {flag}"))
    wrong.check()


def _of_training(seen: Description) -> str:
    """Text of --freeze for inputs that say whether the model is trained: data may leave them out."""
    from tftrt_tools.studies.optimizing import mends

    names = {spec.name for specs in seen.inputs.values() for spec in specs if mends.of_training(spec)}
    return ";".join(f"{name}:false" for name in sorted(names))


def _check_inputs(asked: Asked, source: str, freeze: str, labels: bool, metric: str) -> None:
    """Refuse rows, and labels, that no signature takes. Of files and records the first ones are read. Raises: UsageError."""
    from tftrt_tools.models.inputs import find
    from tftrt_tools.studies.optimizing import known

    found = find.find(source)
    whole = found.kind in ("arrays", "tables", "texts") and not found.by_file
    words = [f"--data={source}", *asked.given((*known.SOURCE, *known.JUDGING, "signature_keys"))]
    words += asked.given(known.PICTURES) if found.kind == "images" else []
    words += asked.given(("data_rows",)) if whole else [f"--data_rows={_FIRST_ROWS}"]
    if labels and whole:
        words += [f"--labels={asked.labels}", *asked.given(("label_column", "classes"))]
        words += [word.replace("--accuracy_output", "--label_output") for word in asked.given(("accuracy_output",))]
    try:
        _check_labels(words, asked.model, freeze, (), metric)
    except errors.UsageError as error:
        if source == asked.data:
            raise
        raise errors.UsageError(f"--calibration_data={source}: {error.cause}", error.mend) from None


def check_labels(known: Known) -> None:
    """Refuse labels that `verify` would refuse once the model is made. Raises: UsageError."""
    from tftrt_tools.accuracy import goal as goals
    from tftrt_tools.models.inputs import calls
    from tftrt_tools.studies.optimizing import steps

    freeze = ";".join(word.partition("=")[2] for word in steps.graph_words(known) if word.startswith("--freeze="))
    sizes = calls.batch_sizes(call for listed in known.calls.values() for call in listed) if known.gpu else ()
    metric = _metric(goals.parse(known.asked.goal, where="--accuracy"))
    _check_labels(steps.judging_words(known), known.asked.model, freeze, sizes, metric)


def _check_labels(words: Sequence[str], model: str, freeze: str, sizes: Sequence[int], metric: str) -> None:
    """Args: metric: of the goal, which labels have to have; "" for the user's own. Raises: UsageError."""
    values, _ = _flags.parse("verify", verify_command, words)
    assert values is not None
    try:
        verify_command.check_labels(values, model, freeze, sizes, metric)
    except errors.UsageError as error:
        raise errors.UsageError(error.cause, error.mend.replace("--label_output", "--accuracy_output")) from None


# ---- the other flags


def _metric(goal: Goal) -> str:
    return "" if goal.is_function else goal.metric


def _checked_goal(values: flags.FlagValues) -> Goal:
    """The goal, if a step can look at it. Raises: UsageError."""
    import importlib.util

    from tftrt_tools.accuracy import goal as goals
    from tftrt_tools.accuracy import metrics

    goal: Goal = goals.parse(values.accuracy, where="--accuracy")
    labels = values.labels

    if goal.is_function:
        name = goal.metric.partition(":")[0]
        places = sys.path[:]
        try:
            interpreter.look_here(name)
            there = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            there = False
        finally:
            sys.path[:] = places
        if not there:
            raise errors.UsageError(
                f"--accuracy={goal.metric}: there is no module {name} here", "the module must be importable from here"
            )
    elif not metrics.METRICS[goal.metric].kinds and not labels:
        raise errors.UsageError(
            f"--accuracy: {goal.metric} compares answers with --labels alone", "give --labels, or another metric"
        )
    elif goal.kind == "percent-max-degradation" and not labels:
        goal.bound(metrics.METRICS[goal.metric].perfect)
    return goal


def repeated() -> tuple[str, ...]:
    """Names of the flags that the steps repeat."""
    from tftrt_tools.studies.optimizing import known

    return (
        *known.SOURCE,
        *known.PICTURES,
        *known.CALIBRATION,
        *known.GRAPH,
        *known.JUDGING,
        *known.CACHE,
        *(name for name in OF_TUNE if name != "server"),
        "data_rows",
        "label_column",
        "classes",
    )


def _batch_sizes(given: Sequence[str]) -> tuple[int, ...]:
    wrong = next((one for one in given if not one.strip().isdecimal() or int(one) < 1), None)
    if wrong is not None or not given:
        raise errors.UsageError(
            f"--batch_size: {wrong!r} is no batch size" if given else "--batch_size is empty", "write such as 1,32"
        )
    return tuple(dict.fromkeys(int(one) for one in given))


def _precisions(values: flags.FlagValues) -> tuple[Precision, ...]:
    found = tuple(one.strip().upper() for one in values.precision if one.strip())
    unknown = next((one for one in found if one not in PRECISIONS), "nothing" if not found else "")
    if unknown:
        raise errors.UsageError(f"--precision: {unknown} is no precision", "known: " + ", ".join(PRECISIONS))
    if "INT8" not in found and values.calibration_data:
        raise errors.UsageError(
            "--calibration_data has no effect where INT8 is not asked for", "leave it out, or add INT8 to --precision"
        )
    return cast("tuple[Precision, ...]", found)


def _check_publish(asked: Asked) -> None:
    """Raises: UsageError."""
    if not asked.publish:
        return
    from tftrt_tools.servers.serving.publishing import base_path

    place = pathlib.PurePath(asked.publish)
    if len(place.parts) < 2 or not _NAME.fullmatch(place.name):  # noqa: PLR2004
        raise errors.UsageError(f"--publish={asked.publish} is no BASE_PATH/MODEL_NAME", "write such as models/digits")
    for model in (asked.model, asked.output):
        try:
            base_path.of(model, place.name, str(place.parent), "the place to publish to,")
        except errors.UsageError as error:
            raise errors.UsageError(f"--publish={asked.publish}: {error.cause}", "choose another --publish") from None


def _check_promise(asked: Asked) -> None:
    """Raises: UsageError."""
    from tftrt_tools.studies.bench import goal

    promise = goal.parse(asked.slo)
    if promise is None and asked.rate:
        raise errors.UsageError(
            "--rate says nothing without --slo", "add the SLO, such as --slo='p99<20ms', or leave it out"
        )
    if promise is not None and asked.server == "triton":
        raise errors.UsageError(
            "--slo is looked at under TensorFlow Serving alone, and --server=triton is given",
            "leave --slo out; `tftrt bench triton://HOST:PORT --slo=…` asks the server that runs",
        )
    if promise is not None and not promise.percentiles:
        raise errors.UsageError(f"--slo={asked.slo} has no percentile", "such as --slo='p99<20ms'")


def _check_work_dir(asked: Asked) -> None:
    """Raises: UsageError."""
    whole_file.check_folder(asked.work_dir, "--work_dir")
    work, output, model = (pathlib.Path(path).resolve() for path in (asked.work_dir, asked.output, asked.model))
    if work == output:
        raise errors.UsageError(f"--work_dir and --output are both {asked.output}", "give each a folder of its own")
    if model == work or model in work.parents:
        raise errors.UsageError(f"--work_dir={asked.work_dir} lies inside the model", "choose another --work_dir")


def _check_output(asked: Asked, values: flags.FlagValues) -> None:
    """Refuse to replace what an earlier run of this very optimization did not make. Raises: UsageError."""
    from tftrt_tools.models.savedmodel import staging
    from tftrt_tools.studies.optimizing.journal import Journal

    mine = (
        pathlib.Path(asked.output).exists()
        and pathlib.Path(asked.work_dir).is_dir()
        and Journal(asked.work_dir).made(asked.output)
    )
    staging.check_target(asked.output, values.overwrite or mine, [asked.model])
