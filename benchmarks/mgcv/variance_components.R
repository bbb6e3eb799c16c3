# Standard deviations of random effects by mgcv's REML, of every replicate in data.csv.
# Arguments: family, data.csv, found.csv. All columns but x, y and replicate hold levels.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
data <- read.csv(arguments[2])
groups <- setdiff(names(data), c("x", "y", "replicate"))
data[groups] <- lapply(data[groups], factor)
formula <- reformulate(c("s(x)", sprintf("s(%s, bs = 're')", groups)), "y")

found <- lapply(split(data, data$replicate), function(rows) {
  rows[groups] <- lapply(rows[groups], droplevels)
  fit <- gam(formula, family = arguments[1], data = rows, method = "REML")
  invisible(capture.output(components <- gam.vcomp(fit)))
  sds <- if (is.list(components)) components$vc else components
  own <- sprintf("s(%s)", groups)
  data.frame(
    replicate = rows$replicate[1], term = groups, sd = sds[own, "std.dev"],
    lower = sds[own, "lower"], upper = sds[own, "upper"], method = "mgcv REML"
  )
})
write.csv(do.call(rbind, found), arguments[3], row.names = FALSE)
