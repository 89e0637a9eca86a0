"""The messages of TensorFlow Serving's configuration files, and their text form.

ModelServerConfig is the class of the package tensorflow-serving-api. That package ships neither BatchingParameters
(servables/tensorflow/session_bundle_config.proto) nor MonitoringConfig and SSLConfig (config/*.proto), so these are made here,
with the field names and types of tensorflow/serving 2.14.1. Text form carries no field numbers, and only text form is read and written
here: the numbers are free.
"""

import difflib
import functools
import re

from tftrt_tools.wire import messages

MODELS, BATCHING, MONITORING, SSL = "models", "batching", "monitoring", "ssl"
# What `tftrt configure` calls the files, and the server's flag for each.
FILE_NAMES = {MODELS: "models.config", BATCHING: "batching_parameters.txt", MONITORING: "monitoring.config"}
SERVER_FLAGS = {MODELS: "model_config_file", BATCHING: "batching_parameters_file", MONITORING: "monitoring_config_file"}
_NAMES = {BATCHING: "BatchingParameters", MONITORING: "MonitoringConfig", SSL: "SSLConfig"}

_INT64, _BOOL, _STRING = "google.protobuf.Int64Value", "google.protobuf.BoolValue", "google.protobuf.StringValue"
# {message: {field: type}}; types as messages.classes has them.
_MESSAGES = {
    "BatchingParameters": {"max_batch_size": _INT64, "batch_timeout_micros": _INT64, "max_enqueued_batches": _INT64,
                           "num_batch_threads": _INT64, "thread_pool_name": _STRING, "allowed_batch_sizes": "[int64]",
                           "pad_variable_length_inputs": "bool", "enable_large_batch_splitting": _BOOL, "max_execution_batch_size": _INT64},
    "PrometheusConfig": {"enable": "bool", "path": "string"},
    "MonitoringConfig": {"prometheus_config": ".PrometheusConfig"},
    "SSLConfig": {"server_key": "string", "server_cert": "string", "custom_ca": "string", "client_verify": "bool"},
}


class SyntaxProblem(Exception):
    """A text that is no message of its kind. line: 1 for the first, 0 where not known; text: what is wrong; mend: what to do, or ""."""

    def __init__(self, line, text, mend=""):
        super().__init__(text)
        self.line, self.text, self.mend = line, text, mend


def new(kind):
    """An empty message of MODELS, BATCHING, MONITORING or SSL."""
    if kind != MODELS:
        return _made()[_NAMES[kind]]()
    from tensorflow_serving.config import model_server_config_pb2

    return model_server_config_pb2.ModelServerConfig()


@functools.cache
def _made():
    """{name: class} of _MESSAGES. Text form has no field numbers: these are free."""
    return messages.classes("tftrt_tools/serving/configuration.proto", "tensorflow.serving", {
        name: {field: (number, kind) for number, (field, kind) in enumerate(fields.items(), 1)} for name, fields in _MESSAGES.items()})


def parse(kind, text):
    """The message in `text`. Raises: SyntaxProblem."""
    from google.protobuf import text_format

    message = new(kind)
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise _problem(error, message.DESCRIPTOR) from None
    return message


def render(message, indent=0):
    """The message's fields in text form, a list of numbers in one line, a newline at the end of each. indent: spaces in front."""
    from google.protobuf import text_format

    return text_format.MessageToString(message, indent=indent, use_short_repeated_primitives=True)


def kind_of(fields):
    """Which kind of file has these outermost fields (configuration_text.Field), or None."""
    names = [field.name for field in fields]
    scores = {kind: sum(name in new(kind).DESCRIPTOR.fields_by_name for name in names) for kind in FILE_NAMES}
    best = max(scores, key=scores.get)
    return best if scores[best] else None


def _problem(error, descriptor):
    text = " ".join(str(error).split())
    place = re.match(r"(\d+):\d+ : (.*)", text)
    line = error.GetLine() or (int(place[1]) if place else 0)
    said = place[2] if place else text
    unknown = re.search(r'Message type "([\w.]+)" has no field named "([^"]+)"', said)
    if unknown:
        known = sorted(_fields(descriptor, unknown[1]))
        near = difflib.get_close_matches(unknown[2], known, 1)
        return SyntaxProblem(line, f"{unknown[1].rsplit('.', 1)[-1]} has no field {unknown[2]!r}",
                             f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(known)}")
    # protobuf quotes the offending line in front of what it says.
    said = re.sub(r"^'.*': ", "", said)
    if said.startswith('Expected "{"'):
        return SyntaxProblem(line, "a message is expected here, and a plain value is given", "write it as NAME { value: 8 }")
    return SyntaxProblem(line, said)


def _fields(descriptor, full_name, seen=()):
    """Field names of the message `full_name`, which is `descriptor` or somewhere inside it."""
    if descriptor.full_name == full_name:
        return list(descriptor.fields_by_name)
    if descriptor.full_name in seen:
        return []
    return next((found for field in descriptor.fields if field.message_type
                 for found in [_fields(field.message_type, full_name, (*seen, descriptor.full_name))] if found), [])
