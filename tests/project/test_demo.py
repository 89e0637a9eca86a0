"""The last screen of `make demo`."""

import pytest

from saved_models import demo


def _document(*problems, headline="PASS: the candidate is 1.60 times as fast at p50 (1.52 to 1.68)"):
    return {"headline": headline, "answers": {"requests": 50, "problems": list(problems)}}


def test_without_a_gpu_it_says_what_was_compared_and_no_verdict_on_speed():
    said = demo._last_screen(False, _document(headline="PASS: …"))
    assert "both models' answers to 50 requests, and they are as right as the original's" in said
    assert "there is no verdict on speed" in said and "slower" not in said and "fail" not in said.lower()
    assert "NOT as right" in demo._last_screen(False, _document("x: snr_db is 3"))


@pytest.mark.parametrize(
    "headline",
    [
        "PASS: the candidate is 1.60 times as fast at p50 (1.52 to 1.68)",
        "FAIL: the candidate is 4.0 % slower at p50 (0.4 to 7.7 %)",
    ],
)
def test_on_a_gpu_it_repeats_the_verdict_whatever_that_is(headline):
    assert f"regress   {headline}" in demo._last_screen(True, _document(headline=headline))
