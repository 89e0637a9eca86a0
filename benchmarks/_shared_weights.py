"""Several ONNX forms of one model (FP32, Q/DQ, FP16) with their weights in one file, so that little has to be carried to a GPU.

FP16 weights are not stored: they are FP32 weights rounded, and `restore` writes them, with NumPy alone.
"""

import json
import pathlib

import numpy as np

_FILE, _HALF, _PLAN = "weights.data", "half.data", "half.json"
_LEAST = 1024
_ALIGNED = 64


def share(models, folder):
    """Write models to folder/NAME.onnx, with their larger constants in one file.

    Args: models: {NAME: onnx.ModelProto}, changed in place.
    """
    from onnx import TensorProto, numpy_helper

    full, half, halves = _Store(), _Store(), []
    # FP32 first: FP16 refers to it.
    tensors = [tensor for model in models.values() for tensor in model.graph.initializer]
    for tensor in sorted(tensors, key=lambda one: one.data_type == TensorProto.FLOAT16):
        array = numpy_helper.to_array(tensor)
        if array.nbytes < _LEAST:
            continue
        if tensor.data_type == TensorProto.FLOAT:
            full.refer(tensor, _FILE, full.add(array.tobytes()), array.nbytes)
            full.rounded[array.astype(np.float16).tobytes()] = full.places[array.tobytes()]
        elif tensor.data_type == TensorProto.FLOAT16 and array.tobytes() in full.rounded:
            place = half.add(array.tobytes())
            halves.append({"at": place, "from": full.rounded[array.tobytes()], "count": int(array.size)})
            half.refer(tensor, _HALF, place, array.nbytes)
    folder = pathlib.Path(folder)
    (folder / _FILE).write_bytes(full.content)
    (folder / _PLAN).write_text(json.dumps({"bytes": len(half.content), "parts": halves}))
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def restore(folder):
    """Write the FP16 weights of a folder that `share` has filled."""
    folder = pathlib.Path(folder)
    plan, weights = json.loads((folder / _PLAN).read_text()), (folder / _FILE).read_bytes()
    content = bytearray(plan["bytes"])
    for part in plan["parts"]:
        array = np.frombuffer(weights, np.float32, part["count"], part["from"]).astype(np.float16)
        content[part["at"]:part["at"] + array.nbytes] = array.tobytes()
    (folder / _HALF).write_bytes(content)


class _Store:
    """A file of constants that grows; equal ones are stored once. rounded: {the same in FP16: place}."""

    def __init__(self):
        self.content, self.places, self.rounded = bytearray(), {}, {}

    def add(self, data):
        """The place of some bytes."""
        if data not in self.places:
            self.content += b"\0" * (-len(self.content) % _ALIGNED)
            self.places[data] = len(self.content)
            self.content += data
        return self.places[data]

    @staticmethod
    def refer(tensor, file, place, size):
        """Let a tensor say where its values lie."""
        from onnx import TensorProto

        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
        tensor.ClearField("int32_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", file), ("offset", place), ("length", size)):
            tensor.external_data.add(key=key, value=str(value))
