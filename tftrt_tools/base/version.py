"""The version of the package. No room imports the package itself, which gives programs the names of all of them."""

try:
    from tftrt_tools._version import __version__ as __version__
except ModuleNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
