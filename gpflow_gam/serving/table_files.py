"""Tables of GAMs as files: JSON, HTML, SQL, Excel, PMML. Predictions need nothing else."""

from __future__ import annotations

import abc
import datetime
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import SubElement

import numpy as np
from gpflow.base import AnyNDArray

from ..archive import replacing
from ..errors import imported
from ..gam import GAM, scorer
from ..gam.editing import EditedGAM
from ..gam.tables import Tables, check_levels
from .servable import unused

Model = Mapping[str, Any]
_OURS = Path(scorer.__file__).parent  # the programs that files come with
_INPUT_ROWS = 200  # rows that a scoring sheet has formulas for


def table_bytes(
    gam: GAM | EditedGAM,
    suffix: str,
    error: float,
    knots: Mapping[Any, Sequence[float]] | None,
    table: str,
    level: float,
) -> bytes:
    """The content of a file."""
    if isinstance(gam, EditedGAM):
        model = gam.document
    elif isinstance(gam, GAM):
        tables = Tables(gam.fitted, error, knots)
        model = tables.document(errors=suffix in (".json", ".html"))
        model["checked"] = tables.checked(model)
    else:
        raise TypeError(f"model: only a GAM is its tables; got {type(gam).__name__}.")
    if suffix == ".xlsx":  # which has dates
        return _xlsx(model)
    for name, about in model["columns"].items():
        check_levels(name, about["levels"] or ())
    check_levels(model["response"], model["classes"] or ())
    if suffix == ".json":
        return (json.dumps(model, allow_nan=False) + "\n").encode()
    if suffix == ".html":
        _check_looked_up(model, "JavaScript")
        return _page(model, level)
    if suffix == ".sql":
        return _sql(model, table).encode()
    return _pmml(model)


def _page(model: Model, level: float) -> bytes:
    """A page that draws the tables, with sliders."""
    page, script = ((_OURS / n).read_text(encoding="utf-8") for n in ("explorer.html", "scorer.js"))
    # as text, since __proto__ is no name in a literal; and no name ends the script
    content = json.dumps(json.dumps(model, allow_nan=False)).replace("<", "\\u003c")
    script = script.replace("</", "<\\/")  # which a comment has
    page = page.replace("/*scorer*/", script).replace("/*level*/0.95", repr(level))
    return page.replace('/*model*/"null"', content).encode()


def write_scorers(folder: Path) -> None:
    """The programs that read the JSON, beside it; no other file of their name is replaced."""
    for name in ("scorer.py", "scorer.js"):
        text = (_OURS / name).read_text(encoding="utf-8")
        path = folder / f"gpflow_gam_{name}"
        if path.exists() and path.read_text(encoding="utf-8")[:80] != text[:80]:
            raise FileExistsError(f"{path} is there already, and is not the scorer of gpflow_gam.")
        with replacing(path) as file:
            file.write(text.encode())


# --- sums of straight pieces in formulas ----------------------------------------------------------


class Pieces(NamedTuple):
    """A function as pieces, each of which is ``sum_S c_S prod_{i in S} (x_i - low_i)``."""

    lows: tuple[list[Any], ...]  # where the pieces of a numeric axis begin, levels of the others
    numeric: tuple[int, ...]  # places of numeric axes
    subsets: tuple[tuple[int, ...], ...]  # S, of these places
    coefficients: AnyNDArray  # [pieces, L, S], in the order of the product of lows


def _pieces(model: Model, axes: Sequence[Mapping[str, Any]], table: Any) -> Pieces:
    values = np.asarray(table, dtype=np.float64).reshape(*(axis["size"] for axis in axes), -1)
    numeric = tuple(i for i, axis in enumerate(axes) if axis["knots"] is not None)
    subsets = tuple(s for r in range(len(numeric) + 1) for s in itertools.combinations(numeric, r))
    parts = []
    for subset in subsets:
        part = values
        for i in numeric:
            steps = np.diff(axes[i]["knots"]).reshape(-1, *[1] * (values.ndim - 1 - i))
            slopes = np.diff(part, axis=i) / steps
            part = slopes if i in subset else np.take(part, range(part.shape[i] - 1), axis=i)
        parts.append(part)
    coefficients = np.stack(parts, axis=-1)
    lows = tuple(
        axis["knots"][:-1]
        if axis["knots"] is not None
        else [*model["columns"][axis["column"]]["levels"], None][: axis["size"]]
        for axis in axes
    )
    return Pieces(lows, numeric, subsets, coefficients.reshape(-1, *coefficients.shape[-2:]))


