# All folds of a table: a smooth of each number, levels as factors, REML. Option: family.

answers <- function(rows, family) {
  rows[] <- lapply(rows, function(column) if (is.character(column)) factor(column) else column)
  columns <- setdiff(names(rows), c("y", "fold", "replicate"))
  terms <- sapply(columns, function(name) {
    if (is.factor(rows[[name]])) return(name)
    few <- min(10, sapply(unique(rows$fold), function(fold)
      length(unique(rows[[name]][rows$fold != fold]))))
    if (few < 4) name else sprintf("s(%s, k = %d)", name, few)
  })
  formula <- as.formula(paste("y ~", paste(terms, collapse = " + ")))
  kind <- list(gaussian = gaussian(), bernoulli = binomial(), count = nb())[[family]]
  do.call(rbind, lapply(sort(unique(rows$fold)), function(fold) {
    train <- rows[rows$fold != fold, ]
    test <- rows[rows$fold == fold, ]
    start <- proc.time()[["elapsed"]]
    model <- if (nrow(train) > 2000) bam(formula, kind, train, discrete = TRUE) else
      gam(formula, kind, train, method = "REML")
    for (name in columns) if (is.factor(train[[name]])) { # a level that was not trained on
      unseen <- !(test[[name]] %in% train[[name]])
      test[[name]][unseen] <- train[[name]][1]
    }
    link <- predict(model, test, type = "link", se.fit = TRUE)
    mean <- as.numeric(model$family$linkinv(link$fit))
    out <- data.frame(row = as.integer(rownames(test)) - 1, fold = fold, mean = mean)
    if (family == "gaussian") out$sd <- sqrt(model$sig2 + as.numeric(link$se.fit)^2)
    if (family == "count") out$size <- model$family$getTheta(TRUE)
    cbind(out, seconds = proc.time()[["elapsed"]] - start)
  }))
}
