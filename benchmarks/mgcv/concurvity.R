# Fits y ~ s(each column) with mgcv to every replicate in data.csv, by REML and with select=TRUE.
# Arguments: family, number of grid points, data.csv, found.csv.
#
# found.csv gets of every replicate and method each curve on an even grid, centred over it, its
# differences between neighbouring quarters of the grid, and the linear predictor at the data, with
# standard errors that allow for estimated smoothing parameters (unconditional = TRUE).

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
family <- switch(arguments[1], gamma = Gamma(link = "log"), arguments[1])
points <- as.integer(arguments[2])
data <- read.csv(arguments[3])
columns <- grep("^x[0-9]+$", names(data), value = TRUE)
formula <- reformulate(sprintf("s(%s)", columns), "y")
size <- function(X, covariance) sqrt(pmax(rowSums((X %*% covariance) * X), 0))
quarters <- 1 + round((points - 1) * c(0.1, 0.3, 0.5, 0.7, 0.9))

found <- lapply(split(data, data$replicate), function(rows) {
  do.call(rbind, lapply(c(FALSE, TRUE), function(select) {
    seconds <- system.time(
      fit <- gam(formula, family = family, data = rows, method = "REML", select = select)
    )[["elapsed"]]
    known <- vcov(fit, unconditional = TRUE)
    grid <- as.data.frame(lapply(rows[columns], function(x) seq(min(x), max(x), length = points)))
    X <- predict(fit, grid, type = "lpmatrix")
    parts <- lapply(seq_along(columns), function(j) {
      own <- fit$smooth[[j]]$first.para:fit$smooth[[j]]$last.para
      curve <- scale(X[, own], scale = FALSE)
      steps <- curve[quarters[-1], ] - curve[quarters[-length(quarters)], ]
      all <- rbind(curve, steps)
      data.frame(
        effect = columns[j], what = rep(c("curve", "difference"), c(points, nrow(steps))),
        place = c(seq_len(points), seq_len(nrow(steps))) - 1,
        estimate = drop(all %*% coef(fit)[own]), se = size(all, known[own, own])
      )
    })
    whole <- predict(fit, type = "lpmatrix")
    parts[[length(parts) + 1]] <- data.frame(
      effect = "predictor", what = "predictor", place = seq_len(nrow(rows)) - 1,
      estimate = drop(whole %*% coef(fit)), se = size(whole, known)
    )
    cbind(do.call(rbind, parts),
      replicate = rows$replicate[1], seconds = seconds,
      method = if (select) "mgcv select" else "mgcv REML"
    )
  }))
})
write.csv(do.call(rbind, found), arguments[4], row.names = FALSE)
