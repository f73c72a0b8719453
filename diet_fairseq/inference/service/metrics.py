"""Metrics of the service, for ``/metrics``."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """Numbers of requests and lines, durations and batch sizes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "diet_fairseq"
        self.requests = Counter(
            f"{name}_requests", "Requests to translate, by status", ["status"], registry=registry
        )
        self.lines = Counter(f"{name}_lines", "Lines translated", registry=registry)
        self.waiting = Gauge(f"{name}_waiting_lines", "Lines in the queue", registry=registry)
        self.seconds = Histogram(
            f"{name}_request_seconds",
            "From a request to its answer",
            registry=registry,
            buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
        )
        self.batch_lines = Histogram(
            f"{name}_batch_lines",
            "Lines translated at once",
            registry=registry,
            buckets=(1, 2, 4, 8, 16, 32, 64, 128),
        )
