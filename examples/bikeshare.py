"""How many bikes are hired each hour? A GAM of a year of real counts: fitted, checked and drawn."""

import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"  # TensorFlow is silent

import matplotlib

import gpflow_gam as gg
from gpflow_gam import factor, s

matplotlib.use("Agg")  # figures are files

bikes = gg.datasets.bikeshare()  # or pandas.read_csv("yours.csv")
held_out = bikes.index % 5 == 4
train, test = bikes[~held_out], bikes[held_out]

gam = gg.GAM(
    s("hr", bs="cyclic", period=24, by=factor("workingday"))
    + s("temp")
    + s("hum")
    + s("windspeed")
    + factor("mnth")
    + factor("weathersit")
    + factor("workingday"),
    family="negative_binomial",  # hires scatter nine times more than a Poisson distribution allows
)
gam.fit(train, y="bikers")
print(gam.summary())

error = test["bikers"] - gam.predict(test)
print(f"\nheld-out R^2: {1.0 - error.var() / test['bikers'].var():.3f}\n")
print(gam.predict(test.head(), interval=0.95))  # estimate, se, lower, upper
figure = gam.draw(  # curves of both kinds of days in one panel
    ["s(hr):workingday", "s(temp)", "s(hum)", "factor(mnth)"],
    overlay=True,
    ncols=2,
    figsize=(7, 5),
    labels={
        "hr": "hour of the day",
        "temp": "temperature (scaled)",
        "hum": "humidity (scaled)",
        "mnth": "month",
    },
)
figure.savefig("bikeshare.png", dpi=200)
