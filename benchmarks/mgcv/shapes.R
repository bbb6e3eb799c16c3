# Fits scam with a shape to replicates: Rscript shapes.R in.csv out.csv
suppressMessages(library(scam))
arguments <- commandArgs(trailingOnly = TRUE)
data <- read.csv(arguments[1])
found <- NULL
for (task in unique(data$task)) {
  own <- data[data$task == task, ]
  rows <- own[own$what == "row", ]
  grid <- own[own$what == "grid", ]
  family <- switch(rows$family[1], gaussian = gaussian(), poisson = poisson(),
                   bernoulli = binomial())
  shape <- if (rows$shape[1] == "increasing") "mpi" else "cx"
  start <- proc.time()[3]
  b <- scam(as.formula(sprintf("y ~ s(x, bs = '%s', k = 20) + s(z)", shape)), family = family,
            data = rows)
  seconds <- proc.time()[3] - start
  grid$z <- 0
  p <- predict(b, grid, type = "terms", se.fit = TRUE)
  level <- mean(predict(b, rows, type = "terms")[, 1])
  f <- p$fit[, 1] - level
  half <- qnorm(.975) * p$se.fit[, 1]
  found <- rbind(found, data.frame(task = task, estimate = f, lower = f - half, upper = f + half,
                                   seconds = seconds))
}
write.csv(found, arguments[2], row.names = FALSE)
