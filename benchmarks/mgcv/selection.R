# Effects of twenty columns by y ~ s(x0, k = 10) + ..., with REML and with select = TRUE.

answers <- function(rows) {
  columns <- sprintf("x%d", 0:19)
  formula <- reformulate(sprintf("s(%s, k = 10)", columns), "y")
  do.call(rbind, lapply(c(FALSE, TRUE), function(select) {
    fit <- bam(formula, data = rows, method = "fREML", discrete = TRUE, select = select)
    f <- scale(predict(fit, type = "terms"), scale = FALSE)
    table <- summary(fit)$s.table
    data.frame(
      method = if (select) "mgcv select" else "mgcv REML",
      effect = rep(c(columns, "predictor"), each = nrow(rows)), place = seq_len(nrow(rows)) - 1,
      estimate = c(f, rowSums(f)), se = NA, p = rep(c(table[, 4], NA), each = nrow(rows)),
      edf = rep(c(table[, 1], NA), each = nrow(rows))
    )
  }))
}
