"""The order of `tftrt optimize`, as data: the words of each step's commands, by what is known when its turn comes."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies.optimizing import gave
from tftrt_tools.studies.optimizing import known as knowledge
from tftrt_tools.studies.optimizing.known import CACHE, GRAPH, JUDGING, SOURCE, Known
from tftrt_tools.studies.optimizing.step import Command, LeftOut, Step
from tftrt_tools.studies.tuning.journal import Journal

Commands = Sequence[Command] | LeftOut

# Files of the work folder.
TABLE, TUNING, FLAGS, CONVERTED, INT8 = "int8.calibration.json", "tune", "best.flags", "converted", "int8"
_NOT_RIGHT = "the model was not shown to be right"
# No batch is compared after so many: each takes minutes.
_MOST_BATCHES = 6
# A probe of a promised time has to last ten times as long; this is the default of `tftrt bench`.
_PROBE_SECONDS = 10.0


def graph_words(known: Known) -> list[str]:
    """The user's words about the graph, and the mends."""
    return [*known.asked.given(GRAPH), *known.mend_words]


def _doctor(known: Known) -> Commands:
    return [Command("doctor", ["doctor"])]


def _inspect(known: Known) -> Commands:
    able = known.machine.can("convert")
    if not able.can:
        raise errors.TftrtError(f"nothing can be converted here: {able.cause}", able.mend)
    return [Command("inspect", ["inspect", known.asked.model, *known.asked.given((*SOURCE, *GRAPH))])]


def _inspect_again(known: Known) -> Commands:
    known.calls  # noqa: B018 (sizes that are not known, or that the model refuses, end the run here, before anything that takes long)
    if not known.gpu and not known.mend_words:
        return LeftOut("inspect advises no flag")
    # With shapes engines have profiles, and TF-TRT takes other ops.
    shapes = [f"--shapes={known.shapes}"] if known.gpu else []
    return [
        Command(
            "inspect-mended", ["inspect", known.asked.model, *known.asked.given(SOURCE), *graph_words(known), *shapes]
        )
    ]


def _data(known: Known) -> Commands:
    asked = known.asked
    if asked.held_back and len(known.walked) > 1 and not asked.given(("signature_keys",)):
        names = [one.name for one in known.walked]
        raise errors.UsageError(
            f"{asked.model} has {len(names)} signatures that can be converted ({', '.join(names)}), and the rows of "
            "one are split into those that are scored and those that calibrate",
            f"--signature_keys={names[0]}, or another one",
        )
    if not asked.held_back:
        return LeftOut(
            "--calibration_data has rows of its own"
            if asked.calibration_data
            else "INT8 is not asked for: no row is held back"
        )
    scored, labels, held_back = (asked.path(name) for name in (knowledge.SCORED, knowledge.LABELS, knowledge.HELD_BACK))
    answers = (
        [f"--labels={asked.labels}", f"--output_labels={labels}", *asked.given(("label_column", "classes"))]
        if asked.labels
        else []
    )
    rows = asked.given(("data_rows",))
    words = [
        "data",
        asked.model,
        asked.data,
        f"--output={scored}",
        f"--output_calibration={held_back}",
        *answers,
        *rows,
        "--overwrite",
        *asked.given((*SOURCE, "signature_keys")),
        *known.pictures(asked.data),
    ]
    return [Command("data", words, [scored, held_back, *([labels] if answers else [])])]


def _calibrate(known: Known) -> Commands:
    if not known.calibration:
        return LeftOut("INT8 is not asked for")
    table = known.asked.path(TABLE)
    words = [
        "calibrate",
        known.asked.model,
        *known.calibration,
        "--compare_methods",
        f"--output={table}",
        "--overwrite",
        *known.asked.given(SOURCE),
        *graph_words(known),
        f"--shapes={known.shapes}",
    ]
    return [Command("calibrate", words, [table])]


def _simulate(known: Known) -> Commands:
    """INT8 without engines, and what `verify` simulates of it on the rows that are scored, with their labels."""
    asked = known.asked
    if known.gpu:
        return LeftOut("tune builds INT8 and scores it")
    if not known.done(knowledge.CALIBRATE):
        return LeftOut("INT8 has no ranges" if asked.int8 else "INT8 is not asked for")
    made, page = asked.path(INT8), asked.path("verify-int8.html")
    words = [
        "convert",
        asked.model,
        made,
        "--overwrite",
        "--precision=INT8",
        f"--calibration_table={asked.path(TABLE)}",
        *asked.given(SOURCE),
        *graph_words(known),
    ]
    return [
        Command(knowledge.INT8_MADE, words, [made]),
        Command(
            knowledge.INT8_VERIFIED, ["verify", asked.model, made, *judging_words(known), f"--html={page}"], [page]
        ),
    ]


