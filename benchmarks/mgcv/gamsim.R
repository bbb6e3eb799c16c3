# mgcv's simulated examples (gamSim), and mgcv's fits to them.
# Arguments: number of data sets, rows, folder. Writes NAME.csv (data, with the true predictor f)
# and found.csv (estimates of the predictor).

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
number <- as.integer(arguments[1])
n <- as.integer(arguments[2])
folder <- arguments[3]

four <- y ~ s(x0) + s(x1) + s(x2) + s(x3)
factor_truth <- function(d) {
  2 * as.numeric(d$x0) + exp(2 * d$x1) +
    .2 * d$x2^11 * (10 * (1 - d$x2))^6 + 10 * (10 * d$x2)^3 * (1 - d$x2)^10
}
examples <- list(
  "1 additive" = list(four, gaussian(), function() gamSim(1, n, scale = 2, verbose = FALSE)),
  "1 additive, counts" = list(
    four, poisson(), function() gamSim(1, n, dist = "poisson", scale = .2, verbose = FALSE)
  ),
  "1 additive, binary" = list(
    four, binomial(), function() gamSim(1, n, dist = "binary", scale = .33, verbose = FALSE)
  ),
  "2 surface" = list(
    y ~ s(x, z), gaussian(), function() gamSim(2, n, scale = .1, verbose = FALSE)$data
  ),
  "3 by a number" = list(
    y ~ s(x2, by = x1), gaussian(),
    function() transform(gamSim(3, n, scale = 2, verbose = FALSE), f = f * x1)
  ),
  "4 by a factor" = list(
    y ~ fac + s(x2, by = fac) + s(x0), gaussian(),
    function() {
      d <- gamSim(4, n, scale = 2, verbose = FALSE)
      d$f <- as.matrix(d[, c("f1", "f2", "f3")])[cbind(seq_len(n), as.integer(d$fac))]
      d
    }
  ),
  "5 with a factor" = list(
    y ~ x0 + s(x1) + s(x2) + s(x3), gaussian(),
    function() {
      d <- gamSim(5, n, scale = 2, verbose = FALSE)
      transform(d, x0 = factor(x0), f = factor_truth(d))
    }
  ),
  "6 with a random effect" = list(
    y ~ s(fac, bs = "re") + s(x0) + s(x1) + s(x2) + s(x3), gaussian(),
    function() {
      utils::capture.output(d <- gamSim(6, n, scale = 2, verbose = FALSE))
      d
    }
  ),
  "7 correlated columns" = list(
    four, gaussian(), function() gamSim(7, n, scale = 2, verbose = FALSE)
  )
)

set.seed(20)
found <- list()
for (name in names(examples)) {
  example <- examples[[name]]
  made <- lapply(seq_len(number), function(i) cbind(example[[3]](), replicate = i - 1))
  write.csv(do.call(rbind, made), file.path(folder, paste0(name, ".csv")), row.names = FALSE)
  for (d in made) {
    seconds <- system.time(
      fit <- gam(example[[1]], family = example[[2]], data = d, method = "REML")
    )[["elapsed"]]
    terms <- predict(fit, d, se.fit = TRUE, unconditional = TRUE)
    found[[length(found) + 1]] <- data.frame(
      example = name, replicate = d$replicate, row = seq_len(nrow(d)) - 1,
      estimate = as.numeric(terms$fit), se = as.numeric(terms$se.fit),
      edf = sum(fit$edf), seconds = seconds
    )
  }
}
write.csv(do.call(rbind, found), file.path(folder, "found.csv"), row.names = FALSE)
