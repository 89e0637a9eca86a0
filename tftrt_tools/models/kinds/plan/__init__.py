"""Plan directories: an engine of TensorRT itself, with the ONNX file that it was built from, run without TensorFlow.

PLAN/model.plan               the serialized engine
PLAN/model.onnx               what it was built from, with files beside it that hold its weights
PLAN/plan.json                document.PlanFile: for which TensorRT, GPU, shapes and plugins it is
PLAN/plugins/…                libraries of plugins, copied
PLAN/assets.extra/tftrt/…     the passport, as a converted SavedModel has it; layers of the engine; the timing cache of the build
"""