def _sensitivity(known: Known) -> Commands:
    if known.gpu:
        return LeftOut("tune ranks the nodes where INT8 misses the goal")
    if not known.done(knowledge.CALIBRATE):
        return LeftOut("INT8 was not simulated")
    if not known.int8_misses:
        return LeftOut(
            f"INT8 keeps {'the goal' if known.int8_verification else f'{known.wanted_db:g} dB'}, as far as it is simulated"
        )
    words = [
        "sensitivity",
        known.asked.model,
        *known.data,
        f"--calibration_table={known.asked.path(TABLE)}",
        "--measure=simulate",
        *dict.fromkeys(("--use_dynamic_shape", *known.asked.given(SOURCE), *graph_words(known))),
        f"--html={known.asked.path('sensitivity.html')}",
    ]
    return [Command("sensitivity", words, [known.asked.path("sensitivity.html")])]


def _tune(known: Known) -> Commands:
    asked, page = known.asked, known.asked.path("tune.html")
    precisions = [one for one in asked.precisions if one != "INT8" or known.calibration]
    words = [
        "tune",
        asked.model,
        *known.data,
        *known.labels,
        f"--accuracy={asked.goal}",
        f"--shapes={known.shapes}",
        f"--precision={','.join(precisions)}",
        *asked.serving,
        *(known.calibration if "INT8" in precisions else ()),
        *asked.given((*SOURCE, "accuracy_output", "objective_shape", "on", *JUDGING, *CACHE)),
        *graph_words(known),
        f"--work_dir={asked.path(TUNING)}",
        f"--html={page}",
    ]
    return [Command("tune", list(dict.fromkeys(words)), [asked.path(f"{TUNING}/{FLAGS}"), page])]


def _tune_limits(known: Known, minutes: float) -> list[str]:
    """Half for new trials, as those of earlier runs count as well; the rest is for reading, for the one trial that has begun, and for the
    last comparison."""
    before = Journal(known.asked.path(TUNING)).seconds / 60
    return [f"--max_minutes={before + 0.5 * minutes:.1f}", f"--max_trial_minutes={0.3 * minutes:.1f}"]


def _tune_cut(document: Mapping[str, Any]) -> bool:
    return "--max_minutes" in str(document.get("ended", ""))


def _convert(known: Known) -> Commands:
    asked = known.asked
    place = asked.path(CONVERTED) if known.repeated else asked.output
    anew = ["--overwrite", *asked.given(CACHE)]
    flags = pathlib.Path(asked.path(f"{TUNING}/{FLAGS}"))
    if known.document(knowledge.TUNE) and flags.is_file():
        # The flags name the model, and a table that follows from the rows.
        inputs = [asked.model, *known.data, *known.calibration]
        return [Command("convert", ["convert", f"--flagfile={flags}", f"--output={place}", *anew], [place], inputs)]
    words = [
        "convert",
        asked.model,
        place,
        *anew,
        f"--precision={known.precision}",
        *asked.given(SOURCE),
        *graph_words(known),
        *([f"--shapes={known.shapes}"] if known.gpu else []),
    ]
    if known.precision == "INT8":
        words.append(f"--calibration_table={asked.path(TABLE)}")
    return [Command("convert", words, [place])]


def _build(known: Known) -> Commands:
    asked = known.asked
    if asked.repeat == 1:
        return LeftOut("one build is asked for (--repeat)")
    if known.plan_won:
        return LeftOut("builds of a plan are not compared")
    words = [
        "build",
        asked.path(CONVERTED),
        f"--shapes={known.shapes}",
        f"--repeat={asked.repeat}",
        f"--output={asked.output}",
        "--overwrite",
        *asked.given(("op_library",)),
    ]
    return [Command("build", words, [asked.output])]


def _repeat_limits(known: Known, minutes: float) -> list[str]:
    """The bound of each build."""
    return [f"--max_build_minutes={0.8 * minutes / known.asked.repeat:.1f}"]


def _build_limits(known: Known, minutes: float) -> list[str]:
    return [f"--max_build_minutes={0.8 * minutes:.1f}"] if known.gpu else []


def _build_cut(document: Mapping[str, Any]) -> bool:
    return any(
        passport.OUT_OF_TIME in one["reason"]
        for signature in document.get("signatures", ())
        for one in signature.get("unbuilt", ())
    )


