"""What to do about an op that an exporter, ONNX or TensorRT does not know; nothing is said of ops of which nothing is known here."""

from __future__ import annotations

import re
from collections.abc import Iterable

# (ops of ONNX, with their domain outside ONNX's own; the advice).
_ONNX = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (
            r"(com\.microsoft\.)?(DynamicQuantize\w+|(MatMul|Conv)Integer\w*|QLinear\w+|QGemm|QAttention|QOrdered\w+|QMoE|QEmbed\w+)",
            "the file was quantized for ONNX Runtime, in ops that TensorRT does not have: give the file from before that; "
            "--precision=INT8 "
            "writes what TensorRT reads",
        ),
        (
            r"com\.microsoft\..+",
            "ONNX Runtime wrote ops of its own when it optimized the file: give the file from before that",
        ),
        (
            r"STFT|DFT|MelWeightMatrix|(Hann|Hamming|Blackman)Window",
            "no TensorRT has it: export spectra as convolutions or products with cosines and sines, or compute them before the model",
        ),
        (
            r"ai\.onnx\.ml\..+|String\w+|Regex\w+|TfIdfVectorizer|ImageDecoder",
            "leave strings, tables and files to what comes before the model",
        ),
        (
            r"ReverseSequence",
            "give the sequences a number that is known, or reverse them outside of branches and loops, where it is written with other ops",
        ),
        (
            r"Sequence\w+|(?!Reverse)\w+Sequence|ConcatFromSequence|Optional\w*",
            "export lists of tensors as one tensor, joined or stacked",
        ),
        (r"NonMaxSuppression|RoiAlign|Unique|NonZero", "leave that part out of the model, and compute it behind it"),
    )
)
# The same for ops of TensorFlow.
_TENSORFLOW = tuple(
    (re.compile(pattern), advice)
    for pattern, advice in (
        (
            r"String\w*|\w*Regex\w*|Decode\w+|AsString|\w*Substr|\w*Unicode\w*|Parse\w+|\w*LookupTable\w*|\w*HashTable\w*|StaticRegex\w*|\w*ToNumber",
            "strings, tables and files come before the model",
        ),
        (
            r"ScaleAndTranslate\w*",
            "tf.image.resize is exported with the methods bilinear and nearest, and without antialias",
        ),
        (
            r"I?R?FFT\w*|ComplexAbs|Angle|Conj",
            "tf.signal.rfft and stft are exported where the graph tells the frames' length",
        ),
        (r"Ragged\w+", "ragged tensors have no counterpart in ONNX: .to_tensor() makes one of them"),
        (r"Sparse\w+", "sparse tensors have no counterpart in ONNX: tf.sparse.to_dense makes one of them"),
        (r"CombinedNonMaxSuppression", "with boxes that all classes share it is exported"),
    )
)


def of_onnx(ops: Iterable[str]) -> list[str]:
    """What to do about ops of ONNX, or of another domain, a line each."""
    return _of(_ONNX, ops)


def of_tensorflow(ops: Iterable[str]) -> list[str]:
    """What to do about ops of TensorFlow, a line each."""
    return _of(_TENSORFLOW, ops)


def _of(known: tuple[tuple[re.Pattern[str], str], ...], ops: Iterable[str]) -> list[str]:
    found = (next((advice for pattern, advice in known if pattern.fullmatch(op)), "") for op in ops)
    return list(dict.fromkeys(filter(None, found)))
