"""ONNX files, run by ONNX Runtime on the CPU."""
