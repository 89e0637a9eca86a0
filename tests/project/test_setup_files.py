"""The set-up files: what .ci/find_python accepts, when the Makefile refreshes .venv, and whether the pins cover the needs."""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIND_PYTHON = ROOT / ".ci" / "find_python"
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)


def says(version, without="nothing"):
    """A Python that runs the code it is given and takes itself for this version, such as (3, 10, 13), and for one without a module."""
    lie = f"import sys; sys.version_info = {(*version, 'final', 0)}; sys.modules['{without}'] = None; exec(sys.argv[1])"
    return f'exec "{BASE_PYTHON}" -c "{lie}" "$2"'


WORKS = says((3, 10, 13))
BROKEN_SHIM = 'echo "pyenv: python3.10: command not found" >&2; exit 127'
REALLY_311 = says((3, 11, 7))  # whose name says 3.10
WITHOUT_SSL, WITHOUT_ENSUREPIP = says((3, 10, 13), without="ssl"), says((3, 10, 13), without="ensurepip")


class Machine:
    """A machine with nothing on it but what a test puts there: its own PATH and home folder."""

    def __init__(self, folder):
        self.bin, self.home = folder / "bin", folder / "home"
        self.env = {"PATH": str(self.bin), "HOME": str(self.home)}
        self.home.mkdir()
        self.bin.mkdir()
        for tool in ("cat", "mkdir", "cp", "touch"):
            (self.bin / tool).symlink_to(shutil.which(tool))

    def executable(self, path, body):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    def find_python(self, *version, **env):
        return self.run(FIND_PYTHON, *version, **env)

    def run(self, script, *arguments, **env):
        return subprocess.run(
            ["/bin/sh", script, *arguments], env={**self.env, **env}, capture_output=True, text=True, timeout=60
        )


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def found(result):
    assert result.returncode == 0, result.stderr
    return result.stdout == BASE_PYTHON + "\n"


def test_an_empty_machine_gets_one_message_that_says_how_to_get_a_python(machine):
    result = machine.find_python()
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.count("find_python:") == 1
    for way in (
        "no working Python 3.10",
        "uv python install 3.10",
        "pyenv install 3.10",
        "conda create",
        "PYTHON=/path",
    ):
        assert way in result.stderr


def test_the_variable_is_taken_first(machine):
    machine.executable(machine.bin / "python3.10", 'echo "/not/asked"')
    python = machine.executable(machine.home / "my-python", WORKS)
    assert found(machine.find_python(PYTHON=str(python)))


def test_a_variable_that_names_no_python_310_is_said_and_passed_over(machine):
    machine.executable(machine.bin / "python3.10", WORKS)
    wrong = machine.executable(machine.home / "my-python", REALLY_311)
    result = machine.find_python(PYTHON=str(wrong))
    assert found(result)
    assert f"PYTHON={wrong} is no working Python 3.10" in result.stderr


@pytest.mark.parametrize(
    "body",
    [BROKEN_SHIM, REALLY_311, WITHOUT_SSL, WITHOUT_ENSUREPIP],
    ids=["shim that fails", "really 3.11", "no ssl", "no ensurepip"],
)
def test_a_python310_on_path_that_cannot_do_the_work_is_refused(machine, body):
    machine.executable(machine.bin / "python3.10", body)
    result = machine.find_python()
    assert (result.returncode, result.stdout) == (1, "")


def test_a_shim_that_fails_does_not_hide_a_python310_later_on_path(machine):
    shims = machine.home / "shims"
    machine.executable(shims / "python3.10", BROKEN_SHIM)
    machine.executable(machine.bin / "python3.10", WORKS)
    assert found(machine.find_python(PATH=f"{shims}:{machine.bin}"))


def test_pyenv_versions_are_found_behind_a_shim_that_fails(machine):
    machine.executable(machine.bin / "python3.10", BROKEN_SHIM)
    machine.executable(machine.home / ".pyenv/versions/3.10.2/bin/python3.10", BROKEN_SHIM)
    machine.executable(machine.home / ".pyenv/versions/3.10.13/bin/python3.10", WORKS)
    assert found(machine.find_python())


