// Predictions of a generalized additive model from its tables, without any other program.
//
// gpflow_gam.serving.export(gam, "model.json") writes the tables, and this file beside them:
//
//   const { predict } = require("./gpflow_gam_scorer.js");
//   const model = JSON.parse(fs.readFileSync("model.json"));
//   predict(model, { x: 0.1, g: "a" }).response;
//
// In a page: <script src="gpflow_gam_scorer.js"></script>, then gpflowGamScorer.predict(...).
"use strict";

const gpflowGamScorer = (() => {
  // density of the standard normal distribution, at even points
  const STEP = 0.1;
  const NODES = Array.from({ length: 161 }, (_, i) => STEP * (i - 80));
  const WEIGHTS = NODES.map((z) => (STEP * Math.exp(-0.5 * z * z)) / Math.sqrt(2 * Math.PI));

  // probability below f: Simpson's rule from nought
  function normal(f) {
    if (Math.abs(f) > 9) return f > 0 ? 1 : 0;
    const n = 200, h = f / n;
    let sum = 0;
    for (let i = 0; i <= n; i++) {
      const w = i === 0 || i === n ? 1 : i % 2 ? 4 : 2;
      sum += w * Math.exp(-0.5 * (i * h) ** 2);
    }
    return 0.5 + (sum * h) / 3 / Math.sqrt(2 * Math.PI);
  }

  function quantile(p) {
    let low = -9, high = 9;
    for (let i = 0; i < 60; i++) {
      const middle = 0.5 * (low + high);
      if (normal(middle) < p) low = middle;
      else high = middle;
    }
    return 0.5 * (low + high);
  }

  const LINKS = {
    identity: (f) => f,
    log: Math.exp,
    logit: (f) => 1 / (1 + Math.exp(-f)),
    probit: normal,
    cloglog: (f) => -Math.expm1(-Math.exp(f)),
    cauchit: (f) => 0.5 + Math.atan(f) / Math.PI,
    inverse: (f) => 1 / f,
    sqrt: (f) => f * f,
  };

  const SIGNS = {
    "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, "**": Math.pow,
    log: Math.log, exp: Math.exp, sqrt: Math.sqrt, sin: Math.sin, cos: Math.cos, tan: Math.tan, abs: Math.abs,
  };

  // a function and its arguments; a column; or a number
  function computed(tree, row) {
    if (Array.isArray(tree)) return SIGNS[tree[0]](...tree.slice(1).map((part) => computed(part, row)));
    return typeof tree === "number" ? tree : read(tree.column, tree, row);
  }

  // a column as a number: of levels their places, and -1 for new ones
  function read(name, about, row) {
    let value = row[name];
    if (value === undefined && about.expression) value = computed(about.expression, row);
    if (value === undefined) throw new Error(`the row has no column '${name}'.`);
    if (value instanceof Date) value = value.getTime() / 86400e3; // days
    if (value === null || Number.isNaN(value)) {
      if (about.fill === null) throw new Error(`column '${name}' has no value.`);
      value = about.fill;
    }
    if (about.levels === null) {
      if (typeof value === "boolean") value = Number(value);
      if (!Number.isFinite(value)) throw new Error(`column '${name}' must be a finite number.`);
      return value;
    }
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) // which may be two levels
      throw new Error(`column '${name}' holds ${value}, which JavaScript rounds; make it text before the fit.`);
    const code = about.levels.indexOf(value);
    if (code < 0 && !about.new_levels) throw new Error(`column '${name}' has the new level '${value}'.`);
    return code;
  }

  // rows of a table and their weights: straight between knots and beyond the last ones
  function corners(axes, columns) {
    let result = [[0, 1]];
    for (const axis of axes) {
      let x = columns[axis.column];
      let steps;
      if (axis.knots === null) steps = [[x < 0 ? axis.size - 1 : x, 1]];
      else {
        const k = axis.knots;
        if (axis.period !== null) x -= axis.period * Math.floor((x - k[0]) / axis.period);
        let low = 0, high = k.length - 1;
        while (high - low > 1) {
          const middle = (low + high) >> 1;
          if (k[middle] <= x) low = middle;
          else high = middle;
        }
        const share = (x - k[low]) / (k[low + 1] - k[low]);
        steps = [[low, 1 - share], [low + 1, share]];
      }
      result = result.flatMap(([p, w]) => steps.map(([i, s]) => [p * axis.size + i, w * s]));
    }
    return result;
  }

  function inverse(link, f) {
    if (link.unit) { // on the other side of which the mean goes on positive
      const t = Math.max(1 - f / link.unit, 0), k = link.bend;
      f = Math.max(f, link.unit) * (k === null ? Math.exp(-t) : (1 + k * t) ** (-1 / k));
    }
    if (link.name !== "table") return LINKS[link.name](f);
    const k = link.predictor;
    const axis = { column: 0, knots: k, size: k.length, period: null };
    const within = Math.min(Math.max(f, k[0]), k[k.length - 1]);
    const at = corners([axis], [within]);
    const values = link.response[0].map((_, c) => at.reduce((s, [p, w]) => s + w * link.response[p][c], 0));
    return values.length === 1 ? values[0] : values;
  }

  function softmax(f) {
    const most = Math.max(...f), p = f.map((v) => Math.exp(v - most));
    const total = p.reduce((a, b) => a + b, 0);
    return p.map((v) => v / total);
  }

  // One row: predictor, se, median (the response at the predictor), response (its expectation),
  // lower and upper (its interval), and terms (what each adds to the predictor).
  function predict(model, row, level = 0.95) {
    const columns = {};
    for (const [name, about] of Object.entries(model.columns)) columns[name] = read(name, about, row);
    const mean = [...model.constant];
    for (const name of model.offset.columns) mean[0] += model.offset.factor * columns[name];
    const root = mean.map(() => new Float64Array(model.rank));
    const left = mean.map(() => 0), terms = {};
    for (const term of model.terms) {
      let times = 1;
      if (term.by !== null) {
        times = columns[term.by.column];
        if (term.by.code !== null) times = times === term.by.code ? 1 : 0;
      }
      const at = corners(term.axes, columns);
      const part = mean.map((_, l) => times * at.reduce((s, [p, w]) => s + w * term.values[p][l], 0));
      part.forEach((value, l) => (mean[l] += value));
      terms[term.name] = part.length === 1 ? part[0] : part;
      if (term.roots === null) continue;
      const own = mean.map(() => 0);
      for (const [p, w] of corners(term.root_axes, columns))
        term.roots.forEach((rows, l) => {
          rows[p].forEach((v, r) => (root[l][r] += times * w * v));
          own[l] += w * (term.left[l][p] ?? 0);
        });
      own.forEach((v, l) => (left[l] += times * times * Math.max(v, 0)));
    }
    const single = mean.length === 1;
    const result = { predictor: single ? mean[0] : mean, terms };
    const softly = model.link.name === "softmax";
    result.median = softly ? softmax(mean) : inverse(model.link, mean[0]);
    if (!model.rank) return result;
    const se = root.map((r, l) => Math.sqrt(r.reduce((s, v) => s + v * v, left[l])));
    result.se = single ? se[0] : se;
    if (softly) return result;
    const values = NODES.map((z) => inverse(model.link, mean[0] + z * se[0]));
    const expected = (v) => v.reduce((s, one, i) => s + WEIGHTS[i] * one, 0);
    if (Array.isArray(result.median)) {
      result.response = result.median.map((_, c) => expected(values.map((v) => v[c])));
      return result;
    }
    result.response = expected(values);
    const z = quantile(0.5 + 0.5 * level);
    const ends = [-z, z].map((s) => inverse(model.link, mean[0] + s * se[0]));
    result.lower = Math.min(...ends);
    result.upper = Math.max(...ends);
    return result;
  }

  return { predict };
})();

if (typeof module !== "undefined") module.exports = gpflowGamScorer;
