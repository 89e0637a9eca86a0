"""Whether a model of a Triton can be asked, and what people are told where it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tftrt_tools.base import errors
from tftrt_tools.servers.client import model_service
from tftrt_tools.servers.client.kserve.config_messages import ModelConfig
from tftrt_tools.servers.client.serving_error import ONE_ANSWER, ServingError

if TYPE_CHECKING:
    from tftrt_tools.servers.client.kserve.client import TritonClient


def config(client: TritonClient, model: str, version: int | None = None) -> ModelConfig:
    """The ModelConfig of a model that answers each request once; an empty one where the server does not tell it.

    Raises: UsageError for a decoupled model, whose answers are a stream.
    """
    try:
        answer = client.config(model, version)
    except ServingError:
        return ModelConfig()
    if answer.decoupled:
        raise errors.UsageError(
            f"{client.address}: model {model!r} is decoupled: it answers a request with a stream", ONE_ANSWER
        )
    return answer


def known(client: TritonClient, model: str) -> str:
    """A mend for a model, or a version of it, that does not answer: what the repository says of it, or which models it has."""
    try:
        states = client.status(model)
    except ServingError as error:
        if error.code != "NOT_FOUND":
            return "`tftrt versions` asks for its models"
        return f"the models of its repository: {', '.join(client.names()) or 'none'}"
    if not any(state.version for state in states):
        return f"it is in the repository and was not loaded: --load-model={model} of the server, or client.load({model!r}), loads it"
    told = model_service.known(states)
    if any(state.failed for state in states):
        return f"{told}; fix that version and load it again, the server's log says more"
    return (
        f"{told}; it was unloaded: client.load({model!r}) loads it"
        if {state.state for state in states} == {model_service.END}
        else told
    )
