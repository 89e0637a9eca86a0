"""Which nodes of a cluster have a kind of GPU."""

# Kubernetes' label of a node, which NVIDIA's GPU feature discovery writes: the name of its GPU, with dashes.
LABEL = "nvidia.com/gpu.product"


def selector(gpu: str) -> dict[str, str]:
    """The label of nodes with a GPU, as Kubernetes' `nodeSelector` has it; {} for none. Args: gpu: its name by the driver, or ""."""
    return {LABEL: "-".join(gpu.split())} if gpu else {}
