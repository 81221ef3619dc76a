from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ragstore.globs import Globs
from ragstore_folder.clock import signature
from ragstore_folder.names import shown_names
from ragstore_folder.tree import HIDDEN, Tree

names = st.one_of(
    st.sampled_from([b"a", b"b", b"c", b".git", b"\xff", b"\\xff", b"\\xff~2", b"\xc3\xa9", b"x.md"]),
    st.binary(min_size=1, max_size=6).filter(lambda name: b"/" not in name and b"\0" not in name and name not in {b".", b".."}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """To a place relative to the root, or out of it."""

    target: bytes


entries = st.recursive(
    st.one_of(
        st.binary(max_size=3), st.builds(Link, target=st.sampled_from([b".", b"a", b"b", b"a/b", b"..", b"../outside", b"c/a", b"\xff"]))
    ),
    lambda below: st.dictionaries(names, below, max_size=4),
    max_leaves=12,
)
trees = st.dictionaries(names, entries, max_size=5)
Entry = bytes | Link | dict[bytes, "Entry"]


def build(place: bytes, root: bytes, tree: dict[bytes, Entry]) -> None:
    for name, entry in tree.items():
        at = place + b"/" + name
        if isinstance(entry, dict):
            os.mkdir(at)  # noqa: PTH102 - names of bytes
            build(at, root, entry)
        elif isinstance(entry, Link):
            os.symlink(root + b"/" + entry.target, at)  # noqa: PTH211
        else:
            with open(at, "wb") as file:  # noqa: PTH123
                file.write(entry)


@given(trees)
def test_walking_and_finding_agree_on_any_tree(tree: dict[bytes, Entry]) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        (base / "outside").mkdir()
        (base / "outside" / "secret").write_text("secret", encoding="utf-8")
        root = base / "root"
        root.mkdir()
        build(os.fsencode(root), os.fsencode(root), tree)
        reader = Tree(root=str(root), prefix="", globs=Globs(), hidden_files=frozenset())
        found = list(reader.walk())
        assert len({one.path for one in found}) == len(found)
        for one in found:
            one.path.encode()
            assert os.path.realpath(one.file).startswith(f"{root}{os.sep}")
            assert HIDDEN.isdisjoint(one.path.split("/"))
            again = reader.find(one.path)
            assert again is not None
            assert (again.file, again.is_unicode, signature(again.stat)) == (one.file, one.is_unicode, signature(one.stat))


@given(st.lists(names.map(os.fsdecode), max_size=8, unique=True))
def test_shown_names_are_unicode_and_collide_with_nothing(listed: list[str]) -> None:
    shown = shown_names(listed)
    everything = [shown.get(name, name) for name in listed]
    assert len(set(everything)) == len(listed)
    for name in everything:
        name.encode()
    assert shown == shown_names(reversed(listed)), "the order of the folder does not matter"
