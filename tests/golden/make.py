"""
Writes the golden file of a release: a saved GAM, and what it predicts.

``python tests/golden/make.py``, once a release, and the files are committed: every later version
has to read them and answer as this one did (``tests/test_saving.py``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import gpflow_gam as gg
from gpflow_gam import factor, linear, s, te

FOLDER = Path(__file__).parent


def rows() -> pd.DataFrame:
    """Where predictions are compared; text, numbers and a time, as new data have them."""
    x = np.linspace(0.05, 0.95, 7)
    frame = pd.DataFrame({"x": x, "z": np.cos(9.0 * x), "w": 1e6 * x**2})
    frame["site"] = ["a", "b", "ä"] * 2 + ["a"]
    frame["log_n"] = 0.1 * x
    return frame


def answers(gam: gg.GAM) -> dict[str, Any]:
    """Numbers that every later version has to give."""
    at = rows()
    # how hyperparameters are averaged over is not the file's
    curve = gam.effects("s(x)", num_points=5, unconditional=False)
    return {
        "predict": gam.predict(at).tolist(),
        "interval": gam.predict(at, interval=0.9, unconditional=False).to_numpy().tolist(),
        "terms": gam.predict(at, "terms").to_numpy().tolist(),
        "effects": curve[["estimate", "se"]].to_numpy().tolist(),
        "names": list(gam.names),
    }


def fitted() -> gg.GAM:
    """Counts with an offset on every kind of term."""
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"x": rng.uniform(size=60), "z": rng.uniform(-1.0, 1.0, 60)})
    data["w"] = 1e6 * rng.uniform(size=60)
    data["site"] = rng.choice(["a", "b", "ä"], 60)
    data["log_n"] = rng.normal(size=60)
    rate = np.exp(1.0 + np.sin(5.0 * data["x"]) + 0.5 * data["z"] + data["log_n"])
    data["count"] = rng.poisson(rate)
    terms = s("x", k=6) + te("x", "z", k=8) + linear("w") + factor("site")
    gam = gg.GAM(terms, family="negative_binomial", offset="log_n", seed=3)
    return gam.fit(data, y="count", progress=False)


if __name__ == "__main__":
    made = fitted()
    name = FOLDER / f"gam-{gg.__version__}"
    made.save(name.with_name(f"{name.name}.gam"), overwrite=True)
    text = json.dumps(answers(made), indent=1, ensure_ascii=False)
    name.with_name(f"{name.name}.json").write_text(f"{text}\n", encoding="utf-8")
