# Standard deviations of random effects by REML. Option: family. All columns but x, y and replicate
# hold levels.

answers <- function(rows, family) {
  groups <- setdiff(names(rows), c("x", "y", "replicate"))
  rows[groups] <- lapply(rows[groups], factor)
  formula <- reformulate(c("s(x)", sprintf("s(%s, bs = 're')", groups)), "y")
  fit <- gam(formula, family = family, data = rows, method = "REML")
  invisible(capture.output(components <- gam.vcomp(fit)))
  sds <- if (is.list(components)) components$vc else components
  terms <- sprintf("s(%s)", groups)
  data.frame(
    method = "mgcv REML", effect = groups, place = 0, estimate = sds[terms, "std.dev"],
    lower = sds[terms, "lower"], upper = sds[terms, "upper"]
  )
}