def test_pyenv_may_live_elsewhere(machine, tmp_path):
    machine.executable(tmp_path / "elsewhere/versions/3.10.13/bin/python3.10", WORKS)
    assert found(machine.find_python(PYENV_ROOT=str(tmp_path / "elsewhere")))


def test_uv_is_asked_for_a_python_it_has(machine):
    python = machine.executable(machine.home / "uv/python3.10", WORKS)
    machine.executable(machine.bin / "uv", f'[ "$*" = "python find 3.10" ] && echo "{python}"')
    result = machine.find_python()
    assert found(result)
    assert "installing" not in result.stderr


def test_uv_installs_a_python_it_has_not(machine):
    python = machine.home / "uv/python3.10"
    ready = machine.executable(machine.home / "ready", WORKS)
    machine.executable(
        machine.bin / "uv",
        f"""case "$*" in
        "python find 3.10") [ -e "{python}" ] && echo "{python}" ;;
        "python install 3.10") mkdir "{python.parent}"; cp "{ready}" "{python}"; echo "installed it" ;;
        *) exit 2 ;; esac""",
    )
    result = machine.find_python()
    assert found(result)
    assert "installed it" in result.stderr, "what uv prints must not mix with the path on stdout"


def test_an_environment_that_conda_has_is_used(machine):
    machine.executable(machine.home / "conda/envs/old/bin/python3.10", REALLY_311)
    machine.executable(machine.home / "conda/envs/py310/bin/python3.10", WORKS)
    machine.executable(machine.bin / "conda", f'[ "$*" = "info --base" ] && echo "{machine.home}/conda"')
    assert found(machine.find_python())


def test_conda_creates_an_environment_in_the_users_cache(machine):
    ready = machine.executable(machine.home / "ready", WORKS)
    machine.executable(
        machine.bin / "conda",
        f"""
        [ "$1" = info ] && echo "{machine.home}/conda" && exit
        [ "$1" = create ] && mkdir -p "$5/bin" && cp "{ready}" "$5/bin/python3.10" && echo "created $5" """,
    )
    result = machine.find_python()
    assert found(result)
    assert f"created {machine.home}/.cache/tftrt-tools/python3.10" in result.stderr


def test_when_uv_and_conda_fail_the_message_still_comes(machine):
    machine.executable(machine.bin / "uv", 'echo "error: no network" >&2; exit 2')
    machine.executable(machine.bin / "conda", "exit 1")
    result = machine.find_python()
    assert result.returncode == 1
    assert "no network" in result.stderr
    assert "no working Python 3.10" in result.stderr


def test_a_virtual_environment_stands_for_its_base_python(machine):
    """So that .venv may be removed and made again by a shell in which it is active."""
    assert found(machine.find_python("{}.{}".format(*sys.version_info), PYTHON=sys.executable))


def really(version):
    """The body of a Python of this version, which runs the code that it is given."""
    return f'''exec "{BASE_PYTHON}" -c "import sys; sys.version_info = ({version.replace(".", ", ")}, 1, 'final', 0); exec(sys.argv[1])" "$2"'''


@pytest.fixture
def taken(machine, tmp_path):
    """A function: which environment `make venv` takes on a machine with these Pythons, what it says, and whether it downloaded one.
    Args: pythons: versions on PATH. old: the version of the Python in .venv."""
    folder = tmp_path / "of the stack"
    (folder / ".ci").mkdir(parents=True)
    for name in ("stack", "find_python"):
        shutil.copy(ROOT / ".ci" / name, folder / ".ci" / name)
    (machine.bin / "dirname").symlink_to(shutil.which("dirname"))

    def take(*pythons, old=None, python=None, uv=False):
        for version in pythons:
            machine.executable(machine.bin / f"python{version}", really(version))
        if old:
            machine.executable(folder / ".venv/bin/python", really(old))
        if uv:
            machine.executable(machine.home / "ready", really("3.10"))
            made = machine.home / "uv-python"
            body = f'[ "$2" = install ] && cp "{machine.home}/ready" "{made}"; [ "$2" = find ] && [ -e "{made}" ] && echo "{made}"'
            machine.executable(machine.bin / "uv", body + '; echo "$*" >> ' + f'"{machine.home}/asked"')
        if python:
            machine.executable(machine.home / "mine", really(python))
        done = machine.run(folder / ".ci/stack", **({"PYTHON": str(machine.home / "mine")} if python else {}))
        asked = machine.home / "asked"
        return done.stdout.strip(), done.stderr, asked.exists() and "install" in asked.read_text()

    return take


