# Fits y ~ s(each column) with mgcv to every replicate in data.csv, by REML and with select=TRUE.
# Arguments: k, data.csv, found.csv. Or, for R's monthly carbon dioxide: co2, co2.csv, bands.csv.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)

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

k <- as.integer(arguments[1])
data <- read.csv(arguments[2])
columns <- setdiff(names(data), c("y", "replicate"))
formula <- reformulate(sprintf("s(%s, k = %d)", columns, k), "y")

found <- lapply(split(data, data$replicate), function(rows) {
  do.call(rbind, lapply(c(FALSE, TRUE), function(select) {
    seconds <- system.time(
      fit <- bam(formula, data = rows, method = "fREML", discrete = TRUE, select = select)
    )[["elapsed"]]
    terms <- predict(fit, type = "terms", se.fit = TRUE)
    table <- summary(fit)$s.table
    do.call(rbind, lapply(seq_along(columns), function(j) {
      data.frame(
        replicate = rows$replicate[1], method = if (select) "mgcv select" else "mgcv REML",
        effect = columns[j], row = seq_len(nrow(rows)) - 1, estimate = terms$fit[, j],
        se = terms$se.fit[, j], edf = table[j, 1], p = table[j, 4], seconds = seconds
      )
    }))
  }))
})
write.csv(do.call(rbind, found), arguments[3], row.names = FALSE)
