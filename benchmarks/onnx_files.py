"""ONNX files that others made: what `tftrt export` prepares of them, and, on a GPU, the plans that TensorRT builds.

    python -m benchmarks.onnx_files              on a CPU: each file for TensorRT 8.5 in FP32, FP16 and INT8, and for TensorRT 10 in FP32
    python -m benchmarks.onnx_files --gpu        on a GPU: the FP16 plan of what --target=8.5 made, verified against that

The files are in packages of the index, pinned by digest; they are unpacked below --workdir, and nothing is installed. Rows: drawn lines
of text for the OCR models, random numbers or bytes for the others; 16 to calibrate, 8 others to compare. A row of the table is what the
command said, also where it ended with another code than 0.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import time

import numpy as np

from benchmarks import _models, _report
from benchmarks.real_models import packages
from benchmarks.real_models.cases import Package

NEEDS_GPU = False
COLUMNS = [
    ("file", "file"),
    ("nodes", "nodes"),
    ("target", "target"),
    ("precision", "precision"),
    ("left", "nodes left"),
    ("db", "SNR dB"),
    ("build_s", "build s"),
    ("code", "exit"),
    ("said", "said"),
]
CALIBRATION, COMPARED = 16, 8  # rows
_PACKAGES = {
    one.name: one
    for one in (
        Package(
            "nudenet", "3.4.2", "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331", "MIT", "AGPL-3.0"
        ),
        Package("magika", "1.0.3", "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529", "Apache-2.0"),
        Package(
            "rapidocr-onnxruntime",
            "1.4.4",
            "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
            "Apache-2.0",
        ),
        Package("silero-vad", "6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8", "MIT"),
    )
}


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a package. path: in the package. shapes: {input: a row's shape; with "rows" the first one is the batch}. text: rows are
    drawn text. bytes: rows are numbers from 0 to 255. flags: of `tftrt export`. int8: whether INT8 is tried."""

    name: str
    package: str
    path: str
    shapes: dict[str, tuple[int, ...]]
    text: bool = False
    bytes: bool = False
    flags: tuple[str, ...] = ()
    int8: bool = True

    def rows(self, count, seed):
        """{input: `count` rows}."""
        if self.text:
            ((name, shape),) = self.shapes.items()
            return {name: np.stack([_written(shape, seed * 1000 + number) for number in range(count)])}
        rng = np.random.default_rng(seed)
        if self.bytes:
            return {name: rng.integers(0, 256, (count, *shape)).astype(np.int32) for name, shape in self.shapes.items()}
        return {name: rng.random((count, *shape), np.float32) for name, shape in self.shapes.items()}

    @property
    def batched(self):
        """Whether the first dimension of each input counts rows; else --shapes is what they are called with."""
        return "--fix_shapes" not in self.flags

    def shape_flag(self, batch):
        """The text of --shapes."""
        return ";".join(
            f"{name}:" + "x".join(map(str, (batch, *shape) if self.batched else shape))
            for name, shape in self.shapes.items()
        )


_OCR, _VAD = "rapidocr_onnxruntime/models/", "silero_vad/data/"
_STATE = {"input": (1, 576), "state": (2, 1, 128)}
_FIXED = {"flags": ("--fix_shapes",), "int8": False}
_FROZEN = {"flags": ("--fix_shapes", "--freeze=sr:16000"), "int8": False}
FILES = (
    File("320n", "nudenet", "nudenet/320n.onnx", {"images": (3, 320, 320)}),
    File("magika_v3_3", "magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (2048,)}, bytes=True),
    File("ppocr_v4_det", "rapidocr-onnxruntime", f"{_OCR}ch_PP-OCRv4_det_infer.onnx", {"x": (3, 320, 320)}, text=True),
    File("ppocr_v4_rec", "rapidocr-onnxruntime", f"{_OCR}ch_PP-OCRv4_rec_infer.onnx", {"x": (3, 48, 320)}, text=True),
    File(
        "ppocr_v2_cls",
        "rapidocr-onnxruntime",
        f"{_OCR}ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (3, 48, 192)},
        text=True,
    ),
    File("silero_vad", "silero-vad", f"{_VAD}silero_vad.onnx", _STATE, **_FROZEN),
    File("silero_vad_op15", "silero-vad", f"{_VAD}silero_vad_16k_op15.onnx", _STATE, **_FROZEN),
    File("silero_vad_op18", "silero-vad", f"{_VAD}silero_vad_op18_ifless.onnx", _STATE, **_FROZEN),
    File("silero_vad_half", "silero-vad", f"{_VAD}silero_vad_half.onnx", _STATE, **_FIXED),
    File("silero_vad_sequence", "silero-vad", f"{_VAD}silero_vad_16k_sequence.onnx", {"input": (8, 576)}, **_FIXED),
)


def _written(shape, seed):
    """A line of text as the OCR models take it: float32 [3, height, width] in [-1, 1]."""
    from PIL import Image, ImageDraw, ImageFont

    rng, (_, height, width) = np.random.default_rng(seed), shape
    picture = Image.new("RGB", (width, height), tuple(int(one) for one in rng.integers(180, 256, 3)))
    draw = ImageDraw.Draw(picture)
    for top in range(4, height - 28, 40) or (4,):
        text = "".join(rng.choice(list("ABCDEFGHKLMNPRSTabcdeghknoprstu 0123456789"), int(rng.integers(6, 16))))
        size = int(rng.integers(16, 30))
        dark = tuple(int(one) for one in rng.integers(0, 90, 3))
        draw.text((int(rng.integers(2, 30)), top), text, fill=dark, font=ImageFont.load_default(size))
    return (np.asarray(picture, np.float32).transpose(2, 0, 1) / np.float32(127.5) - 1).astype(np.float32)


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.onnx_files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", help="by default all: " + ", ".join(one.name for one in FILES))
    parser.add_argument("--gpu", action="store_true", help="build plans, and verify them")
    parser.add_argument(
        "--budget", type=float, default=float("inf"), help="seconds after which nothing is begun, and a build is ended"
    )
    parser.add_argument("--workdir", type=pathlib.Path, default=_models.ROOT / "build/bench/onnx_files")
    parser.add_argument("--json", type=pathlib.Path, help="default: WORKDIR/onnx_files.json, or plans.json")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.files if name not in {one.name for one in FILES}]:
        parser.error(f"no file {unknown[0]!r}; there are: {', '.join(one.name for one in FILES)}")
    options.workdir = options.workdir.absolute()
    options.workdir.mkdir(parents=True, exist_ok=True)
    end, results = (
        time.monotonic() + options.budget,
        _report.Results(
            options.json or options.workdir / ("plans.json" if options.gpu else "onnx_files.json"), "onnx_files"
        ),
    )
    for one in FILES:
        if options.files and one.name not in options.files:
            continue
        source = given(one, options.workdir)
        for ask in _PLANS if options.gpu else _EXPORTS:
            if time.monotonic() < end and (one.int8 or ask[1] != "INT8"):
                results.add(
                    file=one.name,
                    target=ask[0],
                    precision=ask[1],
                    **(_plan if options.gpu else _exported)(one, source, *ask, options.workdir, end),
                )
    print(_report.table(COLUMNS, results.rows))
    return 0


