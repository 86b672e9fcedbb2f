"""Damaged manifest files: every one loads, or is told line by line; nothing else comes out."""

import re
import warnings
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tileops import manifest
from tileops.manifest import loader
from tileops.rules.errors import ManifestError

FILES = [*sorted(loader.SPEC.glob("*.yaml")), Path(__file__).parent / "later.yaml"]
TOKENS = [re.findall(r"\w+|\s+|[^\w\s]", path.read_text()) for path in FILES]
WORDS = sorted({token for tokens in TOKENS for token in tokens if not token.isspace()})
STRANGE = ["-1", "null", "[]", "{}", "1e400", "*", "&a", "'", '"', "2**3", "é", "\t", "!!int", "<<", "\x00", "9" * 30]
EDIT = st.tuples(
    st.sampled_from(["cut", "put", "add"]),
    st.integers(0, max(map(len, TOKENS)) - 1),
    st.sampled_from(WORDS + STRANGE),
)
LINE = re.compile(r"damaged\.yaml:\d+: .+")


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(TOKENS), st.lists(EDIT, min_size=1, max_size=4))
def test_a_damaged_file_loads_or_is_told(tokens, edits):
    tokens = list(tokens)
    for how, at, token in edits:
        at %= len(tokens)
        if how == "cut":
            tokens[at] = ""
        elif how == "put":
            tokens[at] = token
        else:
            tokens.insert(at, token)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # Python's own, of texts such as "2if"
        told, entries = "", {}
        try:
            entries = manifest.read_entries("".join(tokens), "damaged.yaml", manifest.families())
        except ManifestError as error:
            told = str(error)
    assert told or entries
    assert all(LINE.fullmatch(line) for line in told.split("\n") if told), told
    for entry in entries.values():
        assert len(entry.cases()) == sum(len(row.dtypes) for row in entry.workloads)
