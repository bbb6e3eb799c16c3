# mgcv's simulated examples (gamSim) with the true predictor f, and mgcv's fits to them. Options:
# number of data sets, rows.

four <- y ~ s(x0) + s(x1) + s(x2) + s(x3)
factor_truth <- function(d) {
  2 * as.numeric(d$x0) + exp(2 * d$x1) +
    .2 * d$x2^11 * (10 * (1 - d$x2))^6 + 10 * (10 * d$x2)^3 * (1 - d$x2)^10
}
examples <- list(
  "1 additive" = list(four, gaussian(), function(n) gamSim(1, n, scale = 2, verbose = FALSE)),
  "1 additive, counts" = list(
    four, poisson(), function(n) gamSim(1, n, dist = "poisson", scale = .2, verbose = FALSE)
  ),
  "1 additive, binary" = list(
    four, binomial(), function(n) gamSim(1, n, dist = "binary", scale = .33, verbose = FALSE)
  ),
  "2 surface" = list(
    y ~ s(x, z), gaussian(), function(n) gamSim(2, n, scale = .1, verbose = FALSE)$data
  ),
  "3 by a number" = list(
    y ~ s(x2, by = x1), gaussian(),
    function(n) transform(gamSim(3, n, scale = 2, verbose = FALSE), f = f * x1)
  ),
  "4 by a factor" = list(
    y ~ fac + s(x2, by = fac) + s(x0), gaussian(),
    function(n) {
      d <- gamSim(4, n, scale = 2, verbose = FALSE)
      d$f <- as.matrix(d[, c("f1", "f2", "f3")])[cbind(seq_len(n), as.integer(d$fac))]
      d
    }
  ),
  "5 with a factor" = list(
    y ~ factor(x0) + s(x1) + s(x2) + s(x3), gaussian(),
    function(n) {
      d <- gamSim(5, n, scale = 2, verbose = FALSE)
      d$f <- factor_truth(d)
      transform(d, x0 = as.numeric(as.character(x0)))
    }
  ),
  "6 with a random effect" = list(
    y ~ s(fac, bs = "re") + s(x0) + s(x1) + s(x2) + s(x3), gaussian(),
    function(n) {
      utils::capture.output(d <- gamSim(6, n, scale = 2, verbose = FALSE))
      d
    }
  ),
  "7 correlated columns" = list(
    four, gaussian(), function(n) gamSim(7, n, scale = 2, verbose = FALSE)
  )
)
columns <- c("x", "z", paste0("x", 0:3), "fac", "y", "f")

own_data <- function(number, n) {
  set.seed(20)
  do.call(rbind, lapply(names(examples), function(name) {
    do.call(rbind, lapply(seq_len(as.integer(number)), function(i) {
      d <- examples[[name]][[3]](as.integer(n))
      d[setdiff(columns, names(d))] <- NA
      d$fac <- as.character(d$fac)
      cbind(d[columns], example = name, replicate = paste(name, i))
    }))
  }))
}

answers <- function(rows, ...) {
  example <- examples[[rows$example[1]]]
  rows$fac <- factor(rows$fac)
  seconds <- system.time(
    fit <- gam(example[[1]], family = example[[2]], data = rows, method = "REML")
  )[["elapsed"]]
  terms <- predict(fit, rows, se.fit = TRUE, unconditional = TRUE)
  data.frame(
    method = "mgcv", effect = "predictor", place = seq_len(nrow(rows)) - 1,
    estimate = as.numeric(terms$fit), se = as.numeric(terms$se.fit), edf = sum(fit$edf),
    seconds = seconds
  )
}