def given(one: File, folder: pathlib.Path) -> pathlib.Path:
    """The file, unpacked in `folder`. Raises: RuntimeError: what pip says where its package cannot be had."""
    return packages.unpacked(one.package, folder, _PACKAGES[one.package]) / one.path


_EXPORTS = (("8.5", "FP32"), ("8.5", "FP16"), ("8.5", "INT8"), ("10", "FP32"))
_PLANS = (("8.5", "FP16"),)


def _place(one, target, precision, workdir):
    return workdir / f"{one.name}-{target}-{precision.lower()}.onnx"


def _saved(one, count, seed, workdir):
    """An .npz file of rows."""
    path = workdir / f"{one.name}.{seed}.npz"
    if not path.exists():
        np.savez(path, **one.rows(count, seed))
    return path


def _exported(one, source, target, precision, workdir, _end=None):
    """{"nodes" of the file, those "left", "db" of the worst output, "code", "said"}."""
    from tftrt_tools.models.kinds.onnx import file as onnx_file

    place = _place(one, target, precision, workdir)
    place.unlink(missing_ok=True)
    words = [
        "export",
        source,
        f"--output={place}",
        f"--target={target}",
        f"--precision={precision}",
        f"--json={workdir / f'{one.name}.said.json'}",
        *one.flags,
    ]
    words += _compared(one, workdir) or [f"--shapes={one.shape_flag(1)}"]
    words += [f"--calibration_data={_saved(one, CALIBRATION, 1, workdir)}"] if precision == "INT8" else []
    code, said = _tftrt(words)
    found = {"nodes": sum(onnx_file.overview(str(source)).ops.values()), "code": code, "said": said if code else ""}
    if code in (0, 3):
        (made,) = json.loads((workdir / f"{one.name}.said.json").read_text())["files"]
        checked = (made["precision"] or {}).get("verification") or made["verification"]
        found["db"] = _worst(checked)
    if place.exists():
        found["left"] = sum(onnx_file.overview(str(place)).ops.values())
    return found


def _plan(one, source, target, precision, workdir, end):
    """{"build_s", "db", "code", "said"} of the plan of the exported FP32 file."""
    made = _exported(one, source, target, "FP32", workdir)
    if made["code"]:
        return made
    exported, place = _place(one, target, "FP32", workdir), workdir / f"{one.name}-plan"
    shapes = [f"--shapes={one.shape_flag(COMPARED)}"] if one.batched else []
    code, said = _tftrt(
        [
            "convert",
            "--backend=tensorrt",
            f"--model={exported}",
            f"--output={place}",
            f"--precision={precision}",
            *shapes,
            "--overwrite",
        ],
        end,
    )
    found = {"left": made.get("left"), "code": code, "said": said if code else ""}
    if code:
        return found
    manifest = json.loads((place / "assets.extra/tftrt/manifest.json").read_text())
    found["build_s"] = manifest["build_seconds"]
    code, said = _tftrt(
        ["verify", exported, place, *_compared(one, workdir), f"--json={workdir / f'{one.name}.said.json'}"], end
    )
    checked = json.loads((workdir / f"{one.name}.said.json").read_text()) if code in (0, 3) else {"comparisons": []}
    return found | {"code": code, "said": said if code else "", "db": _worst(checked)}


def _compared(one, workdir):
    """Flags that name the rows to compare, [] where they are drawn."""
    return [f"--data={_saved(one, COMPARED, 2, workdir)}", f"--batch_size={COMPARED}"] if one.batched else []


def _worst(checked):
    """dB of the worst output; None where nothing was measured, or all are equal bit for bit."""
    return min((each["snr_db"] for each in checked["comparisons"] if each.get("snr_db") is not None), default=None)


def _tftrt(words, end=float("inf")):
    """(exit code, the error's line or the last one)."""
    code, said = _models.tftrt(words, end)
    told = next(
        (line for line in said.splitlines() if line.startswith("tftrt: error: ")), (said.splitlines() or [""])[-1]
    )
    return code, told.removeprefix("tftrt: error: ")[:160]


if __name__ == "__main__":
    sys.exit(main())
