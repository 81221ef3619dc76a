"""What the command line tells of a hidden blob that the store proposes and the check refuses: the same as of one that is not there."""

from __future__ import annotations

from pathlib import Path

from ragstore.cli.outcome import Exit
from tests.support.azure_files import BLOBS, assigned
from tests.support.commands import Ragstore
from tests.unit.test_cli_policy import ALICE, saved


def test_by_a_filter_and_v_nobody_learns_which_hidden_blobs_there_are(ragstore: Ragstore, docs: Path, tmp_path: Path) -> None:
    # A pattern without case is more than a store can be asked: it proposes the blob, and the check refuses it.
    condition = f"@Resource[{BLOBS}/tags:Matter<$key_case_sensitive$>] StringLike 'H*'"
    saved(tmp_path / "assignments.json", [assigned(ALICE, condition=condition)])
    saved(tmp_path / "principals.json", [{"id": ALICE, "name": "Alice"}])
    saved(tmp_path / "tags.json", {"keys.md": {"Matter": "Pinion"}})
    saved(
        tmp_path / "ragstore.toml",
        f'[source]\ntype = "folder"\npath = "{docs}"\ntags = "tags.json"\n[embedder]\ntype = "hash"\n'
        '[access]\nmode = "azure"\nassignments = "assignments.json"\ndeny_assignments = "none"\nprincipals = "principals.json"\n',
    )
    asked = ("--as", "Alice", "-v", "-c", str(tmp_path / "ragstore.toml"))
    assert ragstore("index", "-c", str(tmp_path / "ragstore.toml")).code == Exit.DONE
    hidden, absent = (ragstore("search", "keys", "--filter", f"path = '{path}'", *asked) for path in ("keys.md", "no.md"))
    assert (hidden.code, hidden.out, hidden.err) == (absent.code, absent.out, absent.err)
