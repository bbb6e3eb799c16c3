"""The picture of ``ARCHITECTURE.md``: ``python docs/figures/architecture.py`` writes it anew."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

WIDTH, HEIGHT = 3.35, 1.1
SHARED, FIRST, SECOND, OUT = "#e8eef7", "#dff0e3", "#f9e7d6", "#f1f1f1"
BOXES: dict[str, tuple[float, float, str, str]] = {
    # name: centre, its second line, colour
    "1 table": (0.0, 6.0, "gam/frames\ncolumns by name, blocks", SHARED),
    "2 encoder": (3.9, 6.0, "gam/frames, gam/families\nX [N, D], Y [N, K]", SHARED),
    "3 components": (7.8, 6.0, "gam/terms, gam/components\nwhat data settle, as JSON", SHARED),
    "4 kernel, inducing": (11.7, 6.0, "kernels, models\nk = k_1 + ... + k_C, Z_c", SHARED),
    "5 rows' statistics": (11.7, 4.0, "optimizers/binned\none pass over N rows", FIRST),
    "6 rounds": (11.7, 2.0, "optimizers\nevidence of sums, no rows", FIRST),
    "9 second engine": (7.8, 4.0, "newton, models/iterncgp\nproducts K V, actions S", SECOND),
    "7 posterior": (7.8, 2.0, "variational, posteriors\nq of all components", SHARED),
    "8 answers": (3.9, 2.0, "gam/effects, summaries, ...\ncurves, tables, figures", OUT),
    "8 serving": (0.0, 2.0, "serving, gam/saving\nSavedModel, ONNX, file", OUT),
    "10 networks": (3.9, 4.0, "layers\nfeatures of a Keras net", SHARED),
}  # fmt: skip


def draw_box(ax: Axes, name: str) -> None:
    x, y, rooms, colour = BOXES[name]
    corner = (x - WIDTH / 2, y - HEIGHT / 2)
    style = "round,pad=0.02,rounding_size=0.12"
    ax.add_patch(FancyBboxPatch(corner, WIDTH, HEIGHT, boxstyle=style, fc=colour, ec="#444444"))
    ax.text(x, y + 0.28, name, ha="center", va="center", fontsize=11, weight="bold")
    ax.text(x, y - 0.17, rooms, ha="center", va="center", fontsize=8.5, color="#333333")


def arrow(
    ax: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    label: str = "",
    shift: tuple[float, float] = (0.0, 0.16),
    bend: float = 0.0,
) -> None:
    style = {"arrowstyle": "-|>", "lw": 1.3, "color": "#444444", "shrinkA": 1, "shrinkB": 1}
    ax.annotate("", end, start, arrowprops={**style, "connectionstyle": f"arc3,rad={bend}"})
    if label:
        x, y = (0.5 * (a + b) + s for a, b, s in zip(start, end, shift))
        ax.text(x, y, label, ha="center", va="center", fontsize=8.5, style="italic")


def side(name: str, right: float, up: float) -> tuple[float, float]:
    """A point on a box's edge: ``right`` and ``up`` from -1 to 1."""
    x, y, *_ = BOXES[name]
    return x + right * (WIDTH / 2 + 0.03), y + up * (HEIGHT / 2 + 0.03)


def main() -> None:
    fig, ax = plt.subplots(figsize=(11.5, 5.4))
    for name in BOXES:
        draw_box(ax, name)
    for left, right in (("1 table", "2 encoder"), ("2 encoder", "3 components"),
                        ("3 components", "4 kernel, inducing")):  # fmt: skip
        arrow(ax, side(left, 1, 0), side(right, -1, 0))
    arrow(ax, side("4 kernel, inducing", -0.25, -1), side("5 rows' statistics", -0.25, 1))
    arrow(ax, side("5 rows' statistics", -0.4, -1), side("6 rounds", -0.4, 1), "sums", (-0.4, 0.0))
    arrow(ax, side("6 rounds", 0.4, 1), side("5 rows' statistics", 0.4, -1),
          "q, hyper-\nparameters", (0.62, 0.0))  # fmt: skip
    arrow(ax, side("6 rounds", -1, 0), side("7 posterior", 1, 0), "sites", (0.0, 0.2))
    arrow(ax, side("4 kernel, inducing", -0.85, -1), side("9 second engine", 0.75, 1))
    arrow(ax, side("9 second engine", 0, -1), side("7 posterior", 0, 1), "S, v", (0.3, 0.0))
    arrow(ax, side("7 posterior", -1, 0), side("8 answers", 1, 0))
    arrow(ax, side("10 networks", 0.9, -1), side("7 posterior", -0.85, 1))
    arrow(ax, side("7 posterior", -0.5, -1), side("8 serving", 0.5, -1), bend=-0.13)
    arrow(ax, side("3 components", -0.85, -1), side("10 networks", 0.8, 1), "terms", (-0.5, 0.0))
    ax.text(0.0, 4.0, "green: first engine, sums over rows\norange: second engine, matrix-free",
            ha="center", va="center", fontsize=8.5, color="#333333")  # fmt: skip
    ax.set_xlim(-1.8, 13.8)
    ax.set_ylim(0.8, 6.7)
    ax.set_aspect("equal")
    ax.axis("off")
    fig.savefig(Path(__file__).with_suffix(".png"), dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
