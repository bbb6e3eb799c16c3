"""Tables of GAMs as files: JSON, SQL, Excel and PMML. Predictions need no more than they hold."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

import numpy as np
from gpflow.base import AnyNDArray

from ..archive import replacing
from ..gam import GAM, scorer
from ..gam.frames import LevelColumn
from ..gam.tables import EditedGAM, Tables

TableFormat = Literal["json", "sql", "xlsx", "pmml"]
Model = Mapping[str, Any]
_CHECKED = 1000  # random rows at which a file is compared with the fit
_SCORERS = ("scorer.py", "scorer.js")
_INPUT_ROWS = 200  # rows that a scoring sheet has formulas for


def table_bytes(
    gam: GAM | EditedGAM,
    kind: TableFormat,
    error: float,
    knots: Mapping[Any, Sequence[float]] | None,
    table: str,
) -> bytes:
    """The content of a file."""
    if isinstance(gam, EditedGAM):
        model = gam.document
    elif isinstance(gam, GAM):
        tables = Tables(gam.fitted, error, knots)
        model = tables.document(errors=kind == "json")
        model["checked"] = _checked(tables, model)
    else:
        raise TypeError(f"model: only a GAM is its tables; got {type(gam).__name__}.")
    if kind == "json":
        return (json.dumps(model, allow_nan=False) + "\n").encode()
    if kind == "sql":
        return _sql(model, table).encode()
    return _pmml(model) if kind == "pmml" else _xlsx(model)


def write_scorers(folder: Path) -> None:
    """The programs that read the JSON, beside it; no other file of their name is replaced."""
    for name in _SCORERS:
        text = (Path(scorer.__file__).with_name(name)).read_text(encoding="utf-8")
        path = folder / f"gpflow_gam_{name}"
        if path.exists() and path.read_text(encoding="utf-8")[:80] != text[:80]:
            raise FileExistsError(f"{path} is there already, and is not the scorer of gpflow_gam.")
        with replacing(path) as file:
            file.write(text.encode())


def _checked(tables: Tables, model: Model) -> dict[str, float]:
    """How far predictions from the tables are from the fit's, at random rows near the data."""
    fit, rng = tables.fit, np.random.default_rng(0)
    X = np.zeros((_CHECKED, fit.spec.encoder.width))
    columns: dict[Any, Any] = {}
    for i, reader in enumerate(tables.readers):
        name = str(reader.name)
        if name not in model["columns"]:
            continue
        if isinstance(reader, LevelColumn):
            X[:, i] = rng.integers(len(reader.levels), size=_CHECKED)
            columns[name] = reader.shown(X[:, i])
        else:
            ends = [m.ends for c in tables.components for m in c.margins if m.column == i]
            low, high = (min(e[0] for e in ends), max(e[1] for e in ends)) if ends else (0.0, 1.0)
            X[:, i] = columns[name] = rng.uniform(low, high, size=_CHECKED)
    answer = scorer.predict(model, columns)
    mean, variance = fit.predict_link(X)
    factor, shift = fit.units
    mean, se = shift + factor * np.asarray(mean), factor * np.sqrt(np.asarray(variance))
    off = np.abs(answer["predictor"].reshape(mean.shape) - mean).max()
    result = {"rows": _CHECKED, "predictor": float(off)}
    if "se" in answer:
        result["se"] = float(np.abs(answer["se"].reshape(se.shape) - se).max() / se.max())
    return result


# --- straight pieces -----------------------------------------------------------------------------


class Pieces(NamedTuple):
    """
    A term as pieces, each of which is ``sum_S c_S prod_{i in S} (x_i - low_i)``.

    :param columns: of the axes.
    :param lows: where the pieces of a numeric axis begin, levels of the others.
    :param subsets: S, of places of numeric axes.
    :param coefficients: [pieces, L, S], in the order of the product of ``lows``.
    """

    columns: tuple[Any, ...]
    lows: tuple[list[Any], ...]
    numeric: tuple[int, ...]
    subsets: tuple[tuple[int, ...], ...]
    coefficients: AnyNDArray


