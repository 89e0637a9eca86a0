"""TF-TRT conversion, verification, serving and benchmarking from the command line."""

try:
    from tftrt_tools._version import __version__ as __version__
except ModuleNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
