"""A folder in; a small cross-encoder, whose weights are set by hand so that it prefers texts that share words with the query, out.

Every word has a dimension of its own, and so has each of these facts: part of the query, part of the text, a word that both have. In the
first layer each word of the text looks for itself in the query, or else at [CLS]; in the second [CLS] looks how many found themselves.
"""

from __future__ import annotations

import math
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ragstore.terms import row_terms
from ragstore.testing.rerankers import RerankerSuite

_SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_WORDS: Final = (
    *dict.fromkeys(word for text in (RerankerSuite.query, *RerankerSuite.texts) for word in row_terms(text) if len(word) > 1),
    *("sentence", "number", "about", "something", "else", "halyard", "salary", "merger", "paragraph"),
)
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789.,?!'"
_FAR: Final = 100.0
"""In the exponent of a softmax: what is so far below the best is not looked at."""


def make(folder: Path, *, labels: int = 1) -> Path:
    """Write the model into a new folder. Its tokenizer does not say how long a pair may be: 128 tokens."""
    import torch

    transformers: Any = import_module("transformers")
    folder.mkdir(parents=True)
    words = [word for word in dict.fromkeys(_WORDS) if word not in _LETTERS]
    vocabulary = [*_SPECIAL, *words, *_LETTERS, *(f"##{letter}" for letter in _LETTERS)]
    (folder / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=len(vocabulary) + 5,
        num_hidden_layers=2,
        num_attention_heads=1,
        intermediate_size=4,
        max_position_embeddings=128,
        num_labels=labels,
    )
    model = transformers.BertForSequenceClassification(config)
    with torch.no_grad():
        _set(model)
    model.save_pretrained(folder)
    return folder


def _set(model: Any) -> None:
    size, words = model.config.hidden_size, model.config.vocab_size
    query, text, shared, share, aux = range(words, size)
    cls, sep = _SPECIAL.index("[CLS]"), _SPECIAL.index("[SEP]")
    root = math.sqrt(size)
    for name, parameter in model.named_parameters():
        # After a layer norm, what is 1 in two of the dimensions and 0 in the others is about that again.
        parameter.fill_(math.sqrt(2 / size) if name.endswith("LayerNorm.weight") else 0.0)
    bert = model.bert
    bert.embeddings.word_embeddings.weight[:, :words].fill_diagonal_(1.0)
    bert.embeddings.token_type_embeddings.weight[0, query] = bert.embeddings.token_type_embeddings.weight[1, text] = 1.0
    first, second = (layer.attention for layer in bert.encoder.layer)
    for attention in (first, second):
        attention.self.query.bias[aux] = 1.0
    for projection in (first.self.query, first.self.key):
        projection.weight[:words, :words].fill_diagonal_(math.sqrt(0.4 * _FAR * root))
    first.self.key.weight[aux, [cls, text, sep]] = root * first.self.key.weight.new_tensor([0.2 * _FAR, -_FAR, -_FAR])
    first.self.value.weight[shared, [query, cls]] = first.self.value.weight.new_tensor([1.0, -1.0])
    # A word that is shared has a third fact to it, which makes its others smaller.
    second.self.key.weight[aux, [text, sep, shared]] = root * second.self.key.weight.new_tensor([12.0, -12.0, 2.7])
    second.self.value.weight[share, shared] = 1.0
    first.output.dense.weight[shared, shared] = second.output.dense.weight[share, share] = 1.0
    bert.pooler.dense.weight[0, share] = 1.0
    model.classifier.weight[0, 0], model.classifier.bias[0] = 6.0, -3.0