def _pieces(model: Model, term: Mapping[str, Any]) -> Pieces:
    axes = term["axes"]
    values = np.asarray(term["values"], dtype=np.float64)
    values = values.reshape(*(axis["size"] for axis in axes), -1)
    numeric = tuple(i for i, axis in enumerate(axes) if axis["knots"] is not None)
    subsets = tuple(s for r in range(len(numeric) + 1) for s in itertools.combinations(numeric, r))
    parts = []
    for subset in subsets:
        part = values
        for i in numeric:
            steps = np.diff(axes[i]["knots"]).reshape(-1, *[1] * (values.ndim - 1 - i))
            part = (
                np.diff(part, axis=i) / steps
                if i in subset
                else np.take(part, range(part.shape[i] - 1), axis=i)
            )
        parts.append(part)
    coefficients = np.stack(parts, axis=-1)
    lows = []
    for axis in axes:
        levels = model["columns"][axis["column"]]["levels"]
        lows.append(
            [*levels, None][: axis["size"]] if axis["knots"] is None else axis["knots"][:-1]
        )
    columns = tuple(axis["column"] for axis in axes)
    flat = coefficients.reshape(-1, *coefficients.shape[-2:])
    return Pieces(columns, tuple(lows), numeric, subsets, flat)


def _link_table(link: Mapping[str, Any]) -> tuple[AnyNDArray, AnyNDArray]:
    """A response that formats have no function for, as knots and values [K, C]."""
    if link["name"] == "table":
        return np.array(link["predictor"]), np.array(link["response"])
    knots = np.linspace(-8.0, 8.0, 4001)
    return knots, scorer.LINKS[link["name"]](knots)[:, None]


# --- SQL -----------------------------------------------------------------------------------------

_SQL_LINKS = {
    "identity": "{f}",
    "log": "exp({f})",
    "logit": "1.0 / (1.0 + exp(-({f})))",
    "cloglog": "1.0 - exp(-exp({f}))",
    "cauchit": "0.5 + atan({f}) / 3.141592653589793",
    "inverse": "1.0 / ({f})",
    "sqrt": "({f}) * ({f})",
}


def _sql(model: Model, table: str) -> str:
    """One SELECT, in the words that DuckDB, SQLite and PostgreSQL share."""
    L = len(model["constant"])
    tables, joins, sums = [], [], [[f"{_real(c)}"] for c in model["constant"]]
    sums[0] += [
        f"{_real(model['offset']['factor'])} * {_sql_column(model, name)}"
        for name in model["offset"]["columns"]
    ]
    for t, term in enumerate(term for term in model["terms"] if term["axes"]):
        pieces, name = _pieces(model, term), f"t{t + 1}"
        header, conditions, at = [], [], {}
        for i, (column, lows) in enumerate(zip(pieces.columns, pieces.lows)):
            x = _sql_column(model, column, term["axes"][i]["period"], term["axes"][i]["knots"])
            if i in pieces.numeric:
                header += [f"low{i}", f"high{i}", f"at{i}"]
                conditions.append(f"{x} >= {name}.low{i} AND {x} < {name}.high{i}")
                at[i] = f"({x} - {name}.at{i})"
            else:
                header.append(f"level{i}")
                same = f"{x} = {name}.level{i}"
                if lows[-1] is None:
                    known = ", ".join(map(_literal, lows[:-1]))
                    same = f"({same} OR ({name}.level{i} IS NULL AND {x} NOT IN ({known})))"
                conditions.append(same)
        header += [f"c{q}_{s}" for q in range(L) for s in range(len(pieces.subsets))]
        rows = []
        bounds = [
            _bounds(lows) if i in pieces.numeric else [[v] for v in lows]
            for i, lows in enumerate(pieces.lows)
        ]
        for key, row in zip(itertools.product(*bounds), pieces.coefficients):
            cells = [_literal(v) for part in key for v in part] + [_real(v) for v in row.ravel()]
            rows.append(f"({', '.join(cells)})")
        values = ",\n    ".join(rows)
        title = " ".join(term["name"].split())  # a comment is one line
        tables.append(f"-- {title}\n{name} ({', '.join(header)}) AS (VALUES\n    {values})")
        joins.append(f"LEFT JOIN {name} ON {' AND '.join(conditions)}")
        for q in range(L):
            products = [
                " * ".join([f"{name}.c{q}_{s}", *(at[i] for i in subset)])
                for s, subset in enumerate(pieces.subsets)
            ]
            sums[q].append(_sql_by(model, term["by"], " + ".join(products)))
    names = ["predictor"] if L == 1 else [f"predictor_{p}" for p in model["predictors"]]
    totals = ",\n        ".join(
        f"{' + '.join(parts)} AS {_quoted(n)}" for n, parts in zip(names, sums)
    )
    scored = (
        f"scored AS (\n    SELECT d.*,\n        {totals}\n    FROM {_quoted(table)} AS d\n    "
        + "\n    ".join(joins)
        + ")"
    )
    response, join = _sql_response(model, names, tables)
    whole = ",\n".join([*tables, scored])
    return f"WITH\n{whole}\nSELECT scored.*, {response}\nFROM scored{join};\n"


