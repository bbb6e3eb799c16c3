# Fits y ~ s(t) with mgcv to every replicate in data.csv, its smoothness by REML and by NCV.
# Arguments: k, how far neighbourhoods reach to either side, data.csv, bands.csv.
#
# bands.csv gets for every replicate and method the estimate and its standard error at the data, the
# effective degrees of freedom, and seconds. "NCV jackknife" has the covariance of its jackknife.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
k <- as.integer(arguments[1])
reach <- as.integer(arguments[2])
data <- read.csv(arguments[3])

neighbours <- function(n, jackknife) {
  near <- lapply(seq_len(n), function(i) max(1, i - reach):min(n, i + reach))
  list(k = unlist(near), m = cumsum(lengths(near)), i = 1:n, mi = 1:n, jackknife = jackknife)
}

bands <- lapply(split(data, data$replicate), function(rows) {
  n <- nrow(rows)
  fits <- list(
    "mgcv REML" = function() gam(y ~ s(t, k = k), data = rows, method = "REML"),
    "mgcv NCV" = function() {
      gam(y ~ s(t, k = k), data = rows, method = "NCV", nei = neighbours(n, FALSE))
    },
    "mgcv NCV jackknife" = function() {
      gam(y ~ s(t, k = k), data = rows, method = "NCV", nei = neighbours(n, TRUE))
    }
  )
  do.call(rbind, lapply(names(fits), function(method) {
    seconds <- system.time(fit <- fits[[method]]())[["elapsed"]]
    found <- predict(fit, se.fit = TRUE)
    data.frame(
      replicate = rows$replicate[1], method = method, row = seq_len(n), estimate = found$fit,
      se = found$se.fit, edf = sum(fit$edf), seconds = seconds
    )
  }))
})
write.csv(do.call(rbind, bands), arguments[4], row.names = FALSE)
