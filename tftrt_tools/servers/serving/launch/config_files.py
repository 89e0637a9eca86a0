"""Reads the server's configuration files (protobuf text format), so that an error names the line before a server starts."""

import pathlib
from typing import Any

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import config_messages


def read(flag: str, path: str) -> Any:
    """The message in file `path`, by the flag that names it: model_config_file, batching_parameters_file,
    monitoring_config_file or ssl_config_file.

    Raises: TftrtError.
    """
    try:
        text = pathlib.Path(path).read_text()
    except UnicodeDecodeError:
        raise errors.TftrtError(f"--{flag}: {path} is no text file", "it must be protobuf text format") from None
    except OSError as error:
        raise errors.from_os_error(error) from None
    if flag == "ssl_config_file":
        return _ssl(path, text)
    kind = next(kind for kind, name in config_messages.SERVER_FLAGS.items() if name == flag)
    try:
        return config_messages.parse(kind, text)
    except config_messages.SyntaxProblem as problem:
        place = f"{path}:{problem.line}" if problem.line else path
        mend = problem.mend or f"`tftrt configure --check_files {path}` says more"
        raise errors.TftrtError(f"--{flag}: {place}: {problem.text}", mend) from None


def _ssl(path: str, text: str) -> Any:
    try:
        return documents.parse_message(text, config_messages.new(config_messages.SSL))
    except documents.NoMessage as error:
        # Its lines are keys and certificates, and the message could quote one.
        raise errors.TftrtError(
            f"--ssl_config_file: {path}:{error.line or '?'}: no SSLConfig",
            "it has server_key, server_cert, custom_ca and client_verify",
        ) from None
