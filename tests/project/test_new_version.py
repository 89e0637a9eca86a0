"""docs/new_version.md and serving/ci/new_version.yml: a new version is built, compared, published, a canary, and promoted."""

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
from xml.etree import ElementTree

import jsonschema
import pytest
import yaml

from docs.tools import schemas
from saved_models import demo
from tests import page_server, workflows
from tests.command_here import run_tftrt
from tests.conftest import ROOT
from tests.example_flags import check_flags_elsewhere
from tests.page_server import QUICK
from tests.pages import TEXTS, blocks
from tftrt_tools.base import errors
from tftrt_tools.servers.client import Client

PAGE = "docs/new_version.md"
WORKFLOW = ROOT / "serving/ci/new_version.yml"
SCHEMA = json.loads((ROOT / "tests/data/schemas/github_workflow.json").read_text())
KINDS = ("T4", "L4")
# What GitHub fills in.
KNOWN = {
    "inputs.original": "digits",
    "github.run_id": "7",
    "github.run_attempt": "1",
    "secrets.RAY_AUTH_TOKEN": "secret",
    "needs.build.outputs.work": "/models/work/7-1",
    "needs.publish.outputs.version": "2",
}


def steps(**changed):
    return list(workflows.steps(workflows.read(WORKFLOW), KNOWN | changed))


def lines(step):
    """Its lines of `tftrt`, as words, without what notes the exit code."""
    found = [line.strip().removesuffix(" || code=$?") for line in step.expanded().replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in found if line.startswith("tftrt ")]


def page_lines(command):
    """The page's lines of a command, as words."""
    return [
        argv
        for block in blocks(PAGE)
        if block.language == "sh"
        for argv, _, _ in block.commands()
        if argv[:2] == ["tftrt", command]
    ]


# The workflow


def wrong(document):
    return [one.message for one in jsonschema.Draft7Validator(SCHEMA).iter_errors(document)]


def test_github_takes_the_workflow():
    assert wrong(workflows.read(WORKFLOW)) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    runs-on: [self-hosted, fleet]\n    timeout-minutes: 180", "    runs_on: [self-hosted, fleet]"),
        ("      - run: tftrt verify", "      - runs: tftrt verify"),
        ("  workflow_dispatch:", "  workflow_dispatched:"),
        ("permissions:\n  contents: read", "permissions:\n  contents: reads"),
    ],
)
def test_a_workflow_with_a_mistake_is_refused(before, after, tmp_path):
    text = WORKFLOW.read_text()
    assert before in text
    (tmp_path / "w.yml").write_text(text.replace(before, after, 1))
    assert wrong(workflows.read(tmp_path / "w.yml"))


def test_every_step_runs_a_command_that_exists_and_every_variable_is_set():
    found = [argv for step in steps() for argv in lines(step)]
    assert [argv[1] for argv in found] == [
        *("convert", "build"),
        *("verify", "regress") * 2,
        "publish",
        *("promote", "regress", "rollback") * 2,
        *("promote",) * 2,
    ]
    for argv in found:
        assert not any("$" in word for word in argv), argv
        check_flags_elsewhere(argv)


def test_a_step_gets_what_others_say_through_variables_alone():
    """What a user types would be a part of the shell's text otherwise."""
    assert [step.run for step in steps() if "${{" in step.run] == []


