"""A module that lies in the current folder, beside a model, runs where the user names it, and nowhere else."""

import os
import pathlib
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tftrt_tools.base import errors
from tftrt_tools.base.process import child, interpreter
from tftrt_tools.models.execution import user_function
from tftrt_tools.models.kinds import elsewhere

# Modules that Python, this package or its libraries import: of Python's own, of libraries, and of the package.
NAMES = (
    "numpy",
    "tensorflow",
    "json",
    "absl",
    "google",
    "importlib_metadata",
    "grpc",
    "rich",
    "socket",
    "typing",
    "tftrt_tools",
    "sitecustomize",
    "runpy",
)


@pytest.fixture
def trap(tmp_path, monkeypatch):
    """A folder in which each of NAMES leaves a trace, and the current one. Returns: (the folder, the trace)."""
    folder, ran = tmp_path / "model", tmp_path / "RAN"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write(__name__ + chr(10))\nraise SystemExit(9)\n")
    monkeypatch.chdir(folder)
    return folder, ran


def modules(request):
    """Runs in a child: what a child imports in its work. Returns: where it looks, and where it is."""
    import json

    import numpy

    return {"numpy": numpy.__file__, "json": json.__file__, "path": sys.path, "folder": os.getcwd(), "user": request}


def console(*words, **more):
    """The console script: Python, started as it is."""
    code = "import sys; sys.argv[0] = 'tftrt'; from tftrt_tools.command_line.cli import main; sys.exit(main())"
    script = pathlib.Path(sys.executable).with_name("tftrt")
    return [str(script), *words] if script.is_file() else [sys.executable, "-c", code, *words]


@pytest.mark.parametrize("path", ["", os.pathsep, f"{os.pathsep}/nowhere", f"/nowhere{os.pathsep}"])
def test_a_child_does_not_look_in_the_current_folder(path, trap, monkeypatch):
    folder, ran = trap
    monkeypatch.setenv("PYTHONPATH", path + os.pathsep + str(ROOT) if path else str(ROOT))
    monkeypatch.setattr(child, "subprocess", subprocess)  # a new process, and no fork of one that runs
    with child._started("tests.rooms.base.test_hostile_folder:modules", {}, None, folder / "log") as (process, lines):
        found = child.Worker(process, lines, folder / "log").call(7).result
    assert not ran.exists() and found["folder"] == str(folder) and found["user"] == 7
    assert str(folder) not in found["path"] and "" not in found["path"] and not found["numpy"].startswith(str(folder))


def test_a_child_of_another_python_does_not_either(trap, monkeypatch):
    folder, ran = trap
    monkeypatch.setattr(child, "subprocess", subprocess)
    with child._started(elsewhere.seen.target, {}, sys.executable, folder / "log") as (process, lines):
        found = (
            child.Worker(process, lines, folder / "log")
            .call({"package": "numpy", "jobs": "tftrt_tools.models.kinds.onnx.runner_job"})
            .result
        )
    assert not ran.exists() and found["missing"] == {} and found["found"]["version"]


@pytest.mark.parametrize("module", ["tftrt_tools", "tftrt_tools.servers.serving.local"])
def test_our_modules_may_be_run_from_such_a_folder(module, trap, monkeypatch):
    """What Python itself imports for -m, before anything of ours, is Python's: runpy and the package come from the folder then."""
    folder, ran = trap
    for name in ("runpy", "tftrt_tools", "sitecustomize", "typing", "importlib_metadata"):
        (folder / f"{name}.py").unlink()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", module, "--version"], capture_output=True, text=True, cwd=folder, env=env, timeout=60
    )
    assert done.returncode == 0 and not ran.exists(), done.stderr


def test_commands_run_nothing_of_it(trap, zoo_model):
    folder, ran = trap
    (folder / "saved_model.pb").symlink_to(zoo_model("digits_cnn") / "saved_model.pb")
    (folder / "variables").symlink_to(zoo_model("digits_cnn") / "variables")
    for words in (["inspect", "."], ["doctor"]):
        done = subprocess.run(
            console(*words),
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=120,
            env={**os.environ, "PYTHONPATH": ""},
        )
        assert not ran.exists() and "Traceback" not in done.stderr, done.stderr


def test_a_module_of_the_users_own_is_found_behind_the_libraries(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "colorsys.py").write_text("def rows():\n    yield 1\n")
    (tmp_path / "my_hostile_rows.py").write_text("import colorsys\ndef rows():\n    yield colorsys.__file__\n")
    (found,) = user_function.items("my_hostile_rows:rows", "--data")
    assert not found.startswith(str(tmp_path)) and sys.path[-1] == ""
    with pytest.raises(errors.UsageError, match="colorsys is also a module of Python or of a library"):
        list(user_function.items("colorsys:rows", "--data"))


def test_each_process_of_python_is_started_by_one_of_two_places():
    """Who starts Python elsewhere forgets where it looks for modules."""
    package = pathlib.Path(interpreter.__file__).parents[2]
    starts = {str(path.relative_to(package)) for path in package.rglob("*.py") if "sys.executable" in path.read_text()}
    # cli.py starts itself anew, as it was started.
    assert starts == {
        "command_line/cli.py",
        "base/process/interpreter.py",
        "base/process/starting.py",
        "servers/serving/launch/local.py",
        "base/stack/diagnosis.py",
    }
    adding = {str(path.relative_to(package)) for path in package.rglob("*.py") if "sys.path" in path.read_text()}
    assert adding == {
        "base/process/interpreter.py",
        "base/process/starting.py",
        "command_line/commands/_optimize_asked.py",
    }
