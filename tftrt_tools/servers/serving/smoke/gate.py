"""TF-TRT's gate: TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION, read from the environment at each fallback.

If it is closed ("0" or "false", in any case; TensorFlow's ReadBoolFromEnvVar), a fallback makes the request fail with ABORTED, so an
answer proves that the engines ran. Three fallbacks pass the closed gate: of an engine op that still calibrates, of one that was left in
profile generation mode, and of inputs that do not fit the shapes the op was converted for; see version_on_disk.Engine.hole.
"""

from collections.abc import Mapping

from tftrt_tools.servers.serving.smoke.engine_evidence import CERTAIN, LIKELY, NO, NOTHING, YES, Evidence
from tftrt_tools.servers.serving.smoke.gpu_use import Use
from tftrt_tools.servers.serving.smoke.version_on_disk import Model

VARIABLE = "TF_TRT_ALLOW_ENGINE_NATIVE_SEGMENT_EXECUTION"
REFUSAL = "User disallowed engine native segment execution"


def closed(environ: Mapping[str, str]) -> bool:
    """Whether the gate is closed in an environment."""
    return environ.get(VARIABLE, "").lower() in ("0", "false")


def of_answer(environ: Mapping[str, str], use: Use, model: Model | None, call: str, signature: str) -> Evidence:
    """The Evidence of a request that was answered.

    Args: environ: the server's. use: of the server. model: None if its files were not seen. call: its text. signature: its name.
    """
    if not closed(environ):
        text = f"{VARIABLE} is not set in the server"
        if VARIABLE in environ:
            text = f"{VARIABLE}={environ[VARIABLE]} lets engine ops fall back"
        return Evidence(source="gate", seen=text, speaks=NOTHING, call=call)
    if not use.uses:
        return Evidence(
            source="gate",
            seen="the gate is closed, and no engine op asks it: no GPU is known to be in use",
            speaks=NOTHING,
            call=call,
        )
    if model is None:
        return Evidence(
            source="gate",
            seen="the gate is closed, but nothing says that this model has engine ops",
            speaks=NOTHING,
            call=call,
        )
    engines = model.engines_of(signature)
    if not engines:
        return Evidence(
            source="gate", seen="the gate is closed, and this signature has no engine op", speaks=NOTHING, call=call
        )
    holes = [engine.hole for engine in engines if engine.hole]
    if any(engine.silent for engine in engines):
        return Evidence(source="gate", seen=f"the gate does not see it: {holes[0]}", speaks=NOTHING, call=call)
    text = f"the request was answered although the server forbids native segments ({VARIABLE}={environ[VARIABLE]})"
    if holes:
        return Evidence(
            source="gate", seen=f"{text}; not certain, because {holes[0]}", speaks=YES, weight=LIKELY, call=call
        )
    if not model.same:
        return Evidence(
            source="gate",
            seen=f"{text}; not certain, because the server's own command line does not name {model.path}",
            speaks=YES,
            weight=LIKELY,
            call=call,
        )
    return Evidence(source="gate", seen=text, speaks=YES, weight=CERTAIN, call=call)


def of_refusal(text: str, call: str, left: Mapping[str, str] | None = None) -> Evidence | None:
    """The Evidence of a request that the gate refused, or None. Args: text: the server's words. left: of passport.left_native: what has no
    engine cannot fall back, but the gate does not know that."""
    if REFUSAL not in text:
        return None
    for name, why in (left or {}).items():
        if name in text:
            return Evidence(
                source="answer",
                seen=f"{name} was {why}, and the server forbids native segments ({VARIABLE}): {text}",
                speaks=NOTHING,
                call=call,
            )
    return Evidence(source="answer", seen=f"the server refused: {text}", speaks=NO, weight=CERTAIN, call=call)
