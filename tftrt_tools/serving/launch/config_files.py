"""Reads the server's configuration files (protobuf text format), so that a mistake is named by line before a server starts."""

import functools
import pathlib

from tftrt_tools import errors
from tftrt_tools.serving import configuration_protos


def read(flag, path):
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
    kind = next(kind for kind, name in configuration_protos.SERVER_FLAGS.items() if name == flag)
    try:
        return configuration_protos.parse(kind, text)
    except configuration_protos.SyntaxProblem as problem:
        place = f"{path}:{problem.line}" if problem.line else path
        mend = problem.mend or f"`tftrt configure --check {path}` says more"
        raise errors.TftrtError(f"--{flag}: {place}: {problem.text}", mend) from None


def _ssl(path, text):
    from google.protobuf import text_format

    try:
        return text_format.Parse(text, _ssl_config()())
    except text_format.ParseError as error:
        # Its lines are keys and certificates: the message could quote one.
        raise errors.TftrtError(f"--ssl_config_file: {path}:{error.GetLine() or '?'}: no SSLConfig",
                                "it has server_key, server_cert, custom_ca and client_verify") from None


@functools.cache
def _ssl_config():
    """The class SSLConfig, config/ssl_config.proto of tensorflow/serving 2.14.1, which no package ships; text form needs no numbers."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tftrt_tools/serving/ssl_config.proto", package="tftrt_tools.serving", syntax="proto3")
    message = file.message_type.add(name="SSLConfig")
    for number, (name, kind) in enumerate((("server_key", proto.TYPE_STRING), ("server_cert", proto.TYPE_STRING),
                                           ("custom_ca", proto.TYPE_STRING), ("client_verify", proto.TYPE_BOOL)), 1):
        message.field.add(name=name, number=number, type=kind, label=proto.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tftrt_tools.serving.SSLConfig"))
