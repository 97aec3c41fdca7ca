"""Settings of the index of tool vectors."""

from __future__ import annotations

from ecoagent.settings.sections import Section, knob


class IndexSettings(Section):
    """Search over tool vectors; what the stages write does not depend on it."""

    exact_limit: int = knob(
        100_000, "Up to this many tools a query is compared with each; above, a graph proposes.", ge=0
    )
    connectivity: int = knob(16, "Links of a tool in the graph (M of HNSW).", ge=2, le=256)
    expansion_add: int = knob(128, "Candidates looked at when a tool is put in.", ge=1, le=4096)
    expansion_search: int = knob(
        128, "Candidates looked at by a search; more find more and take longer.", ge=1, le=65536
    )
    threads: int = knob(
        1, "Threads of the graph. Only with 1 do two builds give the same graph.", ge=1, le=1024
    )
    sample: int = knob(100, "Queries on which the graph's recall is measured after a build.", ge=1)
