# y ~ s(t), its smoothness by REML and by NCV. Options: k, how far neighbourhoods reach to either
# side. "bam rho" takes the correlation that REML likes best. "mgcv NCV jackknife" has the covariance of its jackknife.

answers <- function(rows, k, reach) {
  k <- as.integer(k)
  reach <- as.integer(reach)
  n <- nrow(rows)
  neighbours <- function(jackknife) {
    near <- lapply(seq_len(n), function(i) max(1, i - reach):min(n, i + reach))
    list(k = unlist(near), m = cumsum(lengths(near)), i = 1:n, mi = 1:n, jackknife = jackknife)
  }
  with_rho <- function() {
    fits <- lapply(seq(0, 0.95, 0.05), function(rho) bam(y ~ s(t, k = k), data = rows, rho = rho))
    fits[[which.min(vapply(fits, function(fit) fit$gcv.ubre, 0))]]
  }
  fits <- list(
    "bam rho" = with_rho,
    "mgcv REML" = function() gam(y ~ s(t, k = k), data = rows, method = "REML"),
    "mgcv NCV" = function() {
      gam(y ~ s(t, k = k), data = rows, method = "NCV", nei = neighbours(FALSE))
    },
    "mgcv NCV jackknife" = function() {
      gam(y ~ s(t, k = k), data = rows, method = "NCV", nei = neighbours(TRUE))
    }
  )
  do.call(rbind, lapply(names(fits), function(method) {
    seconds <- system.time(fit <- fits[[method]]())[["elapsed"]]
    estimates <- predict(fit, se.fit = TRUE)
    data.frame(
      method = method, effect = "f", place = seq_len(n) - 1, estimate = estimates$fit,
      se = estimates$se.fit, edf = sum(fit$edf), seconds = seconds
    )
  }))
}
