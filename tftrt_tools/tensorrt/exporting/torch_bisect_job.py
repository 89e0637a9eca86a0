"""As bisect_job, of a PyTorch program: its nodes run one by one, and the file's tensors have the names of the nodes."""

from __future__ import annotations

import io
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy.typing as npt
import onnx
import torch
from torch.export.graph_signature import ConstantArgument, InputSpec

from tftrt_tools.models.execution import npz
from tftrt_tools.tensorrt.exporting.bisecting import Request
from tftrt_tools.tensorrt.exporting.job import departing
from tftrt_tools.tensorrt.exporting.result import Departure


def job(request: Request) -> Departure | None:
    """Search; None if no tensor departs that both have."""
    model, feed = onnx.load(request.onnx), npz.load(request.inputs)
    loaded = torch.export.load(io.BytesIO(pathlib.Path(request.frozen).read_bytes()))
    outputs = dict(zip(request.renamed, loaded.graph_signature.user_outputs, strict=True))
    seen = _Seen(loaded.graph_module)
    with torch.no_grad():
        seen.run(*_arguments(loaded, [feed[one.name] for one in model.graph.input]))
    names = {name: outputs.get(name, name) for name in departing.producers(model)}
    found = {name: seen.found[node] for name, node in names.items() if node in seen.found}
    return departing.first(model, pathlib.Path(request.onnx), feed, found)


def _arguments(loaded: torch.export.ExportedProgram, inputs: Iterable[npt.NDArray[Any]]) -> list[object]:
    """The values of a program's placeholders: parameters, buffers, constants, and the call's inputs in their order."""
    held, given = {**loaded.state_dict, **loaded.constants}, iter(inputs)

    def value(spec: InputSpec) -> object:
        if isinstance(spec.arg, ConstantArgument):
            return spec.arg.value
        return held[spec.target] if spec.target is not None else torch.from_numpy(next(given))

    return [value(spec) for spec in loaded.graph_signature.input_specs]


class _Seen(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a graph and keeps what each op gives. found: {node: (op, value)}."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.found: dict[str, tuple[str, Any]] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """As Interpreter.run_node."""
        value = super().run_node(n)
        if n.op == "call_function" and isinstance(value, torch.Tensor) and value.dtype != torch.bfloat16:
            self.found[n.name] = str(n.target), value.detach().numpy().copy()
        return value
