"""The call crosses many borders between TensorFlow and engines."""

from __future__ import annotations

from tftrt_tools.studies.diagnosis.case import Case, Said, converted_again, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding

_LEAST = 3


def look(case: Case) -> Said:
    """One finding, with what crossing the borders costs now."""
    count = len(case.engines)
    if case.missed or count < 2 or (count < _LEAST and not kept(case)):
        return
    border = case.host("engine", "graph") * (count - 1) / count
    outside = case.gpu("op") + case.host("op") if kept(case) else 0.0
    worth = border + outside
    flags = [f"--{name}=" for name in kept(case)]
    yield Finding(
        cause="many-engines",
        call=case.name,
        title=f"the call runs {count} engines, one after the other",
        worth=worth,
        basis="estimate" if kept(case) else "ceiling",
        rule=f"while the host starts {count} engines and schedules between them, the GPU is idle for "
        f"{milliseconds(case.host('engine', 'graph'))}; one engine would leave 1/{count} of it"
        + (f", and the ops between take {milliseconds(outside)}" if outside else ""),
        evidence=tuple(
            [
                f"engine ops: {count}; their kernels take {milliseconds(case.gpu('engine'))} together",
                *(f"the conversion kept nodes out of engines: {name} is {value}" for name, value in kept(case).items()),
            ]
        ),
        mend="convert without these flags"
        if flags
        else "let engines grow together: `tftrt inspect` names the ops between them, --freeze and other fixes",
        command=converted_again(case, "one", *flags)
        if flags
        else ("inspect", case.source or case.model, "--use_dynamic_shape"),
    )


def kept(case: Case) -> dict[str, object]:
    """{flag: value} of the conversion's flags that keep ops out of engines."""
    names = ("keep_native_ops", "keep_native_nodes", "fp32_nodes")
    return {name: case.profile.settings[name] for name in names if case.profile.settings.get(name)}
