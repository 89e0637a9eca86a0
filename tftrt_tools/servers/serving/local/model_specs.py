"""The ModelSpec of a request and of its answer, as TensorFlow Serving fills it in."""

from __future__ import annotations

import functools

from tensorflow_serving.apis import model_pb2

DEFAULT_SIGNATURE = "serving_default"


def signature_name(model_spec: model_pb2.ModelSpec) -> str:
    """Name of the signature that a request asks for."""
    return model_spec.signature_name or DEFAULT_SIGNATURE


def answered(model_spec: model_pb2.ModelSpec, version: int) -> model_pb2.ModelSpec:
    """ModelSpec of the answer: the request's name and signature (the default one filled in) and the version that answered."""
    return _spec(model_spec.name, signature_name(model_spec), version)


@functools.lru_cache(256)
def answered_bytes(model: str, signature: str, version: int) -> bytes:
    """The same on the wire, for a model's and a signature's name."""
    written: bytes = _spec(model, signature, version).SerializeToString()
    return written


def _spec(model: str, signature: str, version: int) -> model_pb2.ModelSpec:
    spec = model_pb2.ModelSpec(name=model, signature_name=signature)
    spec.version.value = version
    return spec
