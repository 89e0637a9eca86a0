"""Which machines can take a task, and where processes are held."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.fleet.task import Task

# How Ray counts kinds of GPU, and the share that a task takes of one.
_TYPE, _SHARE = "accelerator_type:", 0.001
_OF_RAY = ("CPU", "GPU", "memory", "object_store_memory")
# A resource of the head's machine alone.
_HEAD = "node:__internal_head__"


def check_type(name: str) -> None:
    """Refuse a text that is no name of a kind of GPU: it becomes a part of a path. Raises: UsageError."""
    # A name with a dot in front is none that `publish` takes.
    if not name or name.startswith(".") or "/" in name or name != name.strip():
        raise errors.UsageError(f"{name!r} is no kind of GPU", "give names such as T4 or L4")


def gpu_types(nodes: Iterable[Mapping[str, float]]) -> tuple[str, ...]:
    """The kinds of GPU that machines with these resources have: those that Ray knows, and resources of the user's own on machines with
    a GPU."""
    names = {name.removeprefix(_TYPE) for one in nodes if one.get("GPU") for name in one if _is_type(name)}
    return tuple(sorted(names))


def _is_type(name: str) -> bool:
    return name.startswith(_TYPE) or not (name in _OF_RAY or name.startswith("node:"))


def options(task: Task, nodes: Mapping[str, Mapping[str, float]], avoided: Collection[str]) -> dict[str, Any]:
    """Ray's options for a task. Args: nodes: {name: resources}; avoided: names of machines where it must not run."""
    found: dict[str, Any] = {"num_gpus": task.gpus, "num_cpus": 0 if task.gpus else 1, "name": task.name}
    if task.gpu_type:
        own = any(task.gpu_type in one for one in nodes.values())
        found["resources"] = {task.gpu_type if own else _TYPE + task.gpu_type: _SHARE}
    if here := sorted(set(avoided) & set(nodes)):
        found["label_selector"] = {"ray.io/node-id": f"!in({','.join(here)})"}
    return found


def fitting(task: Task, nodes: Mapping[str, Mapping[str, float]], avoided: Collection[str] = ()) -> list[str]:
    """The names of the machines that could take it when they are free."""
    return [name for name, one in nodes.items() if name not in avoided and _fits(task, one)]


def _fits(task: Task, one: Mapping[str, float]) -> bool:
    if task.gpus and one.get("GPU", 0) < task.gpus or not task.gpus and one.get("CPU", 0) < 1:
        return False
    return not task.gpu_type or task.gpu_type in one or _TYPE + task.gpu_type in one


def spread(
    nodes: Mapping[str, Mapping[str, float]],
    count: int,
    taken: Mapping[str, int],
    avoided: Collection[str] = (),
    counted: bool = True,
) -> list[str]:
    """The machine of each of `count` processes: different ones where there are as many, the head's last.

    Args: taken: {name: processes that are there already}. avoided: names of machines that get none. counted: whether each process takes
      one of the processors that a machine has. Returns: [count] names; [] where there is no room for all.
    """
    held = {name: taken.get(name, 0) for name, one in nodes.items() if name not in avoided and one.get("CPU", 0) >= 1}
    found: list[str] = []
    for _ in range(count):
        room = [name for name in held if not counted or held[name] < int(nodes[name]["CPU"])]
        if not room:
            return []
        best = min(room, key=lambda name: (held[name], _HEAD in nodes[name], name))
        held[best] += 1
        found.append(best)
    return found


def on(node: str) -> dict[str, Any]:
    """Ray's options for what has to run on that machine."""
    return {"label_selector": {"ray.io/node-id": node}}


def not_placeable(task: Task, nodes: Mapping[str, Mapping[str, float]], where: str) -> errors.TftrtError:
    """The error of a task that no machine could take. Args: where: the fleet, for the message."""
    types = gpu_types(nodes.values())
    if not types and task.gpus:
        return errors.TftrtError(f"{where} has no GPU", "add a machine with one")
    if task.gpu_type and task.gpu_type not in types:
        return errors.TftrtError(
            f"{where} has no GPU of the kind {task.gpu_type}", errors.nearest(task.gpu_type, types)
        )
    return errors.TftrtError(f"{where} has no machine for {task.name}", "there are: " + (", ".join(types) or "none"))
