# Fits y ~ s(x0) + s(x1) + s(x2) + s(x3) with mgcv to every replicate in data.csv.
# Arguments: family, k of every smooth, number of grid points, data.csv, bands.csv.
#
# bands.csv gets, for every replicate and effect, the centred estimate and its standard errors at
# the data and on a grid, and the critical value of the simultaneous band there: the 95 % quantile
# of the largest |standardised deviation| over draws from the coefficients' posterior. Columns that
# end in _u allow for smoothing parameters being estimated (unconditional = TRUE). The effect
# called "predictor" is the whole linear predictor at the data.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
k <- as.integer(arguments[2])
points <- as.integer(arguments[3])
data <- read.csv(arguments[4])
draws <- 5000
columns <- paste0("x", 0:3)
set.seed(1)

size <- function(X, covariance) sqrt(pmax(rowSums((X %*% covariance) * X), 1e-20))

critical <- function(X, covariance) {
  deviations <- X %*% t(rmvn(draws, rep(0, ncol(X)), covariance)) / size(X, covariance)
  quantile(apply(abs(deviations), 2, max), 0.95, names = FALSE)
}

bands <- lapply(split(data, data$replicate), function(rows) {
  seconds <- system.time(
    fit <- gam(y ~ s(x0, k = k) + s(x1, k = k) + s(x2, k = k) + s(x3, k = k),
      family = arguments[1], data = rows, method = "REML"
    )
  )[["elapsed"]]
  grid <- as.data.frame(lapply(rows[columns], function(x) seq(min(x), max(x), length = points)))
  plain <- vcov(fit)
  corrected <- vcov(fit, unconditional = TRUE)
  found <- list()
  at <- list(data = rows, grid = grid)
  for (kind in names(at)) {
    new <- at[[kind]]
    X <- predict(fit, new, type = "lpmatrix")
    for (smooth in fit$smooth) {
      own <- smooth$first.para:smooth$last.para
      part <- X[, own]
      a <- plain[own, own]
      b <- corrected[own, own]
      whole <- kind == "grid" # the simultaneous band is judged there alone
      found[[length(found) + 1]] <- data.frame(
        replicate = rows$replicate[1], effect = smooth$label, kind = kind, x = new[[smooth$term]],
        estimate = drop(part %*% coef(fit)[own]), se = size(part, a), se_u = size(part, b),
        critical = if (whole) critical(part, a) else NA,
        critical_u = if (whole) critical(part, b) else NA, seconds = seconds
      )
    }
    if (kind == "data") {
      found[[length(found) + 1]] <- data.frame(
        replicate = rows$replicate[1], effect = "predictor", kind = kind, x = seq_len(nrow(rows)),
        estimate = drop(X %*% coef(fit)), se = size(X, plain), se_u = size(X, corrected),
        critical = NA, critical_u = NA, seconds = seconds
      )
    }
  }
  do.call(rbind, found)
})
write.csv(do.call(rbind, bands), arguments[5], row.names = FALSE)
