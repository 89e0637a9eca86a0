"""What runs in the child process of an export: TensorFlow, tf2onnx and onnx."""
