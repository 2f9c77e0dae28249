from pathlib import Path

import numpy as np
import pytest
import torch

from paper.data import uci
from paper.data.uci import SOURCES, TWO_CLASS_NAMES, two_classes, with_intercept

SHARED = Path(__file__).parents[4] / "shared" / "data"


def table_of(name, first_class=0):
    """A table with the rows and columns of a data set, and numbers that all differ."""
    source = SOURCES[name]
    numbers = np.arange(source.rows * source.columns, dtype=float).reshape(source.rows, -1) / 4
    return np.column_stack([numbers, first_class + np.arange(source.rows) % 2])


def write(path, table, delimiter=" ", header=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, table, fmt="%g", delimiter=delimiter, header=header, comments="")


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("inner", ["", "uci"], ids=["folder", "folder above it"])
def test_tables_with_commas_and_the_repositorys_own_are_read_alike(tmp_path, name, inner):
    table = table_of(name, first_class=1)
    write(tmp_path / "own" / inner / SOURCES[name].file, table)
    header = ",".join(f"column{number}" for number in range(table.shape[1]))
    write(tmp_path / "csv" / inner / f"{name}.csv", table_of(name), ",", header)
    for folder in ("own", "csv"):
        features, labels = two_classes(name, tmp_path / folder)
        np.testing.assert_array_equal(features.numpy(), table[:, :-1])
        assert labels.tolist() == [row % 2 for row in range(len(table))]
        assert features.dtype == labels.dtype == torch.float64


@pytest.mark.skipif(not (SHARED / "uci").exists(), reason="the data are not here")
def test_the_real_data_are_those_of_the_paper():
    shapes = {"australian": (690, 14), "german": (1000, 24), "heart": (270, 13)}
    positives = {"australian": 307, "german": 300, "heart": 120}  # as the repository says
    for name, shape in shapes.items():
        features, labels = two_classes(name, SHARED)
        assert features.shape == shape
        assert labels.sum() == positives[name]


def test_breast_cancer_needs_no_file(tmp_path):
    features, labels = two_classes("breast cancer", tmp_path)
    assert features.shape == (569, 30)
    assert labels.sum() == 357
    assert set(TWO_CLASS_NAMES) == {*SOURCES, "breast cancer"}


def test_columns_are_standardised_and_the_first_is_ones():
    features = torch.tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 20.0]], dtype=torch.float64)
    matrix = with_intercept(features)
    root = 1.5**0.5
    expected = [[1, -root, -root], [1, 0, root], [1, root, 0]]
    torch.testing.assert_close(matrix, torch.tensor(expected, dtype=torch.float64))


def test_it_is_downloaded_once(tmp_path, monkeypatch):
    source = SOURCES["heart"]
    write(tmp_path / "archive" / source.path, table_of("heart", first_class=1))
    monkeypatch.setattr(uci, "ARCHIVE", (tmp_path / "archive").as_uri())
    monkeypatch.setenv("CSGMCMC_DATA", str(tmp_path / "cache"))
    first = two_classes("heart")
    (tmp_path / "archive" / source.path).unlink()
    again = two_classes("heart")
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one, other)
    assert [path.name for path in (tmp_path / "cache" / "uci").iterdir()] == ["heart.dat"]
    assert torch.equal(two_classes("heart", tmp_path / "cache")[0], first[0])


def test_no_network_is_one_sentence_that_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(uci, "ARCHIVE", (tmp_path / "nowhere").as_uri())
    monkeypatch.setenv("CSGMCMC_DATA", str(tmp_path / "cache"))
    with pytest.raises(ConnectionError, match=r"heart\.dat .* --data, or take --preset smoke"):
        two_classes("heart")
    assert not (tmp_path / "cache").exists()


def test_what_is_not_the_data_is_neither_read_nor_kept(tmp_path, monkeypatch):
    path = tmp_path / SOURCES["heart"].path
    path.parent.mkdir()
    monkeypatch.setattr(uci, "ARCHIVE", tmp_path.as_uri())
    monkeypatch.setenv("CSGMCMC_DATA", str(tmp_path / "cache"))
    path.write_text("<html>\nPlease log in, then go on\n</html>")
    with pytest.raises(ValueError, match="is not a table of numbers"):
        two_classes("heart")
    write(path, table_of("heart")[:-1])
    with pytest.raises(ValueError, match="is not the heart data: they have 270 rows of 14"):
        two_classes("heart")
    three = table_of("heart")
    three[5, -1] = 2
    write(path, three)
    with pytest.raises(ValueError, match="the last one of two classes"):
        two_classes("heart")
    assert not (tmp_path / "cache").exists()


def test_a_wrong_name_or_folder_is_said(tmp_path):
    with pytest.raises(ValueError, match="name must be one of 'australian'"):
        two_classes("iris")
    with pytest.raises(FileNotFoundError, match=r"has no german\.csv or german\.data-numeric"):
        two_classes("german", tmp_path)
