"""What the platform that a Triton names for a model says of engines, and where the model's instances are.

A plan has one way to run: TensorRT runs it whole, or it fails. No engine runs on a CPU.
"""

import dataclasses

from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, LIKELY, NO, NOTHING, YES, Evidence

PLAN = "tensorrt_plan"
SETTLE = f"publish the plan with --triton_backend=tensorrt: the platform {PLAN} has no other way to run a model"
# Platforms that may build an engine inside a request: TensorFlow by TF-TRT, ONNX Runtime by its execution provider.
_BUILD = ("tensorflow", "onnxruntime")


@dataclasses.dataclass(frozen=True)
class Platform:
    """What runs a model. name: Triton's, such as "tensorrt_plan"; on_cpu: whether all of the model's instances are on the CPU."""

    name: str
    on_cpu: bool = False

    @property
    def builds(self) -> bool:
        """Whether an engine may be built inside a request."""
        return not self.on_cpu and self.name.startswith(_BUILD)

    @property
    def settle(self) -> list[str]:
        """What would make the answer more certain."""
        gpu = ["publish it with --triton_instance_kind=gpu, for a server that has a GPU"] if self.on_cpu else []
        return [*gpu, SETTLE]

    def evidence(self) -> Evidence:
        """The Evidence of it."""
        seen = f"the server's platform for this model is {self.name}"
        if self.name == PLAN:
            return Evidence(
                source="server", seen=f"{seen}, which runs all of it in TensorRT", speaks=YES, weight=CERTAIN
            )
        if self.on_cpu:
            # The Python backend may use a GPU all the same.
            return Evidence(
                source="server",
                seen=f"{seen}, and all of its instances are on the CPU (KIND_CPU)",
                speaks=NO,
                weight=LIKELY,
            )
        return Evidence(source="server", seen=f"{seen}, which may run it with or without TensorRT", speaks=NOTHING)
