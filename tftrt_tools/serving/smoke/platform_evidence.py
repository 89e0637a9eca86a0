"""What the platform that a Triton names for a model says of engines. A plan has one way to run: TensorRT runs it whole, or it fails."""

from tftrt_tools.serving.smoke.engine_evidence import CERTAIN, NOTHING, YES, Evidence

PLAN = "tensorrt_plan"
SETTLE = f"publish the plan with --triton_backend=tensorrt: the platform {PLAN} has no other way to run a model"


def of(platform: str) -> Evidence:
    """The Evidence of a platform, such as "tensorrt_plan"."""
    if platform == PLAN:
        return Evidence(source="server", seen=f"the server's platform for this model is {PLAN}, which runs all of it in TensorRT",
                        speaks=YES, weight=CERTAIN)
    return Evidence(source="server", seen=f"the server's platform for this model is {platform}, which may run it with or without TensorRT",
                    speaks=NOTHING)
