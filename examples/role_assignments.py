"""Azure's role assignments and a tag condition, enforced in a search: who finds what, why, and what a retag changes.

Run it: python examples/role_assignments.py
A folder stands for the container here. For a real one, the two files are written by the Azure CLI: see README, "As Azure Storage decides".
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import ragstore

CONFIGURATION = """
source = {type = "folder", path = "docs", tags = "tags.json"}
embedder = {type = "hash"}

[access]
mode = "azure"
assignments = "assignments.json"
deny_assignments = "none"
principals = "principals.json"
"""
COUNSEL = "11111111-aaaa-4aaa-8aaa-000000000001"  # a group
ADA, BOB = "22222222-bbbb-4bbb-8bbb-000000000001", "22222222-bbbb-4bbb-8bbb-000000000002"
READER = "/providers/Microsoft.Authorization/roleDefinitions/2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
ACCOUNT = "/subscriptions/0/resourceGroups/rg/providers/Microsoft.Storage/storageAccounts/local"
BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
OWN_MATTER = f"""(
  (!(ActionMatches{{'{BLOBS}/read'}} AND NOT SubOperationMatches{{'Blob.List'}}))
  OR
  (@Resource[{BLOBS}/tags:Matter<$key_case_sensitive$>] StringEquals 'Halyard')
)"""


def prepare(folder: Path) -> None:
    """Two documents of two matters; counsel may read those of one."""
    docs = folder / "docs"
    docs.mkdir()
    (docs / "halyard.md").write_text("# Halyard\n\nThe settlement is nine million.\n")
    (docs / "pinion.md").write_text("# Pinion\n\nThe settlement is two million.\n")
    tag(folder, {"halyard.md": "Halyard", "pinion.md": "Pinion"})
    assignment = {"principalId": COUNSEL, "roleDefinitionId": READER, "scope": ACCOUNT, "condition": OWN_MATTER, "conditionVersion": "2.0"}
    (folder / "assignments.json").write_text(json.dumps([assignment]))
    people = [{"id": ADA, "name": "Ada", "groups": [COUNSEL]}, {"id": BOB, "name": "Bob", "groups": []}]
    (folder / "principals.json").write_text(json.dumps(people))
    (folder / "ragstore.toml").write_text(CONFIGURATION)


def tag(folder: Path, matters: dict[str, str]) -> None:
    """Write the index tags: path -> matter."""
    (folder / "tags.json").write_text(json.dumps({path: {"Matter": matter} for path, matter in matters.items()}))


def main() -> None:
    """The story."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        with ragstore.open(folder / "ragstore.toml") as index:
            index.sync()
            ask(index)
            for who in ("Ada", "Bob"):
                print(f"why: {index.explain('docs/pinion.md', principal=index.principal(who)).why}")

            tag(folder, {"halyard.md": "Pinion", "pinion.md": "Pinion"})
            print(f"after a retag, read without any content: {index.refresh_access().retagged} blob")
            ask(index)


def ask(index: ragstore.Index) -> None:
    """The same question as two people."""
    for name in ("Ada", "Bob"):
        hits = index.search("how much is the settlement?", principal=index.principal(name))
        print(f"{name} finds {', '.join(hit.blob for hit in hits) or 'nothing'}")


if __name__ == "__main__":
    main()
