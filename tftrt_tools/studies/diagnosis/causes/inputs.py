"""The call waits for its input's bytes."""

from __future__ import annotations

from tftrt_tools.studies.diagnosis.case import Case, Said, beside, bytes_in, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding, Remark
from tftrt_tools.studies.profiling.call_profile import CallProfile

# float32 pixels are four times as large as the pixels.
_SAVED = 3 / 4
_CHANNELS = (1, 3, 4)
_PICTURE_RANK, _SMALLEST = 4, 16


def look(case: Case) -> Said:
    """One finding, for inputs that could be smaller; a remark for others that take long."""
    seconds = case.host("input") + case.gpu("input")
    moving = max(0.0, seconds - _fixed(case))
    measured = (
        f"making tensors takes {milliseconds(case.host('input'))} and copies to the GPU {milliseconds(case.gpu('input'))}, for "
        f"{bytes_in(case.call) / 1e6:.3g} MB"
    )
    pictures = _pictures(case)
    if not pictures:
        if moving > 0.25 * case.seconds:
            part = f"{milliseconds(seconds)} of {milliseconds(case.seconds)}"
            yield Remark("inputs", case.name, f"the input's bytes take {part}: {measured}")
        return
    share = sum(case.call.input_bytes[name] for name in pictures) / max(1, bytes_in(case.call))
    worth = moving * _SAVED * share
    yield Finding(
        cause="inputs",
        call=case.name,
        worth=worth,
        basis="estimate",
        title=f"the input is sent as float32 pictures ({', '.join(pictures)})",
        rule=f"{measured}; bytes instead of floats save {_SAVED:.0%} of what depends on the size ({milliseconds(moving)})",
        evidence=(f"the GPU is idle for {milliseconds(case.host('input'))} of it",),
        mend="take pixels as bytes and normalise inside of the model (give the scale that your client applies now)"
        + (
            "; `tftrt wrap` does that with the SavedModel, and the plan is built of the result"
            if case.profile.of_a_plan
            else ""
        ),
        command=()
        if case.profile.of_a_plan
        else (
            "wrap",
            case.model,
            "--forms=uint8",
            "--image_scale=1/255",
            f"--signature_keys={case.call.signature}",
            f"--output={beside(case, 'uint8')}",
        ),
    )


def _pictures(case: Case) -> list[str]:
    """Names of float32 inputs that look like pictures: batch, height, width, channels."""
    return [
        name
        for name, shape in case.call.shapes.items()
        if case.call.dtypes[name] == "float32"
        and len(shape) == _PICTURE_RANK
        and shape[-1] in _CHANNELS
        and min(shape[1:3]) >= _SMALLEST
    ]


def _fixed(case: Case) -> float:
    """What making and copying the input costs whatever its size: a straight line through this call and the one whose size differs most."""
    other = max(case.others, key=lambda call: abs(bytes_in(call) - bytes_in(case.call)), default=case.call)
    if bytes_in(other) == bytes_in(case.call):
        return 0.0
    own = _spent(case.call)
    slope = (own - _spent(other)) / (bytes_in(case.call) - bytes_in(other))
    return min(max(0.0, own - slope * bytes_in(case.call)), own)


def _spent(call: CallProfile) -> float:
    return sum(part.seconds for part in call.parts if part.group == "input")
