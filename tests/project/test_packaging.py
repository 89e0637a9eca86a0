"""The wheel: built from a copy of the sources without network, installed into a folder, it runs from there and has all its files."""

import dataclasses
import email
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

import tftrt_tools
from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def pip(*arguments):
    command = [sys.executable, "-m", "pip", *map(str, arguments), "--no-deps", "--no-index"]
    done = subprocess.run(
        [*command, "--quiet", "--disable-pip-version-check"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr


@dataclasses.dataclass(frozen=True)
class Installed:
    """wheel: the file; folder: where it is installed; elsewhere: an empty folder to run in."""

    wheel: pathlib.Path
    folder: pathlib.Path
    elsewhere: pathlib.Path

    def run(self, *arguments):
        """What this Python prints. Its own packages give the dependencies, and the folder comes before them."""
        env = {**os.environ, "PYTHONPATH": str(self.folder), "XDG_STATE_HOME": str(self.elsewhere)}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=self.elsewhere, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packaging")
    source, wheels = folder / "source", folder / "wheels"  # building leaves files beside pyproject.toml
    shutil.copytree(ROOT / "tftrt_tools", source / "tftrt_tools", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.cfg", "README.md"):
        shutil.copy(ROOT / name, source)
    pip("wheel", "--no-build-isolation", "--wheel-dir", wheels, source)
    (wheel,) = wheels.iterdir()
    pip("install", "--target", folder / "installed", wheel)
    shutil.rmtree(source)
    (folder / "elsewhere").mkdir()
    return Installed(wheel, folder / "installed", folder / "elsewhere")


def test_every_module_and_every_file_of_data_is_in_the_wheel(installed):
    with zipfile.ZipFile(installed.wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / "tftrt_tools"
    wanted = {path.relative_to(ROOT).as_posix() for path in package.rglob("*") if path.suffix in (".py", ".html")}
    wanted.add("tftrt_tools/py.typed")
    assert "tftrt_tools/command_line/report/templates/page.html" in wanted
    assert packed == wanted


def test_the_metadata_say_what_it_is(installed):
    (info,) = installed.folder.glob("*.dist-info")
    said = email.message_from_string((info / "METADATA").read_text())
    assert (said["Name"], said["Version"]) == ("tftrt-tools", tftrt_tools.__version__)
    assert said["Description-Content-Type"] == "text/markdown" and said["Keywords"]
    assert said.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    assert (info / "entry_points.txt").read_text() == "[console_scripts]\ntftrt = tftrt_tools.command_line.cli:main\n"


@pytest.mark.parametrize("module", ["tftrt_tools", "tftrt_tools.client", "tftrt_tools.command_line.cli"])
def test_what_is_imported_is_what_was_installed(installed, module):
    """An editable installation in this environment would hide what the wheel lacks."""
    place = installed.run("-c", f"import {module} as one; print(one.__file__)").strip()
    assert pathlib.Path(place).is_relative_to(installed.folder)


def test_the_command_runs_from_it(installed):
    assert "tftrt COMMAND --help" in installed.run("-m", "tftrt_tools", "--help")
    assert tftrt_tools.__version__ in installed.run("-m", "tftrt_tools", "--version")
    assert "--accuracy" in installed.run("-m", "tftrt_tools", "tune", "--help"), (
        "a command is imported when it is named"
    )


def test_pages_are_made_of_the_installed_templates(installed):
    names = sorted(path.name for path in (ROOT / "tftrt_tools/command_line/report/templates").iterdir())
    told = f"from tftrt_tools.command_line.report import html; [print(html.template(one).filename) for one in {names}]"
    read = [pathlib.Path(line) for line in installed.run("-c", told).splitlines()]
    assert [path.name for path in read] == names and all(path.is_relative_to(installed.folder) for path in read)
