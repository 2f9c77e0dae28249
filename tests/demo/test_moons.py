import numpy as np
import pytest
from rich.console import Console

from examples.demo.moons import (
    FAR,
    MoonsDemo,
    certain_share,
    make_moons,
    make_plane,
    predict,
    sample,
    show_moons,
)


def test_short_run_prints_a_table_and_writes_a_picture(tmp_path):
    console = Console(record=True, width=100)
    show_moons(MoonsDemo(steps=400), tmp_path, console)
    printed = console.export_text()
    for word in ("SGDM", "cSGHMC", "certain far away"):
        assert word in printed
    assert (tmp_path / "moons.png").stat().st_size > 10_000


def test_only_sgdm_is_certain_far_from_the_data():
    moons = make_moons()
    plane = make_plane(moons)
    maps = {
        method: predict(sample(MoonsDemo(steps=3000), method, moons), plane.points)
        for method in ("SGDM", "cSGHMC")
    }
    far = {method: certain_share(each[plane.far]) for method, each in maps.items()}
    assert far["SGDM"] > far["cSGHMC"] + 0.2


def test_far_points_are_far_and_certain_ones_certain():
    moons = make_moons()
    plane = make_plane(moons)
    distances = np.linalg.norm(plane.points[:, None] - moons.points, axis=2).min(1)
    assert np.array_equal(plane.far, distances > FAR)
    assert certain_share(np.array([0.01, 0.5, 0.99, 0.94])) == 0.5


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="steps"):
        MoonsDemo(steps=20)