def judging_words(known: Known) -> list[str]:
    """The words by which `verify` reads rows and labels and judges answers."""
    about = [
        word.replace("--accuracy_output", "--label_output")
        for word in known.asked.given(("accuracy_output",))
        if known.labels
    ]
    return [*known.data, *known.labels, *about, *known.asked.given((*SOURCE, *JUDGING))]


def _verify(known: Known) -> Commands:
    asked, page = known.asked, known.asked.path("verify.html")
    words = ["verify", asked.model, asked.output, *judging_words(known), f"--html={page}"]
    return [Command("verify", words, [page, str(passport.folder(asked.output) / passport.VERIFY)])]


def _regress(known: Known) -> Commands:
    asked = known.asked
    if not known.right:
        return LeftOut(_NOT_RIGHT)
    signature = next(iter(known.calls))
    by_batch = {
        max((shape[0] for shape in call.values() if shape), default=1): call
        for call in reversed(known.calls[signature])
    }
    found = []
    for batch, call in list(reversed(by_batch.items()))[:_MOST_BATCHES]:
        name = f"regress-batch-{batch}"
        page = asked.path(f"{name}.html")
        words = [
            "regress",
            "--in_process",
            f"--native={asked.model}",
            f"--candidate={asked.output}",
            f"--signature_keys={signature}",
            *_rows(known, signature, batch, call),
            "--no_engine_fallback",
            *asked.given((*SOURCE, *JUDGING)),
            f"--html={page}",
        ]
        found.append(Command(name, words, [page]))
    return found


def _rows(known: Known, signature: str, batch: int, call: shape_grammar.Call) -> list[str]:
    """The words of the rows of requests; drawn ones, if there are too few for one request. These have no right answers."""
    if known.scored_rows is not None and known.scored_rows < batch:
        return [f"--shapes={shape_grammar.flag_text(signature, [call])}"]
    goal = [f"--accuracy={known.asked.goal}", *known.asked.given(("accuracy_output",))]
    return [*known.data, *known.labels, f"--batch_size={batch}", *goal]


def _regress_limits(known: Known, minutes: float) -> list[str]:
    return [f"--max_seconds={0.7 * 60 * minutes:.0f}"]


def _profile(known: Known) -> Commands:
    asked, page = known.asked, known.asked.path("profile.html")
    if not known.right:
        return LeftOut(_NOT_RIGHT)
    words = [
        "profile",
        asked.output,
        # A plan is called without TensorFlow, and not in turns with a model that needs it.
        *([] if known.plan_won else [f"--original={asked.model}"]),
        f"--shapes={known.shapes}",
        *([] if known.plan_won else asked.given(SOURCE)),
        f"--html={page}",
    ]
    return [Command("profile", words, [page])]


def _diagnose(known: Known) -> Commands:
    asked = known.asked
    if not known.right:
        return LeftOut(_NOT_RIGHT)
    if known.gpu and not known.done(knowledge.PROFILE):
        return LeftOut("there is no profile")
    return [
        Command(
            "diagnose",
            ["diagnose", asked.model, asked.output, f"--profile={asked.path('profile.json')}", *asked.given(SOURCE)],
        )
    ]


def _try(known: Known) -> Commands:
    asked = known.asked
    if not any(one.command for one in known.findings):
        return LeftOut("diagnose proposes no flag" if known.done(knowledge.DIAGNOSE) else "nothing was diagnosed")
    words = ["diagnose", asked.model, asked.output, f"--shapes={known.shapes}", "--try", *asked.given(SOURCE)]
    return [Command("diagnose-try", words)]


def _bench(known: Known) -> Commands:
    asked = known.asked
    if not asked.slo:
        return LeftOut("no SLO was given by --slo")
    if known.plan_won or asked.server == "triton":
        return LeftOut("batching is tuned for TensorFlow Serving alone: `tftrt bench triton://… --slo=…` asks a server")
    if not known.right:
        return LeftOut(_NOT_RIGHT)
    rate = [f"--lowest_rate={asked.rate:g}"] if asked.rate else []
    words = [
        "bench",
        f"--tune_batching={asked.output}",
        f"--slo={asked.slo}",
        *rate,
        "--distribution=poisson",
        f"--duration_seconds={_PROBE_SECONDS:g}",
        *known.data,
        "--batch_size=1",
        *asked.given(SOURCE),
        f"--work_dir={asked.path('batching')}",
    ]
    return [Command("bench", words)]


def _bench_limits(known: Known, minutes: float) -> list[str]:
    return [f"--max_minutes={0.6 * minutes:.1f}"]


