"""SavedModel to ONNX: python -m benchmarks._onnx SAVED_MODEL_DIR FILE"""

import sys

# What onnx 1.19 asks of ml_dtypes when it is imported. TF 2.14.1 holds ml_dtypes at 0.2.0, which lacks these types; no float
# model uses them, so that any type will do in their place.
_NEWER_TYPES = ("float4_e2m1fn", "float8_e8m0fnu", "float8_e5m2fnuz", "float8_e4m3fnuz", "int2", "uint2", "int4", "uint4")


def export(model, target, opset):
    """Write signature serving_default of SavedModel `model` to the ONNX file `target`."""
    import ml_dtypes

    for name in _NEWER_TYPES:
        if not hasattr(ml_dtypes, name):
            setattr(ml_dtypes, name, ml_dtypes.float8_e5m2)
    from tf2onnx import convert

    sys.argv = ["tf2onnx", "--saved-model", str(model), "--output", str(target), "--opset", str(opset), "--tag", "serve",
                "--signature_def", "serving_default"]
    convert.main()


if __name__ == "__main__":
    from benchmarks import _models

    export(sys.argv[1], sys.argv[2], _models.OPSET)
