"""Names and texts of others are printed and shown as they are: no markup, no emoji, and no control character that a terminal obeys."""

import io
import json
import os
import pty
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.sources_command import run
from tftrt_tools.base import errors, terminal
from tftrt_tools.base.process import progress
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _output
from tftrt_tools.command_line.report import html, plots
from tftrt_tools.studies.bench import live

CLIPBOARD = "\x1b]52;c;cHduZWQ=\x1b\\"
# What a terminal obeys: escapes, the C1 form of them, bells, backspaces, returns, and what turns text around.
NASTY = [
    CLIPBOARD,
    "\x9b2J",
    "\x1b]0;title\x07",
    "a\bb",
    "good\rbad",
    "\x7f",
    "\u202etxt.exe",
    "\u2066x\u2069",
    "\x00",
    "\u2028",
    "\udce9",
]
MARKUP = "[/x]"
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def test_what_is_shown_says_what_it_was():
    assert terminal.shown("\x1b[2Jé\t\n" + CLIPBOARD[:2]) == "\\x1b[2Jé\t\n\\x1b]"
    assert [terminal.shown(one) for one in NASTY if not OBEYED.search(terminal.shown(one))] == [
        terminal.shown(one) for one in NASTY
    ]
    assert terminal.shown("\u202e\udce9") == "\\u202e\\udce9" and terminal.shown("中文 עברית 👍") == "中文 עברית 👍"


@pytest.mark.parametrize("text", [*NASTY, MARKUP, "[bold]x", ":warning:", "[link=http://x]y[/link]", "[red]"])
def test_each_way_to_print_shows_it_as_it_is(text, capsys):
    def tell():
        _output.console(None).print(text)
        _output.console("-").print(text)
        _output.console(None).print(_output.table(text, ["a", text], [[text, 1]]))
        print(text)
        print(text, file=sys.stderr)
        sys.stderr.writelines([text])
        progress.note(text)
        with live.view() as view:
            view.begin(1, 2, text)
        return errors.EXIT_DONE

    with terminal.guarded():
        tell()
    out, err = capsys.readouterr()
    assert not OBEYED.search(out + err)
    assert out.count(terminal.shown(text)) == 5 and err.count(terminal.shown(text)) == 5


def terminal_of(code, *words):
    """What a program writes to a terminal that it has for stdout and stderr."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "100"}
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=env
    ) as process:
        os.close(theirs)
        said = b""
        while True:
            try:
                piece = os.read(ours, 1 << 16)
            except OSError:
                break
            if not piece:
                break
            said += piece
        process.wait()
    os.close(ours)
    return said.decode()


def test_on_a_terminal_only_our_own_colours_are_left():
    code = """
import sys
from tftrt_tools.base import terminal
from tftrt_tools.base.process import progress
from tftrt_tools.studies.bench import live
from tftrt_tools.command_line.commands import _output
text = sys.argv[1]
with terminal.guarded():
    _output.console(None).print(text, style="bold")
    _output.console(None).print(_output.table(text, [text], [[text]]))
    with progress.on_terminal():
        progress.say(text, 1, 2)
    with live.view() as view:
        view.note(text)
        view.begin(1, 2, text)
    print(text)
"""
    said = terminal_of(code, CLIPBOARD + "[/x]\x9b2J\u202e")
    assert "\x1b[1m" in said and "\x1b]" not in said and "\x9b" not in said and "\u202e" not in said and "[/x]" in said


def test_a_traceback_of_a_bug_is_shown_too():
    code = f"""