def _sql_response(model: Model, names: list[str], tables: list[str]) -> tuple[str, str]:
    link = model["link"]["name"]
    if link == "softmax":
        total = " + ".join(f"exp({_quoted(n)})" for n in names)
        shares = zip(_classes(model, len(names)), names)
        return ", ".join(f"exp({_quoted(n)}) / ({total}) AS {_quoted(c)}" for c, n in shares), ""
    f = f"scored.{_quoted(names[0])}"
    if link in _SQL_LINKS:
        return f"{_SQL_LINKS[link].format(f=f)} AS response", ""
    knots, values = _link_table(model["link"])
    # beyond the table the response stays what it is at its ends
    knots, values = (
        np.r_[knots[0] - 1.0, knots, knots[-1] + 1.0],
        values[[0, *range(len(values)), -1]],
    )
    slopes = np.diff(values, axis=0) / np.diff(knots)[:, None]
    ends = _bounds(knots[:-1].tolist())
    rows = [[*end, *np.column_stack([v, s]).ravel()] for end, v, s in zip(ends, values, slopes)]
    K = values.shape[1]
    header = ", ".join(["low", "high", "at", *(f"{c}{k}" for k in range(K) for c in "vs")])
    text = ",\n    ".join(f"({', '.join(_real(v) for v in row)})" for row in rows)
    tables.append(f"-- from the predictor to the response\nlink ({header}) AS (VALUES\n    {text})")
    shown = ", ".join(
        f"link.v{k} + link.s{k} * ({f} - link.at) AS {_quoted(c)}"
        for k, c in enumerate(_classes(model, K))
    )
    return shown, f"\nLEFT JOIN link ON {f} >= link.low AND {f} < link.high"


def _classes(model: Model, number: int) -> list[str]:
    if number == 1:
        return ["response"]
    return [f"response_{c}" for c in model["classes"] or range(number)]


def _bounds(lows: Sequence[float]) -> list[list[float]]:
    """Where pieces are taken, and from where they are measured; the outer ones have no end."""
    return [
        [-1e308 if i == 0 else low, 1e308 if i == len(lows) - 1 else lows[i + 1], low]
        for i, low in enumerate(lows)
    ]


def _sql_column(
    model: Model, column: Any, period: float | None = None, knots: list[float] | None = None
) -> str:
    about = model["columns"][column]
    x = f"d.{_quoted(column)}"
    if about["fill"] is not None:
        x = f"COALESCE({x}, {_literal(about['fill'])})"
    if about["levels"] is not None:
        return x
    x = f"CAST({x} AS DOUBLE PRECISION)"
    if period is not None and knots is not None:
        low = _real(knots[0])
        return f"({x} - {_real(period)} * floor(({x} - {low}) / {_real(period)}))"
    return x


def _sql_by(model: Model, by: Mapping[str, Any] | None, value: str) -> str:
    if by is None:
        return f"({value})"
    x = _sql_column(model, by["column"])
    if by["code"] is None:
        return f"{x} * ({value})"
    levels = model["columns"][by["column"]]["levels"]
    level, known = _literal(levels[by["code"]]), ", ".join(map(_literal, levels))
    return f"CASE WHEN {x} = {level} THEN {value} WHEN {x} IN ({known}) THEN 0.0 END"


def _real(value: Any) -> str:
    return f"{float(value):.15e}"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        quoted = value.replace("'", "''")
        return f"'{quoted}'"
    if isinstance(value, bool):
        return str(value).upper()
    return _real(value) if isinstance(value, float) else str(value)


def _quoted(name: Any) -> str:
    text = str(name).replace('"', '""')
    return f'"{text}"'


# --- Excel ---------------------------------------------------------------------------------------

_XLSX_LINKS = {
    **_SQL_LINKS,
    "probit": "NORMSDIST({f})",
    "cauchit": "0.5+ATAN({f})/PI()",
}


