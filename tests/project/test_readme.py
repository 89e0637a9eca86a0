"""The pages (README.md, docs/, serving/README.md) are true: their commands work, their flags exist, their tables are the code's.

How an example is written, so that it can be run here:

  ```sh      commands, run in order in one folder that holds the sample models. An identical line is run once.
             "# needs a GPU" or another mark of pages.ONLY_READ as the first line: only flags and shapes are checked.
             "# exits with N" behind a command: it must end with N, every other with 0.
  ```text    directly after ```sh: lines that those commands printed, shortened. Each must be found in the output: its words, in this
             order, in one line; numbers may be others, "…" stands for anything. What doctor says is about the machine: not compared.
             Behind commands that are only checked it is compared by the test that has their server.
  ```python  starting with "# NAME.py": becomes that file.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest

import saved_models
from saved_models import demo
from tests import command_here
from tests.conftest import ROOT, run_tftrt
from tests.example_flags import check_flags, module, parsed
from tests.pages import DEVELOPERS, DOCS, PAGES, TEXTS, WALKS, blocks, in_order, unprinted, words
from tftrt_tools.accuracy import metrics, thresholds, verify
from tftrt_tools.base import choices, errors
from tftrt_tools.command_line import cli
from tftrt_tools.command_line.commands import _help
from tftrt_tools.models.savedmodel import passport
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.studies.profiling import profile
from tftrt_tools.tftrt.conversion import settings

# Flags of other programs that the pages name.
FOREIGN_FLAGS = {
    "gpus": "docker",
    "cap": "docker",
    "verbose": "trtexec",
    "onnx": "trtexec",
    "prefix": "kubectl",
    "output": "python -m saved_models",
}
# The page whose commands are processes, as a user starts them. Those of the others run in this process.
STARTED = "README.md"
# They set up a machine or a shell, or need what is not here: nothing to run in a test.
NOT_RUN = ("cd", ".", "python3.10", "pip", "docker")


def without_blocks(text):
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def flags_of(command):
    """Every spelling that the command accepts, without dashes."""
    values = parsed(command, [])[0]
    names = set(_help.shown(values))
    negated = {f"no{name}" for name in names if values[name].boolean}
    return names | negated | {"flagfile"}


class Reader:
    """Someone who types what the pages say, in `folder`."""

    def __init__(self, folder):
        self.folder, self.outputs, self.ran, self.checked, self.wrong = folder, {}, [], [], []

    def read(self, block):
        if block.language == "python":
            self._file(block)
        elif block.language == "sh":
            for argv, code, line in block.commands():
                self._command(block, argv, code, line)
        elif block.language == "text" and block.follows and block.follows.language == "sh":
            self._compare(block)

    def _file(self, block):
        name = re.match(r"# (\w+\.py)\n", block.text)
        assert name, f"{block.page}: a python block says in its first line which file it is"
        (self.folder / name[1]).write_text(block.text)

    def _command(self, block, argv, code, line):
        if argv[0] == "make":
            targets = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            self._note(argv[1] in targets, f"{line}: no such target")
        elif argv[:3] == ["python", "-m", "saved_models"]:
            self._note(
                set(argv[3:-1]) <= set(saved_models.NAMES) and argv[-1] == f"--output={demo.FOLDER}",
                f"{line}: not the demo's folder",
            )
        elif argv[0] in NOT_RUN:
            pass
        elif block.only_read:
            if argv[0] == "tftrt":
                check_flags(argv)
            self.checked.append(line)
        elif line not in self.outputs:
            self._run(block.page, argv, code, line)

    def _run(self, page, argv, code, line):
        assert argv[0] in ("tftrt", "python", "mkdir", "cp", "mv"), (
            f"what is `{line}`? {__name__} says which commands it runs"
        )
        if argv[0] == "tftrt":
            run = run_tftrt if page == STARTED else command_here.run_tftrt
            done = run(*argv[1:], cwd=self.folder, env={"CUDA_VISIBLE_DEVICES": "-1"})
        elif argv[0] == "python":
            done = command_here.run_script(*argv[1:], cwd=self.folder, env={"CUDA_VISIBLE_DEVICES": "-1"})
        else:
            done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True, timeout=240, check=False)
        self.outputs[line] = done.stdout + done.stderr
        self.ran.append(line)
        self._note(done.returncode == code, f"{line}: exit code {done.returncode}, not {code}\n{done.stderr[-2000:]}")
        for following in re.findall(r"^next: (.*)$", self.outputs[line], re.MULTILINE):
            for one in following.split(" && "):
                check_flags(shlex.split(one))

    def _compare(self, block):
        if block.follows.only_read or any(argv[:2] == ["tftrt", "doctor"] for argv, _, _ in block.follows.commands()):
            return
        said = "\n".join(self.outputs[command] for _, _, command in block.follows.commands())
        for line in unprinted(block, said):
            self._note(False, f"{block.page} quotes what no command above it prints: {line}")

    def _note(self, right, wrong):
        if not right:
            self.wrong.append(wrong)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # a command for each example, one after the other
def test_every_example_does_what_the_pages_say(zoo_model, tmp_path):
    for name in ("digits_cnn", "ranker", "bert_encoder"):
        shutil.copytree(zoo_model(name), tmp_path / name)
    demo._held_back(tmp_path)
    reader = Reader(tmp_path)
    for page in PAGES:
        for block in blocks(page) if page not in WALKS else ():
            reader.read(block)
    assert not reader.wrong, "\n".join(reader.wrong)
    # A page that is no longer understood must not pass for one without mistakes.
    assert len(reader.ran) >= 15 and len(reader.checked) >= 4, (reader.ran, reader.checked)
    check_warm_up(tmp_path / "stock/digits/1")


def check_warm_up(version):
    """What TensorFlow Serving reads: records of PredictionLog whose inputs the signature takes."""
    code = (
        "import sys, tensorflow as tf\nfrom tensorflow_serving.apis import prediction_log_pb2 as p\n"
        "for record in tf.data.TFRecordDataset(sys.argv[1]):\n"
        "    request = p.PredictionLog.FromString(record.numpy()).predict_log.request\n"
        "    print({name: tuple(tf.make_ndarray(value).shape) for name, value in request.inputs.items()})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, version / "assets.extra/tf_serving_warmup_requests"],
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        check=True,
    )
    assert done.stdout == "{'image': (32, 8, 8, 1)}\n" and (version / "saved_model.pb").is_file()


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_examples_in_a_commands_help_are_understood(command):
    text = module(command).__doc__.replace("\\\n", " ")
    examples = [shlex.split(line) for line in re.findall(r"^  (tftrt .*)$", text, re.MULTILINE)]
    assert examples or command == "doctor"
    for argv in examples:
        check_flags(argv)


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_that_is_named_exists(page):
    known = {command: flags_of(command) for command in cli.COMMANDS}
    sections = re.split(r"^(#+ .*)$", without_blocks(TEXTS[page]), flags=re.MULTILINE)
    for title, text in zip(["", *sections[1::2]], sections[::2], strict=True):
        for command, span in re.findall(r"`tftrt ([a-z]+)([^`]*)`", text):
            assert set(re.findall(r"--([a-z]\w*)", span)) <= known[command], f"{title}: `tftrt {command}{span}`"
        text = re.sub(r"`tftrt [^`]*`", "", text)
        command = title.removeprefix("## tftrt ")
        allowed = known.get(command, set.union(*known.values())) | set(FOREIGN_FLAGS) | set(server_flags.DEFAULTS)
        assert set(re.findall(r"--([a-z]\w*)", text)) <= allowed, title


def test_commands_in_the_text_exist():
    for page in PAGES:
        named = set(re.findall(r"`tftrt ([a-z]+)", TEXTS[page]))
        assert named <= set(cli.COMMANDS), page


def test_every_command_has_one_section():
    sections = [command for page in DOCS for command in re.findall(r"^## tftrt (\w+)$", TEXTS[page], re.MULTILINE)]
    assert sorted(sections) == sorted(cli.COMMANDS)


def test_every_page_is_read():
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")} == {*DOCS, "docs/flags.md"}


@pytest.mark.parametrize("page", PAGES + DEVELOPERS)
def test_links_and_make_targets_exist(page):
    folder = (ROOT / page).parent
    for target in re.findall(r"\]\(([^)#]+)", TEXTS[page]):
        assert "://" in target or (folder / target).exists(), target
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`make ([\w-]+)`", TEXTS[page])) <= set(targets)


def rows(header):
    """Rows of the pages' one table whose header starts with these cells."""
    lines = [line for page in PAGES for line in TEXTS[page].splitlines()]
    (start,) = (number for number, line in enumerate(lines) if line.startswith("| " + " | ".join(header)))
    table = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            return table
        table.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return table


