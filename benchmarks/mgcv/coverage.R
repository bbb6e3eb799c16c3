# y ~ s(x0) + s(x1) + s(x2) + s(x3). Options: family, k of every smooth, number of grid points.
#
# Each centred effect at the data, with its pointwise band, and on a grid, with its simultaneous band:
# of the 95 % quantile of the largest |standardised deviation| over draws from the coefficients'
# posterior. "mgcv unc." allows for smoothing parameters being estimated (unconditional = TRUE). The
# effect called "predictor" is the linear predictor at the data.

set.seed(1)

answers <- function(rows, family, k, points) {
  k <- as.integer(k)
  seconds <- system.time(
    fit <- gam(y ~ s(x0, k = k) + s(x1, k = k) + s(x2, k = k) + s(x3, k = k),
      family = family, data = rows, method = "REML"
    )
  )[["elapsed"]]
  grid <- as.data.frame(lapply(rows[paste0("x", 0:3)], function(x) {
    seq(min(x), max(x), length = as.integer(points))
  }))
  covariances <- list("mgcv" = vcov(fit), "mgcv unc." = vcov(fit, unconditional = TRUE))
  bands <- list()
  band <- function(effect, kind, method, X, at) {
    V <- covariances[[method]][at, at]
    estimate <- drop(X[, at] %*% coef(fit)[at])
    se <- standard_errors(X[, at], V)
    half <- qnorm(0.975)
    if (kind == "grid") {
      deviations <- X[, at] %*% t(rmvn(5000, rep(0, length(at)), V)) / se
      half <- quantile(apply(abs(deviations), 2, max), 0.95, names = FALSE)
    }
    bands[[length(bands) + 1]] <<- data.frame(
      method = method, effect = paste(effect, kind, sep = ", "), place = seq_along(estimate) - 1,
      estimate = estimate, lower = estimate - half * se, upper = estimate + half * se,
      seconds = seconds
    )
  }
  matrices <- list(data = predict(fit, type = "lpmatrix"), grid = predict(fit, grid, type = "lpmatrix"))
  for (kind in names(matrices)) for (smooth in fit$smooth) for (method in names(covariances)) {
    band(smooth$label, kind, method, matrices[[kind]], smooth$first.para:smooth$last.para)
  }
  for (method in names(covariances)) {
    band("predictor", "data", method, matrices$data, seq_along(coef(fit)))
  }
  do.call(rbind, bands)
}
