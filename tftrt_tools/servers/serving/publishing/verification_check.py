"""Is a model proven to answer like its original? Compares the verification in its passport with the files. No TensorFlow here."""

import contextlib
import dataclasses
import pathlib
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tftrt_tools.accuracy.verify import REWRITE_ONLY
from tftrt_tools.base import errors, records
from tftrt_tools.base.choices import Precision
from tftrt_tools.models.savedmodel import engine_op, passport


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence(records.Record):
    """What a model's verify.json says of these files."""

    # Whether it passed, and is about these files and all their signatures.
    valid: bool
    # False for a model without TF-TRT.
    needed: bool
    # Why it is not valid, and what to do; "" if it is valid.
    problem: str = ""
    mend: str = ""
    # Facts of the verification ("created", "verdict", "evidence", "arithmetic", digests); None without one.
    said: dict[str, Any] | None = None


_SAID = ("created", "mode", "verdict", "arithmetic", "evidence", "original", "original_digest", "converted_digest")


def of_engines(evidence: Evidence, precisions: Iterable[Precision]) -> Iterator[str]:
    """Notes on what valid evidence does not say of the engine ops of a model. Args: precisions: of its engine ops."""
    lowest, said = engine_op.lowest_precision(precisions), evidence.said
    if not lowest or not said or not evidence.valid or said.get("mode") == "gpu":
        return
    yield (
        f"verified without a GPU ({said.get('evidence')}): nothing is known of the engines themselves; `tftrt verify` on a machine with "
        "a GPU judges them"
    )
    if lowest == "INT8" and str(said.get("evidence")).startswith(REWRITE_ONLY):
        yield (
            "nothing has judged the INT8 ranges of this model, and wrong ones ruin its answers: `tftrt verify` with --data for each "
            "signature simulates INT8, without a GPU too"
        )


def judge(
    model: str | pathlib.Path,
    converted: bool,
    verification: Mapping[str, Any] | None,
    digest: str,
    signatures: Iterable[str],
) -> Evidence:
    """The Evidence for a model.

    Args:
      model: its name in commands. converted: whether TF-TRT converted it.
      verification: its verify.json, a dict, or None.
      digest: of its files, as `files.digest`.
      signatures: names of its signatures.
    """
    if not converted and verification is None:
        return Evidence(valid=False, needed=False)
    summary = None if verification is None else {key: verification.get(key) for key in _SAID}
    problem, mend = _problem(model, verification, digest, signatures)
    return Evidence(valid=not problem, needed=converted, problem=problem, mend=mend, said=summary)


def _problem(
    model: str | pathlib.Path, verification: Mapping[str, Any] | None, digest: str, signatures: Iterable[str]
) -> tuple[str, str]:
    again = f"run `{shlex.join(['tftrt', 'verify', _original(model), str(model)])}`"
    if verification is None:
        return "it was never verified against its original", again
    if verification.get("converted_digest") != digest:
        return "its files have changed since they were verified", f"{again} again"
    if verification.get("passed") is not True:
        first = (verification.get("problems") or ["no reason given"])[0]
        return (
            f"its verification failed: {first}",
            "convert it again with other settings, or verify it with other bounds",
        )
    sources = verification.get("sources") or {}
    # The result of a signature also holds for the other names of its function.
    verified = {*sources, *(twin for twins in (verification.get("twins") or {}).values() for twin in twins)}
    missing = [name for name in signatures if name not in verified]
    if missing:
        return f"signature {missing[0]!r} was not verified", f"{again} without --signature_keys"
    return "", ""


def manifest(model: str | pathlib.Path) -> Mapping[str, Any]:
    """The manifest of a model, {} where there is none, or a damaged one, which is a finding of its own."""
    with contextlib.suppress(errors.TftrtError):
        return passport.read(model, passport.MANIFEST) or {}
    return {}


def _original(model: str | pathlib.Path) -> str:
    """What the model was made from, by its manifest; "ORIGINAL" where that is not known, or gone."""
    source = str(manifest(model).get("source") or "")
    return source if source and pathlib.Path(source).exists() else "ORIGINAL"
