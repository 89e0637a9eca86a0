"""serving/: what is handed to Docker, Prometheus, Grafana and Kubernetes, read by their own tools and held against the code."""

import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml

from tests.conftest import ROOT
from tests.example_flags import check_flags, check_flags_elsewhere
from tftrt_tools.base import errors
from tftrt_tools.base.stack import images, releases
from tftrt_tools.base.wire import config_messages
from tftrt_tools.servers.serving import metric_names, server_flags

SERVING = ROOT / "serving"
MONITORING = SERVING / "monitoring"
DASHBOARD = MONITORING / "grafana/dashboards/tensorflow-serving.json"
KUSTOMIZATIONS = {"kubernetes", "kserve", "kuberay"}
VERSION = SERVING / "version" / "kustomization.yaml"
MANIFESTS, KSERVE = (
    sorted(path for path in (SERVING / folder).glob("*.yaml") if path.name != "kustomization.yaml")
    for folder in ("kubernetes", "kserve")
)
DOCKERFILE = (SERVING / "Dockerfile").read_text()
# Of dcgm-exporter's default counters.
GPU_METRICS = {"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS"}

needs_promtool = pytest.mark.skipif(
    not shutil.which("promtool"), reason="no promtool here (Debian's package prometheus has it)"
)


def documents(paths):
    return [(path.name, one) for path in paths for one in yaml.safe_load_all(path.read_text())]


def kinds(name):
    return [one for _file, one in documents(MANIFESTS) if one["kind"] == name]


def tool(argv, **keywords):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, timeout=120, check=False, **keywords)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


# The image


def test_the_dockerfile_has_no_lint():
    tool([pathlib.Path(sys.executable).parent / "hadolint", "--failure-threshold", "style", SERVING / "Dockerfile"])


def test_hadolint_finds_what_is_wrong(tmp_path):
    (tmp_path / "Dockerfile").write_text(
        DOCKERFILE.replace("FROM tensorflow/serving:2.14.1-gpu${SERVING_DIGEST}", "FROM tensorflow/serving")
    )
    with pytest.raises(AssertionError, match="DL3006"):
        tool([pathlib.Path(sys.executable).parent / "hadolint", tmp_path / "Dockerfile"])


def test_the_image_has_the_tensorrt_that_builds_the_engines():
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    wanted = dict(
        re.findall(
            r"^([\w-]+)==(\S+) --hash=sha256:[0-9a-f]{64}$", (SERVING / "image/tensorrt.txt").read_text(), re.MULTILINE
        )
    )
    assert wanted.pop("nvidia-cuda-nvrtc-cu11") == pinned["nvidia-cuda-nvcc-cu11"], "NVRTC is of the same CUDA"
    assert wanted == {"tensorrt": pinned["tensorrt"]}
    swapped, own = images.OWN_IMAGES
    assert pinned["tensorrt"].startswith(f"{swapped.tensorrt}.")
    (last,) = (stage for name, stage in stages().items() if name == f"serving-{own.tensorflow}")
    assert f"libnvinfer.so.{own.tensorrt}" in last and not re.search("purge|COPY|LD_LIBRARY_PATH", last), (
        "nothing is swapped"
    )
    assert f"libnvinfer.so.{releases.RELEASES[releases.minor(own.tensorflow)].nvinfer}" in last, (
        "as the server asks for it"
    )


def stages():
    """{name of a stage: its text}."""
    parts = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {re.match(r"FROM \S+ AS (\S+)", part)[1]: part for part in parts}


