# mgcv on all folds of a table: a smooth of each number, levels as factors, REML.
# Rscript tables.R FAMILY FOLDER
suppressMessages(library(mgcv))
arguments <- commandArgs(trailingOnly = TRUE)
family <- arguments[1]; folder <- arguments[2]
table <- read.csv(file.path(folder, "table.csv"), na.strings = character(0), stringsAsFactors = TRUE)
names_ <- setdiff(names(table), c("y", "fold"))
terms <- sapply(names_, function(name) {
  if (is.factor(table[[name]])) return(name)
  few <- min(10, sapply(unique(table$fold), function(fold)
    length(unique(table[[name]][table$fold != fold]))))
  if (few < 4) name else sprintf("s(%s, k = %d)", name, few)
})
formula <- as.formula(paste("y ~", paste(terms, collapse = " + ")))
kind <- list(gaussian = gaussian(), bernoulli = binomial(), count = nb())[[family]]
parts <- list()
for (fold in sort(unique(table$fold))) {
  train <- table[table$fold != fold, ]; test <- table[table$fold == fold, ]
  start <- proc.time()[["elapsed"]]
  model <- if (nrow(train) > 2000) bam(formula, kind, train, discrete = TRUE) else
    gam(formula, kind, train, method = "REML")
  for (name in names_) if (is.factor(table[[name]])) {  # a level that was not trained on
    unseen <- !(test[[name]] %in% train[[name]])
    test[[name]][unseen] <- train[[name]][1]
  }
  found <- predict(model, test, type = "link", se.fit = TRUE)
  mean <- model$family$linkinv(found$fit)
  out <- data.frame(row = as.integer(rownames(test)) - 1, fold = fold, mean = as.numeric(mean))
  if (family == "gaussian") out$sd <- sqrt(model$sig2 + as.numeric(found$se.fit)^2)
  if (family == "count") out$size <- model$family$getTheta(TRUE)
  out$seconds <- proc.time()[["elapsed"]] - start
  parts[[length(parts) + 1]] <- out
}
write.csv(do.call(rbind, parts), file.path(folder, "mgcv.csv"), row.names = FALSE)
