"""SavedModel to ONNX: python -m benchmarks._onnx SAVED_MODEL_DIR FILE"""

import sys


def export(model, target, opset):
    """Write signature serving_default of SavedModel `model` to the ONNX file `target`."""
    from tf2onnx import convert

    sys.argv = [
        "tf2onnx",
        "--saved-model",
        str(model),
        "--output",
        str(target),
        "--opset",
        str(opset),
        "--tag",
        "serve",
        "--signature_def",
        "serving_default",
    ]
    convert.main()


if __name__ == "__main__":
    from benchmarks import _models

    export(sys.argv[1], sys.argv[2], _models.OPSET)
