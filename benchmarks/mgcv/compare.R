# One model, fitted by mgcv. Arguments: engine (gam or bam), family, select (TRUE or FALSE),
# formula, data.csv, grid.csv, effects.csv.
#
# grid.csv has the covariates and a column `term`; effects.csv gets that term's value and standard
# error at every row. Prints deviance explained, effective degrees of freedom, seconds.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
engine <- arguments[1]
data <- read.csv(arguments[5])
grid <- read.csv(arguments[6])

fitter <- if (engine == "bam") bam else gam
method <- if (engine == "bam") "fREML" else "REML"
seconds <- system.time(
  fit <- fitter(as.formula(arguments[4]),
    family = arguments[2], data = data, method = method, select = as.logical(arguments[3])
  )
)[["elapsed"]]

terms <- predict(fit, grid, type = "terms", se.fit = TRUE)
cell <- cbind(seq_len(nrow(grid)), match(grid$term, colnames(terms$fit)))
effects <- data.frame(estimate = terms$fit[cell], se = terms$se.fit[cell])
write.csv(effects, arguments[7], row.names = FALSE)
cat(summary(fit)$dev.expl, sum(fit$edf), seconds, "\n")
