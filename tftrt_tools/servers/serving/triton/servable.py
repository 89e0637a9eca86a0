"""What is to be served, read from its files alone: an ONNX file, a plan directory or a SavedModel. No runtime is imported here."""

import dataclasses
import os
import pathlib
from typing import Literal

from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.kinds.onnx import file as onnx_file
from tftrt_tools.models.kinds.onnx.kind import ONNX
from tftrt_tools.models.kinds.plan import document
from tftrt_tools.models.savedmodel import describe, engine_assets, files, passport, tensor_kinds
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.models.savedmodel.signatures import DEFAULT

# "plan": a directory of `tftrt convert --backend=tensorrt`.
Kind = Literal["onnx", "plan", "savedmodel"]
# (min, opt, max) of an input.
Range = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Servable(records.Record):
    """A model for Triton. Triton asks one function of it."""

    kind: Kind
    # The path as the user named it.
    path: str
    # The digest of its files.
    digest: str
    # The signature that is served.
    signature: str
    inputs: tuple[InputSpec, ...]
    outputs: tuple[InputSpec, ...]
    # {tensor: dtype} of tensors that a plan itself has in another type.
    engine_dtypes: dict[str, str] = dataclasses.field(default_factory=dict)
    # {input: (min, opt, max)} of each profile, () for a model without.
    profiles: tuple[dict[str, Range], ...] = ()
    # What a plan, or the engines of a SavedModel, were built with and for; "" without.
    tensorrt: str = ""
    compute_capability: str = ""
    # A plan that other releases of TensorRT run too.
    version_compatible: bool = False
    # Libraries of plugins, by their paths in the plan directory, or in the version that is made of it.
    plugins: tuple[str, ...] = ()
    # Whether TF-TRT or TensorRT made it, so that it needs a verification.
    converted: bool = False
    # Whether engine ops of TF-TRT have an implicit batch.
    implicit_batch: bool = False
    # Of the engine ops of TF-TRT.
    precisions: tuple[Precision, ...] = ()


def read(path: str | os.PathLike[str], signature: str = "") -> Servable:
    """The Servable at a path. Args: signature: of a SavedModel, "" for serving_default or the only one. Raises: UsageError, TftrtError."""
    named, folder = os.fspath(path), pathlib.Path(path)
    plan = files.is_plan(folder)
    if plan or ONNX.takes(named):
        if signature:
            what = "a plan directory" if plan else "an ONNX file"
            raise errors.UsageError(
                f"--signature_keys has no effect: {path} is {what}, which has no signatures", "leave it out"
            )
        return _plan(named, folder) if plan else _onnx(named)
    if folder.is_file() and folder.suffix == ".plan":
        raise errors.UsageError(
            f"{path} is a plan alone, and nothing says for which TensorRT, GPU and shapes it is",
            "give the plan directory that `tftrt convert --backend=tensorrt` wrote",
        )
    if not any(folder.glob("saved_model.pb*")):
        what = (
            "holds neither plan.json nor saved_model.pb"
            if folder.is_dir()
            else "is a file of no kind taken here"
            if folder.exists()
            else "is not there"
        )
        raise errors.UsageError(
            f"not a model for Triton: {path} {what}",
            "give a plan directory, an ONNX file (.onnx; `tftrt export` makes one) or a SavedModel directory",
        )
    files.check(folder)
    return _saved_model(named, signature)


def _onnx(path: str) -> Servable:
    ((name, signature),) = onnx_file.overview(path).signatures.items()
    for kind, names in (
        ("inputs", [spec.name for spec in signature.inputs]),
        ("outputs", [spec.name for spec in signature.outputs]),
    ):
        if doubled := next((name for name in names if names.count(name) > 1), ""):
            raise errors.UsageError(
                f"{path} has two {kind} of one name, {doubled!r}", "export it again with names that differ"
            )
    return Servable(
        kind="onnx",
        path=path,
        digest=ONNX.digest(path),
        signature=name,
        inputs=signature.inputs,
        outputs=signature.outputs,
    )


def _plan(path: str, folder: pathlib.Path) -> Servable:
    plan_file = document.read(folder)
    return Servable(
        kind="plan",
        path=path,
        digest=files.digest(folder),
        signature=DEFAULT,
        inputs=tuple(tensor.spec for tensor in plan_file.inputs),
        outputs=tuple(output.spec for output in plan_file.outputs),
        engine_dtypes={
            tensor.name: tensor.engine_dtype
            for tensor in (*plan_file.inputs, *plan_file.outputs)
            if tensor.engine_dtype
        },
        profiles=tuple(
            {name: (three.min, three.opt, three.max) for name, three in profile.inputs.items()}
            for profile in plan_file.profiles
        ),
        tensorrt=plan_file.tensorrt,
        compute_capability=plan_file.compute_capability,
        version_compatible=plan_file.version_compatible,
        plugins=tuple(plugin.file for plugin in plan_file.plugins),
        converted=True,
    )


def _saved_model(path: str, signature: str) -> Servable:
    (described,) = describe.describe(path)
    names = list(described.inputs)
    key = signature or (DEFAULT if DEFAULT in names else names[0] if len(names) == 1 else "")
    if key not in names:
        raise errors.UsageError(
            f"the model has no signature {key!r}" if key else "which signature? Triton serves one of a model",
            f"--signature_keys names one of: {', '.join(names)}",
        )
    tensor_kinds.check(key, described.inputs[key], described.outputs[key])
    origins = [
        engine_assets.origin(asset, passport.read(path, passport.MANIFEST)) for asset in engine_assets.read(path)
    ]
    tensorrt, capability = origins[0] if origins else ("", "")
    return Servable(
        kind="savedmodel",
        path=path,
        digest=files.digest(path),
        signature=key,
        inputs=described.inputs[key],
        outputs=described.outputs[key],
        tensorrt=tensorrt or "",
        compute_capability=capability or "",
        converted=bool(described.engines),
        implicit_batch=any(engine.implicit_batch for engine in described.engines),
        precisions=tuple(engine.precision for engine in described.engines),
    )
