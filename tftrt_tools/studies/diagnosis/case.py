"""What the causes look at: one call of the converted model, with all that its profile knows."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator

from tftrt_tools.models.savedmodel import passport
from tftrt_tools.models.savedmodel import shapes as shape_grammar
from tftrt_tools.studies.diagnosis.finding import Finding, Remark
from tftrt_tools.studies.profiling.call_profile import CallProfile
from tftrt_tools.studies.profiling.call_records import Group
from tftrt_tools.studies.profiling.engine_profile import EngineProfile
from tftrt_tools.studies.profiling.profile import Profile
from tftrt_tools.tftrt.conversion.signature_result import SignatureResult

# What a cause says of one call.
Said = Iterator[Finding | Remark]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One call. Seconds are of the measured call."""

    profile: Profile
    call: CallProfile
    # The same call of the original, None where it was not profiled.
    original: CallProfile | None
    # Of the call, None without a manifest.
    signature: SignatureResult | None
    # Paths for commands: the converted model, and the original ("" where it is not known).
    model: str
    source: str

    def host(self, *groups: Group) -> float:
        """Seconds in which the GPU is idle and the host does this."""
        return sum(part.seconds for part in self.call.parts if part.device == "host" and part.group in groups)

    def gpu(self, *groups: Group) -> float:
        """Seconds in which the GPU does this."""
        return sum(part.seconds for part in self.call.parts if part.device == "GPU" and part.group in groups)

    @property
    def seconds(self) -> float:
        """Of the call, at the median."""
        return self.call.latency.p50

    @property
    def name(self) -> str:
        """The call, as findings name it."""
        return self.call.text()

    @property
    def rows(self) -> int:
        """The call's batch."""
        return self.call.rows

    @functools.cached_property
    def engines(self) -> frozenset[str]:
        """Engine ops that ran their engine in the call."""
        ran = {run.name for run in self.call.engines if run.gpu_seconds}
        return frozenset(ran | {name for name in self.call.later.engine if name != "?"})

    @property
    def missed(self) -> bool:
        """Whether some engine op fell back or was built in the call, other than those that the build left native."""
        return bool(self.fallbacks or self.call.later.build)

    @functools.cached_property
    def fallbacks(self) -> tuple[str, ...]:
        """Engine ops that ran natively, without those that were left without an engine."""
        unbuilt = {one.name for one in self.signature.unbuilt} if self.signature else set()
        return tuple(name for name in self.call.later.fallback if name not in unbuilt)

    @functools.cached_property
    def others(self) -> tuple[CallProfile, ...]:
        """Other profiled calls of the signature."""
        return tuple(
            one for one in self.profile.model.calls if one.signature == self.call.signature and one is not self.call
        )

    @functools.cached_property
    def engine_profiles(self) -> tuple[EngineProfile, ...]:
        """Of the engines that ran, at this call's shapes; () where their inside was not profiled."""
        chosen = []
        for name in sorted(self.engines):
            candidates = [engine for engine in self.profile.engines if engine.engine == name]
            exact = [
                engine for engine in candidates if self.rows in {shape[0] for shape in engine.shapes.values() if shape}
            ]
            chosen += exact[:1]
        return tuple(chosen)


def bytes_in(call: CallProfile) -> int:
    """Bytes of all inputs."""
    return sum(call.input_bytes.values())


def cases(profile: Profile, model: str, source: str) -> list[Case]:
    """A Case for each call of the model."""
    signatures = {name: signature for signature in profile.signatures for name in (signature.name, *signature.twins)}
    originals = {
        (call.signature, tuple(sorted(call.shapes.items()))): call
        for call in (profile.original.calls if profile.original else ())
    }
    return [
        Case(
            profile=profile,
            call=call,
            original=originals.get((call.signature, tuple(sorted(call.shapes.items())))),
            signature=signatures.get(call.signature),
            model=model,
            source=source,
        )
        for call in profile.model.calls
    ]


def all_shapes(case: Case) -> str:
    """`--shapes` of the declared calls of all signatures, whose engines have to stay, and this one."""
    shapes: dict[str, list[shape_grammar.Call]] = {
        signature.name: list(signature.calls) for signature in case.profile.signatures if signature.calls
    }
    own = shapes.setdefault(case.signature.name if case.signature else case.call.signature, [])
    if case.call.shapes not in own:
        own.append(case.call.shapes)
    return ";".join(shape_grammar.flag_text(name, calls) for name, calls in shapes.items())


def beside(case: Case, ending: str) -> str:
    """A folder beside the converted model, for what a mend makes."""
    return f"{case.model.rstrip('/')}_{ending}"


def converted_again(case: Case, ending: str, *changes: str) -> tuple[str, ...]:
    """The command that repeats the conversion with other flags, into a folder beside the model."""
    flags = passport.folder(case.model) / passport.FLAGS
    return ("convert", f"--flagfile={flags}", f"--output={beside(case, ending)}", *changes)


def milliseconds(seconds: float) -> str:
    """For people: "0.44 ms"."""
    digits = max(0, 2 - math.floor(math.log10(1e3 * seconds))) if seconds > 0 else 2
    return f"{1e3 * seconds:.{min(digits, 4)}f} ms"


def listed(texts: Iterable[str], most: int = 3) -> str:
    """For people: "a, b, c and 2 more"."""
    found = list(texts)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")
