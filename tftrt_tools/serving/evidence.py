"""Is a model proven to answer like its original? The verification in its passport, held against the files. No TensorFlow here."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What a model's verify.json says of these files.

    valid: it passed, speaks of these files and of all their signatures. needed: False for a model without TF-TRT. problem, mend: why it is
    not valid, "" where it is. said: the facts of the verification ("created", "evidence", "arithmetic", digests), None without one.
    """

    valid: bool
    needed: bool
    problem: str = ""
    mend: str = ""
    said: dict | None = None

    def to_dict(self):
        return dataclasses.asdict(self)


_SAID = ("created", "mode", "arithmetic", "evidence", "original", "original_digest", "converted_digest")


def judge(model, converted, verification, digest, signatures):
    """The Evidence for a model.

    Args:
      model: how to call it in commands.
      converted: whether TF-TRT was at it.
      verification: its verify.json, a dict, or None.
      digest: of its files, as `files.digest`.
      signatures: names of its signatures.
    """
    if not converted and verification is None:
        return Evidence(False, False)
    said = None if verification is None else {key: verification.get(key) for key in _SAID}
    problem, mend = _problem(model, verification, digest, signatures)
    return Evidence(not problem, converted, problem, mend, said)


def _problem(model, verification, digest, signatures):
    again = f"run `tftrt verify ORIGINAL {model}`"
    if verification is None:
        return "it was never verified against its original", again
    if verification.get("converted_digest") != digest:
        return "its files have changed since they were verified", f"{again} again"
    if verification.get("passed") is not True:
        first = (verification.get("problems") or ["no reason given"])[0]
        return f"its verification failed: {first}", "convert it again with other settings, or verify it with other bounds"
    missing = [name for name in signatures if name not in (verification.get("sources") or {})]
    if missing:
        return f"signature {missing[0]!r} was not verified", f"{again} without --signature_keys"
    return "", ""