class _Formulas(abc.ABC):
    """Formulas of a model in the words of a format."""

    floor: ClassVar[str] = "floor"
    links: ClassVar[dict[str, str]] = {
        "identity": "{f}",
        "log": "exp({f})",
        "logit": "1.0 / (1.0 + exp(-({f})))",
        "cloglog": "1.0 - exp(-exp({f}))",
        "cauchit": "0.5 + atan({f}) / 3.141592653589793",
        "inverse": "1.0 / ({f})",
        "sqrt": "({f}) * ({f})",
    }
    # beyond which exp is an error of PostgreSQL's, and the response one of its ends
    bounds: ClassVar[dict[str, tuple[float, float]]] = {
        "log": (-708.0, 709.0),
        "logit": (-708.0, 708.0),
        "cloglog": (-708.0, 6.0),
    }

    def __init__(self, model: Model) -> None:
        self.model, self.columns = model, model["columns"]
        self.terms = [term for term in model["terms"] if term["axes"]]

    @abc.abstractmethod
    def column(self, name: str, about: Mapping[str, Any]) -> str:
        """The value of a column, or what it is filled with."""

    def finite(self, x: str) -> str:
        """A number, or nothing where it is none."""
        return x

    @abc.abstractmethod
    def chosen(self, x: str, name: str, code: int, value: str) -> str:
        """The value where x is one level of a column, zero at others."""

    @abc.abstractmethod
    def within(self, f: str, low: float, high: float) -> str:
        """A predictor, moved to the nearest bound where it is beyond."""

    def read(self, name: str, period: float | None = None, knots: Any = None) -> str:
        """A column's value, within its period."""
        x = self.column(name, self.columns[name])
        if period is None:
            return x
        low, length = _literal(float(knots[0])), _literal(float(period))
        return f"({x} - {length} * {self.floor}(({x} - {low}) / {length}))"

    def xs(self, term: Mapping[str, Any]) -> list[str]:
        """The values that a term reads."""
        return [self.read(a["column"], a["period"], a["knots"]) for a in term["axes"]]

    def times(self, by: Mapping[str, Any] | None, value: str) -> str:
        """A term's value, by its variable or level."""
        if by is None:
            return f"({value})"
        x = self.read(by["column"])
        if by["code"] is None:
            return f"{self.finite(x)} * ({value})"
        return self.chosen(x, by["column"], by["code"], value)

    def sums(self, terms: Sequence[Sequence[str]]) -> list[str]:
        """The predictors, from each term's part of them."""
        sums = [[_literal(float(constant))] for constant in self.model["constant"]]
        offset = self.model["offset"]
        factor = _literal(float(offset["factor"]))
        sums[0] += [f"{factor} * {self.finite(self.read(name))}" for name in offset["columns"]]
        return [" + ".join([*one, *parts]) for one, *parts in zip(sums, *terms)]

    def responses(self, fs: Sequence[str]) -> list[str] | None:
        """The response, or probabilities of classes; None where the format has no function."""
        link = self.model["link"]["name"]
        if link == "softmax":
            ratios = ([self.within(f"({g} - {f})", -708.0, 700.0) for g in fs] for f in fs)
            return [f"1.0 / ({' + '.join(f'exp({r})' for r in each)})" for each in ratios]
        f = fs[0]
        if (unit := self.model["link"].get("unit")) is not None:
            k, most = self.model["link"]["bend"], 1e300
            f, t = self.within(f, unit, most), f"(1.0 - {f} / {unit!r})"
            t = self.within(t, 0.0, most if k == 1.0 else 700.0)
            curve = f"exp(-({t}))" if k is None else f"power(1.0 + {k!r} * {t}, {-1.0 / k!r})"
            f = f"({f} * {curve})"
        f = self.within(f, *self.bounds[link]) if link in self.bounds else f
        return [self.links[link].format(f=f)] if link in self.links else None

    def titles(self, number: int) -> list[str]:
        """Names of responses."""
        classes = self.model["classes"] or range(number)
        return ["response"] if number == 1 else [f"response_{c}" for c in classes]


