"""Can a Triton run this model? Compares what a plan or an engine was built with and for with a named release."""

from collections.abc import Iterator

from tftrt_tools.base.stack import releases as stack_releases
from tftrt_tools.models.savedmodel import engine_assets
from tftrt_tools.servers.serving.publishing.target_preflight import Obstacle, Preflight
from tftrt_tools.servers.serving.triton import releases
from tftrt_tools.servers.serving.triton.backends import Backend
from tftrt_tools.servers.serving.triton.releases import Release
from tftrt_tools.servers.serving.triton.servable import Servable


def check(model: Servable, backend: Backend, release: Release | None, capability: str) -> Preflight:
    """The Preflight of a model. Args: release: None where the user named none. capability: of the server's GPU, "" where not known."""
    return Preflight(
        tuple(_obstacles(model, backend, release, capability)), tuple(_notes(model, backend, release, capability))
    )


def _obstacles(model: Servable, backend: Backend, release: Release | None, capability: str) -> Iterator[Obstacle]:
    if backend.name == "tensorflow" and release and release.tensorflow is False:
        yield Obstacle(
            f"Triton {release.name} has no TensorFlow backend: it ended in 2025",
            "serve the model as a plan or an ONNX file "
            "(`tftrt export`), or with TensorFlow Serving (--server=tensorflow)",
        )
    if _bound(model, backend) and release and not _reads(model, release):
        what = "the plan" if model.kind == "plan" else "an engine of the model"
        yield Obstacle(
            f"{what} was built by TensorRT {model.tensorrt}, and Triton {release.name} has {release.tensorrt}",
            _ways(model),
        )
    if (
        model.implicit_batch
        and backend.name == "tensorflow"
        and release
        and not stack_releases.has_implicit_batch(_numbers(release.tensorrt)[0])
    ):
        yield Obstacle(
            f"the model's engine ops have an implicit batch, which TensorRT {release.tensorrt} of Triton {release.name} does not have: "
            "everything in them would run in TensorFlow",
            "convert the original model with --use_dynamic_shape or --shapes",
        )
    if (
        model.compute_capability
        and capability
        and model.compute_capability != capability
        and backend.name != "onnxruntime"
    ):
        yield Obstacle(
            f"the model was built for compute capability {model.compute_capability}, and the server has {capability}",
            "build it on such a GPU",
        )


def _bound(model: Servable, backend: Backend) -> bool:
    """Whether TensorRT of Triton's container has to read what another machine built."""
    return bool(model.tensorrt) and backend.name in ("tensorrt", "tensorflow")


def _reads(model: Servable, release: Release) -> bool:
    if engine_assets.same_release(model.tensorrt, release.tensorrt):
        return True
    return model.version_compatible and _numbers(model.tensorrt) <= _numbers(release.tensorrt)


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdecimal()]


def _ways(model: Servable) -> str:
    fitting = releases.with_tensorrt(model.tensorrt)
    named = (
        f"--triton_release={fitting[-1]} fits"
        if fitting
        else f"no release that is known here has TensorRT {model.tensorrt}"
    )
    if len(fitting) > 1:
        named += f" (so do {', '.join(fitting[:-1])})"
    other = (
        "or --triton_backend=python runs it in the TensorRT of your own Python"
        if model.kind == "plan"
        else "or remove the engines (`tftrt build MODEL --strip`) and let the server build them"
    )
    return f"{named}; or build it with that container's TensorRT; {other}"


def _notes(model: Servable, backend: Backend, release: Release | None, capability: str) -> Iterator[str]:
    if _bound(model, backend) and release is None:
        fitting = releases.with_tensorrt(model.tensorrt)
        hint = f"; known here: {', '.join(fitting)}" if fitting else ""
        yield f"it runs only in a Triton with TensorRT {model.tensorrt}{hint}; --triton_release compares"
    if model.compute_capability and not capability and backend.name != "onnxruntime":
        yield f"it needs a GPU of compute capability {model.compute_capability}; --compute_capability compares it with the server's"
    if backend.name == "tensorflow" and (release is None or release.tensorflow is None):
        yield "the TensorFlow backend ended in 2025: look for /opt/tritonserver/backends/tensorflow in the container"
    if backend.name == "python":
        needs = (
            "onnxruntime"
            if model.kind == "onnx"
            else "onnxruntime, or on a GPU tftrt-tools with the TensorRT of the plan,"
        )
        yield f"the Python of Triton's Python backend needs numpy and {needs}"
    if model.plugins and backend.name == "tensorrt":
        yield f"Triton has to load the plugins: LD_PRELOAD={':'.join(model.plugins)} (in the version's directory)"
    if len(model.profiles) > 1 and backend.name == "tensorrt":
        yield f"the plan has {len(model.profiles)} profiles; each instance loads all of them"
