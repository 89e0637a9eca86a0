"""ONNX files and TensorRT engines (plans), without TF-TRT."""