# --- SQL -----------------------------------------------------------------------------------------


class _SQL(_Formulas):
    def column(self, name: str, about: Mapping[str, Any]) -> str:
        if about.get("expression") is not None:
            return self._computed(about["expression"])
        x = f"d.{_quoted(name)}"
        if about["fill"] is not None:
            x = f"COALESCE({x}, {_literal(about['fill'])})"
        if about["levels"] is not None or about.get("time"):  # as no text of a date is a number
            return self.finite(x) if float in map(type, about["levels"] or ()) else x
        return f"CAST({x} AS DOUBLE PRECISION)"

    def finite(self, x: str) -> str:
        # databases take NaN for the greatest number
        return f"CASE WHEN {x} BETWEEN -1e308 AND 1e308 THEN {x} END"

    def chosen(self, x: str, name: str, code: int, value: str) -> str:
        levels = [_literal(level) for level in self.columns[name]["levels"]]
        then = f"THEN {value} WHEN {x} IN ({', '.join(levels)}) THEN 0.0"
        if self.columns[name]["new_levels"]:  # none where the value is not known
            then += f" WHEN {x} IS NOT NULL THEN 0.0 * ({value})"
        return f"CASE WHEN {x} = {levels[code]} {then} END"

    def within(self, f: str, low: float, high: float) -> str:
        least, most = _literal(low), _literal(high)
        return f"CASE WHEN {f} < {least} THEN {least} WHEN {f} > {most} THEN {most} ELSE {f} END"

    def _computed(self, tree: Any) -> str:
        if isinstance(tree, dict):
            return self.column(tree["column"], tree)
        if not isinstance(tree, list):
            return _literal(float(tree))
        name, parts = tree[0], [self._computed(part) for part in tree[1:]]
        if name in ("+", "-", "*", "/"):
            return f"({parts[0]} {name} {parts[1]})"
        function = {"log": "ln", "**": "power"}.get(name, name)
        return f"{function}({', '.join(parts)})"


def _sql(model: Model, table: str) -> str:
    """One SELECT, in the words that DuckDB, SQLite and PostgreSQL share."""
    formulas, tables, joins, parts = _SQL(model), [], [], []
    own = "of_gam_" if re.match('"?gam_', table, re.I) else "gam_"  # no table of ours is ``table``
    for t, term in enumerate(formulas.terms):
        title = " ".join(term["name"].split())  # a comment is one line
        pieces = _pieces(model, term["axes"], term["values"])
        held, join, values = _sql_table(f"{own}t{t + 1}", title, pieces, formulas.xs(term))
        tables.append(held)
        joins.append(join)
        parts.append([formulas.times(term["by"], value) for value in values])
    names = model["predictors"]
    names = ["predictor"] if len(names) < 2 else [f"predictor_{p}" for p in names]
    totals = [f"{total} AS {_quoted(n)}" for n, total in zip(names, formulas.sums(parts))]
    # ours are first: of columns of one name, such as of a table that was scored before, databases
    # take the first, and PostgreSQL says that there are two
    select = ",\n        ".join([*totals, "d.*"])
    named = table if table[:1] == '"' else ".".join(map(_quoted, table.split(".")))
    source = "\n    ".join([f"{named} AS d", *joins])
    fs, join = [f"{own}scored.{_quoted(n)}" for n in names], ""
    responses = formulas.responses(fs)
    if responses is None:  # a table, beyond which the response stays what it is at its ends
        # its knots are even, and pieces have numbers: comparing a row with thousands is slow
        knots = np.array(model["link"].get("predictor", np.linspace(-8.0, 8.0, 4001)))
        values = scorer.inverse(model["link"], knots).reshape(len(knots), -1)
        low, high, C = float(knots[0]), float(knots[-1]), values.shape[1]
        step = _literal((high - low) / (len(knots) - 1))
        place = f"(({formulas.within(fs[0], low, high)} - ({_literal(low)})) / {step})"
        header = ["piece", *(f"{c}{q}" for c in ("low", "rise") for q in range(C))]
        each = np.c_[values, np.diff(values, axis=0, append=values[-1:])].tolist()
        held = _values(of := f"{own}link", header, [[i, *row] for i, row in enumerate(each)])
        tables.append(f"-- predictor to response\n{held}")
        join = f"LEFT JOIN {of} ON {of}.piece = floor({place})"
        share = f"({place} - {of}.piece)"
        responses = [f"{of}.low{q} + {of}.rise{q} * {share}" for q in range(C)]
    titles = formulas.titles(len(responses))
    shown = [f"{r} AS {_quoted(title)}" for title, r in zip(titles, responses)]
    tables.append(f"{own}scored AS (\n    SELECT {select}\n    FROM {source})")
    whole = ",\n".join(tables)
    return f"WITH\n{whole}\nSELECT {', '.join(shown)}, {own}scored.*\nFROM {own}scored\n{join};\n"


