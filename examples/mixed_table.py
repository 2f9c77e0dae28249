"""scikit-learn: numbers and categories in one table, with missing values.

A `ColumnTransformer` fills in what is missing and encodes the categories, and the estimator does
the rest. Beside it: logistic regression and a multi-layer perceptron behind the same columns.

    pip install . pandas
    python examples/mixed_table.py [FOLDER]      # about 15 seconds
"""

import pickle
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from csgmcmc.estimators import BayesianMLPClassifier

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/mixed_table")
rng = np.random.default_rng(0)
rows = 700
age, income = rng.uniform(18, 80, rows), rng.lognormal(10, 0.6, rows)
region = rng.choice(["north", "south", "islands"], rows)
plan = rng.choice(["free", "paid"], rows)
score = np.cos(age / 8) * np.where(region == "south", 2, 1) + np.log(income / 22_000)
stays = rng.uniform(size=rows) < 1 / (1 + np.exp(-2 * np.where(plan == "paid", score, -score)))
table = pd.DataFrame({"age": age, "income": income, "region": region, "plan": plan})
table = table.mask(rng.uniform(size=table.shape) < 0.05)  # 5% are missing
train, test, y, y_test = train_test_split(table, stays, test_size=300, random_state=0)

columns = make_column_transformer(
    (make_pipeline(SimpleImputer(add_indicator=True), StandardScaler()), ["age", "income"]),
    (OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["region", "plan"]),
)
warnings.simplefilter("ignore", ConvergenceWarning)  # of the MLP, which stops at max_iter
models = {
    "logistic regression": LogisticRegression(),
    "one perceptron": MLPClassifier(random_state=0),
    "posterior": BayesianMLPClassifier(random_state=0),
}
for name, model in models.items():
    pipeline = make_pipeline(columns, model).fit(train, y)
    loss, accuracy = log_loss(y_test, pipeline.predict_proba(test)), pipeline.score(test, y_test)
    print(f"{name:20} log loss {loss:.3f}, accuracy {accuracy:.1%}")

models["posterior"].check(columns.transform(test), y_test, show=True)
folder.mkdir(parents=True, exist_ok=True)
(folder / "pipeline.pickle").write_bytes(pickle.dumps(pipeline))  # the last one: the posterior
