"""monitoring.config: whether the server exports its metrics, and where."""

from tftrt_tools.serving import metric_names
from tftrt_tools.serving.configuration_problem import ERROR, WARNING, Problem

_COMMENT = f"""\
# Metrics for Prometheus, at http://HOST:REST_PORT{metric_names.PATH}.
# The server exports them only where it also has --rest_api_port.
"""


def text():
    """The file that switches the metrics on."""
    return _COMMENT + "prometheus_config {\n  enable: true\n" + f'  path: "{metric_names.PATH}"\n' + "}\n"


def problems(config, root):
    """Problems of a MonitoringConfig. Args: config: the message. root: its text as a configuration_text.Field."""
    line = root.line_of("prometheus_config")
    if not config.prometheus_config.enable:
        yield Problem(line, WARNING, "enable is not set: the server exports nothing", "write prometheus_config { enable: true }")
    if config.prometheus_config.path and not config.prometheus_config.path.startswith("/"):
        line = root.first("prometheus_config", "path").line
        yield Problem(line, ERROR, f"the path {config.prometheus_config.path!r} does not start with /",
                      f'write path: "{metric_names.PATH}", or leave it out')
