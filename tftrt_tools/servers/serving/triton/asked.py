"""What the user asked for with flags, and the config.pbtxt that stays as it is has otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tftrt_tools.servers.serving.triton.config import KINDS, Settings

if TYPE_CHECKING:
    from tftrt_tools.base.wire import config_types


def missed(
    there: config_types.TritonConfig,
    made: config_types.TritonConfig,
    settings: Settings,
    batch: int | None,
    preferred: Sequence[int],
    warm_up: str | None,
) -> list[str]:
    """The flags that have no effect, each with what is there, such as "--triton_versions=2 (it has 1)".

    Args: there: the ModelConfig that stays. made: the one that this run would write. settings, batch, preferred: as the user gave them.
      warm_up: text of --warmup_shapes, "" where it was not given; None for --nowarmup.
    """
    texts = [
        *_settings(there, settings),
        *_batching(there, settings, batch, preferred),
        *_warm_up(there, made, warm_up),
    ]
    return [f"{flag} (it has {has})" for flag, has in texts]


def _settings(there: config_types.TritonConfig, asked: Settings) -> Iterator[tuple[str, str]]:
    versions = _versions(there.version_policy)
    if asked.versions is not None and versions != str(asked.versions):
        yield f"--triton_versions={asked.versions}", versions
    # Without a group Triton makes one instance.
    counts = [group.count or 1 for group in there.instance_group] or [1]
    if asked.instances is not None and counts != [asked.instances]:
        yield f"--triton_instances={asked.instances}", " and ".join(map(str, counts))
    kinds = [_kind(group.kind) for group in there.instance_group] or ["auto"]
    if asked.instance_kind is not None and set(kinds) != {asked.instance_kind}:
        yield f"--triton_instance_kind={asked.instance_kind}", " and ".join(dict.fromkeys(kinds))


def _batching(
    there: config_types.TritonConfig, settings: Settings, batch: int | None, preferred: Sequence[int]
) -> Iterator[tuple[str, str]]:
    if batch is not None and there.max_batch_size != batch:
        yield f"--triton_max_batch_size={batch}", str(there.max_batch_size)
    joins, batching = there.HasField("dynamic_batching"), there.dynamic_batching
    if preferred and sorted(preferred) != sorted(batching.preferred_batch_size):
        yield f"--triton_preferred_batch_sizes={_listed(preferred)}", _listed(batching.preferred_batch_size) or "none"
    if settings.queue_delay is not None and (
        not joins or settings.queue_delay != batching.max_queue_delay_microseconds
    ):
        yield (
            f"--triton_queue_delay_us={settings.queue_delay}",
            str(batching.max_queue_delay_microseconds) if joins else "no batching",
        )


def _warm_up(
    there: config_types.TritonConfig, made: config_types.TritonConfig, asked: str | None
) -> Iterator[tuple[str, str]]:
    names = [warmup.name for warmup in there.model_warmup]
    if asked is None and names:
        yield "--nowarmup", f"calls of {', '.join(names)}"
    elif asked and sorted(names) != sorted(warmup.name for warmup in made.model_warmup):
        yield f"--warmup_shapes={asked}", f"calls of {', '.join(names)}" if names else "no warm-up"


def _versions(policy: config_types.ServableVersionPolicy) -> str:
    """How many of the latest versions are served, or which, in words."""
    if policy.HasField("specific"):
        return f"versions {_listed(policy.specific.versions)}"
    return "all" if policy.HasField("all") else str(policy.latest.num_versions or 1)


def _kind(number: int) -> str:
    return next((name for name, value in KINDS.items() if value == number), "another")


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
