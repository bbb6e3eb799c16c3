# One model fitted by mgcv, timed around the calls alone.
# Arguments: folder, engine (gam or bam), family, threads, formula, knots (R), stages (comma).
#
# folder/train holds columns as binary files, as folder/test and folder/new do where they are there.
# Prints "name value" lines. Writes the predictor at the exact training rows to folder/predictor.bin
# and the expected response at those held out to folder/expected.bin.

suppressMessages(library(mgcv))

arguments <- commandArgs(trailingOnly = TRUE)
folder <- arguments[1]
engine <- arguments[2]
threads <- as.integer(arguments[4])
stages <- strsplit(arguments[7], ",")[[1]]

columns <- function(part) {
  index <- strsplit(readLines(file.path(folder, part, "columns.tsv")), "\t")
  found <- lapply(index, function(entry) {
    path <- file.path(folder, part, paste0(entry[1], ".bin"))
    if (entry[2] == "numbers") {
      return(readBin(path, "double", file.size(path) / 8, endian = "little"))
    }
    codes <- readBin(path, "integer", file.size(path) / 4, endian = "little")
    names <- strsplit(entry[3], "|", fixed = TRUE)[[1]]
    structure(codes + 1L, levels = names, class = "factor")
  })
  names(found) <- vapply(index, `[`, "", 1)
  as.data.frame(found)
}

seconds <- function(call) system.time(call)[["elapsed"]]
say <- function(name, value) cat(name, format(value, digits = 15), "\n")
peak <- function() { # MB; Linux alone says
  if (!file.exists("/proc/self/status")) return(NA)
  status <- grep("^VmHWM", readLines("/proc/self/status"), value = TRUE)
  as.numeric(gsub("[^0-9]", "", status)) / 1024
}

data <- columns("train")
formula <- as.formula(arguments[5])
knots <- eval(parse(text = arguments[6]))
fitted <- function() {
  if (engine == "bam") {
    bam(formula, family = arguments[3], data = data, knots = knots, discrete = TRUE,
      nthreads = threads)
  } else {
    gam(formula, family = arguments[3], data = data, knots = knots, method = "REML")
  }
}

say("start_mb", peak())
say("first", seconds(fit <- fitted()))
say("memory_mb", peak())
say("edf", sum(fit$edf))
say("explained", 1 - fit$deviance / fit$null.deviance)
drawn <- function() {
  pdf(NULL)
  plot(fit, pages = 1)
  dev.off()
}
if ("reading" %in% stages) {
  say("effects", seconds(drawn()))
  say("summary", seconds(summary(fit)))
}
if ("draw" %in% stages) say("draw", seconds(drawn()))
if ("predict" %in% stages) {
  new <- columns("new")
  discrete <- engine == "bam"
  again <- function(type = "terms") {
    if (discrete) predict(fit, new, type = type, se.fit = TRUE, discrete = TRUE, n.threads = threads)
    else predict(fit, new, type = type, se.fit = TRUE)
  }
  say("predict", seconds(again()))
  say("predict_again", seconds(again()))
  say("response", seconds(again("response")))
  say("predict_mb", peak())
}
if ("again" %in% stages) say("again", seconds(fitted()))
if ("predictor" %in% stages) { # bam's own are those of rounded covariates
  # only bam knows the argument
  eta <- if (engine == "bam") predict(fit, data, discrete = FALSE) else predict(fit, data)
  writeBin(as.double(eta), file.path(folder, "predictor.bin"))
}
if ("expected" %in% stages) {
  test <- columns("test")
  mu <- if (engine == "bam") predict(fit, test, type = "response", discrete = FALSE) else
    predict(fit, test, type = "response")
  writeBin(as.double(mu), file.path(folder, "expected.bin"))
}
cat("versions R", as.character(getRversion()), "mgcv", as.character(packageVersion("mgcv")), "\n")
cat("blas", La_library(), "\n")