def name(cell):
    return re.match(r"`([^`]+)`", cell)[1]


def test_the_default_thresholds_are_the_codes():
    said = {
        name(row[0]): [float(cell) for cell in row[1:]]
        for row in rows(("arithmetic", "SNR, dB, at least", "cosine, at least", "same top-1"))
    }
    assert said == {
        key: [bound["snr_db"], bound["cosine"], thresholds.DEFAULT_TOP1[key]]
        for key, bound in thresholds.DEFAULTS.items()
    }
    assert all(set(bound) == {"snr_db", "cosine"} for bound in thresholds.DEFAULTS.values()), (
        "a metric without a column"
    )


def test_the_metrics_are_the_codes():
    assert {name(row[0]): name(row[1]) for row in rows(("metric", "bound"))} == {
        one.name: one.sign for one in metrics.METRICS.values()
    }


def test_the_evidence_is_named_as_verify_names_it():
    assert name(rows(("verify ran",))[0][1]) == verify.REWRITE_ONLY


def test_the_exit_codes_are_the_codes():
    codes = {value for key, value in vars(errors).items() if key.startswith("EXIT_")}
    assert {int(row[0]) for row in rows(("code", "meaning"))} == codes


def test_the_passport_is_the_codes():
    files = {name(row[0]) for row in rows(("file", "what it says"))}
    assert files == {
        passport.MANIFEST,
        passport.FLAGS,
        passport.VERIFY,
        passport.CALIBRATION,
        passport.PUBLISH,
        passport.LAYERS,
        profile.FILE,
    }
    assert f"`{passport.folder('')}/`" in TEXTS["docs/convert.md"]


