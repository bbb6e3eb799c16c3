# What mgcv makes of rows beyond its data, by REML. Arguments: curves, data.csv, found.csv, for
# y ~ s(x) to rows that are not later, and its curve in all rows; or, for R's monthly carbon
# dioxide: co2, co2.csv, bands.csv.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)

if (arguments[1] == "curves") {
  data <- read.csv(arguments[2])
  found <- lapply(split(data, data$replicate), function(rows) {
    fit <- gam(y ~ s(x, k = 24), data = rows[rows$later == 0, ], method = "REML")
    terms <- predict(fit, rows, type = "terms", se.fit = TRUE)
    data.frame(
      replicate = rows$replicate, method = "mgcv REML", x = rows$x, later = rows$later,
      estimate = terms$fit[, 1], se = terms$se.fit[, 1]
    )
  })
  write.csv(do.call(rbind, found), arguments[3], row.names = FALSE)
  quit()
}

if (arguments[1] == "co2") {
  data <- data.frame(year = as.numeric(time(co2)), y = as.numeric(co2))
  write.csv(data, arguments[2], row.names = FALSE)
  data$month <- data$year %% 1
  known <- data[data$year < 1990, ]
  later <- data[data$year >= 1990, ]
  fit <- gam(y ~ s(year, k = 24) + s(month, bs = "cc", k = 12), data = known,
             knots = list(month = c(0, 1)), method = "REML")
  found <- predict(fit, later, se.fit = TRUE)
  half <- qnorm(.975) * sqrt(found$se.fit^2 + fit$sig2)
  bands <- data.frame(estimate = found$fit, lower = found$fit - half, upper = found$fit + half)
  write.csv(bands, arguments[3], row.names = FALSE)
  quit()
}
