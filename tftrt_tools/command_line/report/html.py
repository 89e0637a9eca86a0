"""Reports: HTML files that need nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.accuracy import thresholds
from tftrt_tools.base import terminal
from tftrt_tools.base.files import whole_file
from tftrt_tools.command_line.report import answers, plots, trials, trials_plot
from tftrt_tools.models.execution import kernels
from tftrt_tools.models.kinds import opening
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.studies.tuning.table import COMPARED
from tftrt_tools.studies.tuning.tried import nobody

if TYPE_CHECKING:
    from jinja2 import Template

    from tftrt_tools.accuracy.verify import Verification
    from tftrt_tools.studies.tuning.tried import Tuning


def write_verification(done: Verification, path: str) -> None:
    """Write the report of a verify.Verification. Args: path: file to write, whole or not at all."""
    whole_file.write_text(path, verification_page(done))


def verification_page(done: Verification) -> str:
    """The report's text. The models are asked for what else they tell: a converted one for its manifest, one of a kind that is not
    converted for what is in it."""
    manifest = opening.document(done.converted, passport.MANIFEST)
    signatures = (manifest or {}).get("signatures", [])
    return template("verification.html").render(
        done=done,
        manifest=manifest,
        signatures=signatures,
        snr=plots.signal_to_noise(done.comparisons, done.bounds),
        ops=plots.where_ops_run(signatures),
        missed={miss.output for miss in done.misses},
        kernels=kernels.text,
        answers=answers,
        wanted=thresholds.text,
    )


def told(model: str) -> str:
    """What a model of a kind that is not converted tells, in a line; "" of any other, and where there is none. Args: model: its path."""
    seen = opening.overview(model) if model else None
    return seen.text() if seen else ""


def write_tuning(done: Tuning, path: str) -> None:
    """Write the report of a tuning.result.Tuning. Args: path: file to write, whole or not at all."""
    whole_file.write_text(path, tuning_page(done))


def tuning_page(done: Tuning) -> str:
    """The report's text."""
    return template("tuning.html").render(
        done=done,
        plot=tuning_plot(done),
        timeline=trials_plot.timeline(done.trials),
        trials=trials.of_tuning(done),
        nobody=nobody(done.server, done.compares),
    )


def tuning_plot(done: Tuning) -> str:
    """Latency against accuracy of a Tuning's trials. Returns: SVG text, "" where no trial gave a model."""
    usable = [
        (one, latency) for one in done.trials if not one.measured.failure and (latency := one.latency(done.objective))
    ]
    points = [
        {
            "number": one.number,
            "ms": latency.ms,
            "accuracy": one.measured.accuracy,
            "text": f"{one.text}, {COMPARED}" if one.compared else one.text,
            "kept": one.kept,
            "winner": one == done.winner,
        }
        for one, latency in usable
    ]
    return plots.pareto(
        points,
        done.goal.bound(done.original),
        done.goal.metric,
        done.goal.higher,
        f"median milliseconds of a call, {done.objective}, {done.gpu}",
    )


def _shown(value: object) -> object:
    """What a page shows of a value: names of others without control characters, which the browser could obey, or no file hold."""
    return terminal.shown(value) if type(value) is str else value


def template(name: str) -> Template:
    """A page of this package's templates. Args: name: of its file."""
    import jinja2

    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("tftrt_tools.command_line.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
    )
    templates.globals |= {"stamp": passport.stamp, "told": told}
    return templates.get_template(name)
