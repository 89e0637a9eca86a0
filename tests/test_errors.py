"""What is told of TensorFlow's errors, and what an interrupt is."""

import contextlib

import pytest
import tensorflow as tf

from tftrt_tools import errors
from tftrt_tools.savedmodel.job import loading


@pytest.mark.parametrize(("text", "told"), [
    ("", ""),
    (" \n ", ""),
    ("one\ntwo", "one"),
    ("Incompatible shapes: [2] vs. [3]\n\t [[{{node add}}]] [Op:__inference_f_7]", "Incompatible shapes: [2] vs. [3]"),
    ("Incompatible shapes: [2] vs. [3] [[{{node add}}]]", "Incompatible shapes: [2] vs. [3]"),
    ("Graph execution error:\n\nDetected at node 'add' defined at (most recent call last):\nNode: 'add'\nbad value", "bad value"),
    ("Graph execution error:", "Graph execution error:"),
    ("[[{{node add}}]]", "[[{{node add}}]]"),
    ("x" * 1000, "x" * 300),
    ("2 root error(s) found.\n  (0) INVALID_ARGUMENT: Unknown image file format.\n\t [[{{node map/DecodeJpeg}}]]\n  (1) again",
     "INVALID_ARGUMENT: Unknown image file format."),
])
def test_the_first_line_says_what_is_wrong(text, told):
    assert errors.first_line(text) == told


@pytest.mark.parametrize("handler", [errors.TftrtError, Exception, (errors.TftrtError, OSError, ValueError)])
def test_who_goes_on_after_an_error_lets_an_interrupt_through(handler):
    with pytest.raises(errors.Interrupted, match="ended by SIGTERM"), contextlib.suppress(handler):
        raise errors.Interrupted("ended by SIGTERM")
    with contextlib.suppress(KeyboardInterrupt):
        raise errors.Interrupted


def test_an_error_of_tensorflow_itself():
    @tf.function
    def add(left, right):
        return left + right

    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        add.get_concrete_function(tf.TensorSpec([None]), tf.TensorSpec([None]))(tf.zeros([2]), tf.zeros([3]))
    assert "ncompatible shapes" in loading.first_line(caught.value) and "{{" not in loading.first_line(caught.value)
    assert loading.first_line(IndexError()) == "IndexError"