def _xlsx(model: Model) -> bytes:
    """A sheet for each term, and one whose formulas score what is typed into it."""
    letter = _openpyxl().utils.get_column_letter
    link, L = model["link"]["name"], len(model["constant"])
    if link not in (*_XLSX_LINKS, "softmax"):
        raise ValueError(
            f"model: the response of family {model['family']!r} is no function that Excel has; "
            "export JSON or SQL."
        )
    _check_xlsx_levels(model)
    book = _openpyxl().Workbook()
    score = book.active
    score.title = "score"
    cells = {name: f"${letter(i + 1)}{{row}}" for i, name in enumerate(model["columns"])}
    header, formulas, taken = list(model["columns"]), [], {"score"}
    sums = [[repr(float(constant))] for constant in model["constant"]]
    factor = repr(float(model["offset"]["factor"]))
    sums[0] += [f"{factor}*{cells[name]}" for name in model["offset"]["columns"]]
    for term in (term for term in model["terms"] if term["axes"]):
        sheet = book.create_sheet(_sheet_name(term["name"], taken))
        for q, formula in enumerate(_term_sheet(model, term, sheet, cells)):
            formulas.append(formula)
            sums[q].append(f"{letter(len(header) + 1)}{{row}}")
            header.append(term["name"] if L == 1 else f"{term['name']}, {model['predictors'][q]}")
    predictors = [f"{letter(len(header) + q + 1)}{{row}}" for q in range(L)]
    if link == "softmax":
        whole = "+".join(f"EXP({p})" for p in predictors)
        responses = [f"EXP({p})/({whole})" for p in predictors]
    else:
        responses = [_XLSX_LINKS[link].format(f=predictors[0]).replace("exp(", "EXP(")]
    header += ["predictor"] if L == 1 else [f"predictor {p}" for p in model["predictors"]]
    header += _classes(model, len(responses))
    formulas += ["+".join(parts) for parts in sums] + responses
    for place, title in enumerate(header, start=1):
        _write_column(score, place, [title])
    needed = [cells[name] for name, about in model["columns"].items() if about["fill"] is None]
    lacking = f"OR({','.join(f'ISBLANK({cell})' for cell in needed)})" if needed else "FALSE"
    inputs = f"{cells[header[0]]}:{cells[header[len(cells) - 1]]}"
    for row in range(2, _INPUT_ROWS + 2):
        for place, formula in enumerate(formulas, start=len(cells) + 1):
            text = f'=IF(COUNTA({inputs})=0,"",IF({lacking},NA(),{formula}))'
            score.cell(row, place, text.replace("{row}", str(row)))
    score.freeze_panes = "A2"
    content = BytesIO()
    book.save(content)
    return content.getvalue()


def _openpyxl() -> Any:
    try:
        import openpyxl
    except ModuleNotFoundError:
        raise ImportError(
            "Excel files are written with the package openpyxl: pip install openpyxl."
        ) from None
    return openpyxl


def _check_xlsx_levels(model: Model) -> None:
    """Excel looks text up whatever its case is, and takes some characters for any."""
    for name, about in model["columns"].items():
        texts = [v for v in about["levels"] or () if isinstance(v, str)]
        wild = [v for v in texts if re.search(r"[*?~]", v)]
        if wild or len({v.lower() for v in texts}) < len(texts):
            what = f"the level {wild[0]!r}" if wild else "levels that differ in capitals alone"
            raise ValueError(
                f"model: column {name!r} has {what}, which Excel cannot look up; rename them "
                "before the fit, or export JSON or SQL."
            )


def _write_column(sheet: Any, place: int, values: Sequence[Any]) -> None:
    for row, value in enumerate(values, start=1):
        cell = sheet.cell(row, place, value)
        if isinstance(value, str):  # a formula is none
            cell.data_type = "s"


