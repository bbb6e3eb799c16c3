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

  // where an increasing function, or one of the other sign at the ends, is nought
  function zero(f, low, high) {
    const below = f(low) < 0;
    for (let i = 0; i < 60; i++) {
      const middle = 0.5 * (low + high);
      if (f(middle) < 0 === below) low = middle;
      else high = middle;
    }
    return 0.5 * (low + high);
  }

  // Hermite's polynomial of degree 40 and the one before, whose squares have the mean one
  function hermite(x) {
    let [before, now] = [0, 1];
    for (let n = 0; n < 40; n++) [before, now] = [now, (x * now - Math.sqrt(n) * before) / Math.sqrt(n + 1)];
    return [now, before];
  }

  // of means over a standard normal distribution
  const NODES = [];
  for (let x = -12; x < 12; x += 0.06)
    if (hermite(x)[0] < 0 !== hermite(x + 0.06)[0] < 0) NODES.push(zero((z) => hermite(z)[0], x, x + 0.06));
  const WEIGHTS = NODES.map((z) => 1 / (40 * hermite(z)[1] ** 2));

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
    let value = Object.hasOwn(row, name) ? row[name] : undefined;
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

  // whether tables fit their axes, and hold finite numbers
  function sound({ columns, constant, offset, link, rank, terms }) {
    const numbers = (v, ...sizes) => !sizes.length ? typeof v === "number" && Math.abs(v) < 1e150 :
      Array.isArray(v) && v.length === sizes[0] && v.every((one) => numbers(one, ...sizes.slice(1)));
    const short = (v, most) => v.length <= most && numbers(v, v.length);
    const increase = (k, size) => size > 1 && numbers(k, size) && k.every((v, i) => !i || v > k[i - 1]);
    const known = (tree) => typeof tree === "number" || typeof tree.column === "string" || (Object.hasOwn(SIGNS, tree[0]) &&
      SIGNS[tree[0]].length === tree.length - 1 && tree.slice(1).every(known));
    const fits = ({ column, knots: k, size, period }) => {
      const { levels, new_levels } = columns[column];
      return k === null ? size === levels.length + Number(new_levels) : levels === null && increase(k, size) &&
        (period === null || Math.abs(k[size - 1] - k[0] - period) < 1e-9 * period);
    };
    const points = (axes) => axes.every(fits) ? axes.reduce((product, axis) => product * axis.size, 1) : NaN;
    const L = constant.length, bare = terms[0].roots === null, response = link.response;
    const most = bare ? 0 : terms.reduce((sum, term) => sum + term.roots[0].length, 0);
    return numbers([...constant, offset.factor], L + 1) && offset.columns.every((name) => columns[name].levels === null) &&
      Number.isInteger(rank) && rank >= 0 && rank <= most &&
      (link.name === "table" ? increase(link.predictor, response.length) && numbers(response, response.length, response[0].length) :
        link.name === "softmax" || Object.hasOwn(LINKS, link.name)) &&
      (link.unit === undefined || (link.unit && numbers(link.unit) && (link.bend === null || numbers(link.bend)))) &&
      Object.values(columns).every(({ levels, fill, expression: tree }) =>
        (levels === null ? fill === null || numbers(fill) : levels.length > 0 && levels.every((v) => typeof v !== "object")) && (tree === null || known(tree))) &&
      terms.every(({ axes, values, roots, root_axes, left, by }) => {
        const levels = by && columns[by.column].levels;
        return numbers(values, points(axes), L) && (roots === null) === bare &&
          (by === null || (levels === null ? by.code === null : Number.isInteger(by.code) && by.code in levels)) &&
          (bare || (roots.length === L && left.length === L && left.every((l) => short(l, points(root_axes))) &&
            roots.every((rows) => rows.length === points(root_axes) && rows.every((row) => short(row, rank)))));
      });
  }

  const known = new WeakSet(); // sound ones
  function check(model) {
    if (model?.format !== "gpflow_gam tables") throw new Error("the model holds no tables of gpflow_gam.");
    if (model.version !== 2) throw new Error(`the model is of version ${model.version}; this reads 2.`);
    let right = known.has(model);
    try { right ||= sound(model); } catch { /* a part is not there, or another thing */ }
    if (!right) throw new Error("the model holds broken tables.");
    known.add(model);
  }

  // One row: predictor, se, median (the response at the predictor), response (its expectation),
  // lower and upper (its interval), and terms (what each adds to the predictor).
  function predict(model, row, level = 0.95) {
    check(model);
    if (!(level > 0 && level < 1)) throw new Error(`level must be a probability between 0 and 1; got ${level}.`);
    const columns = Object.create(null); // as a column may be called __proto__
    for (const [name, about] of Object.entries(model.columns)) columns[name] = read(name, about, row);
    const mean = [...model.constant];
    for (const name of model.offset.columns) mean[0] += model.offset.factor * columns[name];
    const root = mean.map(() => new Float64Array(model.rank));
    const left = mean.map(() => 0), terms = Object.create(null);
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
    const z = zero((f) => normal(f) - 0.5 - 0.5 * level, -9, 9);
    const ends = [-z, z].map((s) => inverse(model.link, mean[0] + s * se[0]));
    result.lower = Math.min(...ends);
    result.upper = Math.max(...ends);
    return result;
  }

  return { predict };
})();

if (typeof module !== "undefined") module.exports = gpflowGamScorer;
