"""Starts TensorFlow Serving: the binary, the Docker image or the development server, watched until it ends."""