def test_a_job_waits_for_those_whose_work_it_uses_and_no_job_waits_for_ever():
    jobs = workflows.read(WORKFLOW)["jobs"]
    for name, job in jobs.items():
        needed = [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", [])
        assert set(re.findall(r"needs\.(\w+)\.", json.dumps(job))) <= set(needed) <= set(jobs), name
        assert job["timeout-minutes"] <= 180 and "self-hosted" in job["runs-on"]
    for name in ("compare", "canary", "promote"):
        assert tuple(jobs[name]["strategy"]["matrix"]["gpu"]) == KINDS
    (build,) = (argv for step in steps() for argv in lines(step) if argv[1] == "build")
    assert f"--gpu_types={','.join(KINDS)}" in build


def regressions():
    return [step for step in steps() if any(argv[1] == "regress" for argv in lines(step))]


@pytest.mark.parametrize(
    ("codes", "code", "tries"),
    [
        ((errors.EXIT_DONE,), 0, 1),
        ((errors.EXIT_UNSURE, errors.EXIT_DONE), 0, 2),
        ((errors.EXIT_FAILED, errors.EXIT_DONE), 0, 2),
        ((errors.EXIT_UNSURE, errors.EXIT_UNSURE), 4, 2),
        ((errors.EXIT_FAILED, errors.EXIT_CHECK), 3, 2),
        ((errors.EXIT_CHECK,), 3, 1),
        ((errors.EXIT_USAGE,), 2, 1),
        ((137,), 137, 1),
    ],
)
def test_a_comparison_is_repeated_once_where_the_page_says_so(codes, code, tries, tmp_path):
    assert len(regressions()) == 2 * len(KINDS)
    (tmp_path / "tftrt").write_text(
        '#!/bin/sh\necho "$@" >> "$HERE/tries"\nexit $(sed -n "$(wc -l < "$HERE/tries")p" "$HERE/codes")\n'
    )
    (tmp_path / "tftrt").chmod(0o755)
    (tmp_path / "codes").write_text("".join(f"{one}\n" for one in codes))
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    for step in regressions():
        (tmp_path / "tries").unlink(missing_ok=True)
        env = {**os.environ, **step.env, "PATH": path, "HERE": str(tmp_path)}
        # As GitHub starts it.
        done = subprocess.run(["bash", "-e", "-c", step.run], env=env, check=False)
        begun = (tmp_path / "tries").read_text().splitlines()
        assert (done.returncode, len(begun)) == (code, tries)
        assert all(shlex.split(one) == lines(step)[0][1:] for one in begun)


def taken_back(promoted, compared, job):
    """Whether the workflow takes a canary back. Args: outcomes of the two steps; status of the job so far."""
    (condition,) = {step.condition for step in steps() if any(argv[1] == "rollback" for argv in lines(step))}
    text = re.fullmatch(r"\$\{\{ (.*) \}\}", condition)[1]
    for name, outcome in (("promote", promoted), ("regress", compared)):
        text = text.replace(f"steps.{name}.outcome", repr(outcome))
    text = text.replace("always()", "True").replace("failure()", str(job == "failure"))
    for one, other in (("&&", "and"), ("||", "or")):
        text = text.replace(one, other)
    return eval(text, {"__builtins__": {}})


@pytest.mark.parametrize(
    ("promoted", "compared", "job", "back"),
    [
        ("success", "success", "success", False),
        # Only the upload failed.
        ("success", "success", "failure", False),
        ("success", "failure", "failure", True),
        ("success", "cancelled", "cancelled", True),
        ("success", "skipped", "cancelled", True),
        ("failure", "skipped", "failure", False),
        ("skipped", "skipped", "cancelled", False),
    ],
)
def test_a_canary_that_was_not_seen_to_pass_is_taken_back(promoted, compared, job, back):
    assert taken_back(promoted, compared, job) is back


def test_there_is_time_to_take_a_canary_back():
    job = workflows.read(WORKFLOW)["jobs"]["canary"]
    assert {step.name for step in steps() if step.job == "canary"} == {"promote", "regress", ""}
    limits = [step["timeout-minutes"] for step in job["steps"] if "timeout-minutes" in step]
    # `promote` may wait for ten.
    assert len(limits) == 2 and 10 + sum(limits) < job["timeout-minutes"]


def test_what_a_step_reads_an_earlier_one_has_made():
    made = {"/models/digits", "/models/held_back.npz"} | {f"/models/config/{gpu}/models.config" for gpu in KINDS}
    for step in steps():
        for argv in lines(step):
            values = dict(word.lstrip("-").partition("=")[::2] for word in argv[2:] if word.startswith("--"))
            named = [word for word in argv[2:] if word.startswith("/")]
            output = named.pop() if argv[1] == "convert" else values.get("output")
            reads = [*named, *(values[key] for key in ("data", "model_config_file") if key in values)]
            assert {one for one in reads if one.startswith("/")} <= made, argv
            if output:
                made |= {output, *(f"{output}/{kind}" for kind in KINDS)}


def test_what_a_pipeline_reads_is_what_the_schema_promises():
    (line,) = (step.run for step in steps() if step.run.startswith("python3"))
    (key,) = re.findall(r'\["(\w+)"\]', line)
    written = json.loads(schemas.texts()["publications.json"])
    assert key in written["required"] and written["properties"][key] == {"type": "integer", "minimum": 1}


# The page


def test_the_page_and_the_workflow_run_the_same_commands():
    """But for names of folders and servers, and flags that one of them adds."""
    in_workflow = [argv for step in steps() if not step.condition for argv in lines(step)]
    for command in ("convert", "build", "verify", "regress", "publish", "promote"):
        assert page_lines(command), command
    for argv in (one for command in ("build", "regress", "publish", "promote") for one in page_lines(command)):
        flags = {word.partition("=")[0] for word in argv if word.startswith("--")}
        fits = [one for one in in_workflow if one[1] == argv[1] and flags <= {w.partition("=")[0] for w in one}]
        assert fits, argv


def test_the_exit_codes_are_the_codes():
    table = re.findall(r"^\| (\d) \|", TEXTS[PAGE], re.MULTILINE)
    known = (errors.EXIT_DONE, errors.EXIT_FAILED, errors.EXIT_USAGE, errors.EXIT_CHECK, errors.EXIT_UNSURE)
    assert tuple(map(int, table)) == known


def test_the_files_and_jobs_that_the_page_names_are_there():
    text = TEXTS[PAGE]
    for path in re.findall(r"`(serving/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    manifests = "".join(path.read_text() for path in (ROOT / "serving/kuberay").glob("*.yaml"))
    for name in re.findall(r"\b(?:ray)?job/([\w-]+)", text):
        assert f"\n  name: {name}\n" in manifests, name


# The way, without a GPU: conversions stand in for what builds engines, and development servers for the real one.


class Way:
    """Someone who runs the workflow's steps in `folder`. Args: env: variables that replace the workflow's."""

    def __init__(self, folder, known):
        self.folder, self.known = folder, known
        self.output = folder / "github_output"

    def job(self, name, **env):
        """Run the steps of a job. Returns: what GitHub would take as its outputs."""
        self.output.write_text("")
        for step in steps(**self.known):
            if step.job == name and not step.condition:
                self._step(step, env)
        return dict(line.split("=", 1) for line in self.output.read_text().splitlines())

    def _step(self, step, env):
        here = {key: value.replace("/models", str(self.folder)) for key, value in step.env.items()}
        here |= {key: value[step.env["GPU"]] if isinstance(value, dict) else value for key, value in env.items()}
        found = lines(workflows.Step(step.job, here, step.run))
        if not found:
            subprocess.run(
                ["bash", "-euc", step.run], env={**os.environ, **here, "GITHUB_OUTPUT": str(self.output)}, check=True
            )
        for argv in found:
            if argv[1] == "build":
                self._built(argv)
                continue
            done = run_tftrt(*argv[1:], *(QUICK if argv[1] == "regress" else ()), cwd=self.folder)
            assert done.returncode == 0, (argv, done.stdout, done.stderr)

    def _built(self, argv):
        """It takes GPUs: the converted model stands for that of each kind."""
        (output,) = (word.partition("=")[2] for word in argv if word.startswith("--output="))
        for kind in KINDS:
            shutil.copytree(argv[2], os.path.join(output, kind))


def server(folder, config):
    """A development server, started as the page says. Yields: its address."""
    (argv,) = page_lines("serve")
    words = [f"--model_config_file={config}" if word.startswith("--model_config") else word for word in argv]
    return page_server.started(words, folder, config.parent.name)


def held(folder, name):
    """A result, which its schema describes."""
    document = json.loads((folder / name).read_text())
    schema = json.loads((schemas.FOLDER / f"{document['kind']}.json").read_text())
    jsonschema.validate(document, schema)
    return document


def answering(address, label):
    """The version that answers to a label."""
    with Client(address) as client:
        return client.metadata("digits", label=label).model.version


@pytest.mark.slow
@pytest.mark.timeout(900)  # about twenty commands, one after the other
def test_the_workflow_and_the_page_lead_from_a_model_to_a_version_that_answers_and_back(zoo_model, tmp_path):
    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "digits")
    demo._held_back(tmp_path)
    way = Way(tmp_path, {})
    work = way.job("build")["folder"]
    assert work == str(tmp_path / "work/7-1")
    way.job("compare")
    for kind in KINDS:
        assert held(tmp_path / "work/7-1", f"compare-{kind}.json")["outcome"] == "pass"
        root = ElementTree.parse(tmp_path / f"work/7-1/compare-{kind}.xml").getroot()
        assert root.get("failures") == root.get("errors") == "0" and int(root.get("tests")) >= 1
    assert way.job("publish") == {"version": "1"}
    (configure,) = page_lines("configure")
    with contextlib.ExitStack() as stack:
        servers = {}
        for kind in KINDS:
            argv = [
                word.replace("config-T4", f"config/{kind}").replace("models/T4", f"served/{kind}") for word in configure
            ]
            (tmp_path / "config").mkdir(exist_ok=True)
            done = run_tftrt(*argv[1:], cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            servers[kind] = stack.enter_context(server(tmp_path, tmp_path / f"config/{kind}/models.config"))
        assert way.job("publish") == {"version": "2"}
        assert held(tmp_path / "work/7-1", "publish.json")["version"] == 2
        way.job("canary", SERVER=servers)
        for kind, address in servers.items():
            assert (answering(address, "stable"), answering(address, "canary")) == (1, 2)
            assert held(tmp_path / "work/7-1", f"canary-{kind}.json")["exit_code"] == 0
        way.job("promote", SERVER=servers)
        assert {answering(address, "stable") for address in servers.values()} == {2}
        (rollback,) = page_lines("rollback")
        for kind, address in servers.items():
            argv = [word.replace("config-T4", f"config/{kind}").replace("localhost:8500", address) for word in rollback]
            done = run_tftrt(*argv[1:], cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert (answering(address, "stable"), answering(address, "canary")) == (1, 2)


def scripts(*names):
    """Lines of the jobs in these manifests, in their order."""
    for name in names:
        for one in yaml.safe_load_all((ROOT / "serving" / name).read_text()):
            (container,) = one["spec"]["template"]["spec"]["containers"]
            yield from container["args"][0].splitlines()


@pytest.mark.slow
def test_the_jobs_of_kubernetes_lead_from_converted_models_to_versions(zoo_model, converted, tmp_path):
    """Of one kind, and of several: what builds is left to GPUs, and converted models lie where it would have written."""
    model = converted("digits_cnn", "--precision=FP16")
    shutil.copytree(zoo_model("digits_cnn"), tmp_path / "originals/digits")
    for kind in KINDS:
        shutil.copytree(model, tmp_path / "work/digits-by-gpu" / kind)
    (tmp_path / "build-digits.json").write_text('{"complete": true, "others": []}')
    here = {"/models": str(tmp_path), '"$TFTRT_SERVER"': "tftrt/serving:2.14.1"}
    ran = []
    for line in scripts("kubernetes/3-build.yaml", "kuberay/2-compare.yaml", "kuberay/3-publish.yaml"):
        for word, value in here.items():
            line = line.replace(word, value)
        if not line.startswith("tftrt "):
            subprocess.run(["sh", "-euc", line], check=True)
            continue
        argv = shlex.split(line)
        ran.append(argv[1])
        if argv[1] == "build":
            shutil.copytree(model, tmp_path / "work/digits")
            continue
        done = run_tftrt(*argv[1:], *(QUICK if argv[1] == "regress" else ()), cwd=tmp_path)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
    assert ran == ["build", "verify", "regress", "publish", *("verify", "regress") * 2, "publish"]
    for place in ("digits", *(f"{kind}/digits" for kind in KINDS)):
        assert (tmp_path / "served" / place / "1/saved_model.pb").is_file()
    for name in ("work/digits", *(f"compare-digits-{kind.lower()}" for kind in KINDS)):
        assert held(tmp_path, f"{name}.json")["outcome"] == "pass"
        assert ElementTree.parse(tmp_path / f"{name}.xml").getroot().get("failures") == "0"
    assert held(tmp_path, "publish-digits.json")["version"] == 1
