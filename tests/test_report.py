"""Reports: one page of HTML that needs nothing else."""

import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

import gpflow_gam as gg

RNG = np.random.default_rng(0)
N = 120
DATA = pd.DataFrame({"x": RNG.uniform(0, 1, N), "g": RNG.choice(["a<b", "c&d"], N)})
DATA["y"] = RNG.poisson(np.exp(np.sin(5.0 * DATA.x) + 2.0 * RNG.normal(size=N)))


class Page(HTMLParser):
    """What is in a page: its tags, in balance, its names, its text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "clip-path"):
                self.links.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def gam():
    with pytest.warns(gg.DispersionWarning):
        return gg.GAM("y ~ s(x, k=8) + factor(g)", "poisson").fit(DATA)


def test_a_page_that_needs_nothing_else(gam, tmp_path):
    with pytest.warns(gg.DispersionWarning):
        other = gg.GAM("y ~ s(x, k=8)", "poisson").fit(DATA)
    path = tmp_path / "model.html"
    gam.report(path, others={"without <g>": other}, title="Counts & more")
    page = Page(path.read_text(encoding="utf-8"))
    assert len(set(page.ids)) == len(page.ids)
    own = {f"#{name}" for name in page.ids} | {f"url(#{name})" for name in page.ids}
    assert page.links
    assert set(page.links) <= own  # nothing from elsewhere
    edf = gam.summary().table.loc["s(x)", "edf"]
    dispersion = gam.summary().dispersion.value
    levels = DATA.g.value_counts()
    for part in (
        "Counts & more", f"{edf:.2f}", "DispersionWarning", f"dispersion {dispersion:.2f}",
        f"a<b ({levels['a<b']})", "without <g>", "family poisson and log link", gg.__version__,
        "factor(g) | c&d", f"{DATA.x.median():.4g}", "Vehtari",
    ):  # fmt: skip
        assert part in page.text
    # what is there to copy is what the methods give
    table = page.text.split(f"coefficients, {len(gam.coefficients())} rows")[1].split("\n", 1)[1]
    columns = list(gam.coefficients().columns)
    first = float(table.split("\t")[columns.index("estimate")])
    assert first == pytest.approx(gam.coefficients().estimate.iloc[0], rel=1e-5)


def test_a_file_is_not_replaced_unasked(gam, tmp_path):
    path = tmp_path / "model.html"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        gam.report(path)
    assert path.read_text() == "mine"
    gam.report(path, overwrite=True)
    assert "Methods" in path.read_text(encoding="utf-8")


def test_engines_and_classes_have_methods_of_their_own(tmp_path):
    data = DATA.assign(c=np.where(DATA.x + 0.3 * RNG.normal(size=N) > 0.5, "yes", "no"))
    gam = gg.GAM("c ~ s(x, k=8)", "bernoulli", engine="iterncgp").fit(data, max_sweeps=5)
    gam.report(tmp_path / "a.html")
    text = Page((tmp_path / "a.html").read_text(encoding="utf-8")).text
    assert "Newton steps with a probabilistic linear solver" in text
    assert "Adam" not in text
    assert f"no ({np.sum(data.c == 'no')}), yes" in text


EVENTS = "eevent2 levels0 (30), 1 (90)"


@pytest.mark.parametrize(
    ("gam", "rows", "said"),
    [
        (gg.GAM("y ~ x + offset(log(m))", "poisson", weights="w"), ["log(m)offset", "wweights"],
         ["the sum of linear('x') and the offset log(m). ", "Rows counted as w says. "]),
        (gg.GAM("y ~ x", "binomial", trials="m"), ["yresponse", "mtrials"],
         ["We modelled y of m trials in 120 observations"]),
        (gg.GAM("y ~ w", "zero_inflated_poisson"), ["yresponse"],
         ["with family zero_inflated_poisson and log link"]),
        (gg.GAM("x ~ y", ar1="day"), ["(position in its series)order in time"],
         ["The noise was autoregressive of first order along day. "]),
        (gg.GAM("Surv(t, e) ~ x", family="weibull"), ["tresponse", EVENTS],
         ["We modelled Surv(t, e) in"]),
        (gg.GAM("Surv(x, t, e) ~ g", family="cox"), ["tresponse", "xentry", EVENTS],
         ["We modelled Surv(x, t, e) in"]),
    ],
)  # fmt: skip
def test_all_columns_that_a_fit_reads_are_there(gam, rows, said, tmp_path):
    i = np.arange(N)
    data = DATA.assign(m=9.0, w=1.0 + i % 2, day=i, t=1.0 + i, e=i % 4 > 0)
    gam.fit(data.assign(y=data["y"].clip(upper=9))).report(tmp_path / "a.html")
    text = Page((tmp_path / "a.html").read_text(encoding="utf-8")).text
    table = re.sub(r"\s*\n\s*", "", text[text.index("Data") : text.index("Effects")])
    assert [row for row in rows if row not in table] == []
    assert [words for words in said if words not in text] == []


def test_style_of_a_journal_is_of_one_figure(gam):
    before = gam.draw("s(x)")
    figure = gam.draw("s(x)", style="paper")
    assert figure.get_figwidth() < 0.7 * before.get_figwidth()
    (curve,) = (line for line in figure.axes[0].lines if len(line.get_xdata()) > 2)
    assert curve.get_color() == "#0072b2"
    assert gam.draw("s(x)").get_figwidth() == before.get_figwidth()
    with pytest.raises(ValueError, match="style must be one of paper"):
        gam.draw(style="Nature")


def test_times_are_shown_as_times(tmp_path):
    days = pd.date_range("2023-12-30", periods=41, freq="D")
    data = pd.DataFrame({"when": days, "x": np.linspace(0.0, 1.0, 41), "y": RNG.normal(size=41)})
    gg.GAM("y ~ s(when, k=5) + x").fit(data).report(tmp_path / "m.html")
    text = Page((tmp_path / "m.html").read_text(encoding="utf-8")).text
    ends = [f"{day} 00:00:00" for day in ("2023-12-30", "2024-01-19", "2024-02-08")]
    assert "when predictor times " + " ".join(ends) in " ".join(text.split())
    assert "x predictor numbers 0 0.5 1 " in " ".join(text.split())
