"""A model that hangs in process ends the command after --timeout_seconds, in one line and with exit code 1: `tftrt regress` and `tftrt bench`."""

import json

import numpy as np
import pytest

from tests.command_here import run_program
from tftrt_tools.base import errors
from tftrt_tools.command_line.commands import _flags, bench, regress

# Calls that each process makes before it measures: one for each different request.
FIRST = 4
HANGS = """
import sys
import tensorflow as tf

from tensorflow.python.data.experimental.ops.testing import sleep


class Hangs(tf.Module):
    '''Answers a number of calls, then sleeps for an hour.'''

    def __init__(self, most):
        self.calls, self.most = tf.Variable(0, dtype=tf.int64), most

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def serve(self, x):
        late = tf.cast(self.calls.assign_add(1) > self.most, tf.int64)
        zero = tf.data.Dataset.range(1).apply(sleep(late * 3_600_000_000)).reduce(tf.constant(0, tf.int64), lambda _, value: value)
        return {"y": 2.0 * x + tf.cast(zero, tf.float32)}


for most, path in zip((2, 30, 10**9), sys.argv[1:], strict=True):
    module = Hangs(most)
    tf.saved_model.save(module, path, signatures={"serving_default": module.serve})
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folder of `soon`, which hangs in the first calls, `later`, which hangs while it is timed, and `never`."""
    folder = tmp_path_factory.mktemp("hangs")
    run_program(HANGS, *(folder / name for name in ("soon", "later", "never")))
    return folder


def _run(command, name, *arguments):
    values, positional = _flags.parse(name, command, [str(one) for one in arguments])
    return command.run(values, positional)


@pytest.mark.slow
@pytest.mark.parametrize("which, compared", [("soon", True), ("soon", False), ("later", True)])
def test_regress_ends_a_model_that_hangs(models, which, compared):
    asked = [
        f"--native={models / which}",
        f"--candidate={models / which}",
        f"--distinct={FIRST}",
        "--timeout_seconds=8",
    ]
    with pytest.raises(
        errors.TftrtError, match=r"the (native )?model:? (it )?hangs.*: for 8 s no call came to an end"
    ) as told:
        _run(regress, "regress", *asked, *([] if compared else ["--nocompare"]))
    assert (
        told.value.exit_code == errors.EXIT_FAILED
        and "\n" not in told.value.cause
        and "--timeout_seconds" in told.value.mend
    )


@pytest.mark.slow
def test_bench_ends_a_model_that_hangs_in_its_first_calls(models):
    with pytest.raises(errors.TftrtError, match="the model hangs in process: for 8 s no call came to an end") as told:
        _run(
            bench,
            "bench",
            f"--in_process={models / 'soon'}",
            f"--distinct={FIRST}",
            "--timeout_seconds=8",
            "--duration_seconds=1",
        )
    assert told.value.exit_code == errors.EXIT_FAILED


@pytest.mark.slow
def test_bench_ends_a_model_that_hangs_under_load_and_keeps_what_it_measured(models, tmp_path, capsys):
    code = _run(
        bench,
        "bench",
        f"--in_process={models / 'later'}",
        f"--distinct={FIRST}",
        "--timeout_seconds=8",
        "--duration_seconds=1",
        "--warmup_seconds=0",
        f"--json={tmp_path / 'b.json'}",
    )
    document = json.loads((tmp_path / "b.json").read_text())
    assert code == errors.EXIT_FAILED and not document["complete"]
    (row,) = document["rows"]
    assert row["answered"] == 30 - FIRST and not row["complete"]
    assert any("hangs in process" in note for note in row["notes"])
    assert "NOT COMPLETE" in capsys.readouterr().out


def test_a_model_that_goes_on_is_not_ended(models, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((2, 4), np.float32))
    code = _run(
        bench,
        "bench",
        f"--in_process={models / 'never'}",
        f"--data={tmp_path / 'x.npz'}",
        "--timeout_seconds=30",
        "--duration_seconds=0.001",
        "--warmup_seconds=0",
        "--min_queries=4",
    )
    assert code == errors.EXIT_DONE
