"""
Figures 1 to 7 of Tatzel et al. (2025), by our solvers: ``figures.py 3 --out FOLDER`` makes one.

1: what recycling keeps; 2: Newton steps are GP regressions; 3: policies; 4: compressed beliefs;
5: counts, many short steps or few long ones; 6: ten classes against time, of 10 000 rows; 7: the
same of scikit-learn's digits in the place of MNIST (minutes each). Numbers that the docs name are
printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import large
import small

PARTS = {
    1: small.recycling,
    2: small.regressions,
    3: small.policies,
    4: small.compression,
    5: small.counts,
    6: large.gaussian_mixture,
    7: large.images,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("figures", type=int, nargs="*", help="1 to 7; all by default")
    parser.add_argument("--out", type=Path, required=True, help="folder of the figures")
    arguments = parser.parse_args()
    if not set(arguments.figures) <= set(PARTS):
        parser.error(f"figures are 1 to 7; got {arguments.figures}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number in arguments.figures or PARTS:
        print(f"figure {number}", flush=True)
        PARTS[number](arguments.out / f"figure{number}.png")


if __name__ == "__main__":
    main()
