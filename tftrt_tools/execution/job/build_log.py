"""Reads from TF-TRT's log why it has no engine, because TF-TRT does not tell the caller (TF 2.14.1)."""

from __future__ import annotations

import re

_REASONS = (re.compile(r"Engine creation for \S+ failed\..* Reason: (.+)"), re.compile(r"\bCalibration failed: (.+)"))
_TENSORRT = re.compile(r": E \S*trt_logger\.cc:\d+\] DefaultLogger (.+)")


def reason(text: str) -> str:
    """Args: text: of a log. Returns: the first reason in it, with TensorRT's last error before it, or ""."""
    errors = ""
    for line in text.splitlines():
        if match := _TENSORRT.search(line):
            errors = f" (TensorRT: {match[1].strip()})"
        for pattern in _REASONS:
            if match := pattern.search(line):
                return match[1].strip() + errors
    return ""
