# scam with a shape. Options: family, shape, ends and number of an even grid for the effect of x.

suppressMessages(library(scam))

answers <- function(rows, family, shape, first, last, points) {
  family <- switch(family, gaussian = gaussian(), poisson = poisson(), bernoulli = binomial())
  bs <- if (shape == "increasing") "mpi" else "cx"
  grid <- data.frame(x = seq(as.numeric(first), as.numeric(last), length = as.integer(points)), z = 0)
  start <- proc.time()[3]
  fit <- scam(as.formula(sprintf("y ~ s(x, bs = '%s', k = 20) + s(z)", bs)), family = family,
              data = rows)
  seconds <- proc.time()[3] - start
  p <- predict(fit, grid, type = "terms", se.fit = TRUE)
  f <- p$fit[, 1] - mean(predict(fit, rows, type = "terms")[, 1])
  half <- qnorm(.975) * p$se.fit[, 1]
  data.frame(method = "scam", effect = "s(x)", place = seq_along(f) - 1, estimate = f,
             lower = f - half, upper = f + half, seconds = seconds)
}