@pytest.mark.parametrize(
    ("pythons", "others", "env", "why"),
    [
        (("3.10",), {}, ".venv", "Python 3.10 is here"),
        (("3.10", "3.11", "3.12"), {}, ".venv", "Python 3.10 is here"),
        (("3.12",), {}, ".venv-2.17", "2.14.1 needs Python 3.10, and here is"),
        (("3.11", "3.13"), {}, ".venv-2.17", "2.14.1 needs Python 3.10, and here is"),
        (("3.12",), {"uv": True}, ".venv-2.17", "2.14.1 needs Python 3.10, and here is"),
        (("3.12",), {"old": "3.10"}, ".venv", "it is there"),
        (("3.12",), {"old": "3.12"}, ".venv-2.17", "2.14.1 needs Python 3.10, and here is"),
        (("3.10",), {"python": "3.12"}, ".venv-2.17", "PYTHON="),
        (("3.12",), {"python": "3.10"}, ".venv", "Python 3.10 is here"),
        (("3.10",), {"python": "3.13"}, ".venv", "Python 3.10 is here"),
    ],
)
def test_the_python_that_is_there_decides_the_stack_and_none_is_downloaded(pythons, others, env, why, taken):
    found, said, downloaded = taken(*pythons, **others)
    assert found == env and why in said and len(said.splitlines()) == 1
    assert not downloaded


def test_without_any_python_that_serves_one_is_downloaded_for_the_first_stack(taken):
    found, said, downloaded = taken("3.13", uv=True)
    assert found == ".venv" and downloaded and "Python 3.10 was installed for it" in said.splitlines()[-1]


def test_without_any_python_and_without_uv_one_message_names_all_that_would_do(taken):
    found, said, _ = taken("3.13")
    assert found == "" and said.count("find_python:") == 1
    assert "no working Python 3.10 or 3.12 or 3.11" in said


