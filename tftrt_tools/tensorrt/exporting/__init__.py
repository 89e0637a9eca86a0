"""A model as ONNX files: exported, checked, run against its source, and held against what the target's parser takes."""
