"""Fleets of the tests: a cluster of Ray's own test tools on this machine, with counted GPUs that are none."""

import contextlib
import dataclasses
import os
import secrets
import socket
import time

from tests import fleet_jobs
from tests.conftest import ROOT
from tftrt_tools.base.process import environment
from tftrt_tools.fleet import running, session, stack, worker
from tftrt_tools.fleet.task import Task

# What the head of this machine's cluster needs to listen on the loopback alone, and to take no token of the home folder.
ENV = {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    worker.COUNTED: "1",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    # The client gives a lost head that long.
    "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "5",
}
# Counted GPUs of this machine for --on=local.
COUNTED = {worker.COUNTED: "1", "RAY_OVERRIDE_RESOURCES": '{"GPU": 2, "accelerator_type:L4": 1}'}


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def cluster(*kinds, env=None):
    """A head without GPUs, and a machine with one GPU of each kind. Yields: (the cluster, its address for --on, the machines)."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    with environment.variables({**ENV, "PYTHONPATH": path}):
        # A test before may have used Ray in this process, with another token.
        session._read_anew()
        started, port = _head()
        try:
            nodes = [
                started.add_node(num_cpus=1, num_gpus=1, resources={kind: 1}, env_vars=(env or {}).get(number))
                for number, kind in enumerate(kinds)
            ]
            _until_it_listens(port)
            yield started, f"ray://127.0.0.1:{port}", nodes
        finally:
            started.shutdown()


def _head():
    """(A cluster with a head alone, its port for clients). What a busy machine does not start in Ray's 30 s is started once more."""
    from ray.cluster_utils import Cluster

    for last in (False, True):
        port = free_port()
        arguments = {"num_cpus": 2, "ray_client_server_port": port, "include_dashboard": False}
        try:
            return Cluster(initialize_head=True, head_node_args=arguments), port
        except Exception as error:
            if last or "timed out during startup" not in str(error):
                raise


def _until_it_listens(port, seconds=60):
    """The head's server for clients is a process of its own, which `Cluster` does not wait for."""
    end = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 5).close()
            return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def task(name, kind="", gpus=1, content=None, **request):
    return Task(
        name=name, job=fleet_jobs.work, request={**request, "name": name}, gpu_type=kind, gpus=gpus, content=content
    )


def run(fleet, *tasks, wanted=None, **options):
    """{name: Outcome} of tasks; each exactly once."""
    found = list(running.run(fleet, tasks, wanted or stack.here(), **options))
    assert sorted(one.task.name for one in found) == sorted(one.name for one in tasks)
    return {one.task.name: one for one in found}


def unlike_here(**versions):
    return dataclasses.replace(stack.here(), **versions)


@contextlib.contextmanager
def opened(place):
    with session.opened(place) as fleet:
        yield fleet
