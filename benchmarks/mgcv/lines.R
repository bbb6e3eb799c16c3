# Fits y ~ s(each column) with mgcv to every replicate in data.csv, by REML and with select=TRUE.
# Arguments: k, data.csv, found.csv. Or, for R's earthquakes near Fiji in ten folds: quakes,
# quakes.csv, found.csv.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)

if (arguments[1] == "quakes") {
  data <- quakes
  data$fold <- (7 * seq_len(nrow(data))) %% 10
  write.csv(data, arguments[2], row.names = FALSE)
  found <- lapply(c("mag", "stations", "depth"), function(y) {
    formula <- as.formula(paste(y, "~ s(long, lat)"))
    fit <- gam(formula, data = data, method = "REML")
    errors <- numeric(nrow(data))
    for (out in 0:9) {
      part <- gam(formula, data = data[data$fold != out, ], method = "REML")
      errors[data$fold == out] <- data[[y]][data$fold == out] -
        predict(part, data[data$fold == out, ])
    }
    data.frame(
      response = y, method = "mgcv REML", edf = sum(fit$edf),
      explained = summary(fit)$dev.expl, rmse = sqrt(mean(errors^2))
    )
  })
  write.csv(do.call(rbind, found), arguments[3], row.names = FALSE)
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