def test_of_several_versions_the_first_that_is_there_is_found(machine):
    for version in ("3.11", "3.10"):
        machine.executable(machine.bin / f"python{version}", really(version))
    # The Python behind each is this one: what tells them apart is which of them answers.
    machine.executable(machine.bin / "python3.11", really("3.11") + ' | { cat; echo "of 3.11"; }')
    assert "of 3.11" in machine.run(FIND_PYTHON, "3.12", "3.11", "3.10").stdout
    assert "of 3.11" not in machine.run(FIND_PYTHON, "3.12", "3.10", "3.11").stdout
    quiet = machine.run(FIND_PYTHON, "--installed", "3.12")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (1, "", "")


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose .venv python only records how it was called. Returns (folder, run), run(target) -> recorded calls."""
    folder = tmp_path / "checkout"
    machine = Machine(tmp_path)
    calls = tmp_path / "calls"
    for name in ("Makefile", "constraints.txt", "constraints-2.17.txt", "pyproject.toml", ".ci/tensorrt", ".ci/stack"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    body = f'[ "$1" = -c ] && {WORKS}; echo "$*" >> "{calls}"'
    machine.executable(folder / ".venv/bin/python", body)
    linter = machine.executable(folder / ".venv/bin/lint-imports", f'echo "lint-imports" >> "{calls}"')
    shutil.copy(linter, tmp_path / "linter")
    # The Python that find_python names makes an environment by copying the recording one.
    good = machine.executable(tmp_path / "good", body)
    making = f'echo "$*" >> "{calls}"; mkdir -p "$3/bin"; cp "{good}" "$3/bin/python"; cp "{tmp_path}/linter" "$3/bin/lint-imports"'
    new = machine.executable(tmp_path / "new-python", making)
    machine.executable(folder / ".ci/find_python", f'echo "{new}"')

    def run(*arguments):
        calls.write_text("")
        env = {**os.environ, "TFTRT_ALLOW_TENSORRT": "", "MAKEFLAGS": "", "MAKELEVEL": "0", "PYTEST_FLAGS": ""}
        subprocess.run(
            ["make", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True, timeout=60
        )
        return calls.read_text().splitlines()

    return folder, run


def test_make_installs_once(checkout):
    _, run = checkout
    first = run("venv")
    assert len(first) == 1
    assert first[0].endswith("--constraint constraints.txt --editable .[tftrt,dev,test,bench,docs]")
    assert run("venv") == []


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml"])
def test_make_installs_again_after_a_set_up_file_changed(checkout, name):
    folder, run = checkout
    run("venv")
    stamp = (folder / ".venv/.stamp").stat().st_mtime
    os.utime(folder / name, (stamp + 5, stamp + 5))
    assert len(run("venv")) == 1


def test_make_makes_the_second_stack_once_with_its_tensorrt(checkout):
    folder, run = checkout
    calls = run("venv-2.17")
    assert calls[0] == "-m venv .venv-2.17" and calls[2:] == [".ci/tensorrt"]
    assert calls[1].endswith("--constraint constraints-2.17.txt --editable .[tftrt-2-17,dev,test,bench,docs]")
    assert run("venv-2.17") == []
    (folder / ".ci/tensorrt").touch()
    assert [call.split()[0] for call in run("venv-2.17")] == ["-m", ".ci/tensorrt"]


@pytest.mark.parametrize("stale", ["moved", "python is gone"])
def test_a_stale_second_stack_is_noticed(stale, checkout):
    folder, run = checkout
    run("venv-2.17")
    if stale == "moved":
        (folder / ".venv-2.17/.stamp").write_text("/where/it/was\n")
    else:
        (folder / ".venv-2.17/bin/python").write_text("#!/nowhere/python\n")
    calls = [call for call in run("venv-2.17") if not call.startswith("-m venv")]
    assert [call.split()[0] for call in calls] == ["-m", ".ci/tensorrt"]
    assert run("venv-2.17") == []


def test_make_venv_and_make_demo_take_the_second_stack_where_the_script_says_so(checkout):
    folder, run = checkout
    (folder / ".ci/stack").write_text("#!/bin/sh\necho .venv-2.17\n")
    shutil.rmtree(folder / ".venv")
    python = (folder / "../good").resolve()
    python.write_text(python.read_text() + 'echo "TFTRT_ALLOW_TENSORRT=$TFTRT_ALLOW_TENSORRT" >> "${0%/*}/allowed"\n')
    assert run("venv")[0] == "-m venv .venv-2.17" and run("venv") == []
    assert run("demo") == ["-m saved_models.demo"]
    assert (folder / ".venv-2.17/bin/allowed").read_text().splitlines()[-1] == "TFTRT_ALLOW_TENSORRT=8.6.0"
    assert not (folder / ".venv").exists()
    (folder / ".ci/stack").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(subprocess.CalledProcessError):
        run("venv")


@pytest.mark.parametrize("switch", ["", "TFTRT_ALLOW_TENSORRT=8.6.0"])
def test_the_tests_of_the_second_stack_get_the_switch_that_its_tensorrt_needs(checkout, tmp_path, switch):
    folder, run = checkout
    run("venv-2.17")
    asked = f'[ "$1" = -c ] && echo runs && exit\n[ "$2" = --switch ] && echo "{switch}" && exit'
    said = f'echo "$TFTRT_ALLOW_TENSORRT $*" >> "{tmp_path}/calls"'
    (folder / ".venv-2.17/bin/python").write_text(f"#!/bin/sh\n{asked}\n{said}\n")
    value = switch.partition("=")[2]
    (whole,) = run("test-2.17")
    (core,) = run("test-2.17-core")
    marked = "-m pytest -n 2 --dist worksteal -m not gpu and not corpus and not portable and not new and not images and not bench"
    assert whole.rstrip() == f"{value} {marked}" and core.startswith(f"{value} {marked} and not slow ")
    files = core.removeprefix(f"{value} {marked} and not slow").split()
    assert len(files) == len(set(files)) > 5 and [file for file in files if not (ROOT / file).is_file()] == []


class Index:
    """The script .ci/tensorrt, for a site-packages folder of a test, and the releases that its indexes have."""

    def __init__(self, site, *versions):
        loader = importlib.machinery.SourceFileLoader("put_tensorrt", str(ROOT / ".ci/tensorrt"))
        self.script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
        loader.exec_module(self.script)
        self.site, self.versions, self.asked = site, versions, []
        self.script.SITE, self.script.TENSORFLOW, self.script.LIBRARIES = (
            site,
            site / "tensorflow",
            site / "tensorrt_libs",
        )

    def __call__(self, monkeypatch):
        monkeypatch.setattr(self.script.subprocess, "run", self.downloaded)
        return self.script.main()

    def downloaded(self, command, **_):
        (dest,) = (pathlib.Path(word.partition("=")[2]) for word in command if word.startswith("--dest="))
        name, version = next(word for word in command if "==" in word).split("==")
        self.asked.append(version)
        if version in self.versions:
            with zipfile.ZipFile(dest / f"{name}-{version}.whl", "w") as wheel:
                for file in (
                    "libnvinfer.so.8",
                    "libnvinfer_plugin.so.8",
                    f"libnvinfer_builder_resource.so.{version}",
                    "a.so",
                    "a.py",
                ):
                    wheel.writestr(f"tensorrt/{file}", version)
        return subprocess.CompletedProcess(command, 0 if version in self.versions else 1)


@pytest.mark.parametrize("versions", [("8.6.1", "8.6.0"), ("8.6.0",)])
def test_tensorrt_is_put_where_tensorflow_looks(versions, tmp_path, monkeypatch, capsys):
    (tmp_path / "tensorflow").mkdir()
    index = Index(tmp_path, *versions)
    assert index(monkeypatch) == 0
    made = {path.name: path.read_text() for path in (tmp_path / "tensorflow").iterdir()}
    names = ["libnvinfer.so.8.6.1", "libnvinfer_builder_resource.so." + versions[0], "libnvinfer_plugin.so.8.6.1"]
    assert made == dict.fromkeys(names, versions[0])
    said = capsys.readouterr().out
    assert f"TensorRT {versions[0]} is in" in said and ("TFTRT_ALLOW_TENSORRT=8.6.0" in said) == (len(versions) == 1)
    asked = list(index.asked)
    assert index(monkeypatch) == 0 and index.asked == asked
    monkeypatch.setattr(index.script.sys, "argv", [".ci/tensorrt", "--switch"])
    capsys.readouterr()
    assert index(monkeypatch) == 0 and index.asked == asked
    assert capsys.readouterr().out == ("TFTRT_ALLOW_TENSORRT=8.6.0\n" if len(versions) == 1 else "")
    monkeypatch.setattr(index.script.sys, "argv", [".ci/tensorrt"])
    for name in names:
        # The links are gone, or lead nowhere; the libraries lie there.
        (tmp_path / "tensorflow" / name).unlink()
    (tmp_path / "tensorflow" / names[0]).symlink_to("nowhere")
    assert index(monkeypatch) == 0 and index.asked == asked
    assert made == {path.name: path.read_text() for path in (tmp_path / "tensorflow").iterdir()}
    (tmp_path / "tensorrt_libs" / "libnvinfer.so.8").unlink()
    assert index(monkeypatch) == 0 and index.asked == asked * 2
    assert made == {path.name: path.read_text() for path in (tmp_path / "tensorflow").iterdir()}
    assert [path.name for path in tmp_path.iterdir() if "part" in path.name] == []


def test_links_to_a_tensorrt_of_the_user_are_left_alone(tmp_path, monkeypatch):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "mine").write_text("of the user")
    index = Index(tmp_path, "8.6.0")
    for name in index.script.LINKS:
        (tmp_path / "tensorflow" / name).symlink_to("../mine")
    assert index(monkeypatch) == 0 and index.asked == []


def test_without_an_index_or_tensorflow_nothing_is_put_and_one_line_says_so(tmp_path, monkeypatch, capsys):
    assert Index(tmp_path, "8.6.1")(monkeypatch) == 1 and not list(tmp_path.iterdir())
    (tmp_path / "tensorflow").mkdir()
    assert Index(tmp_path)(monkeypatch) == 1 and not list((tmp_path / "tensorflow").iterdir())
    first, second = capsys.readouterr().err.splitlines()
    assert "no TensorFlow" in first and "neither https://pypi.nvidia.com nor PyPI could be reached" in second


def test_make_installs_again_after_the_checkout_moved(checkout):
    folder, run = checkout
    run("venv")
    (folder / ".venv/.stamp").write_text("/where/it/was\n")
    assert len(run("venv")) == 1
    assert run("venv") == []


@pytest.mark.parametrize("target", ["test", "demo"])
def test_a_venv_whose_python_no_longer_runs_is_made_again(checkout, target):
    folder, run = checkout
    run("venv")
    (folder / ".venv/bin/python").write_text("#!/nowhere/python\n")
    calls = run(target)
    assert calls[0] == "-m venv .venv"
    assert "pip install" in calls[1]
    assert {
        "test": "-m pytest -n 2 --dist worksteal -m not gpu and not corpus and not portable and not new and not images and not bench",
        "demo": "-m saved_models.demo",
    }[target] in calls[-1]


def test_make_test_runs_the_linter_and_then_everything_that_needs_no_gpu(checkout):
    _, run = checkout
    assert [call.rstrip() for call in run("test")[-4:]] == [
        "-m ruff check .",
        "-m mypy",
        "lint-imports",
        "-m pytest -n 2 --dist worksteal -m not gpu and not corpus and not portable and not new and not images and not bench",
    ]


def test_the_tests_of_the_benchmarks_run_before_them(checkout):
    _, run = checkout
    assert [call.rstrip() for call in run("bench")[-2:]] == [
        "-m pytest -n 2 --dist worksteal -m not gpu and bench",
        "-m benchmarks",
    ]


@pytest.mark.parametrize("target", ["lint", "quick", "coverage", "format"])
def test_what_needs_no_tensorflow_makes_a_small_environment_where_there_is_none(checkout, target):
    folder, run = checkout
    shutil.rmtree(folder / ".venv")
    calls = run(target)
    assert calls[0] == "-m venv .venv-dev"
    assert calls[1].endswith("--editable .[dev]")
    assert calls[2].startswith(
        {"lint": "-m ruff", "quick": "-m pytest", "coverage": "-m coverage run", "format": "-m ruff"}[target]
    )
    assert not (folder / ".venv").exists()
    assert not any("install" in call for call in run(target))


def test_the_whole_environment_serves_every_target_where_it_is(checkout):
    folder, run = checkout
    run("venv")
    assert not any("install" in call for call in run("lint") + run("quick"))
    assert not (folder / ".venv-dev").exists()


def test_make_test_lints_in_the_environment_that_it_makes(checkout):
    folder, run = checkout
    shutil.rmtree(folder / ".venv")
    calls = run("test")
    assert calls[0] == "-m venv .venv" and "lint-imports" in calls
    assert not (folder / ".venv-dev").exists()


def test_gpu_tests_run_with_a_python_that_the_machine_brings(checkout, tmp_path):
    folder, run = checkout
    shutil.rmtree(folder / ".venv")
    assert [call.rstrip() for call in run("gpu-test", f"GPU_PYTHON={tmp_path / 'good'}")] == ["-m pytest -m gpu"]
    assert not (folder / ".venv").exists()


@pytest.fixture
def continuous(machine, tmp_path):
    """A function: the targets that continuous integration makes, and its result, where those named fail."""

    def run(*failing):
        refuses = "".join(f'[ "$1" = {target} ] && exit 2; ' for target in failing)
        machine.executable(machine.bin / "make", f'echo "$PWD: $*"; {refuses}exit 0')
        # No test installs packages of the system.
        machine.executable(machine.bin / "apt-get", "exit 100")
        env = {"PATH": f"{machine.bin}:{os.environ['PATH']}"}
        result = subprocess.run([ROOT / ".ci/run"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
        assert all(line.startswith(f"{ROOT}: ") for line in result.stdout.splitlines())
        return [line.removeprefix(f"{ROOT}: ") for line in result.stdout.splitlines()], result

    return run


def test_continuous_integration_runs_make_test_and_the_core_on_the_second_stack_from_any_folder(continuous):
    made, result = continuous()
    assert made == ["triton", "test", "venv-2.17", "test-2.17-core"] and (result.returncode, result.stderr) == (0, "")


def test_continuous_integration_goes_on_without_what_cannot_be_downloaded(continuous):
    made, result = continuous("triton", "venv-2.17")
    assert made == ["triton", "test", "venv-2.17"] and result.returncode == 0
    (said,) = result.stderr.splitlines()
    assert "tests of TensorFlow 2.17 were left out" in said


@pytest.mark.parametrize(("failing", "made"), [("test", 2), ("test-2.17-core", 4)])
def test_continuous_integration_fails_where_tests_do(continuous, failing, made):
    targets, result = continuous(failing)
    assert len(targets) == made and result.returncode != 0


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("name", ["constraints.txt", "constraints-2.17.txt"])
def test_every_pin_is_an_exact_version_of_a_registry_package(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    assert len(lines) > 50
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.+!]*", line)] == []


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-2.17.txt"])
def test_every_requirement_of_the_package_and_its_extras_is_pinned(file):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    # These are for other Pythons, with the newest of everything.
    unpinned = {"export-tensorflow", "export-torch", "test-new"}
    wanted = [
        project["dependencies"],
        *(lines for name, lines in project["optional-dependencies"].items() if name not in unpinned),
    ]
    names = {_normal(re.match(r"[\w.-]+", line)[0]) for lines in wanted for line in lines} - {project["name"]}
    pinned = {_normal(line.split("==")[0]) for line in (ROOT / file).read_text().splitlines() if "==" in line}
    assert names - pinned == set()


@pytest.mark.parametrize(("file", "oldest"), [("constraints.txt", "3.10.0"), ("constraints-2.17.txt", "3.11.2")])
def test_pins_that_are_installed_here_take_the_oldest_python_that_the_makefile_takes(file, oldest):
    """3.11.2 is Debian 12's. pip refuses a pin that wants a later patch release."""
    from packaging.specifiers import SpecifierSet

    pinned = {line for line in (ROOT / file).read_text().splitlines() if "==" in line}
    seen = {
        line: SpecifierSet(one.metadata["Requires-Python"] or "").contains(oldest)
        for one in importlib.metadata.distributions()
        if (line := f"{one.metadata['Name']}=={one.version}") in pinned
    }
    assert seen and [line for line, fits in seen.items() if not fits] == []


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("left_on_gpu_*.txt")), ids=lambda path: path.name)
def test_the_tests_that_are_left_for_a_gpu_exist(path):
    """One name that is gone, and pytest runs none of them there."""
    listed = path.read_text().splitlines()
    assert listed and len(set(listed)) == len(listed)
    for one in listed:
        file, _, name = one.partition("[")[0].partition("::")
        assert f"\ndef {name}(" in (ROOT / file).read_text(), one
