# P-values of y ~ s(x) + s(z) + u + h + (1 | g); option: family. Or of R's own data: birthwt or
# grouseticks.

p_values <- function(fit) {
  table <- anova(fit)
  p <- rbind(table$pTerms.table[, "p-value", drop = FALSE], table$s.table[, "p-value", drop = FALSE])
  setNames(p[, 1], rownames(p))
}

own_data <- function(name) {
  if (name == "birthwt") return(cbind(MASS::birthwt, replicate = 0))
  data(grouseticks, package = "lme4", envir = environment())
  cbind(grouseticks, replicate = 0)
}

answers <- function(rows, what) {
  if (what == "birthwt") {
    rows$race <- factor(rows$race)
    p <- p_values(gam(low ~ s(age) + s(lwt) + race + smoke + ht + ui + s(ptl, k = 3),
      family = binomial, data = rows, method = "REML"
    ))
    return(data.frame(p = p[c("s(age)", "s(lwt)", "race", "smoke", "ht", "ui", "s(ptl)")]))
  }
  if (what == "grouseticks") {
    p <- p_values(gam(TICKS ~ YEAR + s(HEIGHT) + s(BROOD, bs = "re") + s(LOCATION, bs = "re"),
      family = nb(), data = rows, method = "REML"
    ))
    return(data.frame(p = p[c("YEAR", "s(HEIGHT)", "s(BROOD)", "s(LOCATION)")]))
  }
  family <- list(
    gaussian = gaussian(), bernoulli = binomial(), poisson = poisson(), gamma = Gamma("log"),
    negative_binomial = nb(), beta = betar()
  )[[what]]
  rows$h <- factor(rows$h)
  rows$g <- factor(rows$g)
  p <- p_values(gam(y ~ s(x) + s(z) + u + h + s(g, bs = "re"),
    family = family, data = rows, method = "REML"
  ))
  data.frame(
    method = "mgcv", effect = c("s(z)", "linear(u)", "factor(h)", "random_effect(g)"),
    p = p[c("s(z)", "u", "h", "s(g)")]
  )
}
