"""Plans without a GPU. What TensorRT 8.5.3's inspector told of two plans on an H100 (80 GB HBM3), with the ONNX files that they were built
from, without weights; and a plan directory around one of them, whose plan nothing can run.

    resnet50_fp16   of `tftrt export` and `tftrt convert --backend=tensorrt --precision=FP16`: batch 1, 32, 128
    fer_int8        written with QuantizeLinear and DequantizeLinear nodes: batch 1, 32
"""

import functools
import gzip
import json

import onnx

from tests.conftest import ROOT
from tftrt_tools.models.kinds.plan import document, layer_information
from tftrt_tools.models.kinds.plan.document import PlanFile, Tensor
from tftrt_tools.models.kinds.plan.profiles import Profile, Range
from tftrt_tools.models.savedmodel import files, passport
from tftrt_tools.studies.profiling.job import plan_onnx
from tftrt_tools.tensorrt.plans import settings
from tftrt_tools.tensorrt.plans.result import Built

RESNET, FER = "resnet50_fp16", "fer_int8"
INPUTS = {RESNET: ("image", (224, 224, 3)), FER: ("input_1", (64, 64, 1))}
HERE = {"name": "NVIDIA H100 80GB HBM3", "compute_capability": "9.0", "driver": "550.90"}


def _read(name):
    return gzip.decompress((ROOT / "tests/data/plans" / f"{name}.gz").read_bytes())


def layers(name):
    """What the inspector said."""
    return json.loads(_read(f"{name}.layers.json"))


@functools.cache
def model(name):
    """The ONNX file, whose weights are elsewhere."""
    return onnx.ModelProto.FromString(_read(f"{name}.onnx"))


@functools.cache
def rows(name, profile=0):
    """{layer: what the inspector said of it} of a profile."""
    return {row.name: row for row in layer_information.rows(layers(name)) if row.profile == profile}


@functools.cache
def graph(name, batch=1):
    """The ONNX file with the sizes of a call."""
    given, shape = INPUTS[name]
    return plan_onnx.of(model(name), {given: (batch, *shape)})


def directory(folder, name=RESNET, batches=(1, 32)):
    """A plan directory with what was recorded. Its plan is no engine. Returns: folder."""
    given, shape = INPUTS[name]
    folder.mkdir(parents=True)
    (folder / "model.plan").write_bytes(b"no engine")
    (folder / "model.onnx").write_bytes(_read(f"{name}.onnx"))
    profiles = tuple(Profile({given: Range(*[(batch, *shape)] * 3)}) for batch in batches)
    precision = name.rsplit("_", 1)[1].upper()
    said = PlanFile(
        tensorrt="8.5.3.1",
        compute_capability="9.0",
        gpu=HERE["name"],
        precision=precision,
        inputs=(Tensor(given, "float32", (None, *shape), "float32"),),
        outputs=(Tensor("logits", "float32", (None, 1000), "float32"),),
        profiles=profiles,
        builder_flags=("FP16", "TF32"),
        bytes=(folder / "model.plan").stat().st_size,
        digest=files.digest(folder / "model.plan"),
    )
    (folder / "plan.json").write_text(json.dumps(said.to_dict()))
    passport.write(folder, document.LAYER_INFORMATION, layers(name))
    built = Built(
        source="/m.onnx",
        source_digest="sha256:0",
        output=str(folder),
        settings=settings.Settings(precision_mode=precision),
        versions={"tensorrt": "8.5.3.1"},
        gpu=HERE,
        plan=said,
        seconds=3.0,
        parse_seconds=0.5,
        build_seconds=2.0,
        known_timings=0,
    )
    passport.write(folder, passport.MANIFEST, built.to_dict())
    return folder
