"""The study of a signature's nodes: each rounded alone, all together, all but the worst. What rounds is a Simulation; nothing of a runtime
is here."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tftrt_tools.accuracy import harm
from tftrt_tools.base import errors

if TYPE_CHECKING:
    from tftrt_tools.accuracy.harm import Effect, Kept, Node, SignatureHarm
    from tftrt_tools.accuracy.metrics.comparison import Comparison
    from tftrt_tools.base.choices import Precision

K = TypeVar("K", bound=Hashable)
# The key of a set of rounded nodes.
G = TypeVar("G")
# An SNR below this means that the simulation does not follow the model: it draws random numbers, or keeps state.
LEAST_FIDELITY_DB = 40.0


class Site(Protocol):
    """A node that can be rounded. engine: TF-TRT's name of the engine it would be in, or ""."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def op(self) -> str: ...  # noqa: D102
    @property
    def engine(self) -> str: ...  # noqa: D102


class Simulation(Protocol, Generic[G]):
    """A signature whose nodes can be rounded, over the inputs to score."""

    @property
    def name(self) -> str:
        """The name of the signature."""

    @property
    def sites(self) -> Sequence[Site]:
        """The nodes."""

    @property
    def method(self) -> str:
        """The calibration method in force, "" for FP16."""

    @property
    def methods(self) -> tuple[str, ...]:
        """All that can be simulated, ("",) for FP16."""

    @property
    def unrounded(self) -> tuple[str, ...]:
        """Names of nodes without ranges."""

    @property
    def nothing_shown(self) -> str:
        """Why no float output shows anything, by the answers so far with nothing rounded; "" if one does."""

    def all_rounded(self) -> G:
        """Round every site."""

    def alone(self, number: int) -> G:
        """Round one site."""

    def without(self, kept: Sequence[int]) -> G:
        """Round everything but these sites, as the flag that keeps them in a higher precision would."""

    def sweep(
        self, runs_wanted: Mapping[K, G], text: str, methods: Mapping[K, str] = ...
    ) -> tuple[dict[K, tuple[Comparison, ...]], float, int]:
        """Run all of the data once for each of `runs_wanted`.

        Args: text: for the progress. methods: {key: one of `methods`} where it is not the one in force.
        Returns: ({key: metrics.Comparisons of the float outputs against nothing rounded}, SNR in dB of the simulation with nothing
          rounded against the model, rows).
        """


def studied(simulated: Simulation[G], alone: Sequence[int], precision: Precision) -> SignatureHarm:
    """The SignatureHarm. Args: alone: indices of the sites to round alone. Raises: TftrtError where the simulation does not follow the
    model."""
    sites = simulated.sites
    all_of = simulated.all_rounded()
    others: dict[Hashable, str] = {
        ("method", method): method for method in simulated.methods if method != simulated.method
    }
    groups: dict[Hashable, G] = {
        "all": all_of,
        **dict.fromkeys(others, all_of),
        **{number: simulated.alone(number) for number in alone},
    }
    swept, fidelity, rows = simulated.sweep(
        groups, f"rounding nodes of {simulated.name} to {precision}, one at a time", others
    )
    if fidelity < LEAST_FIDELITY_DB:
        raise errors.TftrtError(
            f"signature {simulated.name!r}, frozen and with nothing rounded, does not answer like the model "
            f"(SNR {fidelity:.1f} dB)",
            "a model that draws random numbers or keeps state cannot be studied so",
        )
    effects = {key: harm.effects(compared, precision) for key, compared in swept.items()}
    nodes = harm.ranked(
        [
            harm.Node(
                name=sites[number].name, op=sites[number].op, engine=sites[number].engine, effects=effects[number]
            )
            for number in alone
        ]
    )
    order = [
        next(number for number in alone if sites[number].name == node.name and sites[number].engine == node.engine)
        for node in nodes
    ]
    methods = tuple(
        harm.ByMethod(method, effects[("method", method) if method != simulated.method else "all"])
        for method in simulated.methods
        if method
    )
    return harm.SignatureHarm(
        name=simulated.name,
        rows=rows,
        nodes=nodes,
        total=effects["all"],
        kept=_kept(simulated, order, nodes, effects["all"], precision),
        unrounded=simulated.unrounded,
        other_nodes=len(sites) - len(alone),
        fidelity_db=fidelity,
        method=simulated.method,
        methods=methods,
        not_finite=harm.not_finite(swept["all"]),
        nothing_shown=simulated.nothing_shown,
    )


def _kept(
    simulated: Simulation[G], order: Sequence[int], nodes: Sequence[Node], total: Iterable[Effect], precision: Precision
) -> tuple[Kept, ...]:
    """(harm.Kept, …) of the worst nodes: of as many as harm.tried says, and where verify's bounds are missed then, of more until they are
    kept, and of the fewest that keep them. Args: order: indices of the sites, the worst first."""
    # A model with more than half of its nodes in a higher precision is no longer of this precision.
    most = min(len(simulated.sites) // 2, len(order))
    kept_of: dict[int, Kept] = {}

    def tried(numbers: Iterable[int]) -> bool:
        gates = {kept: simulated.without(order[:kept]) for kept in numbers}
        result = (
            simulated.sweep(gates, f"keeping the worst nodes of {simulated.name} in a higher precision")[0]
            if gates
            else {}
        )
        kept_of.update({kept: harm.Kept(kept, harm.effects(compared, precision)) for kept, compared in result.items()})
        return any(kept_of[kept].holds for kept in gates)

    count = min(harm.tried(nodes), most)
    holds = tried(range(1, count + 1)) or harm.holds(total)
    misses = count
    while not holds and count < most:
        misses, count = count, min(2 * count, most)
        holds = tried([count])
    while holds and count - misses > 1:
        middle = (count + misses) // 2
        misses, count = (misses, middle) if tried([middle]) else (middle, count)
    return tuple(kept_of[kept] for kept in sorted(kept_of))
