"""Metrics of a group under one of its names are gone when a process works for it no more."""

from prometheus_client import REGISTRY, Counter, Gauge

from offsetzero import metrics


def test_nothing_is_shown_of_a_group_that_is_forgotten_and_all_of_others() -> None:
    of_groups = [
        one for one in vars(metrics).values() if isinstance(one, Counter | Gauge) and "group" in one._labelnames
    ]
    for group in ("gone", "gone.g2"):
        for one in of_groups:
            one.labels(*[group if name == "group" else "x" for name in one._labelnames]).inc()
        metrics.HEAD_SECONDS.show(group, {("documents", "0"): 1.0})
        metrics.HANDLER_SECONDS.observe((group, "x"), [(0.1, 1)])
    before = shown("gone")
    assert len(before) >= len(of_groups) + 2
    metrics.forget("gone")
    assert (shown("gone"), shown("gone.g2")) == (set(), before)
    metrics.forget("gone.g2")
    metrics.forget("never was")


def shown(group: str) -> set[str]:
    return {sample.name for one in REGISTRY.collect() for sample in one.samples if sample.labels.get("group") == group}