def _publish(known: Known) -> Commands:
    asked, bad = (
        known.asked,
        next(
            (one for one in known.results if one.state == "done" and one.exit_code and one.step != knowledge.SIMULATED),
            None,
        ),
    )
    if not asked.publish:
        return LeftOut("not asked for by --publish")
    if bad or not known.done(knowledge.VERIFY):
        return LeftOut(f"{bad.name if bad else 'verify'} does not say that the model keeps what it has to")
    if known.missed:
        return LeftOut(known.missed)
    place = pathlib.Path(asked.publish)
    warm = [f"--warmup_shapes={known.shapes}"]
    words = [
        "publish",
        asked.output,
        f"--model_name={place.name}",
        f"--base_path={place.parent}",
        *asked.serving,
        *warm,
        *asked.given(("op_library",)),
    ]
    return [Command("publish", words, [asked.publish])]


ORDER: tuple[Step, ...] = (
    Step(
        name=knowledge.MACHINE,
        question="What can this machine do?",
        commands=_doctor,
        gave=gave.doctor,
        needed=True,
        always=True,
    ),
    Step(
        name=knowledge.INSPECT,
        question="How much would run in TensorRT?",
        commands=_inspect,
        gave=gave.inspect,
        needed=True,
    ),
    Step(
        name=knowledge.MENDED,
        question="And with the flags that this advises?",
        commands=_inspect_again,
        gave=gave.inspect_again,
    ),
    Step(
        name=knowledge.DATA,
        question="Which rows are scored, which calibrate?",
        commands=_data,
        gave=gave.data,
        needed=True,
    ),
    Step(
        name=knowledge.CALIBRATE,
        question="What would INT8 keep, with which ranges?",
        commands=_calibrate,
        gave=gave.calibrate,
        share=0.5,
    ),
    Step(
        name=knowledge.SIMULATED,
        question="Does INT8 keep the goal, as far as it can be simulated?",
        commands=_simulate,
        gave=gave.simulated,
        strict=False,
        share=0.5,
    ),
    Step(
        name=knowledge.SENSITIVITY,
        question="Which nodes does INT8 hurt?",
        commands=_sensitivity,
        gave=gave.sensitivity,
        share=0.5,
    ),
    Step(
        name=knowledge.TUNE,
        question="Which settings are the fastest that keep the goal?",
        commands=_tune,
        gave=gave.tune,
        needs_gpu=True,
        of_gpu=True,
        share=0.6,
        limits=_tune_limits,
        cut=_tune_cut,
    ),
    Step(
        name=knowledge.CONVERT,
        question="The model",
        commands=_convert,
        gave=gave.convert,
        of_gpu=True,
        needed=True,
        share=0.8,
        limits=_build_limits,
        cut=_build_cut,
    ),
    Step(
        name=knowledge.BUILD,
        question="Which of several builds is the fastest?",
        commands=_build,
        gave=gave.build,
        needs_gpu=True,
        of_gpu=True,
        needed=True,
        share=0.8,
        limits=_repeat_limits,
        cut=_build_cut,
    ),
    Step(name=knowledge.VERIFY, question="Is it right?", commands=_verify, gave=gave.verify, of_gpu=True, needed=True),
    Step(
        name=knowledge.REGRESS,
        question="Is it faster, and how sure is that?",
        commands=_regress,
        gave=gave.regress,
        needs_gpu=True,
        of_gpu=True,
        strict=False,
        share=0.5,
        limits=_regress_limits,
    ),
    Step(
        name=knowledge.PROFILE,
        question="Where does the time go now?",
        commands=_profile,
        gave=gave.profile,
        needs_gpu=True,
        of_gpu=True,
        strict=False,
        share=0.4,
    ),
    Step(
        name=knowledge.DIAGNOSE,
        question="Why is it not faster?",
        commands=_diagnose,
        gave=gave.diagnose,
        needs_gpu=True,
        of_gpu=True,
        strict=False,
    ),
    Step(
        name=knowledge.TRIED,
        question="What do its fixes really give?",
        commands=_try,
        gave=gave.tried,
        needs_gpu=True,
        of_gpu=True,
        strict=False,
        share=0.5,
    ),
    Step(
        name=knowledge.BENCH,
        question="Does it keep the SLO of a service?",
        commands=_bench,
        gave=gave.bench,
        needs_gpu=True,
        of_gpu=True,
        strict=False,
        share=0.8,
        limits=_bench_limits,
    ),
    Step(
        name=knowledge.PUBLISH,
        question="A version for the server",
        commands=_publish,
        gave=gave.publish,
        needed=True,
        strict=False,
    ),
)