import sys
from tftrt_tools.command_line import cli
cli._told = lambda argv: 1 / 0 if False else (_ for _ in ()).throw(AssertionError({CLIPBOARD!r}))
cli.main([])
"""
    said = terminal_of(code)
    assert "AssertionError" in said and "\x1b]" not in said


def test_json_keeps_each_name(capsys):
    class Result:
        def to_dict(self):
            return {"names": [*NASTY, MARKUP]}

    with terminal.guarded():
        _output.write_json(Result(), "-")
    said = capsys.readouterr().out
    assert json.loads(said) == {"names": [*NASTY, MARKUP]} and not OBEYED.search(said)


def test_an_error_and_an_unknown_command_are_shown(capsys):
    assert (
        cli.main([CLIPBOARD]) == errors.EXIT_USAGE
        and cli.main(["inspect", f"/nowhere/{CLIPBOARD}"]) == errors.EXIT_USAGE
    )
    printed = capsys.readouterr()
    assert "\\x1b]52" in printed.err and not OBEYED.search(printed.out + printed.err)


def test_a_page_shows_it(tmp_path):
    figure = plots.new_figure(3, 2)
    figure.text(0, 0, "$\\frac{" + CLIPBOARD + "$")
    page = (
        html.template("regress.html")
        .environment.from_string("{{ name }} {{ plot | safe }}")
        .render(name=f"<b>{CLIPBOARD}\udce9\u202e", plot=plots.svg(figure))
    )
    assert not OBEYED.search(page) and "&lt;b&gt;" in page and "$\\frac{" in page
    page.encode()


def test_only_one_place_makes_consoles():
    package = ROOT / "tftrt_tools"
    texts = {str(path.relative_to(package)): path.read_text() for path in package.rglob("*.py")}
    assert [name for name, text in texts.items() if re.search(r"(?<!class Plain\()\bConsole\([^)]*[=)]", text)] == []
    assert [name for name, text in texts.items() if "rich.markup" in text or "from_markup" in text] == []


# Commands with such names


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A SavedModel whose signature, inputs and outputs have such names, which TF-TRT can convert."""
    folder = tmp_path_factory.mktemp("named") / "model"
    module = tf.Module()
    module.w = tf.Variable(np.random.default_rng(0).normal(size=(8, 8)).astype("f4"))
    output = f"[/x]:warning:{CLIPBOARD}\u202e"
    module.f = tf.function(
        lambda x: {output: tf.nn.softmax(tf.nn.relu(x @ module.w) @ module.w)},
        input_signature=[tf.TensorSpec((None, 8), name="x")],
    )
    tf.saved_model.save(module, str(folder), signatures={output: module.f})
    np.savez(folder.parent / "rows.npz", x=np.random.default_rng(0).random((16, 8), np.float32))
    return folder


def printed_by(capsys, *words):
    code = run(*words)
    said = capsys.readouterr()
    assert not OBEYED.search(said.out + said.err) and "[/x]" in said.out + said.err, said
    return code, said


def test_commands_show_the_names_of_a_model(named, tmp_path, capsys):
    data = f"--data={named.parent / 'rows.npz'}"
    assert printed_by(capsys, "inspect", named)[0] == errors.EXIT_DONE
    code, _ = printed_by(capsys, "convert", f"--model={named}", f"--output={tmp_path / 'out'}")
    assert code == errors.EXIT_DONE
    code, said = printed_by(capsys, "verify", named, tmp_path / "out", data, f"--html={tmp_path / 'page.html'}")
    assert code == errors.EXIT_DONE, said.err
    page = (tmp_path / "page.html").read_text()
    assert not OBEYED.search(page) and "[/x]" in page
    assert printed_by(capsys, "sensitivity", named, data, "--precision=FP16")[0] == errors.EXIT_DONE
    code, said = printed_by(
        capsys,
        "calibrate",
        named,
        f"--calibration_data={named.parent / 'rows.npz'}",
        f"--output={tmp_path / 'table.json'}",
    )
    assert code == errors.EXIT_DONE, said.err
    run("export", named, f"--output={tmp_path / 'model.onnx'}", data)
    said = capsys.readouterr()
    assert not OBEYED.search(said.out + said.err)


def test_a_log_is_shown(tmp_path, capsys):
    path = tmp_path / "a.log"
    lines = [
        f"2024-01-01 00:00:00.000000: E tensorflow/core/x.cc:1] boom {one}"
        for one in NASTY
        if one not in ("\x00", "\udce9")
    ]
    path.write_text(
        "\n".join(lines) + f"\n2024-01-01 00:00:00.000000: W tensorflow/core/x.cc:1] {MARKUP} :warning: {CLIPBOARD}\n"
    )
    code = run("log", path)
    said = capsys.readouterr()
    assert (
        code in (errors.EXIT_DONE, errors.EXIT_CHECK) and not OBEYED.search(said.out + said.err) and "boom" in said.out
    )


def test_a_stream_is_left_as_it_was():
    before = sys.stdout, sys.stderr
    with terminal.guarded():
        assert terminal.unguarded(sys.stdout) is before[0] and sys.stdout.fileno is not None
        with terminal.guarded():
            assert terminal.unguarded(sys.stdout) is before[0]
    assert (sys.stdout, sys.stderr) == before
    assert terminal.unguarded(io.StringIO()).write("x") == 1
