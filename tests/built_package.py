"""
What ``tox -e package`` does with a wheel and an sdist: look into them, install the wheel, use it.

``python tests/built_package.py FOLDER``, of an environment that has nothing of the package yet.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ("gpflow_gam/py.typed", "gpflow_gam/datasets/bikeshare.csv.gz")
USE = """
import pathlib, sys
import numpy as np
import gpflow_gam as gg

assert not pathlib.Path(gg.__file__).is_relative_to(sys.argv[1]), gg.__file__
assert (pathlib.Path(gg.__file__).parent / "py.typed").exists()
assert len(gg.datasets.bikeshare()["hr"]) == 8645
x = np.linspace(0.0, 1.0, 80)
y = np.sin(6.0 * x) + 0.1 * np.cos(37.0 * np.arange(80))
gam = gg.GAM(gg.s("x", k=8)).fit({"x": x, "y": y}, y="y", progress=False)
assert np.std(gam.predict({"x": x}) - np.sin(6.0 * x)) < 0.1
gam.save("a.gam")
np.testing.assert_array_equal(gg.GAM.load("a.gam").predict({"x": x}), gam.predict({"x": x}))
print("gpflow_gam", gg.__version__, "of", pathlib.Path(gg.__file__).parent)
"""


def names(path: Path) -> set[str]:
    """Files of a wheel, or of an sdist without its outer folder."""
    if path.suffix == ".whl":
        return set(zipfile.ZipFile(path).namelist())
    with tarfile.open(path) as archive:
        return {n.partition("/")[2] for n in archive.getnames() if "/" in n}


def check(path: Path) -> None:
    """
    :raises SystemExit: something is missing, or there that should not be.
    """
    result = names(path)
    wanted = {str(f.relative_to(ROOT)) for f in (ROOT / "gpflow_gam").rglob("*.py")} | set(DATA)
    if path.suffix != ".whl":
        wanted |= {"LICENSE", "README.md", "pyproject.toml", "setup.py"}
    elif not any(name.endswith("LICENSE") for name in result):
        sys.exit(f"{path.name} lacks the LICENSE")
    if wanted - result:
        sys.exit(f"{path.name} lacks {', '.join(sorted(wanted - result))}")
    tops = {name.split("/")[0] for name in result}
    if path.suffix == ".whl" and any(t != "gpflow_gam" and ".dist-info" not in t for t in tops):
        sys.exit(f"{path.name} installs {', '.join(sorted(tops))}")
    print(f"{path.name}: {len(result)} files, {path.stat().st_size // 1024} KiB")


def main(folder: Path) -> None:
    """
    :param folder: that a wheel and an sdist were built into.
    :raises SystemExit: not one of each, or one that is not whole.
    """
    built = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    if [p.suffix for p in built] != [".whl", ".gz"]:
        sys.exit(f"{folder} holds {[p.name for p in built]}, not one wheel and one sdist")
    for path in built:
        check(path)
    own = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "-m", "pip", "install", str(built[0])], check=True, env=own)
    with tempfile.TemporaryDirectory() as elsewhere:
        use = [sys.executable, "-I", "-c", USE, str(ROOT / "gpflow_gam")]
        subprocess.run(use, check=True, cwd=elsewhere, env=own)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
