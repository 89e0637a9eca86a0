"""Results of `tftrt build --on` that no fleet has made, and a fleet that is none."""

import contextlib
import types

from tftrt_tools.base import errors
from tftrt_tools.fleet import content
from tftrt_tools.fleet.task import Outcome, Where
from tftrt_tools.studies.fleet_builds import building
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


def counted(monkeypatch):
    """Put a fleet that is none in the place of all. Returns: models: {kind that it has: its model, "" where it fails, an exception where it
    goes}, to be filled; asked: the kinds that it was asked for; complete: whether its models are."""
    fleet = types.SimpleNamespace(models={}, asked=[], complete=True, opened=0)

    @contextlib.contextmanager
    def opened(place):
        fleet.opened += 1
        machine = {"GPU": 1.0, **{f"accelerator_type:{kind}": 1.0 for kind in fleet.models}}
        yield types.SimpleNamespace(nodes=lambda: {"n": machine}, place=place)

    def run(_, tasks, *__, **___):
        for one in tasks:
            fleet.asked.append(one.name)
            model = fleet.models[one.name]
            if isinstance(model, BaseException):
                raise model
            if model:
                said = Built(complete=fleet.complete, text=(), made={})
                yield Outcome(task=one, status="done", tries=1, answer=said, output=content.pack(model))
            else:
                yield Outcome(task=one, status="failed", tries=1, error=errors.TftrtError("no memory", "free some"))

    monkeypatch.setattr(building.session, "opened", opened)
    monkeypatch.setattr(building.running, "run", run)
    return fleet
