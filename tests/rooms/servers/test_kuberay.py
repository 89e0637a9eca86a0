"""serving/kuberay/: the RayJob against KubeRay's own schema and the rules that its operator adds, the jobs behind it against Kubernetes', and
whether the three steps fit together. How a RayJob becomes pods was read in KubeRay 1.7.0."""

import copy
import json
import os
import re
import shlex
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.conftest import ROOT
from tests.example_flags import check_flags_elsewhere
from tests.pages import blocks
from tftrt_tools.base import errors
from tftrt_tools.fleet import place
from tftrt_tools.servers.serving.publishing import nodes

FOLDER = ROOT / "serving/kuberay"
SCHEMA = json.loads((ROOT / "tests/data/schemas/rayjob.json").read_text())
PINNED = re.search(r"^ray==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
# As NVIDIA's driver calls them.
GPUS = {"T4": "Tesla T4", "L4": "NVIDIA L4"}
# Of the memory, for Ray's store: DEFAULT_OBJECT_STORE_MEMORY_PROPORTION.
STORE = 0.3


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def rayjob():
    (found,) = documents("1-build.yaml")
    return found


def strict(schema):
    """The schema, but unknown fields are wrong, as for `kubectl apply --validate=strict`."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made["additionalProperties"] = False
    return made


def wrong(job):
    return [one.message for one in jsonschema.Draft202012Validator(strict(SCHEMA)).iter_errors(job)]


def groups():
    return rayjob()["spec"]["rayClusterSpec"]["workerGroupSpecs"]


def pods():
    """{name: pod's spec} of all that the RayJob starts."""
    spec = rayjob()["spec"]
    cluster = spec["rayClusterSpec"]
    workers = {one["groupName"]: one["template"]["spec"] for one in cluster["workerGroupSpecs"]}
    head = cluster["headGroupSpec"]["template"]["spec"]
    return {"submitter": spec["submitterPodTemplate"]["spec"], "head": head, **workers}


def jobs():
    return [one for name in ("2-compare.yaml", "3-publish.yaml") for one in documents(name)]


def entrypoint():
    return shlex.split(rayjob()["spec"]["entrypoint"])


def script(job):
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return container["args"][0]


def lines(job):
    """Its lines of `tftrt`, as words."""
    return [shlex.split(line) for line in script(job).splitlines() if line.startswith("tftrt ")]


def values(argv):
    return dict(word.lstrip("-").partition("=")[::2] for word in argv if word.startswith("--"))


def test_kuberay_takes_the_rayjob():
    assert (rayjob()["apiVersion"], rayjob()["kind"]) == ("ray.io/v1", "RayJob")
    assert wrong(rayjob()) == []


def changed(*path, value=None, key=None):
    """The RayJob with another value at `path`, or with its last key renamed."""
    job = copy.deepcopy(rayjob())
    place_of = job
    for one in path[:-1]:
        place_of = place_of[one]
    if key:
        place_of[key] = place_of.pop(path[-1])
    else:
        place_of[path[-1]] = value
    return job


@pytest.mark.parametrize(
    "path, change",
    [
        (("spec", "entrypoint"), {"key": "entryPoint"}),
        (("spec", "shutdownAfterJobFinishes"), {"value": "yes"}),
        (("spec", "backoffLimit"), {"value": "0"}),
        (("spec", "preRunningDeadlineSeconds"), {"value": 0}),
        (("spec", "rayClusterSpec", "authOptions", "mode"), {"value": "password"}),
        (("spec", "rayClusterSpec", "rayVersion"), {"value": 2.6}),
        (("spec", "rayClusterSpec", "headGroupSpec"), {"key": "headGroup"}),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 0, "maxReplicas"), {"key": "maxReplica"}),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 1, "groupName"), {"key": "name"}),
        (("spec", "rayClusterSpec", "workerGroupSpecs", 1, "rayStartParams"), {"value": {"num-gpus": 1}}),
    ],
)
def test_a_rayjob_with_a_wrong_field_is_refused(path, change):
    assert wrong(changed(*path, **change))


@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_takes_every_pod_and_job(version):
    assert list(pods()) == ["submitter", "head", "t4", "l4"]
    for name, spec in pods().items():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        kubernetes_validate.validate(pod, version, strict=True)
    assert [one["metadata"]["name"] for one in jobs()] == ["compare-digits-t4", "compare-digits-l4", "publish-digits"]
    for one in jobs():
        kubernetes_validate.validate(one, version, strict=True)


def test_a_pod_with_a_mistyped_field_is_refused():
    spec = pods()["t4"]
    spec["nodeSelectors"] = spec.pop("nodeSelector")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": spec}, "1.37", strict=True
        )


