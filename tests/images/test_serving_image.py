"""tftrt/serving, on a base whose server is this project's development server: user, paths, entry point, health check, and a start as Compose,
kubernetes/ and kserve/ have it."""

import json
import shutil

import pytest
import yaml

from tests.conftest import ROOT
from tests.images.servers import Server

pytestmark = [pytest.mark.images, pytest.mark.timeout(5400)]

SERVING = ROOT / "serving"
ROWS = {"instances": [[[[0.0]] * 8] * 8] * 3}


@pytest.fixture
def serve(built):
    started = []

    def start(name, options=(), arguments=()):
        options = [*options, *built.switch]
        started.append(Server(built.podman, built.serving, name, options, arguments))
        return started[-1]

    yield start
    for one in started:
        one.remove()


def test_its_settings(built):
    found = built.podman.inspect(built.serving)
    config = found["Config"]
    assert (config["User"], config["Entrypoint"]) == ("10001:10001", ["entrypoint.sh"])
    assert set(config["ExposedPorts"]) == {"8500/tcp", "8501/tcp"} and not config.get("Volumes")
    second = 10**9
    assert found["Healthcheck"] == {
        "Test": ["CMD", "healthcheck.sh"],
        "Interval": 15 * second,
        "Timeout": 5 * second,
        "StartPeriod": 1800 * second,
        "Retries": 3,
    }


def test_as_compose_starts_it(built, serve, published):
    server = serve("compose", [f"--volume={published.folder}:/models:ro", f"--volume={SERVING}/config:/config:ro"])
    assert server.wait(), "no port is open before the models are loaded"
    # TensorFlow's word where either library of TensorRT, or one that these need, is missing.
    assert "Could not find TensorRT" not in server.log()
    assert server.sh(
        "id -u; for one in / /etc/serving /models /config /tmp; do test -w $one && echo $one; done; true"
    ).split() == ["10001", "/tmp"]
    assert len(json.loads(server.ask("/v1/models/digits:predict", ROWS))["predictions"]) == 3
    assert ":tensorflow:serving:request_count" in server.ask("/monitoring/prometheus/metrics")
    seconds, code = server.stop()
    assert code == 0 and seconds < 30, server.log()


def test_as_the_cluster_starts_it(built, serve, published, tmp_path):
    documents = list(yaml.safe_load_all((SERVING / "kubernetes/4-serving.yaml").read_text()))
    (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
    (config,) = yaml.safe_load_all((SERVING / "kubernetes/2-config.yaml").read_text())
    tmp_path.chmod(0o755)
    for name, text in config["data"].items():
        (tmp_path / name).write_text(text)
    volumes = [f"--volume={published.folder.parent}:/models:ro", f"--volume={tmp_path}:/config:ro"]
    server = serve("cluster", volumes, container["args"])
    server.open(8500)
    assert json.loads(server.ask(container["readinessProbe"]["httpGet"]["path"]))["model_version_status"]
    assert len(json.loads(server.ask("/v1/models/digits:predict", ROWS))["predictions"]) == 3
    assert ":tensorflow:serving:request_count" in server.ask("/monitoring/prometheus/metrics")
    server.sh(" ".join([*container["lifecycle"]["preStop"]["exec"]["command"][:1], "1"]))
    assert server.stop()[1] == 0, server.log()


def test_as_kserve_starts_it(built, serve, published):
    runtime = yaml.safe_load((SERVING / "kserve/serving-runtime.yaml").read_text())
    (container,) = runtime["spec"]["containers"]
    arguments = [one.replace("{{.Name}}", "digits") for one in container["args"]]
    server = serve("kserve", [f"--volume={published.folder}/digits:/mnt/models:ro"], arguments)
    server.open(container["startupProbe"]["tcpSocket"]["port"])
    (port,) = (one["containerPort"] for one in container["ports"])
    assert len(json.loads(server.ask("/v1/models/digits:predict", ROWS, port))["predictions"]) == 3
    assert server.stop()[1] == 0, server.log()


def test_a_model_that_does_not_load_ends_it_with_the_servers_code(serve, published, tmp_path):
    shutil.copytree(published.folder / "digits", tmp_path / "digits")
    (tmp_path / "digits/1/saved_model.pb").write_bytes(b"nothing")
    tmp_path.chmod(0o755)
    flags = ["--model_name=digits", "--model_base_path=/models/digits", "--max_num_load_retries=0"]
    server = serve("broken", [f"--volume={tmp_path}:/models:ro"], flags)
    assert server.wait_for_the_end() != 0, server.log()


def test_its_tensorrt_is_the_one_that_builds_the_engines(built, serve, published):
    """As the server finds it: through the library path, and no other is there."""
    server = serve("libraries", [f"--volume={published.folder}:/models:ro", f"--volume={SERVING}/config:/config:ro"])
    name = {"2.14.1": "libnvinfer.so.8", "2.17.1": "libnvinfer.so.8.6.1"}[built.tensorflow]
    code = f'import ctypes; print(ctypes.CDLL("{name}").getInferLibVersion())'
    found = server.sh(
        f"python -c '{code}'; ls /usr/lib/x86_64-linux-gnu | grep nvinfer; dpkg --list | grep nvinfer; echo $LD_LIBRARY_PATH"
    )
    version, *files, path = found.split()
    if built.tensorflow == "2.14.1":
        assert (version, files) == ("8503", []) and path.startswith("/opt/tensorrt:/usr/local/cuda/"), found
        loaded = "from tensorflow.compiler.tf2tensorrt import _pywrap_py_utils as one; print(one.get_loaded_tensorrt_version())"
        assert server.sh(f"python -c '{loaded}' 2>/dev/null").strip() == "(8, 5, 3)"
    else:
        assert version in ("8600", "8601") and name in files and not path.startswith("/opt/tensorrt"), found
