"""Known messages of logs: each of their forms is found, in real lines too, and their mends name flags and commands that exist."""

import collections
import pathlib
import re
import subprocess

import pytest

from tests import stacks
from tests.example_flags import parsed
from tests.log_lines import LINES
from tftrt_tools.base import choices
from tftrt_tools.base.logs import entries, heads, index, known
from tftrt_tools.base.logs.message import Form
from tftrt_tools.command_line import cli
from tftrt_tools.servers.serving import server_flags

MESSAGES = (*known.MESSAGES, *known.GENERAL)
FORMS = [(message, form) for message in MESSAGES for form in message.forms]
# Flags of other programs that mends name.
TRTEXEC = {
    "minShapes",
    "optShapes",
    "maxShapes",
    "shapes",
    "memPoolSize",
    "plugins",
    "int8",
    "useCudaGraph",
    "noDataTransfers",
    "duration",
    "help",
}
# What holds for each place where a form has one, so that the form can be written out.
PLACES = {
    "engine": "TRTEngineOp_1_2",
    "shapes": "[[1,2]]",
    "number": "3",
    "op": "Conv2D",
    "hex": "0x1f",
    "path": "/a/b",
}


def written(form):
    return re.sub(r"\{(\w+)\}", lambda found: PLACES.get(found[1], "something"), form.text)


def found(line):
    """Names of the known messages in a line with what belongs to it."""
    (entry,) = entries.of(line.split("\n"))
    return [one.message.name for one in index.find(entry.text, entry.level)]


@pytest.mark.parametrize(("name", "line"), LINES, ids=[f"{number}-{name}" for number, (name, _) in enumerate(LINES)])
def test_real_lines_are_known(name, line):
    assert name in found(line)


def test_each_form_is_found_as_its_own_message():
    wrong = [
        (message.name, form.text)
        for message, form in FORMS
        if [one.message.name for one in index.find(written(form), "E")][:1] != [message.name]
    ]
    assert wrong == []


@pytest.mark.parametrize("where", ["building engine", "engine deserialization", "IExecutionContext creation"])
def test_how_much_memory_tensorrt_holds_is_no_error(where):
    """TensorRT's information of a build that went well."""
    line = f"[MemUsageChange] TensorRT-managed allocation in {where}: CPU +0, GPU +5, now: CPU 0, GPU 5 (MiB)"
    assert index.find(line, "I") == [] == index.find(line, "E")


def test_names_and_forms_are_there_once():
    assert max(collections.Counter(message.name for message in MESSAGES).values()) == 1
    assert max(collections.Counter(form.text for _, form in FORMS).values()) == 1
    assert len(MESSAGES) > 150


def test_every_category_has_messages():
    assert {message.category for message in MESSAGES} == set(choices.LOG_CATEGORIES)


@pytest.mark.parametrize("topic", sorted({message.category for message in MESSAGES}))
def test_messages_say_what_they_mean_and_what_to_do(topic):
    known_flags = {flag for name in cli.COMMANDS for flag in parsed(name, [])[0]} | TRTEXEC | set(server_flags.DEFAULTS)
    for message in (one for one in MESSAGES if one.category == topic):
        assert message.meaning.endswith(".") and not message.mend.endswith("."), message.name
        assert message.mend or message.severity == "note" or topic in ("precision", "calibration"), message.name
        assert not message.subject or any(message.subject in form.pattern.groupindex for form in message.forms), (
            message.name
        )
        assert set(re.findall(r"`tftrt (\w+)", message.mend)) <= set(cli.COMMANDS), message.name
        named = re.findall(r"--(\w+)", message.mend)
        assert all(flag in known_flags or flag.removeprefix("no") in known_flags for flag in named), message.mend


def test_the_longer_of_two_messages_that_overlap_counts_and_others_stand_beside_it():
    line = "Loading servable: {name: a version: 1} failed: INVALID_ARGUMENT: No OpKernel was registered to support Op 'CreateTRTResourceHandle' used by x"
    assert [one.message.name for one in index.find(line, "E")] == ["version_not_loaded", "op_without_kernel"]
    assert index.find(line, "E")[0].values["model"] == "a"
    retried = "Failed to execute engine: INTERNAL: Failed to enqueue batch for TRT engine Retrying with native segment for TRTEngineOp_1"
    assert [one.message.name for one in index.find(retried, "W")] == ["engine_not_executed"]