@pytest.mark.parametrize("own", images.OWN_IMAGES, ids=lambda own: own.tensorflow)
def test_the_dockerfile_makes_both_images_of_each_version(own):
    assert {f"tools-{own.tensorflow}", f"serving-{own.tensorflow}", "tools", "serving"} <= set(stages())
    stock = images.of(own.tensorflow)[1]
    assert stages()[f"serving-{own.tensorflow}"].startswith(f"FROM {stock}${{SERVING_DIGEST}} AS ")
    extra = {releases.RECOMMENDED: "tftrt", releases.LAST: "tftrt-2-17"}[own.tensorflow]
    assert f"'.[{extra}]'" in stages()[f"tools-{own.tensorflow}"]
    for name in ("tools", "serving"):
        assert stages()[name].startswith(f"FROM {name}-${{TENSORFLOW}} AS ") and "USER 10001" in stages()[name]
    # KubeRay's pods: Ray of the constraints, and no other user.
    assert stages()["fleet"].startswith("FROM tools AS fleet\n") and stages()["fleet"].rstrip().endswith(
        "USER 10001:10001"
    )
    constraints = {releases.RECOMMENDED: "constraints.txt", releases.LAST: "constraints-2.17.txt"}[own.tensorflow]
    assert f" {constraints} ./\n" in stages()[f"tools-{own.tensorflow}"], "it lies in the working directory"
    assert "WORKDIR /opt/tftrt-tools\n" in stages()[f"tools-{own.tensorflow}"]
    assert re.search(r"^ray==", (ROOT / constraints).read_text(), re.MULTILINE)
    assert "TFTRT_SERVER=tftrt/serving:${TENSORFLOW}" in stages()["tools"] and "\nARG TENSORFLOW\n" in stages()["tools"]
    # Engines of the TensorRT that stands in for 8.6.1 are read by no server.
    assert "libnvinfer_builder_resource.so.8.6.1" in stages()[f"tools-{releases.LAST}"]
    argument = "" if own.tensorflow == releases.RECOMMENDED else f"--build-arg TENSORFLOW={own.tensorflow} "
    for text in (DOCKERFILE, (SERVING / "README.md").read_text()):
        assert f"docker build --file serving/Dockerfile {argument}--tag {own.name} ." in text
        for target in ("tools", "fleet"):
            assert f"{argument}--target {target} --tag tftrt/{target}:{own.tensorflow} ." in text