def _sql_table(
    name: str, title: str, pieces: Pieces, xs: Sequence[str]
) -> tuple[str, str, list[str]]:
    """A table of pieces, how rows find theirs, and formulas of its L values."""
    # Of several axes each has a table of its own, so that pieces are found by their numbers, which
    # databases look up: a surface has thousands, and comparing a row with each is slow.
    alone = len(xs) == 1
    axes, joins, at = [], [], {}
    for i, (x, lows) in enumerate(zip(xs, pieces.lows)):
        axis = name if alone else f"{name}_{i}"
        keys: list[tuple[Any, ...]]
        if i in pieces.numeric:  # the outer ones have no end
            header, condition = ["low", "high", "knot"], f"{x} >= {axis}.low AND {x} < {axis}.high"
            at[i] = f"({x} - {axis}.knot)"
            keys = list(zip([-1e308, *lows[1:]], [*lows[1:], 1e308], lows))
        else:
            header, condition = ["level"], f"{x} = {axis}.level"
            if lows[-1] is None:
                known = ", ".join(map(_literal, lows[:-1]))
                condition = f"({condition} OR ({axis}.level IS NULL AND {x} NOT IN ({known})))"
            keys = [(level,) for level in lows]
        axes.append((axis, header, keys))
        joins.append(f"LEFT JOIN {axis} ON {condition}")
    L, subsets = pieces.coefficients.shape[1], pieces.subsets
    names = [f"c{q}_{s}" for q in range(L) for s in range(len(subsets))]
    rows = pieces.coefficients.reshape(len(pieces.coefficients), -1).tolist()
    if alone:
        ((_, header, keys),) = axes
        held = [_values(name, [*header, *names], [[*k, *row] for k, row in zip(keys, rows)])]
    else:
        held = [_values(a, ["piece", *h], [[p, *k] for p, k in enumerate(ks)]) for a, h, ks in axes]
        places = [f"piece{i}" for i in range(len(axes))]
        each = itertools.product(*(range(len(keys)) for _, _, keys in axes))
        held.append(_values(name, [*places, *names], [[*p, *row] for p, row in zip(each, rows)]))
        same = [f"{name}.piece{i} = {axis}.piece" for i, (axis, _, _) in enumerate(axes)]
        joins.append(f"LEFT JOIN {name} ON {' AND '.join(same)}")
    values = [
        " + ".join(
            " * ".join([f"{name}.c{q}_{s}", *(at[i] for i in subset)])
            for s, subset in enumerate(subsets)
        )
        for q in range(L)
    ]
    return f"-- {title}\n" + ",\n".join(held), "\n    ".join(joins), values


