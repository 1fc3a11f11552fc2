"""The figures of RB13 §7, drawn from this machine's measures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

SCALE_NOTE = "all processes share this machine's cores; work per operation is what scales"


def draw(told: dict[str, Any], out: Path) -> dict[str, str]:
    """Draw every measured figure beside the JSON file.

    Returns
    -------
    dict
        What was drawn where, or why not.
    """
    try:
        import matplotlib
    except ImportError as error:
        return {"skipped": f"{error}; install matplotlib"}
    matplotlib.use("Agg")
    drawn: dict[str, str] = {}
    for key, paint, title in (
        ("R8", _scaling, "Fig. 8: writes, f = 1, 3, 5, n"),
        ("R9", _scaling, "Fig. 9: reads, f = 3, three levels"),
        ("R10", _scaling, "Fig. 10: ranges, f = 3"),
        ("R11", _throughputs, "Fig. 11: elastic throughput"),
        ("R12", _scatters, "Figs. 12 and 13: elastic latency"),
        ("A1", _trace, "4, 5, 4 storage processes, f = 3"),
        ("A2", _trace, "4, 5, 4 storage processes, f = 1"),
        ("A3", _trace, "Fig. 14: one and two of six killed"),
        ("A3", _scatters, "Fig. 15: latency meanwhile"),
    ):
        if key in told and "error" not in told[key]:
            name = title.split(":")[0].replace(" ", "-").replace(",", "").replace(".", "").lower()
            path = out.with_name(f"{out.stem}-{name}.png")
            _save(paint, told[key], title, path)
            drawn[title] = path.name
    return drawn


def _save(paint: Callable[[Any, Any, Any], None], entry: Any, title: str, path: Path) -> None:
    from matplotlib import pyplot

    panels = 2 if paint is not _trace else 1
    figure, axes = pyplot.subplots(1, panels, figsize=(7 * panels, 5), squeeze=False)
    paint(pyplot, axes[0], entry)
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _scaling(_: Any, axes: Any, entry: Any) -> None:
    for what, label, panel in (
        ("rate_s", f"operations per second\n({SCALE_NOTE})", axes[0]),
        ("executed_by", "processes that execute an operation", axes[1]),
    ):
        for name, line in entry["lines"].items():
            places = [float(place) for place in line]
            panel.plot(places, [point[what] for point in line.values()], marker="o", label=name)
        panel.set(ylabel=label, xlabel="storage processes, or coverage of the range", ylim=(0, None))
        panel.grid(True, alpha=0.3)
        panel.legend(fontsize=7)


def _throughputs(_: Any, axes: Any, entry: Any) -> None:
    for panel, names in ((axes[0], ("writes", "sequential")), (axes[1], ("snapshot", "basic"))):
        for name in names:
            shown = entry["traces"][name]
            _rates(panel, name, shown["rates_s"], entry["width_s"])
            for at_s, what in shown["events"]:
                if not what.endswith("done"):
                    panel.axvline(at_s, color="0.8", linewidth=0.6)
        panel.set(xlabel="seconds", ylabel="operations per second", ylim=(0, None))
        panel.legend()


def _scatters(_: Any, axes: Any, entry: Any) -> None:
    for panel, is_zoomed in ((axes[0], False), (axes[1], True)):
        for name, points in entry["points_s_ms"].items():
            panel.scatter(*zip(*points, strict=True), s=2, label=name)
        top_ms = 50 if is_zoomed else None
        panel.set(xlabel="seconds", ylabel="milliseconds", ylim=(0, top_ms))
        _events(panel, entry["events"])
        panel.legend()


def _trace(_: Any, axes: Any, entry: Any) -> None:
    shown = entry["trace"]
    for name, rates in shown["rates_s"].items():
        _rates(axes[0], name, rates, shown["width_s"])
    _events(axes[0], shown["events"])
    axes[0].set(xlabel="seconds", ylabel="operations per second", yscale="symlog", ylim=(0, None))
    axes[0].legend(fontsize=7)


def _rates(panel: Any, name: str, rates: list[float], width_s: float) -> None:
    panel.plot([width_s * place for place in range(len(rates))], rates, linewidth=0.9, label=name)


def _events(panel: Any, events: list[Any]) -> None:
    for at_s, what in events:
        panel.axvline(at_s, color="0.7", linewidth=0.6)
        panel.text(at_s, panel.get_ylim()[1], what, rotation=90, va="top", fontsize=6, color="0.4")
