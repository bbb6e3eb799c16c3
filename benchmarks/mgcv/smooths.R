# Fits kinds of smooths with mgcv, by REML, to every replicate in data.csv.
# Arguments: case, data.csv, neighbours.csv (pairs of areas; of case mrf), bands.csv.
#
# bands.csv gets for every replicate and model the estimate and its standard error at the data, the
# effective degrees of freedom, and seconds.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
case <- arguments[1]
data <- read.csv(arguments[2], colClasses = c(g = "character"))
data$g <- factor(data$g)

xt <- NULL
if (case == "mrf") {
  pairs <- read.csv(arguments[3], colClasses = "character")
  areas <- sort(unique(c(pairs$one, pairs$other)))
  data$g <- factor(data$g, levels = areas)
  xt <- list(nb = lapply(split(pairs$other, pairs$one)[areas], match, table = areas))
}

formulas <- list(
  fs = list("s + fs" = y ~ s(x) + s(x, g, bs = "fs", k = 10)),
  sz = list("s + sz" = y ~ s(x) + s(g, x, bs = "sz", k = 10)),
  scales = list("te" = y ~ te(x, z, k = 6), "s (tp)" = y ~ s(x, z, k = 36)),
  mrf = list("mrf" = y ~ s(g, bs = "mrf", xt = xt)),
  sos = list("sos" = y ~ s(x, z, bs = "sos", k = 60)),
  ad = list("ad" = y ~ s(x, bs = "ad", k = 40), "s (tp, k = 60)" = y ~ s(x, k = 60))
)

bands <- lapply(split(data, data$replicate), function(rows) {
  do.call(rbind, lapply(names(formulas[[case]]), function(name) {
    formula <- formulas[[case]][[name]]
    environment(formula) <- environment()
    seconds <- system.time(
      fit <- gam(formula, data = rows, method = "REML", drop.unused.levels = FALSE)
    )[["elapsed"]]
    found <- predict(fit, se.fit = TRUE)
    data.frame(
      replicate = rows$replicate[1], method = paste("mgcv", name), row = seq_len(nrow(rows)) - 1,
      estimate = found$fit, se = found$se.fit, edf = sum(fit$edf), seconds = seconds
    )
  }))
})
write.csv(do.call(rbind, bands), arguments[4], row.names = FALSE)