def test_the_operator_has_nothing_against_it():
    """Its rules beyond the schema: ValidateRayJobSpec, ValidateRayClusterSpec, and the readiness of pods without wget."""
    spec = rayjob()["spec"]
    assert len(rayjob()["metadata"]["name"]) <= 47 and "ttlSecondsAfterFinished" not in spec
    cluster = spec["rayClusterSpec"]
    assert cluster["rayVersion"] == PINNED and tuple(map(int, PINNED.split(".")[:2])) >= (2, 53)
    assert "enableInTreeAutoscaling" not in cluster and cluster["authOptions"] == {"mode": "token"}
    for one in groups():
        # The build waits for all of them: one machine of each.
        assert one["replicas"] == one["minReplicas"] == one["maxReplicas"] == 1
    assert spec["shutdownAfterJobFinishes"] and spec["backoffLimit"] == 0
    assert pods()["submitter"]["restartPolicy"] == "Never"
    assert not any("command" in container for pod in pods().values() for container in pod["containers"])


def test_the_entrypoint_survives_both_shells():
    """KubeRay puts it into a line of bash, and `ray job submit` joins the words again for a shell on the head."""
    text = rayjob()["spec"]["entrypoint"]
    assert not re.search(r"[\"'`$&;|<>(){}*?\\#!~]", text)
    first = subprocess.run(["bash", "-c", f'printf "%s\\n" {text}'], capture_output=True, text=True, check=True)
    words = first.stdout.splitlines()
    assert words == entrypoint() == shlex.split(subprocess.list2cmdline(words))


def test_the_entrypoint_is_a_command_that_asks_its_own_head_for_each_group():
    argv = entrypoint()
    assert argv[:2] == ["tftrt", "build"]
    check_flags_elsewhere(argv)
    given = values(argv)
    (head,) = pods()["head"]["containers"]
    ports = {one["name"]: one["containerPort"] for one in head["ports"]}
    assert place.parse(given["on"]).host_and_port() == ("127.0.0.1", ports["client"])
    assert given["gpu_types"].lower().split(",") == [one["groupName"] for one in groups()]
    written = [given[key] for key in ("output", "json", "junit")]
    mounts = {one["name"]: one["mountPath"] for one in head["volumeMounts"]}
    assert all(path.startswith(mounts["models"] + "/") for path in (argv[2], *written))
    # `publish` takes nothing but models there.
    assert not any(path.startswith(given["output"] + "/") for path in written)