def _values(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table with its content, whose first row says that numbers are in double precision."""
    cells = [[_literal(v) for v in row] for row in rows]
    cast = "CAST({} AS DOUBLE PRECISION)".format
    cells[0] = [cast(c) if isinstance(v, float) else c for c, v in zip(cells[0], rows[0])]
    lines = ",\n    ".join(f"({', '.join(row)})" for row in cells)
    return f"{name} ({', '.join(header)}) AS (VALUES\n    {lines})"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    text = repr(value)  # of all digits; one without an exponent is a decimal to databases
    return f"{text}e0" if isinstance(value, float) and "e" not in text else text


def _quoted(name: Any) -> str:
    return '"' + str(name).replace('"', '""') + '"'


# --- Excel ---------------------------------------------------------------------------------------

_ROW = "\0"  # stands for a row's number in formulas: no cell can hold it, and it has no capital


class _Excel(_Formulas):
    """Formulas of a row of the score sheet."""

    floor: ClassVar[str] = "INT"
    links: ClassVar[dict[str, str]] = {**_Formulas.links, "probit": "NORMSDIST({f})"}

    def __init__(self, model: Model, utils: Any) -> None:
        super().__init__(model)
        self.letter, self.serial = utils.get_column_letter, utils.datetime.to_excel
        self.known: dict[str, str] = {}  # where the levels are that terms are split by
        self.cells = {name: f"${self.letter(i + 1)}{_ROW}" for i, name in enumerate(self.columns)}

    def column(self, name: str, about: Mapping[str, Any]) -> str:
        cell, fill = self.cells[name], about["fill"]
        # a date is days since the end of 1899 in Excel, and since 1970 in tables
        x = f"({cell}-25569)" if about["time"].startswith("times") else cell
        return x if fill is None else f"IF(ISBLANK({cell}),{self.literal(fill)},{x})"

    def chosen(self, x: str, name: str, code: int, value: str) -> str:
        at = f"MATCH({x},{self.known[name]},0)"
        at = f"IFERROR({at},0)" if self.columns[name]["new_levels"] else at
        return f"IF({at}={code + 1},{value},0)"

    def literal(self, value: Any) -> str:
        """A text or number, as dates are to Excel."""
        if isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
            return f"{self.serial(value):.16g}"  # as cells are written
        return _quoted(value) if isinstance(value, str) else str(value).upper()

    def within(self, f: str, low: float, high: float) -> str:
        return f"MAX({low},MIN({f},{high}))"

    def term(self, term: Mapping[str, Any], sheet: Any) -> list[str]:
        """Write a term's pieces into its sheet; a formula for each predictor."""
        pieces, quoted = _pieces(self.model, term["axes"], term["values"]), f"'{sheet.title}'"
        names = [axis["column"] for axis in term["axes"]]
        predictors = self.model["predictors"]

        def area(place: int, size: int) -> str:
            return f"{quoted}!${self.letter(place)}$2:${self.letter(place)}${size + 1}"

        position, steps = "", {}
        for i, (x, lows) in enumerate(zip(self.xs(term), pieces.lows)):
            _write_column(sheet, i + 1, [names[i], *("(new)" if v is None else v for v in lows)])
            size = len(lows)
            if i in pieces.numeric:
                at = f"IFERROR(MATCH({x},{area(i + 1, size)},1),1)"
                steps[i] = f"({x}-INDEX({area(i + 1, size)},{at}))"
            else:
                at = f"MATCH({x},{area(i + 1, size)},0)"
                at = f"IFERROR({at},{size})" if lows[-1] is None else at
            position = f"({position}-1)*{size}+{at}" if position else at
        parts: list[list[str]] = [[] for _ in predictors]
        place = len(names)
        for q, s in itertools.product(range(len(predictors)), range(len(pieces.subsets))):
            place, subset = place + 1, pieces.subsets[s]
            by = " x ".join(str(names[i]) for i in subset)
            title = f"slope in {by}" if subset else "value"
            title = title if len(predictors) == 1 else f"{title}, {predictors[q]}"
            _write_column(sheet, place, [title, *pieces.coefficients[:, q, s].tolist()])
            found = f"INDEX({area(place, len(pieces.coefficients))},{position})"
            parts[q].append("*".join([found, *(steps[i] for i in subset)]))
        by = term["by"]
        if by is not None and by["code"] is not None and by["column"] not in self.known:
            levels = self.columns[by["column"]]["levels"]
            _write_column(sheet, place + 1, [by["column"], *levels])
            self.known[by["column"]] = area(place + 1, len(levels))
        return [self.times(by, "+".join(part)) for part in parts]


def _xlsx(model: Model) -> bytes:
    """A sheet for each term, and one whose formulas score what is typed into it."""
    openpyxl = imported("openpyxl", "an Excel file", "openpyxl")
    excel, predictors = _Excel(model, openpyxl.utils), model["predictors"]
    _check_looked_up(model, "Excel")
    book = openpyxl.Workbook()
    score = book.active
    score.title = "score"
    header, taken = list(model["columns"]), {"score"}
    formulas: list[str] = []

    def shown(titles: Sequence[str], new: Sequence[str]) -> list[str]:
        """Further columns of the score sheet, as other formulas call them."""
        begin = len(header) + 1
        header.extend(titles)
        formulas.extend(new)
        return [f"{excel.letter(begin + i)}{_ROW}" for i in range(len(new))]

    def each(name: str, between: str) -> list[str]:
        return [name] if len(predictors) == 1 else [name + between + p for p in predictors]

    terms = []
    for term in excel.terms:
        plain = re.sub(r"[\[\]:*?/\\'\0-\x1f]", "_", term["name"])[:28]  # of 31 characters at most
        sheet = book.create_sheet(unused(plain, taken))
        terms.append(shown(each(term["name"], ", "), excel.term(term, sheet)))
    totals = shown(each("predictor", " "), excel.sums(terms))
    responses = excel.responses(totals)
    if responses is None:
        raise ValueError(
            f"model: the response of family {model['family']!r} is no function that Excel has; "
            "export JSON or SQL."
        )
    shown(excel.titles(len(responses)), [r.upper() for r in responses])
    for place, title in enumerate(header, start=1):
        _write_column(score, place, [title])
    cells = excel.cells
    needed = [cells[name] for name, about in model["columns"].items() if about["fill"] is None]
    lacking = f"OR({','.join(f'ISBLANK({cell})' for cell in needed)})" if needed else "FALSE"
    inputs = f"{cells[header[0]]}:{cells[header[len(cells) - 1]]}"
    for row in range(2, _INPUT_ROWS + 2):
        for place, formula in enumerate(formulas, start=len(cells) + 1):
            text = f'=IF(COUNTA({inputs})=0,"",IF({lacking},NA(),{formula}))'
            score.cell(row, place, text.replace(_ROW, str(row)))
    score.freeze_panes = "A2"
    content = BytesIO()
    book.save(content)
    return content.getvalue()


def _check_looked_up(model: Model, program: str) -> None:
    """Excel ignores case, cannot look up some characters, and has 15 digits; JavaScript rounds."""
    largest = 10**15 if program == "Excel" else 2**53
    for name, about in model["columns"].items():
        levels = about["levels"] or ()
        texts = [v for v in levels if isinstance(v, str) and program == "Excel"]
        odd: list[Any] = [v for v in texts if re.search(r"[*?~\0-\x08\x0b-\x1f]", v)]
        odd += [v for v in levels if type(v) is int and abs(v) >= largest]
        if odd or len({v.lower() for v in texts}) < len(texts):
            what = f"the level {odd[0]!r}" if odd else "levels that differ in capitals alone"
            raise ValueError(
                f"model: column {name!r} has {what}, which {program} cannot look up; rename them "
                "before the fit, or export JSON or SQL."
            )


def _write_column(sheet: Any, place: int, values: Sequence[Any]) -> None:
    title = re.sub(r"[\0-\x1f]+", " ", values[0])  # which no cell holds, or in other words
    for row, value in enumerate([title, *values[1:]], start=1):
        cell = sheet.cell(row, place, value)
        if isinstance(value, str):  # a formula is none
            cell.data_type = "s"


# --- PMML ----------------------------------------------------------------------------------------

_PMML_LINKS = {n: n for n in ("logit", "probit", "cloglog", "cauchit")}
_PMML_LINKS |= {"identity": "none", "log": "exp"}


def _pmml(model: Model) -> bytes:
    """A regression of derived fields, one for each term."""
    link = model["link"]["name"]
    if len(model["constant"]) > 1 or link not in _PMML_LINKS or "unit" in model["link"]:
        raise ValueError(
            f"model: PMML has no regression for family {model['family']!r}; export JSON or SQL."
        )
    root = ElementTree.Element("PMML", xmlns="http://www.dmg.org/PMML-4_4", version="4.4")
    about = {"name": "gpflow_gam", "version": model["gpflow_gam"]}
    SubElement(SubElement(root, "Header"), "Application", about)
    fields = SubElement(root, "DataDictionary")
    derived = SubElement(root, "TransformationDictionary")
    kind = {"functionName": "regression", "normalizationMethod": _PMML_LINKS[link]}
    regression = SubElement(root, "RegressionModel", kind)
    schema = SubElement(regression, "MiningSchema")
    for name, about in model["columns"].items():
        types = {str: "string", bool: "boolean", int: "integer"}
        of = "double" if about["levels"] is None else types.get(type(about["levels"][0]), "double")
        optype = "continuous" if about["levels"] is None else "categorical"
        SubElement(fields, "DataField", name=str(name), optype=optype, dataType=of)
        filled = {} if about["fill"] is None else {"missingValueReplacement": _plain(about["fill"])}
        SubElement(schema, "MiningField", {"name": str(name), **filled})
    taken = {name.lower() for name in model["columns"]}
    answer = "relative_hazard" if model["family"] == "cox" else str(model["response"] or "response")
    response = unused(answer, taken)  # engines call the prediction predicted_ and its name
    SubElement(fields, "DataField", name=response, optype="continuous", dataType="double")
    SubElement(schema, "MiningField", name=response, usageType="target")
    table = SubElement(regression, "RegressionTable", intercept=repr(model["constant"][0]))
    for name in model["offset"]["columns"]:
        factor = repr(model["offset"]["factor"])
        SubElement(table, "NumericPredictor", name=str(name), coefficient=factor)
    own = "term"  # no column of the data begins so
    while any(name.startswith(own) for name in taken):
        own = f"gam_{own}"
    for t, term in enumerate(term for term in model["terms"] if term["axes"]):
        _pmml_term(model, derived, f"{own}{t + 1}", term)
        SubElement(table, "NumericPredictor", name=f"{own}{t + 1}", coefficient="1")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)


