"""The message classes that are made from tables are those of the packages that bring the real ones."""

import pytest
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tftrt_tools.base.wire import config_messages

CONFIG = """model_config_list {
  config {
    name: "digits" base_path: "/models/digits" model_platform: "tensorflow" model_type: TENSORFLOW
    model_version_policy { specific { versions: [1, 3] } } version_labels { key: "stable" value: 1 }
    logging_config { log_collector_config { type: "x" filename_prefix: "/tmp/y" } sampling_config { sampling_rate: 0.5 } }
  }
  config { name: "other" base_path: "gs://b/o" model_version_policy { all {} } }
  config { name: "third" base_path: "/t" model_version_policy { latest { num_versions: 2 } } }
}"""


def described(descriptor, found):
    """{message: its fields} of a message and all that it holds."""
    if descriptor.name not in found:
        found[descriptor.name] = sorted(
            (
                one.name,
                one.number,
                one.type,
                one.label,
                one.message_type.name if one.message_type else "",
                [(value.name, value.number) for value in one.enum_type.values] if one.enum_type else [],
                one.containing_oneof.name if one.containing_oneof else "",
            )
            for one in descriptor.fields
        )
        for one in descriptor.fields:
            if one.message_type:
                described(one.message_type, found)
    return found


def test_the_messages_of_models_config_are_the_servers_own():
    own, real = config_messages.new(config_messages.MODELS), model_server_config_pb2.ModelServerConfig()
    assert described(own.DESCRIPTOR, {}) == described(real.DESCRIPTOR, {})


def test_a_models_config_is_the_same_bytes_and_the_same_text():
    own, real = (
        config_messages.parse(config_messages.MODELS, CONFIG),
        text_format.Parse(CONFIG, model_server_config_pb2.ModelServerConfig()),
    )
    assert own.SerializeToString(deterministic=True) == real.SerializeToString(deterministic=True)
    assert text_format.MessageToString(own) == text_format.MessageToString(real)
    first = own.model_config_list.config[0]
    assert (own.WhichOneof("config"), first.model_version_policy.WhichOneof("policy_choice")) == (
        "model_config_list",
        "specific",
    )
    first.version_labels["canary"] = 3
    assert dict(first.version_labels) == {"stable": 1, "canary": 3}


@pytest.mark.parametrize("kind", [config_messages.MODELS, config_messages.BATCHING, config_messages.MONITORING])
def test_a_kind_is_known_by_its_fields(kind):
    names = [field.name for field in config_messages.new(kind).DESCRIPTOR.fields]
    assert config_messages.kind_of(names) == kind and config_messages.kind_of(["nothing"]) is None