def _term_sheet(
    model: Model, term: Mapping[str, Any], sheet: Any, cells: Mapping[str, str]
) -> list[str]:
    """Write a term's pieces; a formula for each predictor."""
    letter, L = _openpyxl().utils.get_column_letter, len(model["constant"])
    pieces = _pieces(model, term)
    quoted = "'" + sheet.title + "'"
    number, width = len(pieces.coefficients), len(pieces.columns)

    def area(place: int, size: int) -> str:
        return f"{quoted}!${letter(place)}$2:${letter(place)}${size + 1}"

    position, steps = "", {}
    for i, (column, lows) in enumerate(zip(pieces.columns, pieces.lows)):
        _write_column(sheet, i + 1, [column, *("(new)" if v is None else v for v in lows)])
        x, size = _xlsx_column(model, cells[column], column, term["axes"][i]), len(lows)
        if i in pieces.numeric:
            at = f"IFERROR(MATCH({x},{area(i + 1, size)},1),1)"
            steps[i] = f"({x}-INDEX({area(i + 1, size)},{at}))"
        else:
            at = f"MATCH({x},{area(i + 1, size)},0)"
            at = f"IFERROR({at},{size})" if lows[-1] is None else at
        position = f"({position}-1)*{size}+{at}" if position else at
    formulas = []
    for q in range(L):
        parts = []
        for s, subset in enumerate(pieces.subsets):
            place = width + q * len(pieces.subsets) + s + 1
            by = " x ".join(str(pieces.columns[i]) for i in subset)
            title = f"slope in {by}" if subset else "value"
            title = title if L == 1 else f"{title}, {model['predictors'][q]}"
            _write_column(sheet, place, [title, *pieces.coefficients[:, q, s].tolist()])
            found = f"INDEX({area(place, number)},{position})"
            parts.append("*".join([found, *(steps[i] for i in subset)]))
        formulas.append(_xlsx_by(model, term["by"], cells, "+".join(parts)))
    return formulas


def _xlsx_column(model: Model, cell: str, column: Any, axis: Mapping[str, Any]) -> str:
    fill = model["columns"][column]["fill"]
    if fill is not None:
        cell = f"IF(ISBLANK({cell}),{_xlsx_literal(fill)},{cell})"
    if axis["period"] is None:
        return cell
    low = repr(float(axis["knots"][0]))
    return f"({low}+MOD({cell}-{low},{float(axis['period'])!r}))"


def _xlsx_by(
    model: Model, by: Mapping[str, Any] | None, cells: Mapping[Any, str], value: str
) -> str:
    if by is None:
        return value
    x = cells[by["column"]]
    if by["code"] is None:
        return f"{x}*({value})"
    level = model["columns"][by["column"]]["levels"][by["code"]]
    return f"IF({x}={_xlsx_literal(level)},{value},0)"


def _xlsx_literal(value: Any) -> str:
    return _quoted(value) if isinstance(value, str) else str(value).upper()


def _sheet_name(name: str, taken: set[str]) -> str:
    """A name that Excel takes, of at most 31 characters, and no other sheet has."""
    plain = re.sub(r"[\[\]:*?/\\']", "_", name)[:28]
    unique, number = plain, 2
    while unique.lower() in taken:
        unique, number = f"{plain}_{number}", number + 1
    taken.add(unique.lower())
    return unique


# --- PMML ----------------------------------------------------------------------------------------

_PMML_LINKS = {"identity": "none", "log": "exp"} | {
    name: name for name in ("logit", "probit", "cloglog", "cauchit")
}


def _pmml(model: Model) -> bytes:
    """A regression of derived fields, one for each term."""
    link = model["link"]["name"]
    if len(model["constant"]) > 1 or link not in _PMML_LINKS:
        raise ValueError(
            f"model: PMML has no regression for family {model['family']!r}; export JSON or SQL."
        )
    namespace = "http://www.dmg.org/PMML-4_4"
    root = ElementTree.Element("PMML", {"xmlns": namespace, "version": "4.4"})
    header = SubElement(root, "Header")
    SubElement(header, "Application", {"name": "gpflow_gam", "version": model["gpflow_gam"]})
    fields = SubElement(root, "DataDictionary")
    derived = SubElement(root, "TransformationDictionary")
    regression = SubElement(
        root,
        "RegressionModel",
        {"functionName": "regression", "normalizationMethod": _PMML_LINKS[link]},
    )
    schema = SubElement(regression, "MiningSchema")
    for name, about in model["columns"].items():
        _pmml_field(fields, schema, str(name), about)
    response = str(model["response"] or "response")
    kind = {"name": response, "optype": "continuous", "dataType": "double"}
    SubElement(fields, "DataField", kind)
    SubElement(schema, "MiningField", {"name": response, "usageType": "target"})
    table = SubElement(regression, "RegressionTable", {"intercept": repr(model["constant"][0])})
    for name in model["offset"]["columns"]:
        factor = repr(model["offset"]["factor"])
        SubElement(table, "NumericPredictor", {"name": str(name), "coefficient": factor})
    for t, term in enumerate(term for term in model["terms"] if term["axes"]):
        name = f"term{t + 1}"
        _pmml_term(model, derived, name, term)
        SubElement(table, "NumericPredictor", {"name": name, "coefficient": "1"})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _pmml_field(fields: Any, schema: Any, name: str, about: Mapping[str, Any]) -> None:
    levels = about["levels"]
    kind = {"name": name, "optype": "continuous", "dataType": "double"}
    if levels is not None:
        types = {str: "string", bool: "boolean", int: "integer"}
        of = types.get(type(levels[0]), "double")
        kind |= {"optype": "categorical", "dataType": of}
    SubElement(fields, "DataField", kind)
    used = {"name": name}
    if about["fill"] is not None:
        used["missingValueReplacement"] = _plain(about["fill"])
    SubElement(schema, "MiningField", used)


