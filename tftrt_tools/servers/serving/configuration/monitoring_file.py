"""monitoring.config: whether the server exports its metrics, and where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tftrt_tools.servers.serving import metric_names
from tftrt_tools.servers.serving.configuration.config_problem import ERROR, WARNING, Problem
from tftrt_tools.servers.serving.configuration.text_places import Field

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


_COMMENT = f"""\
# Metrics for Prometheus, at http://HOST:REST_PORT{metric_names.PATH}.
# The server exports them only where it also has --rest_api_port.
"""


def text() -> str:
    """The file that switches the metrics on."""
    return _COMMENT + "prometheus_config {\n  enable: true\n" + f'  path: "{metric_names.PATH}"\n' + "}\n"


def problems(config: config_types.MonitoringConfig, root: Field) -> Iterator[Problem]:
    """Problems of a MonitoringConfig. Args: config: the message. root: its text as a Field."""
    line = root.line_of("prometheus_config")
    if not config.prometheus_config.enable:
        yield Problem(
            line, WARNING, "enable is not set: the server exports nothing", "write prometheus_config { enable: true }"
        )
    if config.prometheus_config.path and not config.prometheus_config.path.startswith("/"):
        line = root.line_of("prometheus_config", "path")
        yield Problem(
            line,
            ERROR,
            f"the path {config.prometheus_config.path!r} does not start with /",
            f'write path: "{metric_names.PATH}", or leave it out',
        )
