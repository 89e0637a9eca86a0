"""Several ONNX forms of one model (FP32, Q/DQ, FP16) with their weights in one file, so that little has to be carried to a GPU.

FP16 weights are FP32 weights rounded, so one of both is stored, and `restore` writes the other, with NumPy alone.
"""

import json
import pathlib

import numpy as np

_FULL, _HALF, _STORED, _PLAN = "weights.data", "half.data", "stored.data", "plan.json"
_LEAST = 1024
_ALIGNED = 64


def share(models, folder, rounded=False):
    """Write models to folder/NAME.onnx, and what `restore` makes their larger constants of.

    Args: models: {NAME: onnx.ModelProto}, changed in place. rounded: store the FP16 weights, so that the FP32 ones come back rounded to
      FP16; that halves the folder, and is for models whose weights are random anyway.
    """
    from onnx import TensorProto, numpy_helper

    places, content = {_FULL: {}, _HALF: {}}, {_FULL: bytearray(), _HALF: bytearray()}
    halves = {}
    tensors = [tensor for model in models.values() for tensor in model.graph.initializer]
    for tensor in sorted(tensors, key=lambda one: one.data_type == TensorProto.FLOAT16):
        array = numpy_helper.to_array(tensor)
        data = array.tobytes()
        if len(data) < _LEAST or tensor.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            continue
        if tensor.data_type == TensorProto.FLOAT:
            halves[array.astype(np.float16).tobytes()] = data
        elif data not in halves:
            continue
        file = _FULL if tensor.data_type == TensorProto.FLOAT else _HALF
        if data not in places[file]:
            content[file] += b"\0" * (-len(content[file]) % _ALIGNED)
            places[file][data] = len(content[file])
            content[file] += data
        _refer(tensor, file, places[file][data], len(data))
    pairs = [
        {"half": place, "full": places[_FULL][halves[data]], "count": len(data) // 2}
        for data, place in places[_HALF].items()
    ]
    folder, stored, kept = pathlib.Path(folder), bytearray(content[_HALF] if rounded else content[_FULL]), []
    paired = {pair["full"] for pair in pairs}
    for data, place in places[_FULL].items() if rounded else ():
        if place not in paired:
            kept.append({"at": len(stored), "full": place, "bytes": len(data)})
            stored += data
    (folder / _STORED).write_bytes(stored)
    (folder / _PLAN).write_text(
        json.dumps(
            {
                "rounded": rounded,
                "half_bytes": len(content[_HALF]),
                "full_bytes": len(content[_FULL]),
                "pairs": pairs,
                "kept": kept,
            }
        )
    )
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())


def restore(folder):
    """Write the weights of a folder that `share` has filled. Returns: the paths of the files, which may be deleted again."""
    folder = pathlib.Path(folder)
    plan, stored = json.loads((folder / _PLAN).read_text()), (folder / _STORED).read_bytes()
    full, half = bytearray(plan["full_bytes"]), bytearray(plan["half_bytes"])
    if not plan["rounded"]:
        full[:] = stored
    for pair in plan["pairs"]:
        source = (stored, np.float16, pair["half"]) if plan["rounded"] else (stored, np.float32, pair["full"])
        array = np.frombuffer(source[0], source[1], pair["count"], source[2])
        full[pair["full"] : pair["full"] + 4 * array.size] = array.astype(np.float32).tobytes()
        half[pair["half"] : pair["half"] + 2 * array.size] = array.astype(np.float16).tobytes()
    for part in plan["kept"]:
        full[part["full"] : part["full"] + part["bytes"]] = stored[part["at"] : part["at"] + part["bytes"]]
    (folder / _FULL).write_bytes(full)
    (folder / _HALF).write_bytes(half)
    return folder / _FULL, folder / _HALF


def _refer(tensor, file, place, size):
    """Let a tensor say where its values lie."""
    from onnx import TensorProto

    for field in ("raw_data", "float_data", "int32_data"):
        tensor.ClearField(field)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", file), ("offset", place), ("length", size)):
        tensor.external_data.add(key=key, value=str(value))
