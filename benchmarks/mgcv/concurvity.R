# y ~ s(each column) by REML and with select=TRUE. Options: family, number of grid points.
# Each curve on an even grid, centred over it, its differences between neighbouring quarters of the
# grid, and the linear predictor at the data, with standard errors that allow for estimated
# smoothing parameters.

answers <- function(rows, family, points) {
  points <- as.integer(points)
  columns <- grep("^x[0-9]+$", names(rows), value = TRUE)
  formula <- reformulate(sprintf("s(%s)", columns), "y")
  if (family == "gamma") family <- Gamma(link = "log")
  quarters <- 1 + round((points - 1) * c(0.1, 0.3, 0.5, 0.7, 0.9))
  do.call(rbind, lapply(c(FALSE, TRUE), function(select) {
    seconds <- system.time(
      fit <- gam(formula, family = family, data = rows, method = "REML", select = select)
    )[["elapsed"]]
    V <- vcov(fit, unconditional = TRUE)
    grid <- as.data.frame(lapply(rows[columns], function(x) seq(min(x), max(x), length = points)))
    X <- predict(fit, grid, type = "lpmatrix")
    parts <- lapply(seq_along(columns), function(j) {
      at <- fit$smooth[[j]]$first.para:fit$smooth[[j]]$last.para
      curve <- scale(X[, at], scale = FALSE)
      steps <- curve[quarters[-1], ] - curve[quarters[-length(quarters)], ]
      all <- rbind(curve, steps)
      what <- rep(c("curve", "difference"), c(points, nrow(steps)))
      data.frame(
        effect = paste(what, columns[j]), what = what,
        place = c(seq_len(points), seq_len(nrow(steps))) - 1,
        estimate = drop(all %*% coef(fit)[at]), se = standard_errors(all, V[at, at])
      )
    })
    whole <- predict(fit, type = "lpmatrix")
    parts[[length(parts) + 1]] <- data.frame(
      effect = "predictor", what = "predictor", place = seq_len(nrow(rows)) - 1,
      estimate = drop(whole %*% coef(fit)), se = standard_errors(whole, V)
    )
    cbind(do.call(rbind, parts),
      seconds = seconds, method = if (select) "mgcv select" else "mgcv REML"
    )
  }))
}
