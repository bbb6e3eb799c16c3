# Fits y ~ s(curve) + s(line) + s(absent) + g with mgcv to every replicate in rows.csv.
# Arguments: family, number of grid points, rows.csv, out.csv.
# out.csv gets, for every replicate and quantity, estimates and standard errors that allow for
# smoothing parameters being estimated.

suppressMessages(library(mgcv))
arguments <- commandArgs(trailingOnly = TRUE)
points <- as.integer(arguments[2])
data <- read.csv(arguments[3])
data$g <- factor(data$g)
size <- function(X, V) sqrt(pmax(rowSums((X %*% V) * X), 1e-20))

found <- lapply(split(data, data$replicate), function(rows) {
  seconds <- system.time(
    fit <- gam(y ~ s(curve) + s(line) + s(absent) + g,
      family = eval(parse(text = arguments[1])), data = rows, method = "REML"
    )
  )[["user.self"]]
  V <- vcov(fit, unconditional = TRUE)
  at <- seq(0.03, 0.97, length = points)
  new <- data.frame(curve = at, line = at, absent = at, g = rows$g[1])
  X <- predict(fit, new, type = "lpmatrix")
  one <- lapply(fit$smooth, function(smooth) {
    own <- smooth$first.para:smooth$last.para
    data.frame(
      quantity = smooth$term, estimate = drop(X[, own] %*% coef(fit)[own]),
      se = size(X[, own], V[own, own])
    )
  })
  levels <- c("gb", "gc")
  one[[4]] <- data.frame(
    quantity = "levels", estimate = coef(fit)[levels], se = sqrt(diag(V)[names(coef(fit)) %in% levels])
  )
  X <- predict(fit, type = "lpmatrix")
  one[[5]] <- data.frame(quantity = "predictor", estimate = drop(X %*% coef(fit)), se = size(X, V))
  cbind(replicate = rows$replicate[1], seconds = seconds, do.call(rbind, one))
})
write.csv(do.call(rbind, found), arguments[4], row.names = FALSE)