def test_each_kind_is_built_and_compared_on_its_own_nodes_alone():
    kinds = values(entrypoint())["gpu_types"].split(",")
    compared = documents("2-compare.yaml")
    assert len(compared) == len(kinds) == len(groups())
    for kind, group, job in zip(kinds, groups(), compared, strict=True):
        worker, pod = group["template"]["spec"], job["spec"]["template"]["spec"]
        assert worker["nodeSelector"] == pod["nodeSelector"] == nodes.selector(GPUS[kind])
        assert worker["tolerations"] == pod["tolerations"]
        for one in (worker, pod):
            assert one["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 1
        assert [argv[1] for argv in lines(job)] == ["verify", "regress"]
        built = f"{values(entrypoint())['output']}/{kind}"
        verify, regress = lines(job)
        assert verify[2:4] == regress[2:4] and regress[3] == built
    for name in ("head", "submitter"):
        assert "nvidia.com/gpu" not in pods()[name]["containers"][0]["resources"]["limits"]


def test_every_job_runs_commands_that_exist_and_waits_and_ends_at_what_no_try_mends():
    for job in jobs():
        for argv in lines(job):
            check_flags_elsewhere([word.replace("$TFTRT_SERVER", "tftrt/serving:2.14.1") for word in argv])
        assert job["spec"]["suspend"] and job["spec"]["backoffLimit"] == 1
        # The page's lines wait until a job has ended, and have no limit of their own.
        assert job["spec"]["activeDeadlineSeconds"] == 3600
        (rule,) = job["spec"]["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob"
        assert rule["onExitCodes"] == {"operator": "In", "values": [errors.EXIT_USAGE, errors.EXIT_CHECK]}
    (publish,) = lines(jobs()[-1])
    assert publish[:3] == ["tftrt", "publish", values(entrypoint())["output"]]
    assert all(path in script(jobs()[-1]).split() for path in (values(entrypoint())["json"], *reports()))
    (server,) = (one for one in yaml.safe_load_all((ROOT / "serving/kubernetes/2-config.yaml").read_text()))
    assert values(publish)["base_path"] + "/" in server["data"]["models.config"]


def reports():
    """Where the compare jobs write, by their lines."""
    return [values(lines(job)[1])["json"] for job in documents("2-compare.yaml")]


def ran(job, folder, fails=""):
    """Run a job's script with `folder` in the place of the volume. A `tftrt` that only says what it was asked, and fails at a command, has
    the place of the real one. Returns: the exit code, the commands that began."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/tftrt").write_text(f'#!/bin/sh\necho "$1" >> {folder}/commands\n[ "$1" != "{fails}" ]\n')
    (folder / "bin/tftrt").chmod(0o755)
    (folder / "commands").write_text("")
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "TFTRT_SERVER": "x"}
    text = script(job).replace("/models/", f"{folder}/")
    done = subprocess.run(["/bin/sh", "-euc", text], env=env, capture_output=True, check=False)
    return done.returncode, (folder / "commands").read_text().split()


@pytest.fixture
def volume(tmp_path):
    """What a run whose kinds are all good has left for `publish`."""
    for name in reports():
        (tmp_path / name.removeprefix("/models/")).write_text('{"outcome": "pass"}')
    (tmp_path / "build-digits.json").write_text('{"complete": true, "others": []}')
    (tmp_path / "work/digits-by-gpu/T4").mkdir(parents=True)
    return tmp_path


def test_what_passed_is_published_once(volume):
    assert ran(jobs()[-1], volume) == (0, ["publish"])
    assert not (volume / "work/digits-by-gpu").exists()


def test_what_could_not_be_published_stays(volume):
    assert ran(jobs()[-1], volume, fails="publish") == (1, ["publish"])
    assert (volume / "work/digits-by-gpu/T4").exists()


@pytest.mark.parametrize("text", [None, '{"outcome": "fail"}', '{"outcome": "cannot tell"}', "", "{}"])
@pytest.mark.parametrize("kind", range(2))
def test_nothing_is_published_where_a_comparison_did_not_pass(volume, kind, text):
    report = volume / reports()[kind].removeprefix("/models/")
    report.unlink() if text is None else report.write_text(text)
    assert ran(jobs()[-1], volume) == (errors.EXIT_CHECK, [])


@pytest.mark.parametrize("text", [None, '{"complete": false, "others": []}', '{"complete": true, "others": ["A10G"]}'])
def test_nothing_is_published_where_a_kind_is_not_built(volume, text):
    report = volume / values(entrypoint())["json"].removeprefix("/models/")
    report.unlink() if text is None else report.write_text(text)
    assert ran(jobs()[-1], volume) == (errors.EXIT_CHECK, [])


@pytest.mark.parametrize("fails", ["verify", "regress"])
def test_a_comparison_that_fails_leaves_no_report_of_an_earlier_run(volume, fails):
    for job, report in zip(documents("2-compare.yaml"), reports(), strict=True):
        code, _ = ran(job, volume, fails)
        assert code and not (volume / report.removeprefix("/models/")).exists()


# As kubectl, with the state of each job as a file. What it resumes is a line of `resumed`.
KUBECTL = """#!/bin/sh
cd {folder}
case "$1 $2" in
"get rayjob/"*) cat build ;;
"get job/"*) cat "${{2#job/}}" ;;
"wait job/"*) grep -q Complete "${{2#job/}}" ;;
"patch "*) for one; do case $one in job/*) echo "${{one#job/}}" >> resumed ;; esac; done ;;
esac
"""


@pytest.mark.parametrize(
    ("build", "t4", "l4", "resumed"),
    [
        ("SUCCEEDED", "Complete", "Suspended SuccessCriteriaMet Complete", 3),
        ("FAILED", "Complete", "Complete", 0),
        ("", "Complete", "Complete", 0),
        ("SUCCEEDED", "Failed", "Complete", 2),
        ("SUCCEEDED", "Complete", "Suspended FailureTarget Failed", 2),
    ],
)
def test_the_first_failure_ends_the_lines_of_the_page(build, t4, l4, resumed, tmp_path):
    (block,) = (one for one in blocks("docs/new_version.md") if "rayjob/" in one.text)
    for name, text in {
        "build": build,
        "compare-digits-t4": t4,
        "compare-digits-l4": l4,
        "resumed": "",
        "kubectl": KUBECTL.format(folder=tmp_path),
    }.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "kubectl").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", block.text], env=env, capture_output=True, timeout=60, check=False)
    names = [job["metadata"]["name"] for job in jobs()]
    assert (tmp_path / "resumed").read_text().split() == names[:resumed]
    assert (done.returncode == 0) == (resumed == len(names))


def test_every_container_is_confined_and_has_what_it_mounts():
    specs = [*pods().values(), *(one["spec"]["template"]["spec"] for one in jobs())]
    (store,) = yaml.safe_load_all((ROOT / "serving/kubernetes/1-store.yaml").read_text())
    for pod in specs:
        (container,) = pod["containers"]
        context = {**pod["securityContext"], **container["securityContext"]}
        assert context["runAsNonRoot"] and context["runAsUser"] == 10001 and context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"] and context["capabilities"] == {"drop": ["ALL"]}
        assert not pod["automountServiceAccountToken"] and "memory" in container["resources"]["limits"]
        assert {one["name"] for one in container["volumeMounts"]} == {one["name"] for one in pod["volumes"]}
        claims = [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one]
        assert claims in ([], [store["metadata"]["name"]])
        assert "/tmp" in [one["mountPath"] for one in container["volumeMounts"]]


def test_rays_store_fits_into_shared_memory():
    for name in ("head", "t4", "l4"):
        (container,) = pods()[name]["containers"]
        mounts = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        (memory,) = (one["emptyDir"] for one in pods()[name]["volumes"] if one["name"] == mounts["/dev/shm"])
        assert memory["medium"] == "Memory"
        assert gibibytes(memory["sizeLimit"]) >= STORE * gibibytes(container["resources"]["limits"]["memory"])


def gibibytes(text):
    return int(re.fullmatch(r"(\d+)Gi", text)[1])
