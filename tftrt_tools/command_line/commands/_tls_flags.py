"""The flags of a connection with TLS, the same in every command that connects to a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from absl import flags

if TYPE_CHECKING:
    from tftrt_tools.servers.client import Tls

NAMES = ("tls", "tls_root", "tls_certificate", "tls_key", "tls_server_name")


def define(values: flags.FlagValues) -> None:
    """Define them on FlagValues `values`."""
    text = dict(flag_values=values)
    flags.DEFINE_boolean(
        "tls",
        False,
        "connect with TLS, trusting the system's certificates; each of the next four flags implies it",
        **text,
    )
    flags.DEFINE_string("tls_root", "", "PEM file of the certificates to trust", **text)
    flags.DEFINE_string("tls_certificate", "", "PEM file of the client's own certificate", **text)
    flags.DEFINE_string("tls_key", "", "PEM file of its key", **text)
    flags.DEFINE_string(
        "tls_server_name", "", "name in the server's certificate, where it is not the address's", **text
    )


def read(values: flags.FlagValues) -> Tls | None:
    """client.Tls, or None for a connection without TLS."""
    from tftrt_tools.servers.client import Tls

    named = (values.tls_root, values.tls_certificate, values.tls_key, values.tls_server_name)
    return Tls(*named) if values.tls or any(named) else None
