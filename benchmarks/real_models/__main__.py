"""The command line of the benchmark; the package's docstring says what it does."""

import argparse
import pathlib
import sys

from benchmarks import _models, _precision_run, _report, real_models
from benchmarks.real_models import cases, make, run, table

_PRECISIONS = ("FP32", "FP16", "INT8")
_METHODS = ("auto", "entropy", "percentile", "mse", "max")


def main(argv: list[str] | None = None) -> int:
    """Returns: 0 where every step ended with 0 or 3 and without a traceback, else 1."""
    options = parse(argv)
    journal = options.output / run.FILE
    if not options.table:
        lost = _make(options)
        if options.make:
            return 1 if lost else 0
        options.output.mkdir(parents=True, exist_ok=True)
        _precision_run.Journal(journal).add(kind="run", machine=_report.machine(), gpu=options.gpu)
        there = tuple(case for case in options.models if make.made(options.models_dir, case))
        run.run(there, options.models_dir, options, run.Limits(options.deadline, options.budget, options.timeout))
    lines = [line for path in sorted(options.output.rglob(run.FILE)) for line in _precision_run.read(path)]
    print("\n" + (table.markdown(lines) if options.markdown else table.text(lines)))
    return 1 if bugs(lines) else 0


def bugs(lines: list[dict]) -> list[str]:
    """Steps that ended as none should: with a traceback, or with another code than 0, 3 (a reason is given), 4 (nobody can tell) and, of an
    export, 1 (it cannot become an ONNX file)."""
    last = {(line["model"], line["column"]): line for line in lines if line["kind"] == "step"}
    return [
        f"{model}: {column}"
        for (model, column), line in last.items()
        if line["traceback"] or line["exit"] not in (0, 3, 4, *([1] if column == "export ONNX" else []))
    ]


def _make(options):
    """Make what is missing. Returns: the models that could not be made."""
    lost = []
    for case in options.models:
        if make.made(options.models_dir, case):
            continue
        print(f"making {case.name}" + (f" ({case.license})" if case.license else ""), flush=True)
        try:
            make.make(options.models_dir, case)
        except RuntimeError as error:
            print(f"  left out: {error}", flush=True)
            lost.append(case.name)
    return lost


def parse(argv: list[str] | None) -> argparse.Namespace:
    """The options; wrong ones end the process with the reason."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_models",
        description=real_models.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    folder, build = pathlib.Path, _models.ROOT / "build" / "real_models"
    parser.add_argument(
        "--models",
        type=_listed,
        default=[],
        help="by default all but those that others may not use freely; of: " + ", ".join(cases.NAMES),
    )
    parser.add_argument(
        "--models_dir", type=folder, default=build / "models", metavar="DIR", help="SavedModels, rows; made if missing"
    )
    parser.add_argument(
        "--output", type=folder, default=build, metavar="DIR", help="results, logs and converted models"
    )
    parser.add_argument("--make", action="store_true", help="make the models and leave")
    parser.add_argument(
        "--table", action="store_true", help="print the table of OUTPUT and the folders in it, and leave"
    )
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument(
        "--gpu", action="store_true", help="build engines at two batch sizes, and time them against native"
    )
    parser.add_argument(
        "--precision", dest="precisions", type=_listed, default=list(_PRECISIONS), help="of " + ",".join(_PRECISIONS)
    )
    parser.add_argument(
        "--methods",
        type=_listed,
        default=[],
        help="calibration methods, of "
        + ",".join(_METHODS)
        + ": INT8 columns of their own with --gpu, and without it `tftrt calibrate --compare_methods`",
    )
    parser.add_argument(
        "--convert_flags", type=str.split, default=[], metavar="FLAGS", help="further flags of `tftrt convert`"
    )
    parser.add_argument(
        "--without",
        type=_listed,
        default=[],
        help="steps to leave out for now, such as regress where other processes use "
        "the GPU; the same command without it then runs them",
    )
    parser.add_argument("--one_profile", action="store_true", help="with --gpu: build for the larger batch alone")
    parser.add_argument("--rounds", type=int, default=30, help="of `tftrt regress`")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds of a model")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds of a step")
    parser.add_argument(
        "--deadline", type=float, default=float("inf"), help="seconds of the run; the same command then goes on"
    )
    parser.add_argument("--again", action="store_true", help="run every step, whatever results are there")
    parser.add_argument("--keep", action="store_true", help="keep the converted models")
    options = parser.parse_args(argv)
    try:
        options.models = cases.chosen(options.models)
    except KeyError as error:
        parser.error(f"--models: there is no {error.args[0]!r}; there are: {', '.join(cases.NAMES)}")
    for flag, known in (("precisions", _PRECISIONS), ("methods", _METHODS)):
        if unknown := [one for one in getattr(options, flag) if one not in known]:
            parser.error(f"--{flag}: there is no {unknown[0]!r}; there are: {', '.join(known)}")
    options.output, options.models_dir = options.output.absolute(), options.models_dir.absolute()
    return options


def _listed(text):
    return [one for one in text.split(",") if one]


if __name__ == "__main__":
    sys.exit(main())
