"""Whether two models answer alike, where one of them answers with NaN or infinity by itself."""

import numpy as np
import pytest

from tftrt_tools.accuracy import nearness
from tftrt_tools.models.execution import run

PLAIN = np.random.default_rng(0).normal(size=(4, 5)).astype("f4")


def alike(first, second):
    call = run.Call("serving_default", {"x": PLAIN})
    return nearness.alike([(call, {"y": first}, {"y": second})], ["FP32"])


def with_value(value):
    answer = PLAIN.copy()
    answer[1, 2] = value
    return answer


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_both_answer_is_no_difference(value):
    assert alike(with_value(value), with_value(value)) == (True, "no float differs")


@pytest.mark.parametrize(("first", "second"), [(0.5, np.nan), (np.inf, -np.inf), (np.nan, np.inf), (np.inf, 0.5)])
def test_what_one_answers_alone_is_a_difference(first, second):
    assert not alike(with_value(first), with_value(second))[0]
