"""The development server as a whole: reads its flags, loads the models, then listens."""

from __future__ import annotations

import logging
import threading
import types
from typing import TYPE_CHECKING, TypeVar

from tftrt_tools.base import errors
from tftrt_tools.base.files import documents
from tftrt_tools.base.wire import config_messages
from tftrt_tools.servers.serving import server_flags
from tftrt_tools.servers.serving.local import (
    batch_scheduler,
    batching_parameters,
    core,
    failure,
    grpc_methods,
    grpc_server,
    loader,
    manager,
    metrics_page,
)

if TYPE_CHECKING:
    import grpc

    from tftrt_tools.base.wire import config_types
    from tftrt_tools.servers.serving.local.rest.rest_server import RestServer

_log = logging.getLogger("tftrt.serving")
_Message = TypeVar("_Message")
_STOP_SECONDS = 5
_SPARE_THREADS = 3  # that refuse while all others work
_ABSENT = ("use_alts_credentials", "platform_config_file", "prefer_tflite_model", "thread_pool_factory_config_file")


class Server:
    """Args: options: a namespace of flags.parse, with `host` besides.

    Attributes: port: of gRPC; rest_port: 0 where REST is off; both known after `start`.
    """

    def __init__(self, options: types.SimpleNamespace) -> None:
        self._options = options
        self.port = self.rest_port = 0
        self._grpc: grpc_server.GrpcServer | None = None
        self._rest: RestServer | None = None
        self._scheduler: batch_scheduler.Scheduler | None = None
        self._watcher: threading.Thread | None = None
        self._stopping = threading.Event()
        self._manager: manager.Manager | None = None

    def start(self) -> None:
        """Load the models, however long that takes, and then listen. Raises: Failure, TftrtError."""
        options = self._options
        _refuse_absent(options)
        counted = metrics_page.Metrics()
        monitoring = _monitoring(options)
        parameters = _batching(options)
        settings = loader.LoadSettings(
            tags=tuple(options.saved_model_tags.split(",")),
            config=_session_config(options),
            batching=parameters,
            per_model_batching=options.enable_per_model_batching_parameters,
            warmup=options.enable_model_warmup,
            warmup_iterations=options.num_request_iterations_for_warmup,
        )
        shared = core.Core(counted, monitoring is not None, options.enable_signature_method_name_check)
        if parameters is not None:
            self._scheduler = batch_scheduler.Scheduler(parameters.num_batch_threads, parameters.thread_pool_name)
        load = loader.Loader(settings, shared.services(), self._scheduler, counted)
        self._manager = shared.manager = manager.Manager(
            load,
            manager.ManagerSettings(
                **{name: getattr(options, name) for name in manager.ManagerSettings.__dataclass_fields__}
            ),
        )
        self._manager.start(_models(options))
        self._listen(shared, monitoring)
        if options.model_config_file and options.model_config_file_poll_wait_seconds > 0:
            self._watcher = threading.Thread(target=self._watch, name="tftrt-config", daemon=True)
            self._watcher.start()

    def stop(self) -> None:
        """End in order: refuse new requests, wait for running ones, then close the models. From another thread, it ends a waiting
        `start`."""
        self._stopping.set()
        if self._rest:
            self._rest.stop()
        if self._grpc:
            self._grpc.stop(_STOP_SECONDS)
        if self._watcher:
            self._watcher.join()
        if self._manager:
            self._manager.stop()
        if self._scheduler:
            self._scheduler.stop()

    def _listen(self, shared: core.Core, monitoring: config_types.PrometheusConfig | None) -> None:
        options = self._options
        self._grpc = _transport(shared, options)
        host = f"[{options.host}]" if ":" in options.host else options.host
        self.port = self._bound(f"{host}:{options.port}")
        if options.grpc_socket_path:
            self._bound(f"unix:{options.grpc_socket_path}")
        self._grpc.start()
        _log.info("Running gRPC ModelServer at %s:%d ...", options.host, self.port)
        if options.rest_api_port:
            from tftrt_tools.servers.serving.local.rest.handler import METRICS_PATH
            from tftrt_tools.servers.serving.local.rest.rest_server import RestServer

            path = monitoring.path if monitoring is not None and monitoring.path else None
            self._rest = RestServer(
                shared,
                options.host,
                max(options.rest_api_port, 0),
                options.rest_api_timeout_in_ms,
                options.rest_api_num_threads,
                path or METRICS_PATH,
            )
            self.rest_port = self._rest.start()
            _log.info("Exporting HTTP/REST API at:%s:%d ...", options.host, self.rest_port)

    def _bound(self, address: str) -> int:
        """The port. Raises: TftrtError where the address cannot be had."""
        assert self._grpc
        try:
            return self._grpc.listen(address)
        except OSError:
            raise errors.TftrtError(
                f"cannot listen on {address}", "choose another --port, or end what listens there"
            ) from None

    def _watch(self) -> None:
        while not self._stopping.wait(self._options.model_config_file_poll_wait_seconds):
            try:
                if self._manager:
                    self._manager.reload(_models(self._options))
            except failure.Failure as error:
                _log.error("a reload of %s failed: %s", self._options.model_config_file, error.to_text())


