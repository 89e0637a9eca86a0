"""What versions before wrote is read, and written again as it was.

tests/data/documents_before_records.json: the manifest of digits_cnn converted to INT8 and the plan of it (0.1.0, 2026-11-23), and documents
in which every field has a value of its own.
"""

import json
import pathlib

import pytest

from tftrt_tools.models.savedmodel.inspection import Inspection
from tftrt_tools.tftrt.conversion.plan import Plan
from tftrt_tools.tftrt.conversion.settings import Settings
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

BEFORE = json.loads(
    pathlib.Path(__file__).parents[2].joinpath("data").joinpath("documents_before_records.json").read_text()
)
WHOLE = BEFORE["every_field"]


def kept(before, now, path=""):
    """Raise AssertionError where `now` lacks something of `before`, or has it otherwise. Keys that are new may be there."""
    if isinstance(before, dict):
        for key, value in before.items():
            assert key in now, f"{path}/{key} is gone"
            kept(value, now[key], f"{path}/{key}")
    elif isinstance(before, list):
        assert len(now) == len(before), path
        for number, (one, other) in enumerate(zip(before, now, strict=True)):
            kept(one, other, f"{path}[{number}]")
    else:
        assert (type(now), now) == (type(before), before), path


@pytest.mark.parametrize(
    ("kind", "before"),
    [
        (SignatureResult, BEFORE["manifest"]["signatures"][0]),
        (Settings, BEFORE["manifest"]["settings"]),
        (Plan, BEFORE["plan"]),
        (SignatureResult, WHOLE["signature"]),
        (Plan, WHOLE["plan"]),
        (Inspection, WHOLE["inspection"]),
    ],
)
def test_what_was_written_before_is_read_and_written_again_as_it_was(kind, before):
    kept(before, kind.from_dict(before).to_dict())


def test_a_field_that_is_read_has_its_own_type():
    read = SignatureResult.from_dict(WHOLE["signature"])
    assert read.calls == ({"x": (1, 3), "s": ()}, {"x": (8, 3), "s": (2,)})
    assert read.built[0].shapes == ((1, 3), ()) and read.inputs[0].shape == (None, 3) and read.inputs[1].shape is None
    assert read.preparation.frozen == (("training", False), ("rate", 0.5), ("n", 3)) and read.preparation.dilated[
        0
    ].dilations == (2, 3)
    assert read.flops.share == pytest.approx(2 / 3) and read.other_mode.coverage == 0.6667
    assert Plan.from_dict(WHOLE["plan"]).signatures[1].problem == {"kind": "error", "cause": "c", "mend": "m"}


def test_the_first_manifests_lacked_what_came_later():
    late = ("quantization", "findings", "preparation", "flops", "twins", "unbuilt", "other_mode")
    first = {name: value for name, value in BEFORE["manifest"]["signatures"][0].items() if name not in late}
    read = SignatureResult.from_dict(first)
    assert (
        read.quantization is None
        and read.flops is None
        and read.preparation.opened == ()
        and read.engines[0].precision == "INT8"
    )


def test_settings_pass_over_what_this_version_does_not_know():
    assert Settings.from_dict({"precision_mode": "FP16", "of_another_version": 1}) == Settings(precision_mode="FP16")
