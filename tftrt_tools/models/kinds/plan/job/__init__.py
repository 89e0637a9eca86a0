"""What runs in the child process of a plan: TensorRT and CUDA."""
