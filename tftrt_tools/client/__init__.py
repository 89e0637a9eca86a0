"""The clients, as programs import them: `from tftrt_tools.client import Client`. They are in tftrt_tools.servers.client."""

from tftrt_tools.servers.client import *  # noqa: F403
from tftrt_tools.servers.client import __all__ as __all__
