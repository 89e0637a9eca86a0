"""TF-TRT conversion, verification, serving and benchmarking from the command line."""

__version__ = "0.1.0"
