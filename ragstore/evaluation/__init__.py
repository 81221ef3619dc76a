"""Questions whose answers are known, and an index, in; how well each configuration finds them, and how fast, out."""

from __future__ import annotations

from ragstore.evaluation.judged import JudgedSet, load, unpack
from ragstore.evaluation.measuring import Evaluation, Measured, evaluate
from ragstore.evaluation.variants import Variant

__all__ = ["Evaluation", "JudgedSet", "Measured", "Variant", "evaluate", "load", "unpack"]
