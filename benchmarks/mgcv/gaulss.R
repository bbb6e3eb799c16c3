# Location and scale of the response by smooths, fitted by mgcv's gaulss. Arguments: data.csv with
# columns x, y and fold, k of both smooths, grid.csv with x, scores.csv, curves.csv.
#
# scores.csv gets the log density of each row, left out with its fold, at the estimate and averaged
# over 1000 draws of the coefficients; curves.csv mean and standard deviation at the grid.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
data <- read.csv(arguments[1])
k <- as.integer(strsplit(arguments[2], ",")[[1]])
model <- list(y ~ s(x, k = k[1]), ~ s(x, k = k[2]))
moments <- function(fit, new) {
  found <- predict(fit, new, type = "response")
  cbind(found[, 1], 1 / found[, 2])
}
averaged <- function(fit, new) {
  L <- predict(fit, new, type = "lpmatrix")
  at <- attr(L, "lpi")
  draws <- rmvn(1000, coef(fit), vcov(fit, unconditional = TRUE))
  mean <- L[, at[[1]]] %*% t(draws[, at[[1]]])
  sd <- exp(L[, at[[2]]] %*% t(draws[, at[[2]]])) + 0.01
  logs <- dnorm(new$y, mean, sd, log = TRUE)
  top <- apply(logs, 1, max)
  top + log(rowMeans(exp(logs - top)))
}
set.seed(1)
scores <- matrix(NA, nrow(data), 2)
for (fold in unique(data$fold)) {
  out <- data$fold == fold
  fit <- gam(model, family = gaulss(), data = data[!out, ], method = "REML")
  m <- moments(fit, data[out, ])
  scores[out, 1] <- dnorm(data$y[out], m[, 1], m[, 2], log = TRUE)
  scores[out, 2] <- averaged(fit, data[out, ])
}
write.csv(data.frame(plain = scores[, 1], averaged = scores[, 2]), arguments[4], row.names = FALSE)
grid <- read.csv(arguments[3])
fit <- gam(model, family = gaulss(), data = data, method = "REML")
m <- moments(fit, grid)
write.csv(data.frame(mean = m[, 1], sd = m[, 2]), arguments[5], row.names = FALSE)
