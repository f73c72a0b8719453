"""GLUE without pretraining or order of words: the commonest answer, and a bag of words.

    glue-bag-of-words.py GLUE OUTPUT.csv    # in the repository's root

The bag: TF-IDF of words and pairs of words of each text; for two texts also how alike they are.
Logistic or ridge regression, its strength chosen by cross-validation on the training set.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import hstack
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import GridSearchCV

sys.path.insert(0, "examples/roberta")
from finetune import find_file, label_of, read_rows, read_task
from scores import label_scores

TASKS = ("RTE", "MRPC", "STS-B", "CoLA", "SST-2")


def read(task, path):
    """Texts, a list for each column, and labels."""
    rows = read_rows(path, [*task.text, task.label], task.columns)
    *texts, labels = map(list, zip(*rows, strict=True))
    return texts, [label_of(label, task, str(path)) for label in labels]


def bag(vectorizer, texts):
    """Features of the texts (samples, features)."""
    sides = [vectorizer.transform(text) for text in texts]
    if len(sides) == 1:
        return sides[0]
    first, second = sides
    alike = np.asarray(first.multiply(second).sum(1))  # cosines
    return hstack([first, second, abs(first - second), alike, alike**2]).tocsr()


def main():
    with open(sys.argv[2], "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["task", "metric", "commonest answer", "bag of words"])
        for name in TASKS:
            task, folder = read_task(name), Path(sys.argv[1]) / name
            texts, labels = read(task, find_file(folder, task.train))
            dev, right = read(task, find_file(folder, task.dev[name]))
            vectorizer = TfidfVectorizer(ngram_range=(1, 2), token_pattern=r"(?u)\b\w+\b")
            vectorizer.fit(text for side in texts for text in side)
            if task.labels:
                metric = {"matthews": "matthews_corrcoef"}.get(task.metrics[0], "accuracy")
                strengths = {"C": [0.1, 1, 10, 100]}
                search = GridSearchCV(
                    LogisticRegression(solver="liblinear"), strengths, scoring=metric
                )
                models = DummyClassifier(), search
            else:
                models = DummyRegressor(), RidgeCV([0.1, 1, 10, 100])
            scores = []
            for model in models:
                model.fit(bag(vectorizer, texts), labels)
                predictions = model.predict(bag(vectorizer, dev))
                scores.append(label_scores(task.metrics, right, predictions))
            for metric in task.metrics:
                table.writerow([name, metric, *(f"{score[metric]:.2f}" for score in scores)])
            file.flush()


main()