def _pmml_term(model: Model, derived: Any, name: str, term: Mapping[str, Any]) -> None:
    if len(term["axes"]) > 1:
        raise ValueError(
            f"model: {term['name']} is a function of several columns, which PMML has no table for; "
            "export JSON or SQL."
        )

    def field(part: str) -> Any:
        kind = {"name": name + part, "optype": "continuous", "dataType": "double"}
        return SubElement(derived, "DerivedField", kind)

    (axis,), by = term["axes"], term["by"]
    values, x = [row[0] for row in term["values"]], str(axis["column"])
    if axis["period"] is not None:
        low, period = axis["knots"][0], axis["period"]
        whole = ("*", period, ("floor", ("/", ("-", x, low), period)))
        _pmml_apply(field("_within"), ("-", x, whole))
        x = f"{name}_within"
    inner = field("" if by is None else "_alone")
    if axis["knots"] is None:
        _pmml_map(inner, x, model["columns"][axis["column"]]["levels"], values)
    else:
        norm = SubElement(inner, "NormContinuous", field=x, outliers="asIs")
        for knot, value in zip(axis["knots"], values):
            SubElement(norm, "LinearNorm", orig=repr(knot), norm=repr(value))
    if by is None:
        return
    multiplier = str(by["column"])
    if by["code"] is not None:
        about = model["columns"][by["column"]]
        there = np.eye(len(about["levels"]) + about["new_levels"])[by["code"]]
        _pmml_map(field("_there"), multiplier, about["levels"], there.tolist())
        multiplier = f"{name}_there"
    _pmml_apply(field(""), ("*", multiplier, f"{name}_alone"))


def _pmml_apply(parent: Any, formula: Any) -> None:
    """A function and its arguments, the name of a field, or a number."""
    if isinstance(formula, tuple):
        applied = SubElement(parent, "Apply", function=formula[0])
        for argument in formula[1:]:
            _pmml_apply(applied, argument)
    elif isinstance(formula, str):
        SubElement(parent, "FieldRef", field=formula)
    else:
        SubElement(parent, "Constant", dataType="double").text = repr(float(formula))


def _pmml_map(field: Any, column: str, levels: Sequence[Any], values: Sequence[float]) -> None:
    kind = {"outputColumn": "value", "dataType": "double"}
    if len(values) > len(levels):  # of new ones
        kind["defaultValue"] = repr(values[-1])
    mapped = SubElement(field, "MapValues", kind)
    SubElement(mapped, "FieldColumnPair", field=column, column="level")
    table = SubElement(mapped, "InlineTable")
    for level, value in zip(levels, values):
        row = SubElement(table, "row")
        SubElement(row, "level").text = _plain(level)
        SubElement(row, "value").text = repr(value)


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
