"""Builds sdist and wheel, installs each into a new environment, and tries it there.

    .venv/bin/python scripts/release_check.py      # or: make release-check

The wheel is built from the sdist, so that a file that the sdist misses is missed here. Both stay
in dist/. The new environment has this package and what it depends on, and nothing else: first from
the wheel, then from the sdist. What is tried in it, in an empty folder, is the command and
scripts/release_smoke.py. Then each extra is installed there by itself, and tried with the page of
the docs that says to install it.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Collection, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"

# Below the sdist's own folder: all of these, and nothing beside their folders.
EXPECTED = (
    "CHANGELOG.md",
    "CITATION.cff",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "PKG-INFO",
    "README.md",
    "SECURITY.md",
    "conftest.py",
    "constraints-lowest.txt",
    "constraints.txt",
    "mkdocs.yml",
    "pyproject.toml",
    "benchmarks/table.py",
    "docs/index.md",
    "docs/results/README.md",
    "docs/results/mixture.md",
    "scripts/release_check.py",
    "src/csgmcmc/__init__.py",
    "src/csgmcmc/py.typed",
    "paper/report/write.py",
    "tests/conftest.py",
)
ALLOWED = (".gitignore", "examples", *(name.split("/")[0] for name in EXPECTED))
RESULTS = re.compile(r"docs/results/([\w-]+\.md|figures/.+)")  # no records, no draws
# The page whose snippets try an extra. `plot` is tried by a command; the others are for `make`.
PAGES = {
    "arviz": "arviz",
    "lightning": "lightning",
    "peft,transformers": "adapters",
    "tensorboard": "tensorboard",
    "transformers": "transformers",
}
WITHOUT_PAGE = {"plot", "triton", "docs", "test", "dev"}
SNIPPET = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
DATA = (".bin", ".gz", ".npy", ".npz", ".parquet", ".pkl", ".pt", ".safetensors", ".tar", ".zip")
FIXTURES = re.compile(r"tests/\w+/fixtures/")  # files of released formats
MOST_BYTES = {".tar.gz": 8_000_000, ".whl": 1_000_000}

TYPED = """\
import torch
import csgmcmc
from csgmcmc.draws import Draws

model = torch.nn.Linear(2, 2)
sampler = csgmcmc.SGHMC(model.parameters(), lr=0.1, num_data=10)
schedule = csgmcmc.Cyclical(steps=10, cycles=2, draws_per_cycle=1)
tick: csgmcmc.Tick = schedule.apply(sampler, 0)
draws: Draws = csgmcmc.MemoryDraws()
posterior = csgmcmc.Posterior(model, draws)
"""
MISTYPED = """\
import csgmcmc

csgmcmc.Cyclical(steps="ten", cycles=2, draws_per_cycle=1)
steps: str = csgmcmc.Constant(steps=10, draws=1).steps
"""


class Problem(Exception):  # noqa: N818  (it is what the release has)
    """Something that must be mended before a release."""


def main() -> int:
    """Check everything; stop at the first problem."""
    with tempfile.TemporaryDirectory(prefix="csgmcmc-release-") as folder:
        work = Path(folder)
        try:
            sdist, wheel = build(work)
            check_sdist(sdist)
            check_wheel(wheel)
            say("installing the wheel into a new environment")
            python = new_environment(work / "clean")
            install(python, wheel)
            smoke(python, new_folder(work / "from-wheel"))
            check_types(python, new_folder(work / "types"))
            say("installing the sdist in its place")
            run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "csgmcmc"])
            install(python, sdist)
            smoke(python, new_folder(work / "from-sdist"))
            with_plots(python, wheel, new_folder(work / "plots"))
            for extra in PAGES:
                with_extra(python, wheel, extra, new_folder(work / extra))
        except Problem as problem:
            say(f"not ready: {problem}")
            return 1
    say(f"ready: {sdist.name} and {wheel.name} are in {DIST.name}/")
    return 0


def build(work: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel made from it."""
    say("building")
    for old in [*DIST.glob("csgmcmc-*.tar.gz"), *DIST.glob("csgmcmc-*.whl")]:
        old.unlink()
    python = new_environment(work / "tools")
    run([python, "-m", "pip", "install", "--quiet", "build>=1.2"])
    run([python, "-m", "build", "--outdir", DIST, ROOT])
    (sdist,), (wheel,) = DIST.glob("csgmcmc-*.tar.gz"), DIST.glob("csgmcmc-*.whl")
    for path in (sdist, wheel):
        most = next(size for ending, size in MOST_BYTES.items() if path.name.endswith(ending))
        if path.stat().st_size > most:
            raise Problem(f"{path.name} has {path.stat().st_size:,} bytes, more than {most:,}")
    return sdist, wheel


def check_sdist(path: Path) -> None:
    """All of the source, and no data, results or leftovers."""
    with tarfile.open(path) as archive:
        files = {
            member.name.split("/", 1)[1]: file.read()
            for member in archive
            if (file := archive.extractfile(member)) is not None
        }
    problems = [*sdist_problems(files), *machine_problems(files)]
    if problems:
        raise Problem(f"{path.name}: " + "; ".join(problems))


