# P-values of mgcv for every replicate in data.csv. Arguments: family, data.csv, found.csv. Or, of
# R's own data: birthwt or grouseticks, data.csv, found.csv.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
p_values <- function(fit) {
  table <- anova(fit)
  found <- rbind(table$pTerms.table[, "p-value", drop = FALSE], table$s.table[, "p-value", drop = FALSE])
  setNames(found[, 1], rownames(found))
}
written <- function(found) write.csv(found, arguments[3], row.names = FALSE)

if (arguments[1] == "birthwt") {
  data <- MASS::birthwt
  write.csv(data, arguments[2], row.names = FALSE)
  data$race <- factor(data$race)
  p <- p_values(gam(low ~ s(age) + s(lwt) + race + smoke + ht + ui + s(ptl, k = 3),
    family = binomial, data = data, method = "REML"
  ))
  written(data.frame(p = p[c("s(age)", "s(lwt)", "race", "smoke", "ht", "ui", "s(ptl)")]))
} else if (arguments[1] == "grouseticks") {
  data(grouseticks, package = "lme4")
  write.csv(grouseticks, arguments[2], row.names = FALSE)
  p <- p_values(gam(TICKS ~ YEAR + s(HEIGHT) + s(BROOD, bs = "re") + s(LOCATION, bs = "re"),
    family = nb(), data = grouseticks, method = "REML"
  ))
  written(data.frame(p = p[c("YEAR", "s(HEIGHT)", "s(BROOD)", "s(LOCATION)")]))
} else {
  family <- list(gaussian = gaussian(), bernoulli = binomial(), poisson = poisson())[[arguments[1]]]
  written(do.call(rbind, lapply(split(read.csv(arguments[2]), ~replicate), function(rows) {
    rows$h <- factor(rows$h)
    rows$g <- factor(rows$g)
    p <- p_values(gam(y ~ s(x) + s(z) + u + h + s(g, bs = "re"),
      family = family, data = rows, method = "REML"
    ))
    data.frame(
      replicate = rows$replicate[1], method = "mgcv",
      effect = c("s(z)", "linear(u)", "factor(h)", "random_effect(g)"),
      p = p[c("s(z)", "u", "h", "s(g)")]
    )
  })))
}
