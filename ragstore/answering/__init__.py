"""A prompt in, a model's answer and what is wrong with its citations out."""

from __future__ import annotations

from ragstore.answering.endpoint import Endpoint, EndpointDownError, EndpointRefusedError, Piece
from ragstore.answering.grounding import Grounding, Problem, check, marks

__all__ = ["Endpoint", "EndpointDownError", "EndpointRefusedError", "Grounding", "Piece", "Problem", "check", "marks"]
