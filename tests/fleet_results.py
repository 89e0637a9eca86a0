"""Results of `tftrt build --on` that no fleet has made."""

from tftrt_tools.fleet.task import Where
from tftrt_tools.studies.fleet_builds.building import Built, FleetBuild, KindBuilt


def kind(gpu_type, **facts):
    """KindBuilt of one that is there with its engines, but for `facts`."""
    there = {
        "status": "done",
        "output": f"/built/{gpu_type}",
        "where": Where(node="n", host="h", gpus="0"),
        "seconds": 2.5,
        "built": Built(complete=True, text=("2 engines",), made={"engines": 2}),
    }
    return KindBuilt(gpu_type=gpu_type, **there | facts)


def result(*kinds):
    """FleetBuild of them."""
    facts = {"model": "/m", "output": "/built", "on": "ray://h:10001", "shapes": "x:1", "content_digest": "sha256:0"}
    return FleetBuild(**facts, kinds=kinds, seconds=3.0)
