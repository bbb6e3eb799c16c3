"""
A classifier that knows when to ask
===================================

Handwritten digits (scikit-learn), read by a small network. In a sorting office the doubtful ones go
to a person. How many must be passed on so that hardly any error stays? Dense is compared with an
additive Gaussian process in its place.
"""

import keras
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gpflow_gam as gg

images, digits = load_digits(return_X_y=True)
images = (images / 16.0).astype("float32")
X, Xt, y, yt = train_test_split(images, digits, test_size=0.5, random_state=0, stratify=digits)


def train(last):
    """A network with a last layer, trained with Keras' defaults."""
    keras.utils.set_random_seed(1)
    network = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(6), last]
    )
    loss = getattr(last, "loss", "sparse_categorical_crossentropy")
    network.compile("adam", loss=loss)
    network.fit(X, y, epochs=12, batch_size=32, verbose=0)
    return network


dense = train(keras.layers.Dense(10, "softmax")).predict(Xt, verbose=0)
terms = gg.s(0) + gg.s(1) + gg.s(2) + gg.s(3) + gg.s(4) + gg.s(5)
head = gg.layers.AdditiveGP(terms, "softmax", num_classes=10, num_data=len(X))
network = train(head)
response = head(network.layers[-2].output, output="response")
gp = keras.Model(network.inputs, response).predict(Xt, verbose=0)

# %%
# Probabilities should say how often a class is right. The log score counts sure mistakes most:

for name, p in (("Dense", dense), ("AdditiveGP", gp)):
    right = p.argmax(axis=1) == yt
    score = -np.mean(np.log(p[np.arange(len(yt)), yt]))
    print(f"{name:10s} right {right.mean():.3f}, log score {score:.3f}")

# %%
# Pass on the least sure first, and count the errors among those that stay:

figure, ax = plt.subplots(figsize=(5.6, 3.8), layout="constrained")
for name, p in (("Dense", dense), ("AdditiveGP", gp)):
    wrong = (p.argmax(axis=1) != yt)[np.argsort(p.max(axis=1))]
    left = wrong[::-1].cumsum()[::-1] / np.arange(len(wrong), 0, -1)
    passed = np.arange(len(wrong)) / len(wrong)
    ax.plot(100 * passed, 100 * left, label=name)
ax.set(xlim=(0, 30), xlabel="passed on to a person (%)", ylabel="errors among the rest (%)")
ax.set_ylim(bottom=0)
ax.legend(frameon=False)
plt.show()

# %%
# What to check
# -------------
#
# Log score and calibration of both on held-out data: ``head.metric("nlpd")`` in ``compile``.
# ``head.draw()`` shows how each feature speaks for each class, ``head.summary()`` which count.
#
# What could go wrong
# -------------------
#
# The head is uncertain where features are unlike those of training. What the network does not look
# at it cannot miss: pictures of letters may have the features of digits. The networks are compared
# after 12 epochs: Dense needs more of them and comes nearer. Compare over several seeds, too.
