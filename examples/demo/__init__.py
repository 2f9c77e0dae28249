"""What uncertainty is good for: 25 Gaussians, regression, two moons, and handwritten digits.

    pip install '.[plot]'
    python -m examples.demo                                       # two minutes
    python -m examples.demo --part digits --seed 20 --seeds 20    # one part, with other settings

Each part is a module with its settings (a dataclass), functions that sample and measure, and a
function that shows the results. The settings of the digits come from `benchmarks/demo_settings.py`.
"""
