"""Draws a precedence graph as mermaid: an arrow from an implementation to the ones right below it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping


def graph(title: str, labels: Mapping[str, str], edges: Iterable[tuple[str, str]]) -> str:
    """Return a mermaid flowchart.

    ``labels`` gives each key's second line; ``edges`` are pairs (above, below).
    """
    keys = sorted(labels)
    nodes = {key: f"k{place}_{re.sub(r'[^A-Za-z0-9_]', '_', key)}" for place, key in enumerate(keys)}
    lines = ["flowchart TD", f'    subgraph table ["{_text(title)}"]']
    for key in keys:
        label = _text(key) + (f"<br/>{_text(labels[key])}" if labels[key] else "")
        lines.append(f'        {nodes[key]}["{label}"]')
    lines += [f"        {nodes[above]} --> {nodes[below]}" for above, below in sorted(edges)]
    return "\n".join([*lines, "    end"])


def _text(text: str) -> str:
    """Escape what would end a quoted mermaid label or read as a tag."""
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
