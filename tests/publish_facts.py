"""Facts of models that need no files: what a test says is all there is to them."""

from tftrt_tools.models.savedmodel.engine_assets import EngineAsset
from tftrt_tools.models.savedmodel.engine_op import EngineOp
from tftrt_tools.models.savedmodel.inspection import EngineFile, Inspection, SignatureGraph
from tftrt_tools.models.savedmodel.shapes import InputSpec
from tftrt_tools.servers.serving.publishing.model_facts import Facts


def engine_op(name="E", implicit=True, precision="FP16", cached=1):
    return EngineOp(
        name=name,
        precision=precision,
        inputs=(),
        outputs=(),
        ops={"MatMul": 1},
        native_segment="segment",
        implicit_batch=implicit,
        profile_strategy="",
        workspace_size_bytes=0,
        maximum_cached_engines=cached,
        allow_build_at_runtime=True,
        use_calibration=False,
        calibrated=False,
        explicit_precision=False,
    )


def spec(name="x", dtype="float32", shape=(None, 8)):
    return InputSpec(name, dtype, shape)


def facts(
    *,
    engines=(),
    assets=(),
    problem="",
    manifest=None,
    signatures=None,
    methods=None,
    tables=None,
    unknown_ops=(),
    tags=("serve",),
    tensorflow="2.14.1",
    converted=True,
):
    """Args: engines: EngineOps. assets: (TensorRT, compute capability) of the engines saved for the op "E". signatures: {name: [InputSpec]}."""
    signatures = {"serving_default": [spec()]} if signatures is None else signatures
    built = tuple(
        EngineAsset(engine="E", input_shapes=((1, 8),), bytes=100, tensorrt=tensorrt, compute_capability=capability)
        for tensorrt, capability in assets
    )
    files = (EngineFile("E", built, 1000, problem),) if assets or problem else ()
    graphs = tuple(
        SignatureGraph(
            name=name, inputs=tuple(specs), outputs=(), engines=tuple(one.name for one in engines), native=(), inside=1
        )
        for name, specs in signatures.items()
    )
    seen = Inspection(
        model="/m",
        tags=tags,
        tensorflow=tensorflow,
        graph_bytes=1000,
        signatures=graphs,
        engines=tuple(engines),
        ambiguous=(),
        engine_files=files,
        loads={},
        manifest=manifest,
        verification=None,
    )
    methods = dict.fromkeys(signatures, "tensorflow/serving/predict") | (methods or {})
    return Facts(
        seen=seen,
        converted=converted,
        methods=methods,
        unknown_ops=tuple(unknown_ops),
        tables=tables or {},
        engine_ops=len(engines),
    )


def declared(**calls):
    """A manifest that says which calls its engines were built for: {signature: [{input: shape}]}."""
    listed = [
        {"name": name, "calls": [{key: list(shape) for key, shape in call.items()} for call in some]}
        for name, some in calls.items()
    ]
    return {"signatures": listed}