def test_what_the_dockerfile_copies_is_there_and_not_ignored():
    kept = [line[1:] for line in (SERVING / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.removeprefix("--chmod=755 ").split()[:-1]
    ]
    assert len(copied) >= 6
    for source in copied:
        assert (ROOT / source).exists(), source
        assert any(source == one or source.startswith(one + "/") for one in kept), (
            f"{source} is not in the build's context"
        )


def test_digests_are_arguments_and_none_is_invented():
    assert re.findall(r"^ARG (\w+)=(.*)$", DOCKERFILE, re.MULTILINE) == [
        ("TENSORFLOW", releases.RECOMMENDED),
        ("SERVING_DIGEST", '""'),
        ("PYTHON_DIGEST", '""'),
    ]
    bases = [
        line
        for line in re.findall(r"^FROM .*", DOCKERFILE, re.MULTILINE)
        if not re.search(r"\$\{TENSORFLOW\}|^FROM tools ", line)
    ]
    assert len(bases) == 5 and all(re.search(r"\$\{\w+_DIGEST\} AS", line) for line in bases)
    assert "sha256" not in DOCKERFILE


def test_the_image_is_the_one_that_serve_looks_for():
    server = compose()["services"]["server"]
    given = f"${{TENSORFLOW:-{releases.RECOMMENDED}}}"
    assert (server["image"], server["build"]["args"]["TENSORFLOW"]) == (f"{images.OWN}:{given}", given)
    servers = [
        *(
            container["image"]
            for one in kinds("Deployment")
            for container in one["spec"]["template"]["spec"]["containers"]
        )
    ]
    servers += [
        one["spec"]["containers"][0]["image"] for _file, one in documents(KSERVE) if one["kind"] == "ServingRuntime"
    ]
    assert servers == [images.of(releases.RECOMMENDED)[0]] * 2


@pytest.fixture
def fake_server(tmp_path):
    """PATH with a tensorflow_model_server that says its arguments, and ends with code 7 after SIGTERM or when told to."""
    (tmp_path / "tensorflow_model_server").write_text(
        '#!/bin/bash\ntrap "echo got TERM; exit 7" TERM\n'
        'echo "started $*"\n[ "$1" != die ] || exit 9\nwhile :; do sleep 0.1; done\n'
    )
    (tmp_path / "tensorflow_model_server").chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_the_entry_point_passes_a_stop_on_and_waits_for_the_server(fake_server):
    process = subprocess.Popen(
        [SERVING / "image/entrypoint.sh", "--port=1", "--model_name=a b"],
        stdout=subprocess.PIPE,
        text=True,
        env=fake_server,
    )
    assert process.stdout.readline() == "started --port=1 --model_name=a b\n"
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[0] == "got TERM\n"
    assert process.returncode == 0


def test_the_entry_point_ends_with_the_servers_exit_code(fake_server):
    assert (
        subprocess.run(
            [SERVING / "image/entrypoint.sh", "die"], env=fake_server, capture_output=True, timeout=60, check=False
        ).returncode
        == 9
    )


def test_the_health_check_is_whether_the_port_is_open():
    def code(port):
        return subprocess.run(
            [SERVING / "image/healthcheck.sh", str(port)], capture_output=True, timeout=60, check=False
        ).returncode

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert code(port) == 0
    assert code(port) != 0


def server_arguments():
    """(where, the server's arguments) of everything here that starts one."""
    command = json.loads(re.search(r"^CMD (\[\"--.*?\])$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)[1])
    found = [("Dockerfile", command)]
    for name, one in [*documents(MANIFESTS), *documents(KSERVE)]:
        spec = one.get("spec", {})
        containers = (
            spec.get("template", {}).get("spec", {}).get("containers", [])
            if one["kind"] == "Deployment"
            else spec.get("containers", [])
        )
        found += [(name, container["args"]) for container in containers]
    return found


def test_the_server_knows_every_argument(capsys):
    assert [where for where, _ in server_arguments()] == ["Dockerfile", "4-serving.yaml", "serving-runtime.yaml"]
    for where, arguments in server_arguments():
        values = server_flags.parse(arguments)
        assert capsys.readouterr().out == "", where
        assert values.monitoring_config_file == "/etc/serving/monitoring.config" and values.rest_api_port, where


# Configuration files


def check_configuration(kind, text):
    message = config_messages.parse(kind, text)
    if kind == config_messages.BATCHING:
        sizes = list(message.allowed_batch_sizes)
        assert sizes == sorted(sizes) and sizes[-1] == message.max_batch_size.value
    if kind == config_messages.MODELS:
        assert [one.model_platform for one in message.model_config_list.config] == ["tensorflow"]
    return message


@pytest.mark.parametrize("kind", config_messages.FILE_NAMES)
def test_the_configuration_files_are_what_the_server_reads(kind):
    name = config_messages.FILE_NAMES[kind]
    message = check_configuration(kind, (SERVING / "config" / name).read_text())
    if kind == config_messages.MONITORING:
        assert message.prometheus_config.path == metric_names.PATH
        return
    (config,) = kinds("ConfigMap")
    check_configuration(kind, config["data"][name])


# Docker Compose


def compose():
    return yaml.safe_load((SERVING / "compose.yaml").read_text())


def test_compose_takes_the_file():
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
    environment = {**os.environ, "MODELS": "/models", "GRAFANA_PASSWORD": "x"}
    environment.pop("TENSORFLOW", None)
    for given, image in (
        (environment, images.OWN_IMAGES[0]),
        (environment | {"TENSORFLOW": "2.17.1"}, images.OWN_IMAGES[1]),
    ):
        shown = yaml.safe_load(tool([*command, "--file", SERVING / "compose.yaml", "config"], env=given))
        assert set(shown["services"]) == {"server", "gpu-metrics", "prometheus", "grafana"}
        server = shown["services"]["server"]
        assert (server["image"], server["build"]["args"]["TENSORFLOW"]) == (image.name, image.tensorflow)
    for missing in ("MODELS", "GRAFANA_PASSWORD"):
        with pytest.raises(AssertionError, match=missing):
            tool(
                [*command, "--file", SERVING / "compose.yaml", "config"],
                env={k: v for k, v in environment.items() if k != missing},
            )


def test_what_compose_mounts_is_there_and_nothing_is_open_to_the_network():
    for name, service in compose()["services"].items():
        for volume in service.get("volumes", []):
            source, target = re.sub(r"\$\{[^}]*\}", "models", volume).split(":")[:2]
            if source.startswith("./"):
                assert (SERVING / source).exists(), f"{name}: {source} -> {target}"
                assert volume.endswith(":ro")
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


# Prometheus and Grafana


def alerts():
    return [
        rule for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"] for rule in group["rules"]
    ]


def dashboard_queries():
    """(panel's title, PromQL with Grafana's variables filled in)."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [
        (
            panel["title"],
            target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*").replace("$model", ".*"),
        )
        for panel in panels
        for target in panel.get("targets", [])
    ]


def metrics_of(query):
    """Names in a PromQL expression that are metrics of the server or the GPU."""
    query = re.sub(r'"(?:\\.|[^"\\])*"', '""', query)
    return set(re.findall(r"(?<![\w:]):[a-z][\w:]*|\bDCGM_\w+", query))


@needs_promtool
def test_prometheus_takes_configuration_and_rules():
    assert "prometheus.yaml is valid" in tool(["promtool", "check", "config", "prometheus.yaml"], cwd=MONITORING)
    assert f"{len(alerts())} rules found" in tool(["promtool", "check", "rules", "alerts.yaml"], cwd=MONITORING)


@needs_promtool
def test_the_alerts_fire_when_they_should():
    assert "SUCCESS" in tool(["promtool", "test", "rules", "alerts_test.yaml"], cwd=MONITORING)


@needs_promtool
def test_prometheus_takes_every_query_of_the_dashboard(tmp_path):
    queries = dashboard_queries()
    assert len(queries) >= 15
    rules = [
        {"alert": title, "expr": query, "labels": {"number": str(number)}}
        for number, (title, query) in enumerate(queries)
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in tool(["promtool", "check", "rules", tmp_path / "rules.yaml"])


def test_every_metric_that_is_asked_for_is_one_that_the_server_exports():
    queries = [*dashboard_queries(), *((rule["alert"], rule["expr"]) for rule in alerts())]
    asked = {name for _, query in queries for name in metrics_of(query)}
    assert asked <= metric_names.SERIES | GPU_METRICS, asked - metric_names.SERIES - GPU_METRICS
    # The reader of queries must see the names: a colon at the start, counters and parts of histograms.
    assert {
        metric_names.REQUEST_COUNT.name,
        metric_names.REQUEST_LATENCY.name + "_bucket",
        "DCGM_FI_DEV_FB_USED",
    } <= asked
    for _, query in queries:
        for metric in metric_names.METRICS:
            for labels in re.findall(re.escape(metric.name) + r"(?:_bucket|_sum|_count)?\{([^}]*)\}", query):
                names = set(re.findall(r"(\w+)\s*[=!]~?", re.sub(r'"[^"]*"', '""', labels)))
                assert names <= {*metric.labels, "instance"}, f"{query}: {metric.name} has no {names}"


def test_histograms_have_the_servers_buckets():
    bounds = metric_names.REQUEST_LATENCY.bounds()
    assert len(bounds) == 33 and bounds[0] == 10 and bounds[1] == 18 and 19e8 > bounds[-1] > 14e8
    assert metric_names.INPUT_BATCH_SIZE.bounds() == [2**power for power in range(14)]


def test_the_alerts_that_are_tested_exist():
    tested = {
        one["alertname"]
        for test in yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
        for one in test["alert_rule_test"]
    }
    assert tested <= {rule["alert"] for rule in alerts()} and len(tested) >= 5


def test_grafana_finds_its_data_source_and_its_dashboard():
    (source,) = yaml.safe_load((MONITORING / "grafana/provisioning/datasources/prometheus.yaml").read_text())[
        "datasources"
    ]
    dashboard = json.loads(DASHBOARD.read_text())
    used = {
        one["datasource"]["uid"]
        for panel in dashboard["panels"]
        for one in [*panel.get("targets", []), *([panel] if "datasource" in panel else [])]
    }
    assert used == {source["uid"]}
    services = compose()["services"]
    assert source["url"] == "http://prometheus:9090" and "prometheus" in services
    (provider,) = yaml.safe_load((MONITORING / "grafana/provisioning/dashboards/dashboards.yaml").read_text())[
        "providers"
    ]
    assert f"./monitoring/grafana/dashboards:{provider['options']['path']}:ro" in services["grafana"]["volumes"]
    scraped = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())["scrape_configs"]
    hosts = {target.split(":")[0] for job in scraped for one in job["static_configs"] for target in one["targets"]}
    assert hosts <= set(services)
    (kept,) = scraped[0]["metric_relabel_configs"]
    assert scraped[0]["metrics_path"] == metric_names.PATH
    assert all(re.fullmatch(kept["regex"], name) for name in metric_names.SERIES)
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(numbers)) == len(numbers)


# Kubernetes and KServe


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_takes_every_manifest(version):
    found = documents(MANIFESTS)
    assert {one["kind"] for _, one in found} == {
        "PersistentVolumeClaim",
        "ConfigMap",
        "Job",
        "Deployment",
        "Service",
        "PodDisruptionBudget",
        "HorizontalPodAutoscaler",
    }
    for _name, one in found:
        kubernetes_validate.validate(one, version, strict=True)


def test_the_version_stands_in_one_place_and_every_image_is_of_it():
    component = yaml.safe_load(VERSION.read_text())
    assert component["images"] == [
        {"name": f"tftrt/{name}", "newTag": releases.RECOMMENDED} for name in ("serving", "tools", "fleet")
    ]
    assert VERSION.read_text().count(f'"{releases.RECOMMENDED}"') == 1, "the others are aliases of the first"
    for folder in KUSTOMIZATIONS:
        kustomization = yaml.safe_load((SERVING / folder / "kustomization.yaml").read_text())
        assert kustomization["components"] == ["../version"]
        assert all((SERVING / folder / name).is_file() for name in kustomization["resources"])
    used = {container["image"] for _, pod in pods() for container in pod["containers"]}
    used |= {
        image
        for path in (SERVING / "kuberay").glob("*.yaml")
        for image in re.findall(r"^ +image: (\S+)", path.read_text(), re.MULTILINE)
    }
    assert used == {f"{one['name']}:{one['newTag']}" for one in component["images"]}
    (line,) = (
        line
        for line in kinds("Job")[0]["spec"]["template"]["spec"]["containers"][0]["args"][0].splitlines()
        if "publish" in line
    )
    assert line.endswith('--server_image="$TFTRT_SERVER"'), "the image that goes with the one that builds"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl here")
@pytest.mark.parametrize("version", [one.tensorflow for one in images.OWN_IMAGES])
def test_kustomize_puts_the_version_into_every_image(version, tmp_path):
    for folder in (*KUSTOMIZATIONS, "version"):
        shutil.copytree(SERVING / folder, tmp_path / folder)
    place = tmp_path / "version" / "kustomization.yaml"
    place.write_text(place.read_text().replace(f'"{releases.RECOMMENDED}"', f'"{version}"'))
    found = {folder: tool(["kubectl", "kustomize", tmp_path / folder]) for folder in KUSTOMIZATIONS}
    tags = {folder: set(re.findall(r"image: (\S+)", text)) for folder, text in found.items()}
    assert tags == {
        "kubernetes": {f"tftrt/serving:{version}", f"tftrt/tools:{version}"},
        "kserve": {f"tftrt/serving:{version}"},
        "kuberay": {f"tftrt/fleet:{version}", f"tftrt/tools:{version}"},
    }
    rendered = list(yaml.safe_load_all(found["kubernetes"]))
    assert {one["kind"] for one in rendered} == {one["kind"] for _, one in documents(MANIFESTS)} - {
        "HorizontalPodAutoscaler"
    }
    rendered += [one for one in yaml.safe_load_all(found["kuberay"]) if one["kind"] != "RayJob"]
    for one in rendered:
        kubernetes_validate.validate(one, "1.37", strict=True)


def test_a_manifest_with_a_mistyped_field_is_refused():
    (deployment,) = kinds("Deployment")
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["startupProb"] = container.pop("startupProbe")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, "1.37", strict=True)


def pods():
    """(name, pod's spec) of everything that runs."""
    found = [
        (one["metadata"]["name"], one["spec"]["template"]["spec"]) for one in (*kinds("Deployment"), *kinds("Job"))
    ]
    found += [(one["metadata"]["name"], one["spec"]) for _, one in documents(KSERVE) if one["kind"] == "ServingRuntime"]
    return found


def test_every_container_has_limits_a_gpu_and_no_privileges():
    for name, pod in pods():
        for container in pod["containers"]:
            assert (
                container["resources"]["limits"]["nvidia.com/gpu"] == 1 and "memory" in container["resources"]["limits"]
            ), name
            context = {**pod.get("securityContext", {}), **container["securityContext"]}
            assert (
                context["runAsNonRoot"] and context["runAsUser"] == 10001 and not context["allowPrivilegeEscalation"]
            ), name
            assert context["capabilities"] == {"drop": ["ALL"]}, name
    assert f"--uid {context['runAsUser']} " in DOCKERFILE and f"USER {context['runAsUser']}:" in DOCKERFILE


def test_what_the_manifests_refer_to_exists():
    claims = {one["metadata"]["name"] for one in kinds("PersistentVolumeClaim")}
    (config,), (deployment,), (service,) = kinds("ConfigMap"), kinds("Deployment"), kinds("Service")
    for name, pod in pods()[:2]:
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert {
            one["persistentVolumeClaim"]["claimName"] for one in volumes.values() if "persistentVolumeClaim" in one
        } <= claims, name
        for container in pod["containers"]:
            assert {one["name"] for one in container["volumeMounts"]} == set(volumes), name
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    values = server_flags.parse(container["args"])
    for path in map(pathlib.PurePosixPath, (values.model_config_file, values.batching_parameters_file)):
        assert str(path.parent) in mounted and path.name in config["data"]
    models = config_messages.parse(config_messages.MODELS, config["data"]["models.config"]).model_config_list.config
    assert all(model.base_path.startswith("/models/") for model in models)
    assert container["readinessProbe"]["httpGet"]["path"] == f"/v1/models/{models[0].name}"
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert ports == {"grpc": values.port, "rest": values.rest_api_port}
    assert {one["targetPort"] for one in service["spec"]["ports"]} == set(ports)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    (budget,), (scaler,) = kinds("PodDisruptionBudget"), kinds("HorizontalPodAutoscaler")
    assert (
        service["spec"]["selector"]
        == labels
        == deployment["spec"]["selector"]["matchLabels"]
        == budget["spec"]["selector"]["matchLabels"]
    )
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert budget["spec"]["minAvailable"] < scaler["spec"]["minReplicas"] <= deployment["spec"]["replicas"]


def test_a_long_warm_up_is_survived_and_a_stop_leaves_time():
    (deployment,) = kinds("Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    seconds = container["startupProbe"]["periodSeconds"] * container["startupProbe"]["failureThreshold"]
    assert seconds >= 1800 and deployment["spec"]["progressDeadlineSeconds"] > seconds
    assert pod["terminationGracePeriodSeconds"] > int(container["lifecycle"]["preStop"]["exec"]["command"][1])


def test_the_build_job_runs_commands_that_exist_on_the_pool_that_serves():
    (job,), (deployment,) = kinds("Job"), kinds("Deployment")
    pod = job["spec"]["template"]["spec"]
    lines = [line for line in pod["containers"][0]["args"][0].splitlines() if line.startswith("tftrt ")]
    assert [line.split()[1] for line in lines] == ["build", "verify", "regress", "publish"]
    for line in lines:
        check_flags_elsewhere(shlex.split(line))
    (rule,) = job["spec"]["podFailurePolicy"]["rules"]
    assert rule["action"] == "FailJob" and job["spec"]["backoffLimit"] == 1
    assert rule["onExitCodes"] == {"operator": "In", "values": [errors.EXIT_USAGE, errors.EXIT_CHECK]}
    serving = deployment["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == serving["nodeSelector"] and pod["tolerations"] == serving["tolerations"]
    (service,) = (one for _, one in documents(KSERVE) if one["kind"] == "InferenceService")
    assert service["spec"]["predictor"]["nodeSelector"] == pod["nodeSelector"]
    assert service["spec"]["predictor"]["model"]["storageUri"] == "pvc://models/served/digits"


def test_kserve_gets_a_runtime_and_a_service_that_fit_together():
    """KServe's own schema is not here: its parts that are Kubernetes' are checked as such, the rest by name."""
    (runtime,), (service,) = (
        [one for _, one in documents(KSERVE) if one["kind"] == kind] for kind in ("ServingRuntime", "InferenceService")
    )
    assert (runtime["apiVersion"], service["apiVersion"]) == ("serving.kserve.io/v1alpha1", "serving.kserve.io/v1beta1")
    assert set(runtime["spec"]) == {"annotations", "supportedModelFormats", "protocolVersions", "containers"}
    predictor = service["spec"]["predictor"]
    pod = {key: predictor[key] for key in ("nodeSelector", "tolerations")} | {
        "containers": runtime["spec"]["containers"]
    }
    kubernetes_validate.validate(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}, "1.37", strict=True
    )
    assert set(predictor) == {"minReplicas", "maxReplicas", "nodeSelector", "tolerations", "model"}
    assert set(predictor["model"]) == {"runtime", "modelFormat", "storageUri", "resources"}
    assert predictor["model"]["runtime"] == runtime["metadata"]["name"]
    assert predictor["model"]["modelFormat"] in [
        {key: one[key] for key in ("name", "version")} for one in runtime["spec"]["supportedModelFormats"]
    ]
    (container,) = runtime["spec"]["containers"]
    values = server_flags.parse(container["args"])
    assert (
        container["name"] == "kserve-container"
        and values.model_name == "{{.Name}}"
        and values.model_base_path == "/mnt/models"
    )
    assert (
        values.rest_api_port
        == container["ports"][0]["containerPort"]
        == int(runtime["spec"]["annotations"]["prometheus.kserve.io/port"])
    )


# The guide


def test_the_guide_names_files_and_flags_that_exist():
    text = (SERVING / "README.md").read_text()
    for block in re.findall(r"^```shell\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("tftrt "):
                check_flags(shlex.split(line, comments=True))
    named = set(
        re.findall(
            r"`((?:image|config|monitoring|kubernetes|kserve|kuberay|ci|version)/[\w./-]*|compose\.yaml|Dockerfile)`",
            text,
        )
    )
    assert named and all((SERVING / name).exists() for name in named), named
    folders = {path.relative_to(SERVING).parts[0] for path in SERVING.rglob("*") if path.is_file()} - {
        "README.md",
        "Dockerfile.dockerignore",
    }
    assert all(f"`{name}" in text for name in folders), folders
