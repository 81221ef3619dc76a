"""A query engine of LlamaIndex that answers each person from what that person may read.

Run it: pip install 'ragstore[llama-index]', then python examples/llama_index_retriever.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

import ragstore
from ragstore_llama_index import RagstoreRetriever

CONFIGURATION = """
source = {type = "folder", path = "docs", tags = "tags.json"}
embedder = {type = "hash"}      # matches words and needs no model; leave this line out for the default, which knows meaning
access = {mode = "groups", tag_key = "allowed", principals = "principals.json"}
"""


def prepare(folder: Path) -> Path:
    """Two documents, who may read each, and who asks; the configuration out."""
    (folder / "docs").mkdir()
    (folder / "docs" / "keys.md").write_text("# Keys\n\nEvery access key is replaced after ninety days.\n")
    (folder / "docs" / "pay.md").write_text("# Pay\n\nSalaries rise by three percent in April.\n")
    (folder / "tags.json").write_text(json.dumps({"keys.md": {"allowed": "staff"}, "pay.md": {"allowed": "hr"}}))
    people = [{"id": "ada", "name": "Ada", "groups": ["staff", "hr"]}, {"id": "bob", "name": "Bob", "groups": ["staff"]}]
    (folder / "principals.json").write_text(json.dumps(people))
    (folder / "ragstore.toml").write_text(CONFIGURATION)
    return folder / "ragstore.toml"


def main() -> None:
    """The same question as two people."""
    llm = MockLLM()  # repeats its prompt; put a model of your own in its place
    with tempfile.TemporaryDirectory() as name, ragstore.open(prepare(Path(name))) as index:
        index.sync()
        for person in ("Ada", "Bob"):
            retriever = RagstoreRetriever(index, principal=index.principal(person), limit=1)
            engine = RetrieverQueryEngine.from_args(retriever, llm=llm)
            answer = engine.query("when do salaries rise?")
            sources = ", ".join(str(node.node.ref_doc_id) for node in answer.source_nodes)
            told = "three percent" in str(answer)
            print(f"{person}'s answer rests on {sources}, and {'tells' if told else 'does not tell'} of three percent")


if __name__ == "__main__":
    main()
