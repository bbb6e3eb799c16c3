# y ~ s(x) + s(t), its rows independent, and with a correlation of neighbours: that of Pearson
# residuals of the first.

answers <- function(rows) {
  family <- if (rows$family[1] == "poisson") poisson() else binomial()
  grid <- data.frame(x = seq(0.05, 0.95, length = 40), t = median(rows$t))
  fitted <- function(rho) {
    bam(y ~ s(x, k = 20) + s(t, k = 20), data = rows, family = family, discrete = TRUE, rho = rho)
  }
  alone <- fitted(0)
  rho <- acf(residuals(alone, "pearson"), plot = FALSE)$acf[2]
  methods <- c("bam" = 0, "bam rho" = max(0, min(0.95, rho)))
  do.call(rbind, lapply(names(methods), function(method) {
    seconds <- system.time(fit <- fitted(methods[[method]]))[["elapsed"]]
    told <- predict(fit, grid, type = "terms", se.fit = TRUE)
    estimate <- told$fit[, "s(x)"]
    data.frame(
      method = method, effect = "f", place = seq_len(nrow(grid)) - 1,
      estimate = estimate - mean(estimate), se = told$se.fit[, "s(x)"], edf = sum(fit$edf),
      seconds = seconds
    )
  }))
}
