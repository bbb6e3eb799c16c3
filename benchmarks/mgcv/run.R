# Rscript run.R NAME FOLDER OPTIONS...: applies `answers` of NAME.R to each replicate of
# FOLDER/data.csv, with the options, and writes FOLDER/answers.csv. Where there are no such data
# they are those of `own_data` of NAME.R, which are written.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
file <- sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE))
options_ <- as.list(arguments[-(1:2)])
data_file <- file.path(arguments[2], "data.csv")

# standard errors of X b, where b has the covariance V
standard_errors <- function(X, V) sqrt(pmax(rowSums((X %*% V) * X), 1e-20))

source(file.path(dirname(file), paste0(arguments[1], ".R")))

if (file.exists(data_file)) {
  data <- read.csv(data_file)
} else {
  data <- do.call(own_data, options_)
  write.csv(data, data_file, row.names = FALSE)
}
parts <- lapply(split(data, data$replicate), function(rows) {
  cbind(replicate = rows$replicate[1], do.call(answers, c(list(rows), options_)))
})
write.csv(do.call(rbind, parts), file.path(arguments[2], "answers.csv"), row.names = FALSE)
