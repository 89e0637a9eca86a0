"""model.py of Triton's Python backend: `tftrt publish --server=triton --triton_backend=python` copies it beside the model's files.

It runs in Triton, not in this project. On a CPU, ONNX Runtime runs model.onnx, and nothing but numpy and onnxruntime has to be there. On a
GPU (instance_group of KIND_GPU) with a plan.json beside it, tftrt-tools and the TensorRT that built the plan run model.plan.

Where a version has a folder for each kind of GPU, the plan.json of each says for which compute capability it is: an instance takes that of
its GPU. On a CPU the ONNX file of the first folder runs.
"""

import json
import os
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # Triton's Python backend puts it there


class TritonPythonModel:
    """One instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load it. Args: args: of Triton: the configuration as JSON, the folder, the version, the kind of the instance."""
        config = json.loads(args["model_config"])
        self._inputs = [entry["name"] for entry in config["input"]]
        self._outputs = [entry["name"] for entry in config["output"]]
        self._dtypes = {entry["name"]: triton.triton_string_to_numpy(entry["data_type"]) for entry in config["output"]}
        self._batched = int(config["max_batch_size"]) > 0
        # Clients send and get these as [batch, 1]; the model's own shape is [batch].
        self._flat = {
            entry["name"] for entry in (*config["input"], *config["output"]) if entry.get("reshape") == {"shape": []}
        }
        folder = os.path.join(args["model_repository"], args["model_version"])
        on_gpu, device = args["model_instance_kind"] == "GPU", int(args["model_instance_device_id"])
        version = f"{args['model_name']} version {args['model_version']}"
        kinds = _kinds(folder)
        planned = on_gpu and (bool(kinds) or os.path.isfile(os.path.join(folder, "plan.json")))
        if planned:
            _see_only(device)
        kind = ""
        if kinds:
            kind = _fitting(kinds, version, device) if on_gpu else next(iter(kinds.values()))
        model = os.path.join(folder, kind)
        self._run = _plan(model) if planned else _onnx(model, self._outputs)
        # Triton prints it in its log: where it has no GPU, a plan's ONNX file answers.
        runs = os.path.join(kind, "model.plan" if planned else "model.onnx")
        where = f"on GPU {device}" if planned else "in ONNX Runtime on the CPU"
        print(f"tftrt: {version} runs {runs} {where}", flush=True)

    def execute(self, requests: list[Any]) -> list[Any]:
        """The answers to requests. Those of one batch that Triton joined run as one call."""
        given = [{name: self._input(request, name) for name in self._inputs} for request in requests]
        if not self._batched or len(given) == 1 or not _alike(given):
            return [self._answer(feed) for feed in given]
        rows = [len(feed[self._inputs[0]]) for feed in given]
        try:
            outputs = self._run({name: np.concatenate([feed[name] for feed in given]) for name in self._inputs})
        except Exception:
            # One bad request must not fail the others.
            return [self._answer(feed) for feed in given]
        if any(np.ndim(outputs[name]) == 0 or len(outputs[name]) != sum(rows) for name in self._outputs):
            # A sum of the rows, say, would be that of all clients.
            return [self._answer(feed) for feed in given]
        places = np.cumsum(rows)[:-1]
        parts = {name: np.split(outputs[name], places) for name in self._outputs}
        return [self._response({name: parts[name][number] for name in self._outputs}) for number in range(len(given))]

    def _input(self, request: "triton.InferenceRequest", name: str) -> Any:
        array = triton.get_input_tensor_by_name(request, name).as_numpy()
        return array.reshape(-1) if name in self._flat else array

    def _answer(self, inputs: dict[str, Any]) -> Any:
        try:
            return self._response(self._run(inputs))
        except Exception as error:
            return triton.InferenceResponse(error=triton.TritonError(" ".join(str(error).split())))

    def _response(self, outputs: dict[str, Any]) -> Any:
        arrays = {name: np.ascontiguousarray(outputs[name], self._dtypes[name]) for name in self._outputs}
        return triton.InferenceResponse(
            [
                triton.Tensor(name, array.reshape(-1, 1) if name in self._flat else array)
                for name, array in arrays.items()
            ]
        )


def _kinds(folder: str) -> dict[str, str]:
    """{compute capability: name of a folder in the version}, the names in order; {} for a version of one model."""
    found: dict[str, str] = {}
    # One model may have another one in a folder of it.
    if any(os.path.isfile(os.path.join(folder, name)) for name in ("plan.json", "model.onnx")):
        return found
    for name in sorted(os.listdir(folder)):
        document = os.path.join(folder, name, "plan.json")
        if os.path.isfile(document):
            with open(document) as opened:
                found[json.load(opened)["compute_capability"]] = name
    return found


def _fitting(kinds: dict[str, str], version: str, device: int) -> str:
    """The folder for the GPU that this process sees. Raises: TritonModelException where there is none."""
    capability = _capability()
    if capability in kinds:
        return kinds[capability]
    listed = ", ".join(f"{name} is for {of_kind}" for of_kind, name in kinds.items())
    raise triton.TritonModelException(
        f"{version} has no model for GPU {device}, of compute capability {capability or 'that is not known'}: {listed}; "
        "build it for that kind of GPU too with `tftrt build --on`, and publish again"
    )


def _capability() -> str:
    """Of the GPU that this process sees, such as "8.9"; "" where it sees none."""
    import importlib

    gpu = importlib.import_module("tftrt_tools.models.execution.job.device").seen()
    return str(gpu["compute_capability"]) if gpu else ""


def _see_only(device: int) -> None:
    """Let CUDA see one GPU: tftrt-tools takes the first, and CUDA has not started in this process yet.

    Args: device: the number that Triton gives the GPU of this instance, which has a process of its own.
    """
    visible = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[device] if device < len(visible) else str(device)


def _alike(given: list[dict[str, Any]]) -> bool:
    """Whether calls differ in nothing but their rows."""
    return len({tuple(array.shape[1:] for array in one.values()) for one in given}) == 1


def _onnx(folder: str, outputs: list[str]) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(os.path.join(folder, "model.onnx"), providers=["CPUExecutionProvider"])
    texts = {spec.name for spec in session.get_inputs() if spec.type == "tensor(string)"}

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        feed = {
            name: np.vectorize(bytes.decode, otypes=[object])(array) if name in texts and array.size else array
            for name, array in inputs.items()
        }
        return dict(zip(outputs, session.run(outputs, feed), strict=True))

    return run


def _plan(folder: str) -> Any:
    import importlib

    graph = os.environ.get("TFTRT_PLAN_CUDA_GRAPH") == "1"
    loaded = importlib.import_module("tftrt_tools.models.kinds.plan.runner_job").Loaded(folder, graph)
    return loaded.answer
