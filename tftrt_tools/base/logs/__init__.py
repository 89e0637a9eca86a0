"""What logs of TF-TRT, TensorRT, TensorFlow Serving and trtexec say: their lines, their known messages, and what these add up to."""