def sdist_problems(files: Collection[str]) -> list[str]:
    """What is wrong with the files of an sdist, by their names."""
    missing = sorted(set(EXPECTED) - set(files))
    odd = sorted(
        name
        for name in files
        if name.split("/")[0] not in ALLOWED
        or (name.endswith(DATA) and not FIXTURES.match(name))
        or (name.startswith("docs/results/") and not RESULTS.fullmatch(name))
        or "__pycache__" in name
    )
    problems = [f"{', '.join(missing)} is missing"] if missing else []
    return [*problems, f"{', '.join(odd[:5])} does not belong there"] if odd else problems


def machine_problems(files: Mapping[str, bytes]) -> list[str]:
    """Files that name the folder that they were made in, which no one else has."""
    odd = sorted(name for name, content in files.items() if bytes(ROOT) in content)
    return [f"{', '.join(odd[:5])} names {ROOT}"] if odd else []


def check_wheel(path: Path) -> None:
    """The package with its marker of types, and no more."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    here = {str(file.relative_to(ROOT / "src")) for file in (ROOT / "src").rglob("*.*")}
    here = {name for name in here if "__pycache__" not in name and ".egg-info" not in name}
    inside = {name for name in files if ".dist-info/" not in name}
    if inside != here:
        raise Problem(f"{path.name} and src/ differ by {sorted(inside ^ here)[:5]}")
    if not any(name.endswith("licenses/LICENSE") for name in files):
        raise Problem(f"{path.name} has no licence")
    problems = machine_problems(files)
    if problems:
        raise Problem(f"{path.name}: " + "; ".join(problems))


def install(python: Path, package: object) -> None:
    """Install wheel or sdist, with the versions of what it depends on that are tested."""
    # Bytecode of all of torch takes longer than what is tried here.
    options = ["--quiet", "--no-compile", "-c", CONSTRAINTS]
    run([python, "-m", "pip", "install", *options, package])
    run([python, "-m", "pip", "check"])


def smoke(python: Path, folder: Path) -> None:
    """Everything that needs no extra, and what is said where one is missing."""
    say("trying it")
    command, script = python.with_name("csgmcmc"), ROOT / "scripts" / "release_smoke.py"
    version = next(DIST.glob("csgmcmc-*.whl")).name.split("-")[1]
    printed = run([command, "--version"], folder).strip()
    if printed != version:
        raise Problem(f"csgmcmc --version says {printed}, the wheel is {version}")
    run([python, script, version], folder)
    run([command, "inspect", "runs/smoke"], folder)
    result = attempt([command, "report", "runs/smoke"], folder)
    wanted = "csgmcmc: matplotlib is missing: pip install 'csgmcmc[plot]'"
    if result.returncode != 2 or result.stderr.strip() != wanted:
        raise Problem(f"without the extra, report ends with {result.returncode}: {result.stderr}")


def check_types(python: Path, folder: Path) -> None:
    """The types of the installed package are seen, right and wrong use."""
    say("checking types")
    checker = Path(sys.executable).with_name("pyright")
    for name, text, expected in (("right", TYPED, 0), ("wrong", MISTYPED, 2)):
        file = folder / f"{name}.py"
        file.write_text(text)
        result = attempt([checker, "--outputjson", "--pythonpath", python, file], folder)
        found = json.loads(result.stdout)["generalDiagnostics"]
        errors = [each["message"] for each in found if each["severity"] == "error"]
        if len(errors) != expected:
            raise Problem(f"pyright finds {len(errors)} errors, not {expected}: {errors}")


def with_plots(python: Path, wheel: Path, folder: Path) -> None:
    """The extra that the message names makes the command work."""
    say("trying it with plot")
    before = installed(python)
    install(python, f"{wheel}[plot]")
    program = "import sys; sys.path.insert(0, sys.argv[1]); import release_smoke as s; s.sample()"
    run([python, "-c", program, ROOT / "scripts"], folder)
    run([python.with_name("csgmcmc"), "report", "runs/smoke"], folder)
    if not (folder / "runs" / "smoke" / "report.html").exists():
        raise Problem("csgmcmc report has left no page")
    remove(python, installed(python) - before)


def with_extra(python: Path, wheel: Path, extra: str, folder: Path) -> None:
    """What a page of the docs says to install is enough for what it shows."""
    say(f"trying it with {extra}")
    before = installed(python)
    install(python, f"{wheel}[{extra}]")
    page = (ROOT / "docs" / "howto" / f"{PAGES[extra]}.md").read_text(encoding="utf-8")
    (folder / "page.py").write_text("\n\n".join(SNIPPET.findall(page)), encoding="utf-8")
    run([python, "page.py"], folder)
    remove(python, installed(python) - before)


def installed(python: Path) -> set[str]:
    """The names of all packages in an environment."""
    listed = json.loads(run([python, "-m", "pip", "list", "--format", "json"]))
    return {package["name"] for package in listed}


def remove(python: Path, packages: Collection[str]) -> None:
    """What an extra has brought, so that the next one is tried without it."""
    run([python, "-m", "pip", "uninstall", "--quiet", "--yes", *sorted(packages)])


def new_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


def new_environment(folder: Path) -> Path:
    """Its Python."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def run(command: list[object], folder: Path = ROOT) -> str:
    """What the command prints; a problem if it fails."""
    result = attempt(command, folder)
    if result.returncode:
        shown = " ".join(str(part) for part in command)
        raise Problem(f"{shown} ends with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def attempt(command: list[object], folder: Path) -> subprocess.CompletedProcess[str]:
    # Nothing of this repository or of the user's shell gets into the new environment.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(  # noqa: S603
        [str(part) for part in command],
        cwd=folder,
        env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
