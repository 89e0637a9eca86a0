"""The models of the benchmark `plans_of_models`, what they are fed, and the commands that each goes through."""

import dataclasses
import os
import pathlib
import shutil

import numpy as np

from benchmarks import onnx_files
from benchmarks.real_models import cases
from benchmarks.real_models import make as maker
from benchmarks.real_models.steps import Step, bench

PHASES = ("export", "make", "measure")
PRECISIONS = ("FP32", "FP16", "INT8")
CORPUS, FILE, TORCH = "SavedModel", "ONNX file", "PyTorch"
TFTRT = "TF-TRT"
_PLANS = ("FP16", "INT8")
_FILES = tuple(f"{one.lower()}.onnx" for one in PRECISIONS)
_ROWS, _CALIBRATION = 32, 64


@dataclasses.dataclass(frozen=True)
class Model:
    """kind: CORPUS, FILE or TORCH. shapes: as --shapes, with {} for the batch; "" where the sizes are fixed. flags: of `tftrt export`.
    data: whether rows are in NAME.rows.npz. int8: whether INT8 is tried. thresholds: of `tftrt verify`."""

    name: str
    kind: str
    shapes: str
    batches: tuple[int, ...] = (1, 8)
    flags: tuple[str, ...] = ()
    data: bool = True
    labels: bool = False
    int8: bool = True
    thresholds: str = ""

    def shape(self, *batches: int) -> str:
        """`--shapes` with these batches."""
        return cases.Case(self.name, None, self.shapes, "").shape(*batches)


@dataclasses.dataclass(frozen=True)
class Ranked:
    """A step with the files that it wants, and its place among those of all models (`--measure`)."""

    step: Step
    wants: tuple[pathlib.Path, ...]
    rank: int = 0


# {function of tests.torch_families: {input: (a row's shape, the largest whole number; 0 for floats)}}.
_FAMILIES = {
    "cnn": {"image": ((3, 32, 32), 0)},
    "encoder": {"ids": ((12,), 99), "mask": ((12,), 1)},
    "lstm": {"ids": ((12,), 49)},
    "detector": {"image": ((3, 64, 64), 0)},
    "unet": {"image": ((3, 48, 48), 0)},
}
_PREFIX = "torch_"
# Random weights: classes lie near a tie, so rounding to 8 bits changes more of them than in a model that was trained.
UNTRAINED = "top1>=0.75"


def _shapes(sizes):
    return ";".join(f"{name}:" + "x".join(("{}", *map(str, shape))) for name, shape in sizes.items())


def _models():
    for case in cases.chosen([]):
        yield Model(case.name, CORPUS, case.shapes, case.batches, case.export, labels=case.labels)
    for one in onnx_files.FILES:
        yield Model(
            one.name,
            FILE,
            _shapes(one.shapes) if one.batched else "",
            flags=(*one.flags, *([] if one.batched else [f"--shapes={one.shape_flag(1)}"])),
            data=one.batched,
            int8=one.int8,
        )
    for name, sizes in _FAMILIES.items():
        shapes = _shapes({one: shape for one, (shape, _) in sizes.items()})
        yield Model(f"{_PREFIX}{name}", TORCH, shapes, thresholds=UNTRAINED)


MODELS = tuple(_models())
NAMES = tuple(model.name for model in MODELS)


def carried(path: pathlib.Path) -> bool:
    """Whether a GPU machine needs a file or folder of FOLDER: SavedModels, ONNX files, rows, labels and results."""
    part = path.name.partition(".")
    return path.name == "results.jsonl" or (
        part[0] in NAMES and (part[2] in ("", "rows.npz", "labels.npy") or part[2].removesuffix(".data") in _FILES)
    )


def prepare(model: Model, options) -> None:
    """Put what `--export` reads into the folder. Raises: FileNotFoundError, RuntimeError: what is missing."""
    folder = options.folder
    if model.kind == CORPUS:
        for suffix in ("", ".rows.npz", ".calibration.npz", *([".labels.npy"] if model.labels else [])):
            source, place = options.models_dir / f"{model.name}{suffix}", folder / f"{model.name}{suffix}"
            if not source.exists():
                raise FileNotFoundError(f"{source} is missing: python -m benchmarks.real_models --make makes it")
            if not place.exists():
                shutil.copytree(source, place) if source.is_dir() else shutil.copyfile(source, place)
        return
    if model.kind == FILE:
        (one,) = (file for file in onnx_files.FILES if file.name == model.name)
        place = folder / f"{model.name}.given.onnx"
        if not place.exists():
            packages = folder / "packages"
            packages.mkdir(exist_ok=True)
            os.symlink(onnx_files.given(one, packages), place)
        rows = one.rows
    else:

        def rows(count, seed):
            return drawn(model.name, count, seed)

    for suffix, count, seed in (("rows", _ROWS, 2), ("calibration", _CALIBRATION, 1)) if model.data else ():
        place = folder / f"{model.name}.{suffix}.npz"
        if not place.exists():
            np.savez(place, **rows(count, seed))