def test_general_messages_count_where_nothing_more_is_known():
    assert [
        one.message.name for one in index.find("9: [x.cpp::y::1] Error Code 9: Internal Error (something new)", "E")
    ] == ["tensorrt_error"]
    assert [
        one.message.name
        for one in index.find("4: [x] Error Code 4: Internal Error (Network must have at least one output)", "E")
    ] == ["network_without_output"]


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("Engine creation for {engine} failed.", "creation"),
        ("kipping tactic {number} due to exception {why}", "exception"),
        ("CUDA_ERROR_OUT_OF_MEMORY", ""),
        ("{library}: cannot open shared object file", "cannot"),
    ],
)
def test_the_key_of_a_form_stands_between_spaces(text, key):
    form = Form(text)
    assert form.key == key and (not key or key in written(form).split())


LIBRARIES = (
    "tensorflow/libtensorflow_cc.so.2",
    "tensorflow/libtensorflow_framework.so.2",
    "tensorrt/libnvinfer.so.8",
    "tensorrt/libnvonnxparser.so.8",
    "tensorflow/python/compiler/tensorrt/trt_convert.py",
)
# Where TensorRT 8.6 has its libraries.
OTHERWISE = re.compile("^tensorrt/")
# What they put together from parts; what TensorFlow Serving, trtexec and the system say; what other versions say.
NOT_HERE = {
    "implicit_batch_gone",
    "no_engine_and_no_build",
    "engine_not_built",
    "grouped_convolution",
    "allocator_short",
    "binding_of_other_profile",
    "memory_growth",
    "constant_on_cpu",
    "plugin_registered_twice",
    "picture_not_written",
    "version_not_loaded",
    "version_given_up",
    "server_not_started",
    "base_path_unreadable",
    "no_version",
    "version_not_found",
    "version_twice",
    "versions_kept",
    "version_without_room",
    "label_without_version",
    "configuration_refused",
    "port_taken",
    "no_warmup",
    "warmup_failed",
    "model_type_old",
    "version_loaded",
    "batch_queue_timeout",
    "model_not_served",
    "no_thread_left",
    "no_ipv6",
    "trtexec_failed",
    "input_unknown",
    "shape_chosen",
    "times_unstable",
    "bound_by_launches",
    "times_of_several_streams",
    "system_without_memory",
    "range_not_given",
    "layernorm_in_fp16",
    "cpu_kernel_on_gpu",
    "engines_of_other_tensorrt_not_loaded",
    "engines_run_natively",
    "ended_under_way",
    "configuration_not_reloaded",
    "development_server_fault",
    "base_paths_not_polled",
    "rank_ended_server",
    "no_rows_ended_server",
}


@pytest.mark.slow
def test_the_words_of_messages_are_those_of_the_installed_libraries(tmp_path):
    """A message is known by what TensorFlow or TensorRT write, but for those that are named here."""
    import tensorflow

    site = pathlib.Path(tensorflow.__file__).parents[1]
    words = {form: max(form.literals, key=len).strip(" .:,()'`") for message in MESSAGES for form in message.forms}
    (tmp_path / "words").write_text("\n".join(words.values()) + "\n")
    searched = subprocess.run(
        [
            "grep",
            "--text",
            "--only-matching",
            "--no-filename",
            "--fixed-strings",
            f"--file={tmp_path / 'words'}",
            *(
                site / name if (site / name).exists() else site / OTHERWISE.sub("tensorrt_libs/", name)
                for name in LIBRARIES
            ),
        ],
        capture_output=True,
        text=True,
        errors="replace",
        env={"LC_ALL": "C"},
    )
    there = set(searched.stdout.splitlines())
    assert {
        message.name for message in MESSAGES if not any(words[form] in one for form in message.forms for one in there)
    } == NOT_HERE ^ stacks.OTHER_WORDS


def test_a_head_is_known_in_each_line():
    headless = [line for _, line in LINES if heads.read(line.split("\n")[0]) is None]
    assert [line.split(" ")[0] for line in headless] == ["&&&&", "Could", "Failed", "Segmentation"]
