"""What convert says of a share that is little, of the other batch mode and of accepted changes."""

import pytest

from tftrt_tools.base.process import progress
from tftrt_tools.command_line.commands import _worth
from tftrt_tools.models.inputs.options import DataOptions
from tftrt_tools.models.savedmodel.flops import Flops
from tftrt_tools.tftrt.conversion import advice, pipeline
from tftrt_tools.tftrt.conversion.plan import Outcome
from tftrt_tools.tftrt.conversion.quantization import Problem, Quantization
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult


def signature(coverage=0.34, **fields):
    return SignatureResult(
        name="serving_default",
        inputs=(),
        converted=True,
        coverage=coverage,
        engines=(1, 2, 3),
        left_out=(),
        native_ops={"Mul": 3},
        **fields,
    )


@pytest.mark.parametrize(
    ("flops", "coverage", "says"),
    [
        (
            None,
            0.05,
            "with 5% of the ops in TensorRT the model gets 1.05 times as fast at most, as far as time goes by ops: hardly worth",
        ),
        (Flops(inside=5, total=100), 0.9, "with 5% of the FLOPs in TensorRT the model gets 1.05 times"),
        (
            Flops(inside=40, total=100),
            0.1,
            "with 40% of the FLOPs in TensorRT the model gets 1.67 times as fast at most, as far as time goes by FLOPs",
        ),
        (Flops(inside=90, total=100), 0.1, ""),
        (Flops(inside=0, total=0), 0.9, ""),
        (Flops(inside=0, total=0, unknown=("a",)), 0.0, "with 0% of the ops in TensorRT the model gets 1.00 times"),
    ],
)
def test_a_share_bounds_what_can_be_gained(flops, coverage, says):
    said = _worth.little((signature(coverage, flops=flops),), coverage)
    assert said.startswith(says) and bool(said) == bool(says)
    assert ("hardly worth" in said) == ("1.05" in said or "1.00" in said)


def test_the_other_batch_mode_is_named_with_its_share():
    assert _worth.other_mode(signature()) == ""
    more = _worth.other_mode(signature(other_mode=Outcome(True, 1, 0.99)))
    assert more == "--use_dynamic_shape (or --shapes, which implies it) would take 99% in 1 engine instead of 34% in 3"
    assert (
        _worth.other_mode(signature(other_mode=Outcome(False, 4, 0.36)))
        == "--nouse_dynamic_shape would not take more (36%)"
    )


def test_accepted_changes_are_named():
    assert _worth.accepted(signature()) == []
    problems = tuple(Problem(f"node{number}", "FakeQuant", "has no effect") for number in range(7))
    said = _worth.accepted(signature(quantization=Quantization(nodes=(), explicit=False, altered=problems)))
    assert (
        said[0] == "accepted: node0 (FakeQuant) has no effect"
        and said[-1] == "accepted: 2 more; `tftrt inspect` lists all"
        and len(said) == 6
    )


def test_a_number_of_engines_that_is_reached_is_named():
    assert advice.limited_by_number(19, Settings()) == advice.limited_by_number(99, Settings(max_engines=0)) == ""
    assert advice.limited_by_number(20, Settings()).startswith("--max_engines=20 is reached")


def test_convert_says_what_the_other_batch_mode_would_take(zoo_model, tftrt):
    """The encoder's attention is of dynamic shapes."""
    done = tftrt("convert", f"--model={zoo_model('bert_encoder')}", "--dry_run", "--max_engines=1")
    assert done.returncode == 0, done.stderr
    assert (
        "serving_default: --max_engines=1 is reached: the smallest segments beyond it stay in TensorFlow."
        in done.stdout
    )
    assert "serving_default: --use_dynamic_shape (or --shapes, which implies it) would take " in done.stdout


LOOP = "2 loops (an LSTM, a GRU, tf.while_loop) cannot run in TF-TRT's engines; a plan can have them as layers: "


def test_who_waits_for_engines_hears_first_that_loops_will_not_be_in_them(zoo_model, tmp_path):
    heard = []
    settings = Settings(precision_mode="INT8", use_dynamic_shape=True)
    with progress.listening(lambda text, done, total: heard.append(text)), progress.notes_to(heard.append):
        done = pipeline.convert(
            zoo_model("lstm_tagger"),
            None,
            settings,
            dry_run=True,
            data=DataOptions(random=True, batches=1, shapes="tokens:8x12"),
        )
    (note,) = [number for number, text in enumerate(heard) if LOOP in text]
    assert heard[note].startswith(f"note: serving_default: {done.coverage:.0%} of its ops go into engines; ")
    assert not any("ranges" in text or "scales" in text for text in heard[:note])
    assert any("ranges" in text for text in heard[note:])


def test_inspect_tells_loops_before_it_tries_other_sizes(zoo_model, tftrt):
    done = tftrt("inspect", zoo_model("lstm_tagger"), "--use_dynamic_shape")
    assert done.returncode == 0 and LOOP in done.stderr and LOOP in " ".join(done.stdout.split()), done.stderr
    done = tftrt("convert", zoo_model("lstm_tagger"), "--dry_run", "--use_dynamic_shape")
    assert done.returncode == 0 and LOOP not in done.stderr and LOOP in done.stdout, done.stderr
