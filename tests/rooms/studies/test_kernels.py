"""In which arithmetic a GPU computed, by the names of kernels that were seen there; and what is said where it was asked for another."""

import dataclasses

import numpy as np
import pytest

from tests.conftest import ROOT
from tftrt_tools.accuracy import verify
from tftrt_tools.command_line.commands import verify as command
from tftrt_tools.command_line.report import html
from tftrt_tools.models.execution import kernels, run
from tftrt_tools.models.execution.job import profiling
from tftrt_tools.models.inputs import calls
from tftrt_tools.models.kinds.savedmodel import kind as saved_model

# Names of kernels of native TensorFlow and of engines, seen on an H200 with TensorRT 8.5.3 under TensorFlow 2.14.1 (some cut off), each
# behind what it computes in: judged by hand, by the types in its name and the precision of the engines that it was seen in.
SEEN = [line.split("\t") for line in (ROOT / "tests/data/kernels.txt").read_text().splitlines()]


@pytest.mark.parametrize("arithmetic", kernels.ARITHMETICS)
def test_names_of_kernels_tell_their_arithmetic(arithmetic):
    names = [name for one, name in SEEN if one == arithmetic]
    assert [kernels.arithmetic(name) for name in names] == [arithmetic] * len(names)
    assert names or arithmetic == "BF16"  # none was seen: TensorFlow 2.14 builds no such engines


def events(*kernels_ms):
    """A trace in which kernels run one after another."""
    found, start = [], 0.0
    for name, ms in kernels_ms:
        found.append((name, start, start + 1e-3 * ms))
        start += 1e-3 * ms
    return {"/device:GPU:0": found, "/host:CPU": [("sm80_xmma_gemm_i8i8_i8i32_f32_tn", 0.0, 9.0)]}


def test_seconds_are_summed_by_arithmetic_without_copies_and_the_host():
    found = kernels.seconds(
        events(
            ("a_i8i8_i8i32_f32_b", 2),
            ("relu", 1),
            ("a_f16f16_f16f32_f32_b", 3),
            ("b_i8i8_i8i32_f32", 1),
            ("MemcpyD2H", 9),
        )
    )
    assert {name: round(1e3 * seconds, 6) for name, seconds in found.items()} == {
        "INT8": 3.0,
        "FP16": 3.0,
        "other": 1.0,
    }
    assert kernels.text(found) == "INT8 43 %, FP16 43 %, names that do not tell 14 %"
    assert kernels.text(dict(reversed(found.items()))) == kernels.text(found)


def test_a_machine_without_a_gpu_has_no_kernels_and_builds_no_engine():
    import tensorflow as tf

    found = profiling.events(lambda: tf.reduce_sum(tf.ones([3])).numpy())
    assert kernels.seconds(found) == {} and found and not profiling.built(found)
    assert profiling.built({"/host:CPU": [("Sum", 0.0, 1.0), ("TRTEngineOp::BuildEngine", 1.0, 2.0)]})


@pytest.mark.parametrize(
    ("precision", "found", "said"),
    [
        (
            "INT8",
            {"FP16": 3.0, "other": 1.0},
            "INT8 was asked for and not taken: no kernel that ran says that it computes in INT8 (of the "
            "kernels' time: FP16 75 %, names that do not tell 25 %)",
        ),
        ("FP16", {"TF32": 1.0}, "FP16 was asked for and not taken"),
        ("INT8", {"INT8": 0.01, "FP16": 3.0}, ""),
        ("INT8", {"other": 3.0}, ""),
        ("INT8", {}, ""),
        ("FP32", {"TF32": 1.0}, ""),
        ("", {"FP32": 1.0}, ""),
    ],
)
def test_a_precision_that_was_not_taken_is_told(precision, found, said):
    text = kernels.not_taken(precision, found)
    assert text.startswith(said) if said else not text


def test_without_a_gpu_nothing_is_said_of_kernels_and_what_one_would_say_is_a_warning(
    zoo_model, converted, tmp_path, capsys
):
    """What a GPU would have run is made up at the end; that it is watched there is tested there (test_gpu_int8.py)."""
    model, out = zoo_model("digits_cnn"), converted("digits_cnn", "--precision=FP16")
    saved = run.save_calls(
        [run.Call("serving_default", {"image": np.zeros((2, 8, 8, 1), np.float32)})], tmp_path / "in"
    )
    assert (
        run.run(saved_model.at(out), saved, tmp_path / "answers", "the model", trace=True, kernels=True).kernels == {}
    )
    checked = verify.verify(model, out, verify.Options(asked=calls.Asked(shapes="image:2x8x8x1")))
    assert checked.precision == "FP16" and checked.kernels == {} and "kernels" not in str(checked.warnings)
    seen = dataclasses.replace(
        checked,
        mode="gpu",
        engine_runs={"engine": 1},
        precision="INT8",
        kernels={"FP16": 1e-3},
        simulation=type(checked.simulation)(),
    )
    assert (
        seen.passed
        and seen.warnings[0].startswith("INT8 was asked for and not taken")
        and seen.to_dict()["kernels"] == {"FP16": 1e-3}
    )
    command._print(seen, None)
    assert "asked for INT8; time of the GPU's kernels: FP16 100 %" in capsys.readouterr().out
    html.write_verification(seen, tmp_path / "page.html")
    assert (
        "Asked for INT8. Time of the GPU's kernels, by the arithmetic that their names tell: FP16 100 %."
        in (tmp_path / "page.html").read_text()
    )
