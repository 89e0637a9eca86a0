"""Paths with a scheme:// in every flag and argument of every command: read as a path, or refused; no folder called `gs:` is made."""

import importlib
import os

import pytest
from absl import flags

from tftrt_tools.base import errors
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _calling, _flags, _places

URL = "gs://bucket/model"
# Flags that are no paths and are compared with a few words when they are parsed.
_ENUM = "string enum"


def command(name):
    return importlib.import_module(f"tftrt_tools.command_line.commands.{name}")


def texts(name):
    """Names of all flags of a command that take a text."""
    values = flags.FlagValues()
    command(name).define(values)
    return sorted(
        one
        for one in values
        if values[one].name == one and values[one].flag_type() not in ("bool", "int", "float", _ENUM)
    )


def urls(name):
    return getattr(command(name), "URLS", ())


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_flag_of_every_command_refuses_a_place_that_is_not_here_or_says_that_it_takes_it(name):
    assert set(urls(name)) <= {*texts(name), _places.ARGUMENTS}, "a flag that is not there"
    for flag in ["json", *texts(name)]:
        argv = [f"--{flag}={URL}"]
        if flag in urls(name):
            assert _flags.parse(name, command(name), argv)[0][flag].value in (URL, [URL])
            continue
        with pytest.raises(
            errors.UsageError, match=f"--{flag}=gs://bucket/model is no path on this machine"
        ) as refused:
            _flags.parse(name, command(name), argv)
        assert "gsutil cp -r" in refused.value.mend


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_flag_of_every_command_reads_a_file_url_as_the_path_in_it(name):
    for flag in texts(name):
        if flag in getattr(command(name), "OUTPUTS", ()):
            continue
        values, _ = _flags.parse(name, command(name), [f"--{flag}=file:///nowhere/m"])
        assert (
            values[flag].value in ("/nowhere/m", ["/nowhere/m"])
            or flag in urls(name)
            and isinstance(values[flag].value, list)
        )


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_argument_of_every_command(name):
    if _places.ARGUMENTS in urls(name):
        assert _flags.parse(name, command(name), ["triton://h:1"])[1] == ["triton://h:1"]
        return
    with pytest.raises(errors.UsageError, match="is no path on this machine"):
        _flags.parse(name, command(name), ["a", "b", "s3://bucket/x"])
    values, behind = _flags.parse(name, command(name), ["a", "file:///nowhere/x"])
    by_place = [values[flag].value for flag in getattr(command(name), "ARGUMENTS", ())]
    assert [*by_place, *behind][:2] == ["a", "/nowhere/x"]


@pytest.mark.parametrize(
    "text, says",
    [
        ("s3://b/m", "aws s3 cp"),
        ("hdfs://n:1/m", "hdfs dfs"),
        ("GS://b", "gsutil"),
        ("gs:/b/m", "gsutil"),
        ("https://h/m.zip", "curl"),
        ("abfss://c@a.dfs.core.windows.net/m", "azcopy"),
        ("tfhub://x", "mount it"),
        ("file://host/m", "file:///PATH"),
        ("file://m", "file:///PATH"),
    ],
)
def test_what_is_refused_says_how_to_get_it(text, says):
    with pytest.raises(errors.UsageError) as refused:
        _places.local(text)
    assert says in refused.value.mend and text in refused.value.cause


@pytest.mark.parametrize(
    "text, path",
    [
        ("file:///a/b", "/a/b"),
        ("file:/a", "/a"),
        ("FILE:///a", "/a"),
        ("file://localhost/a", "/a"),
        ("file:///a%20b", "/a b"),
        ("./gs://b", "./gs://b"),
        ("my_data:batches", "my_data:batches"),
        ("x:1x2,4x2", "x:1x2,4x2"),
        ("here:/models", "here:/models"),
        ("a=gs://b", "a=gs://b"),
        ("", ""),
    ],
)
def test_what_is_read(text, path):
    assert _places.local(text) == path


def test_a_file_url_is_percent_encoded_where_no_such_file_is_there(tmp_path):
    (tmp_path / "a%20b").touch()
    assert _places.local(f"file://{tmp_path}/a%20b") == str(tmp_path / "a%20b")
    (tmp_path / "a%20b").unlink()


@pytest.mark.parametrize(
    "argv",
    [
        ["convert", "--model=m", f"--output={URL}"],
        ["inspect", URL],
        ["verify", "m", URL],
        ["publish", "m", "--model_name=m", f"--base_path={URL}"],
        ["serve", "--launch=local", f"--model_base_path={URL}"],
        ["convert", f"--flagfile={URL}"],
        ["serve", f"--model_config_file={URL}"],
        ["optimize", "m", "--data=d", "--accuracy=top1", f"--publish={URL}"],
    ],
)
def test_the_command_ends_before_it_makes_anything(argv):
    with pytest.raises(errors.UsageError, match="is no path on this machine"):
        _calling.call(argv[0], argv[1:])
