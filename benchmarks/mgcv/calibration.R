# y ~ s(curve) + s(line) + s(absent) + g. Options: family, number of grid points. Estimates, with
# standard errors that allow for smoothing parameters being estimated.

answers <- function(rows, family, points) {
  rows$g <- factor(rows$g)
  seconds <- system.time(
    fit <- gam(y ~ s(curve) + s(line) + s(absent) + g,
      family = eval(parse(text = family)), data = rows, method = "REML"
    )
  )[["user.self"]]
  V <- vcov(fit, unconditional = TRUE)
  at <- seq(0.03, 0.97, length = as.integer(points))
  X <- predict(fit, data.frame(curve = at, line = at, absent = at, g = rows$g[1]), type = "lpmatrix")
  parts <- lapply(fit$smooth, function(smooth) {
    its <- smooth$first.para:smooth$last.para
    data.frame(
      quantity = smooth$term, estimate = drop(X[, its] %*% coef(fit)[its]),
      se = standard_errors(X[, its], V[its, its])
    )
  })
  levels <- c("gb", "gc")
  parts[[4]] <- data.frame(
    quantity = "levels", estimate = coef(fit)[levels], se = sqrt(diag(V)[names(coef(fit)) %in% levels])
  )
  X <- predict(fit, type = "lpmatrix")
  parts[[5]] <- data.frame(
    quantity = "predictor", estimate = drop(X %*% coef(fit)), se = standard_errors(X, V)
  )
  cbind(seconds = seconds, do.call(rbind, parts))
}