def test_the_profile_strategies_are_the_codes():
    said = [name(row[0]) for row in rows(("strategy",))]
    assert sorted(said) == sorted(choices.STRATEGIES)
    assert said[0] == settings.Settings(use_dynamic_shape=True).strategy, "the default comes first"


def test_every_sample_model_is_listed():
    said = [one for row in rows(("name", "what it is")) for one in re.findall(r"`(\w+)`", row[0])]
    assert said == list(saved_models.NAMES)


def test_the_reader_of_these_pages_can_tell_a_line_that_was_not_printed():
    printed = words(" TRTEngineOp_51c8edcc46_0_0    14   float32[?,8,8,1]   float32[?,10]   on request ")
    assert in_order(words("TRTEngineOp_0123456789_0_0  7  float32[?,8,8,1] … request"), printed)
    assert in_order(words("written: …/out (2.0 s)"), words("written: /tmp/x/out (13.1 s)"))
    assert not in_order(words("TRTEngineOp_51c8edcc46_0_0 14 never"), printed)
    for version in ("1.2.3", "0.1.1.dev1049+g565faee65", "0.1.1.dev7+g1234567.d20261127", "0+unknown"):
        assert in_order(words("by tftrt-tools 0.1.0: answers"), words(f"by tftrt-tools {version}: answers"))
    assert not in_order(words("by tftrt-tools 0.1.0: answers"), words("by tftrt-tools unknown: answers"))
    assert not in_order(words("request on"), printed)
