"""serving/triton/: what is handed to Docker and Kubernetes for a Triton, read by their own tools and held against the code and the real
server."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from tests.conftest import ROOT
from tests.triton_server import installed
from tftrt_tools.servers.serving.triton import releases

FOLDER = ROOT / "serving" / "triton"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
MANIFESTS = {one["kind"]: one for one in yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())}
POD = MANIFESTS["Deployment"]["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())


def test_the_dockerfile_has_no_lint():
    done = subprocess.run(
        [pathlib.Path(sys.executable).parent / "hadolint", "--failure-threshold", "style", FOLDER / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_release_has_the_tensorrt_that_builds_the_plans():
    (release,) = set(re.findall(r"tritonserver:(\S+)-py3", DOCKERFILE))
    pinned = re.search(r"^tensorrt==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert release in releases.with_tensorrt(pinned)
    image = f"tftrt/triton:{release}"
    assert f"--tag {image} ." in DOCKERFILE and COMPOSE["services"]["triton"]["image"] == image == CONTAINER["image"]


def _arguments():
    command = json.loads(re.search(r'^CMD (\["tritonserver".*\])$', DOCKERFILE, re.MULTILINE)[1])
    return [("Dockerfile", command), ("kubernetes.yaml", CONTAINER["args"])]


def test_the_real_server_knows_every_argument():
    home = installed()
    done = subprocess.run(
        [home / "pytriton/tritonserver/bin/tritonserver", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LD_LIBRARY_PATH": str(home / "nvidia_pytriton.libs")},
    )
    known = set(re.findall(r"^\s*(--[\w-]+)", done.stdout + done.stderr, re.MULTILINE))
    assert {"--model-repository", "--grpc-port"} <= known
    for where, (program, *arguments) in _arguments():
        assert program == "tritonserver" and {one.partition("=")[0] for one in arguments} <= known, where


def test_compose_mounts_the_repository_and_opens_nothing_to_the_network():
    service = COMPOSE["services"]["triton"]
    assert [one.rpartition("}")[2] for one in service["volumes"]] == [":/models:ro"]
    assert (
        all(port.startswith("127.0.0.1:") for port in service["ports"])
        and (FOLDER / service["build"]["context"]).resolve() == ROOT
    )
    assert (ROOT / service["build"]["dockerfile"]).is_file() and f" AS {service['build']['target']}" in DOCKERFILE
    command = next(
        (
            argv
            for argv in (["docker", "compose"], ["docker-compose"])
            if shutil.which(argv[0])
            and not subprocess.run([*argv, "version"], capture_output=True, check=False).returncode
        ),
        None,
    )
    if command is None:
        pytest.skip("no docker compose here (Debian's package docker-compose has it)")
    shown = subprocess.run(
        [*command, "--file", FOLDER / "compose.yaml", "config"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "MODELS": "/models"},
    )
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_takes_every_manifest(version):
    assert set(MANIFESTS) == {"Deployment", "Service", "PodDisruptionBudget"}
    for one in MANIFESTS.values():
        kubernetes_validate.validate(one, version, strict=True)


def test_the_manifests_fit_together():
    deployment, service, budget = MANIFESTS["Deployment"], MANIFESTS["Service"], MANIFESTS["PodDisruptionBudget"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert (
        labels
        == deployment["spec"]["selector"]["matchLabels"]
        == service["spec"]["selector"]
        == budget["spec"]["selector"]["matchLabels"]
    )
    ports = {one["name"]: one["containerPort"] for one in CONTAINER["ports"]}
    assert ports == {"http": 8000, "grpc": 8001, "metrics": 8002} and {
        one["targetPort"] for one in service["spec"]["ports"]
    } <= set(ports)
    assert {one["name"] for one in CONTAINER["volumeMounts"]} == {one["name"] for one in POD["volumes"]}
    (store,) = yaml.safe_load_all((ROOT / "serving/kubernetes/1-store.yaml").read_text())
    assert {one["persistentVolumeClaim"]["claimName"] for one in POD["volumes"] if "persistentVolumeClaim" in one} == {
        store["metadata"]["name"]
    }
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    probe = CONTAINER["startupProbe"]
    assert deployment["spec"]["progressDeadlineSeconds"] > probe["periodSeconds"] * probe["failureThreshold"]
    assert POD["terminationGracePeriodSeconds"] > int(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])


def test_the_container_has_limits_a_gpu_and_no_privileges():
    context = {**POD["securityContext"], **CONTAINER["securityContext"]}
    assert CONTAINER["resources"]["limits"]["nvidia.com/gpu"] == 1 and "memory" in CONTAINER["resources"]["limits"]
    assert (
        context["runAsNonRoot"]
        and not context["allowPrivilegeEscalation"]
        and context["capabilities"] == {"drop": ["ALL"]}
    )
    assert f"--uid {context['runAsUser']} " in DOCKERFILE and f"USER {context['runAsUser']}:" in DOCKERFILE
