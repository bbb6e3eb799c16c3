"""GAMs as scikit-learn's estimators: for pipelines, cross-validation and grids."""

from .classifier import GAMClassifier
from .regressor import GAMRegressor

__all__ = ["GAMClassifier", "GAMRegressor"]
