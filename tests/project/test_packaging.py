"""The source distribution and the wheel made of it: built from a tagged copy of the sources without network. The wheel, installed into a
folder, runs from there, has all its files and says the version of the tag."""

import dataclasses
import email
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


TAG = "v4.5.6"
VERSION = "4.5.6"
PACKAGE = ROOT / "tftrt_tools"


def ran(*arguments, cwd=None):
    """What a program prints. No settings of the user reach git."""
    env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(list(map(str, arguments)), cwd=cwd, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def git(folder, *arguments):
    ran("git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments, cwd=folder)


def committed(folder):
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=all")


def version_of(folder):
    """The version that a build of this folder would have."""
    return ran(sys.executable, "-m", "setuptools_scm", cwd=folder).strip()


@dataclasses.dataclass(frozen=True)
class Installed:
    """sdist and wheel: the files; folder: where the wheel is installed; elsewhere: an empty folder to run in."""

    sdist: pathlib.Path
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
    source, dist = folder / "source", folder / "dist"  # building leaves files beside pyproject.toml
    shutil.copytree(PACKAGE, source / "tftrt_tools", ignore=shutil.ignore_patterns("__pycache__", "_version.py"))
    for path in [*ROOT.iterdir(), ROOT / "tests/conftest.py", ROOT / "serving/Dockerfile", ROOT / ".ci/run"]:
        if path.is_file() and path.name != ".git":
            (source / path.relative_to(ROOT)).parent.mkdir(exist_ok=True)
            shutil.copy(path, source / path.relative_to(ROOT))
    committed(source)
    git(source, "tag", TAG)
    ran(sys.executable, "-m", "build", "--no-isolation", f"--outdir={dist}", source)
    (sdist,), (wheel,) = dist.glob("*.tar.gz"), dist.glob("*.whl")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-index")
    ran(sys.executable, "-m", "pip", "install", *quiet, "--target", folder / "installed", wheel)
    shutil.rmtree(source)
    (folder / "elsewhere").mkdir()
    return Installed(sdist, wheel, folder / "installed", folder / "elsewhere")


def files_of_the_package():
    """As the distributions name them."""
    found = {path.relative_to(ROOT).as_posix() for path in PACKAGE.rglob("*") if path.suffix in (".py", ".html")}
    assert "tftrt_tools/command_line/report/templates/page.html" in found
    return found | {"tftrt_tools/py.typed", "tftrt_tools/_version.py"}


def test_every_module_and_every_file_of_data_is_in_the_wheel(installed):
    """`build` makes the wheel of the source distribution, so nothing of the wheel is missing there."""
    with zipfile.ZipFile(installed.wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == files_of_the_package()


def test_the_source_distribution_has_what_the_wheel_is_made_of_and_nothing_else(installed):
    with tarfile.open(installed.sdist) as archive:
        packed = {one.name.partition("/")[2] for one in archive if one.isfile()}
    others = {name for name in packed - files_of_the_package() if not name.startswith("tftrt_tools.egg-info/")}
    assert others == {"CHANGELOG.md", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}


def test_the_metadata_say_what_it_is(installed):
    (info,) = installed.folder.glob("*.dist-info")
    said = email.message_from_string((info / "METADATA").read_text())
    assert (said["Name"], said["Version"]) == ("tftrt-tools", VERSION)
    assert said["Description-Content-Type"] == "text/markdown" and said["Keywords"]
    assert said.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    assert (info / "entry_points.txt").read_text() == "[console_scripts]\ntftrt = tftrt_tools.command_line.cli:main\n"


def test_the_version_of_a_build_without_a_tag_is_later_than_the_last_one_before_tags(tmp_path):
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    assert version_of(tmp_path) == "0.1.0"
    committed(tmp_path)
    assert version_of(tmp_path).startswith("0.1.1.dev1+g")
    git(tmp_path, "tag", TAG)
    assert version_of(tmp_path) == VERSION
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message=more")
    assert version_of(tmp_path).startswith("4.5.7.dev1+g")


def test_a_checkout_that_is_not_installed_has_no_version(installed, tmp_path):
    shutil.copytree(installed.folder / "tftrt_tools", tmp_path / "tftrt_tools")
    (tmp_path / "tftrt_tools/_version.py").unlink()
    here = dataclasses.replace(installed, folder=tmp_path)
    # The checkout of the tests may be installed: its finder would find the file that is missing here.
    code = (
        "import runpy, sys; sys.meta_path = [one for one in sys.meta_path if 'editable' not in repr(one)]; "
        "sys.argv = ['tftrt', '--version']; runpy.run_module('tftrt_tools', run_name='__main__')"
    )
    assert here.run("-c", code) == "tftrt-tools 0+unknown\n"


@pytest.mark.parametrize("module", ["tftrt_tools", "tftrt_tools.client", "tftrt_tools.command_line.cli"])
def test_what_is_imported_is_what_was_installed(installed, module):
    """An editable installation in this environment would hide what the wheel lacks."""
    place = installed.run("-c", f"import {module} as one; print(one.__file__)").strip()
    assert pathlib.Path(place).is_relative_to(installed.folder)


def test_the_command_runs_from_it(installed):
    assert "tftrt COMMAND --help" in installed.run("-m", "tftrt_tools", "--help")
    assert installed.run("-m", "tftrt_tools", "--version") == f"tftrt-tools {VERSION}\n"
    assert "--accuracy" in installed.run("-m", "tftrt_tools", "tune", "--help"), (
        "a command is imported when it is named"
    )


def test_documents_say_which_version_wrote_them(installed):
    code = "from tftrt_tools.models.savedmodel import passport; print(passport.stamp()['tool'])"
    assert installed.run("-c", code) == f"tftrt-tools {VERSION}\n"


def test_pages_are_made_of_the_installed_templates(installed):
    names = sorted(path.name for path in (ROOT / "tftrt_tools/command_line/report/templates").iterdir())
    told = f"from tftrt_tools.command_line.report import html; [print(html.template(one).filename) for one in {names}]"
    read = [pathlib.Path(line) for line in installed.run("-c", told).splitlines()]
    assert [path.name for path in read] == names and all(path.is_relative_to(installed.folder) for path in read)
