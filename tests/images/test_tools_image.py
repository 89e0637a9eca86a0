"""tftrt/tools: it tells what it has, and converts, verifies and publishes as the job of kubernetes/3-build.yaml does."""

import re

import pytest

from tests.images.build import RELEASE

pytestmark = [pytest.mark.images, pytest.mark.timeout(5400)]


def test_its_settings(built):
    config = built.podman.inspect(built.tools)["Config"]
    assert (config["User"], config["WorkingDir"], config["Entrypoint"]) == ("10001:10001", "/tmp", ["tftrt"])
    assert not config.get("Volumes") and not config.get("ExposedPorts")
    assert f"TFTRT_SERVER={built.serving}" in config["Env"]


def test_a_tensorrt_that_no_server_reads_ends_the_build_with_a_reason(built):
    if built.refused is None:
        pytest.skip("no TensorRT had to stand in for that of the image")
    assert "no server reads its engines" in built.refused


def test_it_says_its_version(built):
    said = built.podman.run(built.tools, "--version").stdout.split()[-1]
    assert said == (RELEASE if built.tensorflow == "2.14.1" else "0.1.0")


def test_doctor_finds_all_but_a_driver(built):
    said = built.podman.run(built.tools, "doctor", options=built.switch, check=False).stdout
    assert f"TensorFlow  {built.tensorflow}," in said
    assert re.search(r"^convert +yes$", said, re.MULTILINE), said
    assert re.search(r"^build, run +no +no NVIDIA driver here", said, re.MULTILINE), said
    broken = [line.split()[0] for line in said.splitlines() if "not found" in line or "ends the process" in line]
    # Nothing else is missing: the driver brings this one.
    assert [name for name in broken if name.startswith("lib")] == ["libcuda.so.1"], said


def test_the_user_writes_to_tmp_and_the_volume_alone(built, store):
    script = "id -u; id -g; for one in / /opt/tftrt-tools /usr/local /var/tmp /tmp /models; do test -w $one && echo $one; done; true"
    options = [f"--volume={store}:/models", "--entrypoint=/bin/sh"]
    assert built.podman.run(built.tools, "-c", script, options=options).stdout.split() == [
        "10001",
        "10001",
        "/tmp",
        "/models",
    ]


def test_it_converts_and_the_job_of_the_cluster_verifies_and_publishes(built, published):
    assert "published: /models/served/digits/1" in published.said
    assert f"target      {built.serving}: TensorFlow {built.tensorflow}" in published.said