def _pmml_term(model: Model, derived: Any, name: str, term: Mapping[str, Any]) -> None:
    if len(term["axes"]) > 1:
        raise ValueError(
            f"model: {term['name']} is a function of several columns, which PMML has no table for; "
            "export JSON or SQL."
        )
    (axis,), by = term["axes"], term["by"]
    values = [row[0] for row in term["values"]]
    inner = name if by is None else f"{name}_alone"
    x = str(axis["column"])
    if axis["period"] is not None:
        x = _pmml_wrapped(derived, name, axis)
    field = _pmml_derived(derived, inner)
    if axis["knots"] is None:
        levels = model["columns"][axis["column"]]["levels"]
        new = repr(values[-1]) if len(values) > len(levels) else None
        _pmml_map(field, x, zip(map(_plain, levels), map(repr, values)), new)
    else:
        norm = SubElement(field, "NormContinuous", {"field": x, "outliers": "asIs"})
        for knot, value in zip(axis["knots"], values):
            pair = {"orig": repr(knot), "norm": repr(value)}
            SubElement(norm, "LinearNorm", pair)
    if by is None:
        return
    multiplier = str(by["column"])
    if by["code"] is not None:
        levels = model["columns"][by["column"]]["levels"]
        multiplier = f"{name}_there"
        ones = ("1" if i == by["code"] else "0" for i in range(len(levels)))
        _pmml_map(
            _pmml_derived(derived, multiplier), str(by["column"]), zip(map(_plain, levels), ones)
        )
    product = SubElement(_pmml_derived(derived, name), "Apply", {"function": "*"})
    for factor in (multiplier, inner):
        SubElement(product, "FieldRef", {"field": factor})


def _pmml_derived(derived: Any, name: str) -> Any:
    kind = {"name": name, "optype": "continuous", "dataType": "double"}
    return SubElement(derived, "DerivedField", kind)


def _pmml_wrapped(derived: Any, name: str, axis: Mapping[str, Any]) -> str:
    """``x - period floor((x - low) / period)``."""

    def apply(parent: Any, function: str) -> Any:
        return SubElement(parent, "Apply", {"function": function})

    def constant(parent: Any, value: float) -> None:
        SubElement(parent, "Constant", {"dataType": "double"}).text = repr(float(value))

    x = {"field": str(axis["column"])}
    whole = apply(_pmml_derived(derived, f"{name}_within"), "-")
    SubElement(whole, "FieldRef", x)
    times = apply(whole, "*")
    constant(times, axis["period"])
    share = apply(apply(times, "floor"), "/")
    from_low = apply(share, "-")
    SubElement(from_low, "FieldRef", x)
    constant(from_low, axis["knots"][0])
    constant(share, axis["period"])
    return f"{name}_within"


def _pmml_map(field: Any, column: str, pairs: Any, default: str | None = None) -> None:
    kind = {"outputColumn": "value", "dataType": "double"}
    if default is not None:
        kind["defaultValue"] = default
    mapped = SubElement(field, "MapValues", kind)
    SubElement(mapped, "FieldColumnPair", {"field": column, "column": "level"})
    table = SubElement(mapped, "InlineTable")
    for level, value in pairs:
        row = SubElement(table, "row")
        SubElement(row, "level").text = level
        SubElement(row, "value").text = value


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
