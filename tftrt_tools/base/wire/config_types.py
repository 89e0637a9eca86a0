"""What the message classes have that `config_messages` and `triton_config` make while a program runs, for the type checker."""

# ruff: noqa: N802  (the methods have protobuf's names)

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from google.protobuf import descriptor
    from typing_extensions import Self

Item = TypeVar("Item", covariant=True)


class Message(Protocol):
    """The methods of all messages that are called here."""

    @property
    def DESCRIPTOR(self) -> descriptor.Descriptor: ...
    @classmethod
    def FromString(cls, content: bytes) -> Self: ...
    def SerializeToString(self) -> bytes: ...
    def HasField(self, name: str) -> bool: ...
    def SetInParent(self) -> None: ...
    def Clear(self) -> None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def ListFields(self) -> Iterable[tuple[descriptor.FieldDescriptor, Any]]: ...


class Messages(Protocol[Item]):
    """A repeated field of messages. `add` makes one at its end and gives it."""

    def add(self, **fields: object) -> Item: ...
    def __getitem__(self, place: int) -> Item: ...
    def __iter__(self) -> Iterator[Item]: ...
    def __len__(self) -> int: ...
    def __contains__(self, one: object, /) -> bool: ...


class Number(Message, Protocol):
    """google.protobuf.Int64Value."""

    value: int


class Text(Message, Protocol):
    """google.protobuf.StringValue."""

    value: str


class Switch(Message, Protocol):
    """google.protobuf.BoolValue."""

    value: bool


class Latest(Message, Protocol):
    """The newest versions."""

    num_versions: int


class Specific(Message, Protocol):
    """Versions by their numbers."""

    @property
    def versions(self) -> MutableSequence[int]: ...


class ServableVersionPolicy(Message, Protocol):
    """Which versions of a model are served; one of the three. So does Triton's ModelVersionPolicy say it."""

    @property
    def latest(self) -> Latest: ...
    @property
    def all(self) -> Message: ...
    @property
    def specific(self) -> Specific: ...


class ChosenPolicy(ServableVersionPolicy, Protocol):
    """TensorFlow Serving's, which names the one that is set."""

    def WhichOneof(self, name: Literal["policy_choice"]) -> Literal["latest", "all", "specific"] | None: ...


class ModelConfig(Message, Protocol):
    """A model of a models.config."""

    name: str
    base_path: str
    model_type: int
    model_platform: str

    @property
    def model_version_policy(self) -> ChosenPolicy: ...
    @property
    def version_labels(self) -> MutableMapping[str, int]: ...


class ModelConfigList(Message, Protocol):
    """All models of a models.config."""

    @property
    def config(self) -> Messages[ModelConfig]: ...


class ModelServerConfig(Message, Protocol):
    """models.config."""

    @property
    def model_config_list(self) -> ModelConfigList: ...
    def WhichOneof(self, name: Literal["config"]) -> Literal["model_config_list", "custom_model_config"] | None: ...


class BatchingParameters(Message, Protocol):
    """batching_parameters.txt."""

    pad_variable_length_inputs: bool

    @property
    def max_batch_size(self) -> Number: ...
    @property
    def batch_timeout_micros(self) -> Number: ...
    @property
    def max_enqueued_batches(self) -> Number: ...
    @property
    def num_batch_threads(self) -> Number: ...
    @property
    def thread_pool_name(self) -> Text: ...
    @property
    def allowed_batch_sizes(self) -> MutableSequence[int]: ...
    @property
    def enable_large_batch_splitting(self) -> Switch: ...
    @property
    def max_execution_batch_size(self) -> Number: ...


class PrometheusConfig(Message, Protocol):
    """Where the metrics are."""

    enable: bool
    path: str


class MonitoringConfig(Message, Protocol):
    """monitoring.config."""

    @property
    def prometheus_config(self) -> PrometheusConfig: ...


class SslConfig(Message, Protocol):
    """SSLConfig."""

    server_key: str
    server_cert: str
    custom_ca: str
    client_verify: bool


class TritonReshape(Message, Protocol):
    """The model's own shape, where it is not the one that clients see."""

    @property
    def shape(self) -> MutableSequence[int]: ...


class TritonTensor(Message, Protocol):
    """Triton's ModelInput and ModelOutput."""

    name: str
    data_type: int

    @property
    def dims(self) -> MutableSequence[int]: ...
    @property
    def reshape(self) -> TritonReshape: ...


class TritonInstances(Message, Protocol):
    """Triton's ModelInstanceGroup."""

    kind: int
    count: int

    @property
    def profile(self) -> MutableSequence[str]: ...


class TritonFileOfCapability(Protocol):
    """An entry of `cc_model_filenames`: a compute capability, and a path in the version directory."""

    key: str
    value: str


class TritonBatching(Message, Protocol):
    """Triton's ModelDynamicBatching."""

    max_queue_delay_microseconds: int

    @property
    def preferred_batch_size(self) -> MutableSequence[int]: ...


class TritonParameterValue(Message, Protocol):
    """Triton's ModelParameter."""

    string_value: str


class TritonParameter(Protocol):
    """An entry of `parameters`."""

    key: str

    @property
    def value(self) -> TritonParameterValue: ...


class TritonWarmupData(Message, Protocol):
    """An input of a warm-up request."""

    data_type: int
    zero_data: bool
    random_data: bool

    @property
    def dims(self) -> MutableSequence[int]: ...


class TritonWarmupInput(Protocol):
    """An entry of `inputs`."""

    key: str

    @property
    def value(self) -> TritonWarmupData: ...


class TritonWarmup(Message, Protocol):
    """Triton's ModelWarmup."""

    name: str
    batch_size: int

    @property
    def inputs(self) -> Messages[TritonWarmupInput]: ...


class TritonConfig(Message, Protocol):
    """config.pbtxt: Triton's ModelConfig."""

    name: str
    platform: str
    backend: str
    max_batch_size: int

    @property
    def input(self) -> Messages[TritonTensor]: ...
    @property
    def output(self) -> Messages[TritonTensor]: ...
    @property
    def version_policy(self) -> ServableVersionPolicy: ...
    @property
    def instance_group(self) -> Messages[TritonInstances]: ...
    @property
    def cc_model_filenames(self) -> Messages[TritonFileOfCapability]: ...
    @property
    def dynamic_batching(self) -> TritonBatching: ...
    @property
    def parameters(self) -> Messages[TritonParameter]: ...
    @property
    def model_warmup(self) -> Messages[TritonWarmup]: ...
