"""The models that `precision` measures: how each is built, what it is calibrated and scored on, the columns of its table."""

import dataclasses
import functools
import inspect
import pathlib

import numpy as np

import saved_models

SIGNATURE = "serving_default"
CALIBRATION_SEED, SCORING_SEED = 7, 8
_ROWS = 50  # drawn at a time: pictures are computed in float64
# Rough seconds on one H100 with FP32, FP16 and both INT8 columns: the order in which models are begun.
_SECONDS = {"resnet50": 480, "mobilenet_v2": 260, "bert_encoder": 200, "spread_cnn": 150, "digits_cnn": 60}
NAMES = tuple(_SECONDS)
# Nodes that plain INT8 breaks, from what the model's builder says; --tuned replaces them.
TUNED = {"spread_cnn": "--high_precision_nodes=.*/spread_(expand|depthwise|project).*"}
METHODS = ("entropy", "percentile", "mse", "max", "auto")


@dataclasses.dataclass(frozen=True)
class Case:
    """name: of saved_models. build, sample: options of its `build` and `sample_inputs`."""

    name: str
    build: dict
    sample: dict

    @property
    def label(self):
        """Folder name: the model with the options that are not its defaults."""
        defaults = {
            key: one.default for key, one in inspect.signature(saved_models.builder(self.name).build).parameters.items()
        }
        changed = [f"{key}{value}" for key, value in sorted(self.build.items()) if value != defaults.get(key)]
        return "-".join([self.name, *changed])

    @property
    def text(self):
        """For people: "resnet50 (size 224)"."""
        options = {**self.build, **self.sample}
        return self.name + (f" ({', '.join(f'{key} {value}' for key, value in options.items())})" if options else "")

    @property
    def labelled(self):
        """Whether its inputs are images of digits, with labels."""
        return hasattr(saved_models.builder(self.name), "held_back")

    def to_dict(self):
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data):
        return cls(**data)


def case(name, image_size, length, options):
    """Args: options: {key: value} for the model's `build`, over the sizes given here. Raises: ValueError for one that it does not know."""
    builder = saved_models.builder(name)
    known = inspect.signature(builder.build).parameters
    if unknown := sorted(set(options) - set(known)):
        raise ValueError(
            f"{name} has no option {unknown[0]!r}; it has: {', '.join(key for key in known if key != 'output_dir')}"
        )
    build = {"size": image_size} if name in ("resnet50", "mobilenet_v2") else {}
    build |= {"width": 256, "size": 32, "blocks": 6} if name == "spread_cnn" else {}
    build |= options
    sampled = inspect.signature(builder.sample_inputs).parameters
    sample = {key: value for key, value in {**build, "length": length}.items() if key in sampled}
    return Case(name, build, sample)


def longest_first(names):
    """The models in the order to begin them in, so that several GPUs end at about the same time."""
    return sorted(names, key=lambda name: -_SECONDS[name])


def model(case, folder):
    """The SavedModel of a case, built in `folder` where it is missing. Returns: path."""
    target = pathlib.Path(folder) / case.label
    if not target.exists():
        from benchmarks import _models

        with _models.made(target) as partial:
            saved_models.build(case.name, partial, **case.build)
    return target


def calibration(case, count):
    """{input: `count` rows}, or as many as there are."""
    if case.labelled:
        (images, _), name = saved_models.builder(case.name).training_images(), saved_models.builder(case.name).INPUT
        return {name: images[:count]}
    return _drawn(case, CALIBRATION_SEED, count)


def scoring(case, count):
    """({input: rows that are no calibration rows}, labels or None): all images held back from training, or `count` rows."""
    if case.labelled:
        images, labels = saved_models.builder(case.name).held_back()
        return {saved_models.builder(case.name).INPUT: images}, labels
    return _drawn(case, SCORING_SEED, count), None


def _drawn(case, seed, count):
    rng, parts = np.random.default_rng(seed), []
    for start in range(0, count, _ROWS):
        parts.append(saved_models.sample_inputs(case.name, rng, min(_ROWS, count - start), **case.sample)[SIGNATURE])
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclasses.dataclass(frozen=True)
class Column:
    """A configuration. calibrator: "tensorrt" or "toolkit" of an INT8 one, else ""; method: of the toolkit; flags: of a tuned one;
    timed: whether latency and throughput are measured, or the answers alone."""

    name: str
    precision: str
    calibrator: str = ""
    method: str = "entropy"
    flags: str = ""
    timed: bool = True

    @property
    def table(self):
        """Name of the calibration table that it takes, or ""."""
        return {"": "", "tensorrt": "tensorrt", "toolkit": self.method}[self.calibrator]


def columns(wanted, methods, tuned=""):
    """The columns of one model in the order to build them in.

    Args: wanted: precisions ("INT8" for all of its columns), or names of columns. methods: of METHODS. tuned: flags of `tftrt convert`.
    Raises: ValueError for an unknown name.
    """
    known = [
        Column("FP32", "FP32"),
        Column("FP16", "FP16"),
        Column("INT8-tensorrt", "INT8", "tensorrt"),
        *(Column(f"INT8-{method}", "INT8", "toolkit", method, timed=method == "entropy") for method in METHODS),
    ]
    names = {column.name for column in known} | {"FP32", "FP16", "INT8", "tuned"}
    if unknown := sorted(set(wanted) - names):
        raise ValueError(f"no column {unknown[0]!r}; there are: {', '.join(sorted(names))}")
    chosen = [
        column
        for column in known
        if column.name in wanted
        or column.precision in wanted
        and (column.table in ("", "tensorrt") or column.method in methods)
    ]
    if tuned and {"INT8", "tuned"} & set(wanted):
        settings = tuned_settings(tuned)
        calibrator = settings.calibrator if settings.precision_mode == "INT8" else ""
        chosen.append(Column("tuned", settings.precision_mode, calibrator, settings.calibration_method, tuned))
    return chosen


@functools.cache
def tuned_settings(flags):
    """conversion.settings.Settings of flags of `tftrt convert`, INT8 where they name no precision. Raises: errors.UsageError."""
    import shlex

    from tftrt_tools.command_line.commands import _flags, convert

    values, _ = _flags.parse("convert", convert, ["--precision=INT8", *shlex.split(flags)])
    return convert.read_settings(values)


def settings(column, shapes):
    """conversion.settings.Settings of a column. Args: shapes: text of --shapes; "" converts without engines, to calibrate or on a CPU."""
    from tftrt_tools.tftrt.conversion.settings import Settings

    base = tuned_settings(column.flags) if column.flags else Settings(precision_mode=column.precision)
    changes = {
        "shapes": shapes,
        "use_dynamic_shape": base.use_dynamic_shape is not False,
        "allow_build_at_runtime": False,
    }
    if column.calibrator:
        changes |= {"calibrator": column.calibrator, "calibration_method": column.method}
    return dataclasses.replace(base, **changes)


def shapes(arrays, batches):
    """The text of --shapes for some batch sizes. Args: arrays: {input: array}, rows in front."""
    return ";".join(
        f"{name}:" + ",".join("x".join(map(str, (batch, *array.shape[1:]))) for batch in batches)
        for name, array in arrays.items()
    )
