"""What went wrong with the model that answers in; what a caller is told of it, which quotes nothing of what the other side says, out."""

from __future__ import annotations

from typing import Final

from ragstore.answering import EndpointDownError, EndpointRefusedError
from ragstore.service.problems import Problem

_TOO_MANY: Final = 429
_NOT_AS_IT_IS: Final = frozenset({400, 413, 422})
"""What a model's service says of a request that another request could mend."""


def problem_of_model(error: EndpointDownError | EndpointRefusedError) -> Problem:
    """Nothing of what the other side says, which may quote anything."""
    if isinstance(error, EndpointRefusedError):
        if error.status in _NOT_AS_IT_IS:
            detail = "the model refuses this request: a parameter that it does not take, perhaps, or more than it can read"
            return Problem(status=400, detail=detail, code="model_refused")
        return Problem(status=502, detail="the model cannot be asked as it is set up here; the log says more", code="model_refused")
    wait = {"Retry-After": str(max(1, round(error.retry_after or 1)))}
    if error.status == _TOO_MANY:
        detail = "the model has too much to do; wait a little"
        return Problem(status=429, detail=detail, code="model_busy", headers=wait)
    if error.late:
        return Problem(status=504, detail="the model does not answer in time; try again later", code="model_timeout")
    return Problem(status=502, detail="the model cannot answer now, or broke off; try again later", code="model_unavailable", headers=wait)
