from examples.demo.mixture import MixtureDemo, measure, sample


def test_cooling_finds_all_modes_and_weighs_them_better_than_the_papers_settings():
    demo = MixtureDemo(steps=10_000, chains=20)
    _, paper, cooling = (measure(sample(demo, each).reshape(-1, 2)) for each in demo.methods)
    assert cooling.modes_covered == 25
    assert cooling.total_variation < 0.08 < paper.total_variation
    assert cooling.in_mode_mass > paper.in_mode_mass + 0.1
