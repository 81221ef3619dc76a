"""Requests that were answered in; Prometheus metrics, in which nothing tells who asked or what was found, out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ragstore.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

MEDIA_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """What the service measures of itself, beside what `Instruments` puts into the same registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Histogram

        self._registry = registry
        self._seconds = Histogram(
            "ragstore_http_request_seconds", "From request to answer", ["route", "status"], buckets=_SECONDS, registry=registry
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """A request to this route (a template, never a path) got its answer."""
        self._seconds.labels(route, str(status)).observe(seconds)

    def text(self) -> bytes:
        """As Prometheus reads it."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


def new_registry() -> CollectorRegistry:
    """An empty registry. Raises `ConfigError` without the package."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError as error:
        raise ConfigError("metrics need a package that is not installed: pip install 'ragstore[service]'") from error
    return CollectorRegistry()
