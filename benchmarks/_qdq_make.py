"""Makes what `benchmarks.qdq --gpu` takes, on the CPU: the ONNX forms of models by `tftrt export`, rows, labels and float32 answers."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np

from benchmarks import _models, _shared_weights

SAMPLES = ("resnet50", "mobilenet_v2", "digits_cnn", "bert_encoder")
# Of sample models without data of their own: how large their inputs are.
_SIZES = {"resnet50": {"size": 224}, "mobilenet_v2": {"size": 224}, "bert_encoder": {"length": 128}}
TRAINED = ("fer", "keras3", "mtcnn_rnet", "mtcnn_onet", "deepcut", "dilated_unet", "musicnn", "stft_tagger", "tcn")
_CALIBRATION_ROWS, _SCORED_ROWS = 64, 32
_CALIBRATION_SEED, _SCORING_SEED = 1, 2
# Bounds that nothing misses: the scores are the result here.
_OPEN = "snr_db>=-200,cosine>=-1,top1>=0"


@dataclasses.dataclass(frozen=True)
class Case:
    """A model. source: its SavedModel; calibration, rows: .npz files; labels: .npy, or None; pictures: weights and rows are random, and so
    may be stored rounded."""

    name: str
    source: pathlib.Path
    calibration: pathlib.Path
    rows: pathlib.Path
    labels: pathlib.Path | None
    pictures: bool = False


def case(name, work, trained):
    """The Case of a model; sample models are built in `work`. Args: trained: folder of trained models."""
    if name in SAMPLES:
        return _sample(name, pathlib.Path(work))
    labels = trained / f"{name}.labels.npy"
    return Case(
        name,
        trained / name,
        trained / f"{name}.calibration.npz",
        trained / f"{name}.rows.npz",
        labels if labels.exists() else None,
    )


def _sample(name, work):
    import saved_models

    source = work / name
    with _models.made(source) as partial:
        if partial:
            _models.command("-c", f"import saved_models; saved_models.build({name!r}, {str(partial)!r})", gpu=False)
    calibration, rows, labels = work / f"{name}.calibration.npz", work / f"{name}.rows.npz", None
    builder = saved_models.builder(name)
    if hasattr(builder, "held_back"):
        labels = work / f"{name}.labels.npy"
        images, truth = builder.held_back()
        np.savez(calibration, **{builder.INPUT: builder.training_images()[0][:512]})
        np.savez(rows, **{builder.INPUT: images})
        np.save(labels, truth)
        return Case(name, source, calibration, rows, labels)
    for path, seed, count in ((calibration, _CALIBRATION_SEED, _CALIBRATION_ROWS), (rows, _SCORING_SEED, _SCORED_ROWS)):
        drawn = saved_models.sample_inputs(name, np.random.default_rng(seed), count, **_SIZES[name])["serving_default"]
        pictures = all(array.dtype == np.float32 for array in drawn.values())
        np.savez(path, **{key: in_8_bits(array)[1] if pictures else array for key, array in drawn.items()})
    return Case(name, source, calibration, rows, labels, pictures=pictures)


def in_8_bits(pictures):
    """(uint8, the same as float32) of pictures in [-1, 1]."""
    levels = np.clip(np.round((pictures + 1) * 127.5), 0, 255).astype(np.uint8)
    return levels, as_pictures(levels)


def as_pictures(levels):
    """float32 in [-1, 1] of uint8."""
    return levels.astype(np.float32) / np.float32(127.5) - np.float32(1)


def make(one, output, work, method):
    """Fill output/NAME. Returns: a row for the table of CPU figures."""
    import onnx
    import onnxruntime

    folder, partial = pathlib.Path(output) / one.name, pathlib.Path(work) / f"partial-{one.name}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    said = {
        "fp32": [],
        "fp16": ["--precision=FP16"],
        "qdq": [
            "--precision=INT8",
            f"--calibration_data={one.calibration}",
            f"--calibration_method={method}",
            f"--output_table={partial / 'ranges.json'}",
        ],
    }
    signature = ["--signature_keys=serving_default"]
    for name, flags in said.items():
        # The FP32 file is judged as always.
        bounds = [f"--thresholds={_OPEN}"] if flags else []
        labels = [f"--labels={one.labels}"] if one.labels and flags else []
        _models.command(
            "-m",
            "tftrt_tools",
            "export",
            one.source,
            f"--output={partial / name}.onnx",
            f"--data={one.rows}",
            f"--json={partial / name}.json",
            *signature,
            *flags,
            *bounds,
            *labels,
            gpu=False,
        )
    exported = {name: json.loads((partial / f"{name}.json").read_text())["files"][0] for name in said}
    models = {name: onnx.load(partial / f"{name}.onnx") for name in said}
    with np.load(one.rows) as file:
        rows = {key.rpartition("/")[2]: file[key] for key in file.files}
    folder.mkdir(parents=True, exist_ok=True)
    _shared_weights.share(models, folder, rounded=one.pictures)
    restored = _shared_weights.restore(folder)
    session = onnxruntime.InferenceSession(str(folder / "fp32.onnx"), providers=["CPUExecutionProvider"])
    rows = {each.name: rows[each.name] for each in session.get_inputs()}
    count = min(map(len, rows.values()))
    parts = [session.run(None, {key: array[at : at + 16] for key, array in rows.items()}) for at in range(0, count, 16)]
    answers = {
        each.name: np.concatenate([part[index] for part in parts]) for index, each in enumerate(session.get_outputs())
    }
    del session
    for path in restored:
        path.unlink()
    np.savez_compressed(
        folder / "rows.npz", **{key: in_8_bits(array)[0] if one.pictures else array for key, array in rows.items()}
    )
    np.savez_compressed(folder / "answers.npz", **answers)
    if one.labels:
        shutil.copy(one.labels, folder / "labels.npy")
    table = json.loads((partial / "ranges.json").read_text())["engines"][0]["table"]["scales"]
    row = {"model": one.name, **_facts(exported)}
    (folder / "case.json").write_text(
        json.dumps(
            {
                "name": one.name,
                "scales": table,
                "cpu": row,
                "shapes": {key: list(array.shape) for key, array in rows.items()},
            },
            indent=1,
        )
    )
    shutil.rmtree(partial)
    return row


def _facts(exported):
    """What the exports say of both precisions."""
    facts = {}
    for name in ("fp16", "qdq"):
        written = exported[name]["precision"]
        checked = written["verification"]
        for metric, key in (("snr_db", "db"), ("top1", "top1")):
            facts[f"{name}_{key}"] = min(
                (one[metric] for one in checked["comparisons"] if one.get(metric) is not None), default=None
            )
        if checked["accuracy"]:
            facts["fp32_score"] = checked["accuracy"]["original"]
            facts[f"{name}_score"] = checked["accuracy"]["converted"]
        taken = sum(one["precision"] != "FP32" for one in written["nodes"])
        facts[f"{name}_nodes"] = f"{taken} of {len(written['nodes'])}"
    written = exported["qdq"]["precision"]
    facts["method"] = written["method"]
    if written["comparison"] and written["comparison"]["worst_db"]:
        facts["simulated_db"] = written["comparison"]["worst_db"][written["method"]]
    facts["kept"] = [
        f"{one['op']} {one['name']}: {one['reason']}" for one in written["nodes"] if one["precision"] == "FP32"
    ]
    return facts
