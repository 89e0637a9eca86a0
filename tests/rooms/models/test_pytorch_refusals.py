"""What torch.export.export says of a module that it does not take, in a line. Its pages are those of PyTorch 2.14.1."""

import pytest

from tftrt_tools.models.kinds.pytorch import refusals_job

_MORE = '! For more information, run with TORCH_LOGS="+dynamic".\n'
ONE_SIZE = (
    f"Constraints violated (length){_MORE}"
    "  - You marked length as dynamic but your code specialized it to be a constant (12). If you're using mark_dynamic, either remove it or "
    "use maybe_mark_dynamic. If you're using Dim.DYNAMIC, replace it with either Dim.STATIC or Dim.AUTO.\n"
    "Suggested fixes:\n  length = 12\n\nThe error above occurred when calling torch.export.export.\n"
)
EQUAL = (
    f"Constraints violated (b){_MORE}"
    "  - The values of b = L['y'].size()[0] and a = L['x'].size()[0] must always be equal.\n"
    "Suggested fixes:\n  b = a\n\nThe error above occurred when calling torch.export.export.\n"
)
BOUNDED = (
    f"Constraints violated (batch){_MORE}"
    "  - Not all values of batch = L['x'].size()[0] in the specified range satisfy the generated guard L['x'].size()[0] <= 5\n"
)
ON_VALUES = (
    "Could not guard on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size-like symbols: none)\n\n"
    'The following call raised this error:\n  File "nets.py", line 8, in forward\n    if x.sum() > 0: return x\n\n'
)


@pytest.mark.parametrize(
    ("said", "why", "mend"),
    [
        (ONE_SIZE, "one size that are to be open: length (always 12)", "leave them out of the dynamic shapes"),
        (EQUAL, "must always be equal", "have to say so: b = a"),
        (BOUNDED, "satisfy the generated guard L['x'].size()[0] <= 5", "try torch.export.export"),
        (ON_VALUES, "a condition depends on what a tensor holds: if x.sum() > 0: return x (nets.py:8)", "torch.where"),
        ("Unsupported: a generator\nmore", "Unsupported: a generator", "try torch.export.export"),
        ("", "RuntimeError", "try torch.export.export"),
    ],
)
def test_pages_become_a_line(said, why, mend):
    cause, advice = refusals_job.told(RuntimeError(said))
    assert why in cause and mend in advice and "\n" not in cause + advice and "TORCH_LOGS" not in cause
