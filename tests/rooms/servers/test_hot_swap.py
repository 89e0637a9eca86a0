"""The arithmetic of the hot swap benchmark, and one short run of it. Nothing here asserts a time."""

import json
import subprocess
import sys

import pytest

from benchmarks import hot_swap
from tests.conftest import ROOT

pytestmark = pytest.mark.bench

WINDOWS = [(2.0, 2.5), (4.0, 4.2)]


def test_the_schedule_is_seeded_ascending_and_of_the_rate():
    offsets = hot_swap.schedule(100, 50, 7)
    assert offsets == hot_swap.schedule(100, 50, 7) != hot_swap.schedule(100, 50, 8)
    assert offsets == sorted(offsets) and 0 < offsets[0] and offsets[-1] < 50
    assert abs(len(offsets) - 5000) < 5 * 5000**0.5  # five standard deviations of a Poisson count


@pytest.mark.parametrize(
    "offset, phase",
    [
        (0.0, "before"),
        (1.99, "before"),
        (2.0, "during"),
        (2.5, "during"),
        (3.0, "after"),
        (4.1, "during"),
        (9.0, "after"),
    ],
)
def test_a_request_belongs_to_the_phase_it_was_scheduled_in(offset, phase):
    assert hot_swap.phase(offset, WINDOWS) == phase


def test_rows_count_failures_and_leave_them_out_of_the_latency():
    def answer(offset, latency, version=1, error="", wrong=False):
        return {
            "offset_s": offset,
            "latency_s": latency,
            "version": version,
            "error": error,
            "wrong": wrong,
            "late_s": 0.0,
        }

    before, during, after = hot_swap.rows(
        [
            answer(0, 0.001),
            answer(1, 0.003),
            answer(2.1, 5.0, None, "UNAVAILABLE"),
            answer(4.1, 0.002, 2),
            answer(4.1, 0.002, 3, wrong=True),
        ],
        WINDOWS,
    )
    assert (before["requests"], before["failed"], before["p50_ms"], before["max_ms"]) == (2, 0, 2.0, 3.0)
    assert (during["requests"], during["failed"], during["wrong"], during["versions"], during["errors"]) == (
        3,
        1,
        1,
        2,
        "UNAVAILABLE",
    )
    assert (after["requests"], after["p50_ms"], after["max_ms"]) == (0, None, None)
    assert "UNAVAILABLE" in hot_swap.summary([before, during, after])


@pytest.mark.slow
def test_no_request_fails_while_versions_are_swapped(zoo_model, tmp_path):
    """Two swaps under a small load."""
    (tmp_path / hot_swap.MODEL).symlink_to(zoo_model("digits_cnn"))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "benchmarks.hot_swap",
            "--rate=30",
            "--before=1",
            "--swaps=2",
            "--gap=3",
            f"--workdir={tmp_path}",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = json.loads((tmp_path / "hot_swap.json").read_text())
    assert len(found["swaps_s"]) == 2 and sum(row["requests"] for row in found["rows"]) > 100
    assert {row["phase"]: row["failed"] + row["wrong"] for row in found["rows"]} == {
        "before": 0,
        "during": 0,
        "after": 0,
    }