def _refuse_absent(options: types.SimpleNamespace) -> None:
    for name in _ABSENT:
        if getattr(options, name) != server_flags.DEFAULTS[name]:
            raise failure.unimplemented(
                f"the development server has no --{name}; use --launch=binary or --launch=docker"
            )
    if options.batching_parameters_file and not options.enable_batching:
        raise failure.invalid(
            "server_options.batching_parameters_file is set without setting server_options.enable_batching to true."
        )


def _models(options: types.SimpleNamespace) -> config_types.ModelServerConfig:
    config = config_messages.new(config_messages.MODELS)
    if options.model_config_file:
        return _text(options.model_config_file, config)
    if not options.model_base_path:
        raise failure.invalid("Both server_options.model_base_path and server_options.model_config_file are empty!")
    config.model_config_list.config.add(
        name=options.model_name, base_path=options.model_base_path, model_platform="tensorflow"
    )
    return config


def _monitoring(options: types.SimpleNamespace) -> config_types.PrometheusConfig | None:
    """PrometheusConfig where the metrics page is on, or None."""
    if not options.monitoring_config_file:
        return None
    config = _text(options.monitoring_config_file, config_messages.new(config_messages.MONITORING)).prometheus_config
    return config if config.enable else None


def _batching(options: types.SimpleNamespace) -> batching_parameters.BatchingParameters | None:
    if not options.enable_batching:
        return None
    if not options.batching_parameters_file:
        return batching_parameters.BatchingParameters()
    parameters = batching_parameters.read(options.batching_parameters_file)
    parameters.check()
    return parameters


def _session_config(options: types.SimpleNamespace) -> bytes:
    from tensorflow.core.protobuf import config_pb2

    config = config_pb2.ConfigProto()
    if options.tensorflow_session_config_file:
        _text(options.tensorflow_session_config_file, config)
    both = options.tensorflow_session_parallelism
    if both and (options.tensorflow_intra_op_parallelism or options.tensorflow_inter_op_parallelism):
        raise failure.invalid(
            "--tensorflow_session_parallelism does not go with --tensorflow_intra_op_parallelism and "
            "--tensorflow_inter_op_parallelism"
        )
    config.intra_op_parallelism_threads = (
        both or options.tensorflow_intra_op_parallelism or config.intra_op_parallelism_threads
    )
    config.inter_op_parallelism_threads = (
        both or options.tensorflow_inter_op_parallelism or config.inter_op_parallelism_threads
    )
    if options.per_process_gpu_memory_fraction:
        config.gpu_options.per_process_gpu_memory_fraction = options.per_process_gpu_memory_fraction
    result: bytes = config.SerializeToString()
    return result


def _transport(shared: core.Core, options: types.SimpleNamespace) -> grpc_server.GrpcServer:
    """What listens for gRPC. One of its threads always waits for the next call, as in the real server."""
    at_once = max(options.grpc_max_threads - 1, 1)
    return grpc_server.GrpcServer(
        grpc_methods.table(shared, at_once),
        at_once + _SPARE_THREADS,
        _channel_arguments(options),
        _credentials(options),
    )


def _credentials(options: types.SimpleNamespace) -> grpc.ServerCredentials | None:
    if not options.ssl_config_file:
        return None
    import grpc

    config = _text(options.ssl_config_file, config_messages.new(config_messages.SSL))
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        config.custom_ca.encode() or None,
        config.client_verify,
    )


def _channel_arguments(options: types.SimpleNamespace) -> list[tuple[str, str | int]]:
    """[(name, value)]: an int if it can be read as one, else text."""
    arguments: list[tuple[str, str | int]] = []
    for pair in filter(None, options.grpc_channel_arguments.split(",")):
        name, _, value = pair.partition("=")
        try:
            arguments.append((name, int(value)))
        except ValueError:
            arguments.append((name, value))
    return arguments


def _text(path: str, message: _Message) -> _Message:
    try:
        return documents.parse_message(documents.read_text(path), message)
    except FileNotFoundError:
        raise failure.not_found(f"{path}; No such file or directory") from None
    except (OSError, ValueError) as error:
        raise failure.invalid(f"Invalid protobuf file: '{path}' ({error})") from None
