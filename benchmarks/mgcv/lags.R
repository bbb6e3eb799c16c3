# A distributed lag non-linear model, y ~ sum over lags of f(x, lag) + s(time). Options: the last lag,
# values of x at which the cumulative effect is asked for against that at a reference, the
# reference, the family, k of the smooth of time (0 for none).
#
# "mgcv" is te() of matrix arguments, by REML; "cross-basis" is natural splines as dlnm's users take
# them (Gasparrini 2011): 4 degrees of freedom of the value, 4 of the lag with knots on log steps,
# and an unpenalised natural spline of time with k / 4 degrees of freedom.

library(splines)

answers <- function(rows, last, values, reference, family, k) {
  last <- as.integer(last)
  k <- as.integer(k)
  values <- as.numeric(strsplit(values, ",")[[1]])
  reference <- as.numeric(reference)
  n <- nrow(rows)
  lagged <- sapply(0:last, function(l) c(rep(NA, l), rows$x[seq_len(n - l)]))
  good <- complete.cases(lagged) & !is.na(rows$y)
  data <- list(y = rows$y[good], time = rows$time[good], V = lagged[good, ],
               L = matrix(0:last, sum(good), last + 1, byrow = TRUE))
  family <- if (family == "poisson") quasipoisson() else gaussian()
  trend <- if (k > 0) sprintf(" + s(time, k = %d)", k) else ""
  seconds <- system.time(
    fit <- gam(as.formula(paste("y ~ te(V, L, k = c(8, 6))", trend)), family = family, data = data,
               method = "REML")
  )[["elapsed"]]
  at <- function(v) predict(fit, list(V = matrix(v, 1, last + 1), L = matrix(0:last, 1), time = 0),
                            type = "lpmatrix")
  banded <- function(method, X, b, V, seconds) {
    f <- drop(X %*% b)
    half <- qnorm(.975) * standard_errors(X, V)
    data.frame(method = method, effect = "cumulative", place = seq_along(f) - 1, estimate = f,
               lower = f - half, upper = f + half, seconds = seconds)
  }
  X <- t(sapply(values, function(v) at(v) - at(reference)))
  result <- banded("mgcv", X, coef(fit), vcov(fit, unconditional = TRUE), seconds)
  knots <- quantile(rows$x, c(.1, .5, .9), na.rm = TRUE)
  ends <- range(rows$x, na.rm = TRUE)
  of_value <- function(x) ns(x, knots = knots, Boundary.knots = ends)
  of_lag <- cbind(1, ns(0:last, knots = exp(log(1 + last) * 1:2 / 3) - 1))
  crossed <- function(M) {
    each <- lapply(0:last, function(l) of_value(M[, l + 1]))
    do.call(cbind, lapply(seq_len(ncol(of_lag)), function(j) {
      Reduce(`+`, lapply(0:last, function(l) each[[l + 1]] * of_lag[l + 1, j]))
    }))
  }
  C <- crossed(data$V)
  trend <- if (k > 0) sprintf(" + ns(time, df = %d)", k %/% 4) else ""
  seconds <- system.time(
    linear <- glm(as.formula(paste("y ~ C", trend)), family = family, data = c(data, list(C = C)))
  )[["elapsed"]]
  own <- seq_len(ncol(C)) + 1
  X <- t(sapply(values, function(v) crossed(matrix(v, 1, last + 1)) -
                                    crossed(matrix(reference, 1, last + 1))))
  rbind(result, banded("cross-basis", X, coef(linear)[own], vcov(linear)[own, own], seconds))
}
