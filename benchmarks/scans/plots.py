"""Two pictures of the shared scan: operations a second, and the time of a cycle, against the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(sweep: dict[str, Any], others: dict[str, dict[int, float]], out: Path) -> dict[str, str]:
    """Draw both plots, log-log, with the limit that memory sets.

    Parameters
    ----------
    sweep : dict
        From `benchmarks.scans.volume.sweep`.
    others : dict
        Seconds of a batch by its size, for each other line: with real texts in and
        out, while the sweep is of arrays.
    out : Path
        The JSON file; pictures lie beside it.

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
    from matplotlib import pyplot

    drawn = {}
    for what, label in (("throughput", "operations per second"), ("cycle", "time of a batch in ms")):
        figure, axes = pyplot.subplots(figsize=(7, 5))
        lines = {"crescando, 1 thread, arrays": sweep["cycle_s"], **others}
        for name, taken in lines.items():
            sizes = sorted(taken)
            axes.plot(sizes, [_shown(what, n, taken[n]) for n in sizes], marker="o", label=name)
        sizes = sorted(sweep["cycle_s"])
        for width, limit_s in sweep["limit_s"].items():
            axes.plot(
                sizes,
                [_shown(what, n, limit_s) for n in sizes],
                linestyle="--",
                label=f"limit of memory, {width} a row",
            )
        axes.set(xscale="log", yscale="log", xlabel="operations in a batch", ylabel=label)
        axes.set_title(f"point reads without an index, {sweep['rows']:,} rows")
        axes.grid(True, which="both", alpha=0.3)
        axes.legend()
        path = out.with_name(f"{out.stem}-{what}.png")
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        drawn[what] = path.name
    return drawn


def _shown(what: str, n: int, seconds: float) -> float:
    return n / seconds if what == "throughput" else 1e3 * seconds
