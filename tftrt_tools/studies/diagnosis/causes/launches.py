"""The GPU waits for the launches of a plan's kernels. A CUDA graph launches all of them at once."""

from __future__ import annotations

from tftrt_tools.studies.diagnosis.case import Case, Said, milliseconds
from tftrt_tools.studies.diagnosis.finding import Finding


def look(case: Case) -> Said:
    """One finding, where the profile measured a graph of the plan that takes less. TensorFlow captures none of its engines."""
    if not case.profile.of_a_plan:
        return
    for engine in case.engine_profiles:
        graph, idle = engine.cuda_graph, case.call.idle_seconds
        if graph and graph.plain and graph.graph and graph.plain > graph.graph:
            yield Finding(
                cause="launches",
                call=case.name,
                worth=min(graph.plain - graph.graph, idle),
                basis="ceiling",
                title=f"the call launches {graph.nodes} kernels and copies one by one",
                # Copies hide a part of the launches, so a whole call gains less than the plan alone (docs/dev/measured/calls.md).
                rule=f"alone, the plan takes {milliseconds(graph.graph)} as a CUDA graph and {milliseconds(graph.plain)} without, by "
                f"turns; in the call the GPU is idle for {milliseconds(idle)}",
                evidence=(f"its kernels take {milliseconds(case.gpu('engine'))} of {milliseconds(case.seconds)}",),
                mend="let calls be CUDA graphs: TFTRT_PLAN_CUDA_GRAPH=1 in the environment of what runs the plan, such as `tftrt bench "
                "--in_process` or a Triton",
            )
