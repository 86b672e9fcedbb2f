"""Precedence: which implementation goes before which, as a graph.

An edge runs from the implementation that is preferred to the one it goes before; every implementation has an edge
to the general one. Broken input is tolerated: unknown keys are left out and reported, cycles are reported.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from tileops.rules.declaration import Declaration


def _networkx() -> Any:
    # Imported when a graph is asked for: it takes 0.25 s, and selection does without.
    import networkx

    return networkx


@attrs.frozen
class Precedence:
    """Answers who stands above whom among the declarations of one interface."""

    declarations: Mapping[str, Declaration] = attrs.field(repr=lambda found: repr(sorted(found)))

    @functools.cached_property
    def generals(self) -> tuple[str, ...]:
        """Return the keys declared general, sorted; a sound table has one or none."""
        return tuple(sorted(key for key, declaration in self.declarations.items() if declaration.general))

    @functools.cached_property
    def below(self) -> Mapping[str, frozenset[str]]:
        """Return, per key, the keys it goes directly before.

        A general implementation goes before none, whatever it says: its preferences are a finding of their own.
        """
        generals = frozenset(self.generals)
        return {
            key: frozenset()
            if key in generals
            else generals | {other for other in declaration.preferred_over if other in self.declarations}
            for key, declaration in self.declarations.items()
        }

    @functools.cached_property
    def _above(self) -> Mapping[str, frozenset[str]]:
        # Walked by hand: selection needs nothing else of networkx. A test holds it to networkx's closure.
        direct: dict[str, set[str]] = {key: set() for key in self.declarations}
        for key, others in self.below.items():
            for other in others:
                direct[other].add(key)
        closed: dict[str, frozenset[str]] = {}
        for key, first in direct.items():
            seen: set[str] = set()
            stack = list(first)
            while stack:
                found = stack.pop()
                if found not in seen:
                    seen.add(found)
                    stack.extend(direct[found] - seen)
            closed[key] = frozenset(seen)
        return closed

    def above(self, key: str) -> frozenset[str]:
        """Return every key that stands above ``key``, directly or through others; itself too, on a cycle."""
        return self._above[key]

    @functools.cached_property
    def graph(self) -> Any:
        """Return a networkx DiGraph, nodes and edges in sorted order whatever the order of declarations."""
        graph = _networkx().DiGraph()
        graph.add_nodes_from(sorted(self.declarations))
        graph.add_edges_from((key, other) for key in sorted(self.below) for other in sorted(self.below[key]))
        return graph

    def cycles(self) -> tuple[tuple[str, ...], ...]:
        """Return one cycle of each group of keys that stand above each other, from its least key on, sorted."""
        nx = _networkx()
        found = []
        for group in nx.strongly_connected_components(self.graph):
            part = self.graph.subgraph(group)
            start = min(group)
            if len(group) > 1 or part.has_edge(start, start):
                edges = nx.find_cycle(nx.DiGraph(sorted(part.edges)), start)
                keys = [edge[0] for edge in edges]
                least = keys.index(min(keys))
                found.append(tuple(keys[least:] + keys[:least]))
        return tuple(sorted(found))

    def reduction(self) -> tuple[tuple[str, str], ...]:
        """Return the fewest edges that say the same, sorted, for display; all edges where there is a cycle."""
        nx = _networkx()
        if not nx.is_directed_acyclic_graph(self.graph):
            return tuple(sorted(self.graph.edges))
        return tuple(sorted(nx.transitive_reduction(self.graph).edges))

    def unknown_keys(self) -> Mapping[str, tuple[str, ...]]:
        """Return, per key, the names in its ``preferred_over`` that no implementation has; only keys with some."""
        unknown = {
            key: tuple(sorted(declaration.preferred_over - set(self.declarations)))
            for key, declaration in sorted(self.declarations.items())
        }
        return {key: names for key, names in unknown.items() if names}
