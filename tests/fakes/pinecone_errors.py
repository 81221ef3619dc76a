"""What the fake of Pinecone answers instead of 200."""

from __future__ import annotations

from typing_extensions import override


class Refused(Exception):  # noqa: N818 - it is an answer, not an error of the fake
    """An answer with this status, in the words of the data plane or of the control plane."""

    def __init__(self, message: str, *, status: int = 400, code: int = 3) -> None:
        super().__init__(message)
        self.status, self.code = status, code

    def body(self, *, control: bool) -> dict[str, object]:
        """The error object."""
        if control:
            names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS"}
            return {"status": self.status, "error": {"code": names.get(self.status, "UNKNOWN"), "message": str(self)}}
        return {"code": self.code, "message": str(self), "details": []}

    @override
    def __repr__(self) -> str:
        return f"Refused({self.status}, {str(self)!r})"