def drawn(model: str, count: int, seed: int) -> dict[str, np.ndarray]:
    """{input: rows} of a PyTorch module. They differ: pictures of one colour each with noise, ids of one part of the words each."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, (shape, largest) in _FAMILIES[model.removeprefix(_PREFIX)].items():
        if largest:
            first = rng.integers(0, largest + 1, (count, *[1] * len(shape)))
            made[name] = (first + rng.integers(0, 1 + largest // 8, (count, *shape))) % (largest + 1)
        else:
            colours = rng.standard_normal((count, shape[0], *[1] * (len(shape) - 1))) * 2
            made[name] = (colours + rng.standard_normal((count, *shape)) / 2).astype(np.float32)
    if "mask" in made:  # of padding: ones in front
        made["mask"] = (np.arange(made["mask"].shape[1]) < rng.integers(3, 13, (count, 1))).astype(np.int64)
    return made


def file(folder: pathlib.Path, model: Model, precision: str) -> pathlib.Path:
    """The exported file."""
    return folder / f"{model.name}.{precision.lower()}.onnx"


def steps(model: Model, options, phases: tuple[str, ...] = PHASES) -> list[Ranked]:
    """The commands of some phases, in order. Args: options: of the command line (folder, torch_python, rounds)."""
    found = {"export": _exports, "make": _builds, "measure": _timings}
    return [step for phase in phases for step in found[phase](model, options)]


def _tried(model, precisions):
    return [one for one in precisions if model.int8 or one != "INT8"]


def _exports(model, options):
    source = {
        CORPUS: str(options.folder / model.name),
        FILE: str(options.folder / f"{model.name}.given.onnx"),
        TORCH: f"tests.torch_families:{model.name.removeprefix(_PREFIX)}",
    }[model.kind]
    python = str(options.torch_python) if model.kind == TORCH else ""
    calibration = f"--calibration_data={maker.part(options.folder, model, 'calibration.npz')}"
    for precision in _tried(model, PRECISIONS):
        place = file(options.folder, model, precision)
        words = [
            "export",
            source,
            f"--output={place}",
            f"--precision={precision}",
            "--allow_constant_outputs",
            *(
                [f"--data={maker.part(options.folder, model, 'rows.npz')}", f"--data_rows={_ROWS}"]
                if model.data
                else []
            ),
            *([calibration] if precision == "INT8" else []),
            *_bounds(model),
            *model.flags,
        ]
        # What is refused in FP32 is refused in each precision.
        wants = () if precision == "FP32" else (file(options.folder, model, "FP32"),)
        yield Ranked(Step("export", precision, tuple(words), makes=place, python=python), wants)
        words = ["verify", source, str(place), *_rows(model, options)]
        yield Ranked(Step("verify", precision, tuple(words), needs=place, python=python), (place,))


def _rows(model, options):
    rows = [f"--data={maker.part(options.folder, model, 'rows.npz')}"] if model.data else []
    rows += _bounds(model)
    return rows + ([f"--labels={maker.part(options.folder, model, 'labels.npy')}"] if model.labels else [])


def _bounds(model):
    return [f"--thresholds={model.thresholds}"] if model.thresholds else []


def _place(model, options, variant):
    return options.folder / "plans" / f"{model.name}-{variant}"


def _original(model, options):
    return options.folder / model.name if model.kind == CORPUS else file(options.folder, model, "FP32")


def _builds(model, options):
    shapes = [f"--shapes={model.shape(*model.batches)}"] if model.shapes else []
    for precision in _tried(model, _PLANS):
        source = file(options.folder, model, precision)
        if precision == "FP16" and not source.exists():  # its answers missed a bound: TensorRT chooses
            source = file(options.folder, model, "FP32")
        place = _place(model, options, precision)
        words = [
            "convert",
            "--backend=tensorrt",
            f"--model={source}",
            f"--output={place}",
            f"--precision={precision}",
            *shapes,
        ]
        yield Ranked(Step("convert", f"plan {precision}", tuple(words), makes=place), (source,))
        words = ["verify", str(_original(model, options)), str(place), *_rows(model, options)]
        yield Ranked(Step("verify", f"plan {precision}", tuple(words), needs=place), (place,))
    if model.kind == CORPUS:
        place = _place(model, options, TFTRT)
        words = ["convert", f"--model={options.folder / model.name}", f"--output={place}", "--precision=FP16", *shapes]
        yield Ranked(Step("convert", TFTRT, tuple(words), makes=place), (file(options.folder, model, "FP32"),))


def _timings(model, options):
    """`tftrt bench` of what has been made, in turns in one process: against TF-TRT, or against what comes next where that is missing."""
    if not model.data:
        return
    plans = [_place(model, options, variant) for variant in _tried(model, _PLANS)]
    all_made = [*([_place(model, options, TFTRT)] if model.kind == CORPUS else []), *plans]
    originals = [options.folder / model.name] if model.kind == CORPUS else []
    there = [place for place in all_made if place.exists()]
    if len(all_made + originals) < 2:
        return
    # Without any plan nothing is timed: it waits until all are made again.
    enough = any(place in there for place in plans) and len(there + originals) > 1
    made = (there if enough else all_made) + originals
    for batch in model.batches:
        data = f"--data={maker.part(options.folder, model, 'rows.npz')}"
        step = bench(made, data, batch, options.rounds, made[0])
        yield Ranked(step, tuple(made), rank=batch == model.batches[0])
