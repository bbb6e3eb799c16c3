# Effects of x under a kind of response, by the package of R that has it. Options: the response, the
# package. Smooths are mgcv's, by REML; where a package has none it is given natural splines of six
# columns.

suppressMessages(library(splines))

band <- function(effect, estimate, se, edf) {
  data.frame(
    effect = effect, place = seq_along(estimate) - 1, estimate = as.numeric(estimate),
    se = as.numeric(se), edf = edf
  )
}

# effects of mgcv's smooths, in the order of the names they get
smooths <- function(fit, rows, effects) {
  terms <- predict(fit, rows, type = "terms", se.fit = TRUE)
  do.call(rbind, lapply(seq_along(effects), function(i) {
    smooth <- fit$smooth[[i]]
    at <- smooth$first.para:smooth$last.para
    band(effects[i], terms$fit[, smooth$label], terms$se.fit[, smooth$label], sum(fit$edf[at]))
  }))
}

by_reml <- function(rows, family, formula = y ~ s(x)) {
  smooths(gam(formula, family = family, data = rows, method = "REML"), rows, "mean")
}

# effects of splines: their coefficients are those of which the name has ns( in it, after a prefix
spline <- function(effect, b, V, rows, prefix = "", sign = 1) {
  B <- scale(ns(rows$x, 6), scale = FALSE)
  at <- which(startsWith(names(b), paste0(prefix, "ns(")))
  band(effect, sign * B %*% b[at], sqrt(rowSums((B %*% V[at, at]) * B)), length(at))
}

zeros <- function(rows, model, dist, sign) {
  fit <- model(y ~ ns(x, 6) | ns(x, 6), data = rows, dist = dist)
  rbind(spline("mean", coef(fit), vcov(fit), rows, "count_"),
        spline("zero", coef(fit), vcov(fit), rows, "zero_", sign))
}

times <- function(rows, response, dist) {
  fit <- survival::survreg(update(response, . ~ ns(x, 6)), data = rows, dist = dist)
  spline("mean", coef(fit), vcov(fit), rows)
}

normal <- function(rows, effects) {
  model <- list(y ~ s(x), ~ s(x))
  fit <- gam(model, family = gaulss(b = 0.001), data = rows, method = "REML")
  bands <- smooths(fit, rows, effects)
  # its predictor is log(sd - .001)
  at <- bands$effect == "scale"
  eta <- predict(fit, rows, type = "link")[, 2]
  sd <- 0.001 + exp(eta)
  bands$estimate[at] <- log(sd) - mean(log(sd))
  bands$se[at] <- bands$se[at] * exp(eta) / sd
  bands
}

died <- survival::Surv(time, event) ~ .
models <- list(
  "gaussian" = function(rows) normal(rows, c("mean", "scale")),
  "lognormal, its scale too" = function(rows) {
    normal(transform(rows, y = log(y)), c("location", "scale"))
  },
  "gamma" = function(rows) {
    family <- gammals(link = list("identity", "identity"))
    fit <- gam(list(y ~ s(x), ~ s(x)), family = family, data = rows, method = "REML")
    smooths(fit, rows, c("mean", "scale"))
  },
  "negative binomial" = function(rows) by_reml(rows, nb()),
  "beta" = function(rows) by_reml(rows, betar()),
  "student t" = function(rows) by_reml(rows, scat()),
  "tweedie" = function(rows) by_reml(rows, tw()),
  "zero inflated Poisson" = function(rows) zeros(rows, pscl::zeroinfl, "poisson", 1),
  "zero inflated negative binomial" = function(rows) zeros(rows, pscl::zeroinfl, "negbin", 1),
  # a hurdle's predictor is of counts above zero
  "hurdle Poisson" = function(rows) zeros(rows, pscl::hurdle, "poisson", -1),
  "hurdle negative binomial" = function(rows) zeros(rows, pscl::hurdle, "negbin", -1),
  "ordinal" = function(rows) {
    rows$y <- factor(rows$y, ordered = TRUE)
    fit <- MASS::polr(y ~ ns(x, 6), rows, method = "probit", Hess = TRUE)
    spline("mean", coef(fit), vcov(fit), rows)
  },
  "categorical" = function(rows) {
    rows$y <- match(rows$y, c("a", "b", "c")) - 1
    fit <- gam(list(y ~ s(x), ~ s(x)), family = multinom(K = 2), data = rows, method = "REML")
    smooths(fit, rows, c("b", "c"))
  },
  "Weibull, censored" = function(rows) times(rows, died, "weibull"),
  "lognormal, censored" = function(rows) times(rows, died, "lognormal"),
  "gaussian, in intervals" = function(rows) {
    times(rows, survival::Surv(low, high, type = "interval2") ~ ., "gaussian")
  },
  "Cox" = function(rows) {
    fit <- gam(time ~ s(x), family = cox.ph(), data = rows, weights = event, method = "REML")
    smooths(fit, rows, "mean")
  },
  "quasi-Poisson" = function(rows) by_reml(rows, quasipoisson()),
  "quasi-binomial" = function(rows) by_reml(rows, quasibinomial(), cbind(y, n - y) ~ s(x)),
  "quantile" = function(rows) {
    fit <- quantreg::rq(y ~ ns(x, 6), 0.9, rows)
    spline("mean", coef(fit), summary(fit, se = "nid", covariance = TRUE)$cov, rows)
  },
  "binary, probit" = function(rows) by_reml(rows, binomial("probit")),
  "binary, cloglog" = function(rows) by_reml(rows, binomial("cloglog")),
  "binary, cauchit" = function(rows) by_reml(rows, binomial("cauchit")),
  "Poisson, sqrt" = function(rows) by_reml(rows, poisson("sqrt")),
  "gamma, inverse" = function(rows) by_reml(rows, Gamma("inverse")),
  "gaussian, log" = function(rows) by_reml(rows, gaussian("log"))
)

answers <- function(rows, response, package) {
  start <- proc.time()[3]
  effects <- models[[response]](rows)
  cbind(method = package, effects, seconds = as.numeric(proc.time()[3] - start))
}
