"""CrossEncoderReranker over a small model that is made here: the suite, options, models that cannot judge a pair."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ragstore import plugins
from ragstore.contracts import Reranker
from ragstore.errors import ConfigError, TransientError
from ragstore.testing.rerankers import RerankerSuite
from ragstore_sentence_transformers import CrossEncoderReranker
from tests.support.cross_encoders import make

INSTALLED = find_spec("sentence_transformers") is not None
# torch and the libraries around it warn about each other's plans.
pytestmark = pytest.mark.filterwarnings("default")
NEEDS_TORCH = pytest.mark.skipif(not INSTALLED, reason="sentence-transformers and torch are not installed (extra `sentence-transformers`)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("models") / "tiny")


@NEEDS_TORCH
class TestCrossEncoderReranker(RerankerSuite):
    @pytest.fixture
    async def reranker(self, folder: Path) -> AsyncIterator[Reranker]:
        made = CrossEncoderReranker(model=folder.name, base=folder.parent, batch_size=64)
        yield made
        await made.close()


@NEEDS_TORCH
async def test_the_configuration_builds_it_from_a_folder_beside_its_file(folder: Path) -> None:
    options = {"model": folder.name, "device": "cpu", "batch_size": 2, "max_length": 64}
    reranker = plugins.build("rerankers", "cross-encoder", options, base=folder.parent)
    low, high = await reranker.rerank("halyard merger", ["nothing", "the merger of the halyard"])
    await reranker.close()
    assert 0 <= low < high <= 1


@NEEDS_TORCH
async def test_no_more_of_a_text_is_read_than_was_said(folder: Path) -> None:
    reranker = CrossEncoderReranker(model=str(folder), max_length=16)
    plain, late = await reranker.rerank("halyard", ["x " * 20, "x " * 20 + "halyard"])
    await reranker.close()
    assert plain == late


@NEEDS_TORCH
async def test_a_question_waits_for_a_batch_of_another_and_not_for_all(folder: Path) -> None:
    reranker = CrossEncoderReranker(model=str(folder), batch_size=4)
    order: list[str] = []

    async def ask(name: str, number: int) -> None:
        await reranker.rerank("halyard", ["a halyard"] * number)
        order.append(name)

    await asyncio.gather(ask("many", 40), ask("one", 1))
    await reranker.close()
    assert order == ["one", "many"]


@NEEDS_TORCH
async def test_a_score_that_is_no_number_is_an_error(folder: Path, tmp_path: Path) -> None:
    import torch

    transformers: Any = import_module("transformers")
    broken = transformers.BertForSequenceClassification.from_pretrained(folder)
    torch.nn.init.constant_(broken.classifier.weight, float("nan"))
    broken.save_pretrained(tmp_path / "broken")
    transformers.BertTokenizerFast.from_pretrained(folder).save_pretrained(tmp_path / "broken")
    reranker = CrossEncoderReranker(model=str(tmp_path / "broken"))
    with pytest.raises(TransientError, match="no number"):
        await reranker.rerank("key", ["key"])
    await reranker.close()


@NEEDS_TORCH
def test_a_model_of_several_labels_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one score for a pair \(BertForSequenceClassification, 3 labels\)"):
        CrossEncoderReranker(model=str(make(tmp_path / "labels", labels=3)))


@NEEDS_TORCH
def test_a_model_that_was_never_trained_to_judge_is_refused_and_not_given_a_random_head(folder: Path, tmp_path: Path) -> None:
    transformers: Any = import_module("transformers")
    transformers.BertModel.from_pretrained(folder).save_pretrained(tmp_path)
    transformers.BertTokenizerFast.from_pretrained(folder).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"no cross-encoder.*BertModel"):
        CrossEncoderReranker(model=str(tmp_path))


@NEEDS_TORCH
def test_a_model_that_cannot_be_loaded_is_a_configuration_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        CrossEncoderReranker(model="empty", base=tmp_path)


@pytest.mark.skipif(INSTALLED, reason="sentence-transformers is installed")
def test_without_the_package_the_error_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"ragstore\[sentence-transformers\]"):
        CrossEncoderReranker(model="any")


@pytest.mark.parametrize("options", [{"batch_size": 0}, {"max_length": 0}])
def test_a_limit_that_is_none_is_refused_before_anything_is_loaded(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        CrossEncoderReranker(model="any", **options)  # type: ignore[arg-type]  # mypy sees one type for all options


def test_to_import_it_loads_no_torch() -> None:
    script = "import sys, ragstore_sentence_transformers; assert not {'torch', 'sentence_transformers', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
