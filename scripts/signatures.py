"""Writes docs/api/signatures.txt: every public name of docs/api/index.md, with its signature.

    .venv/bin/python scripts/signatures.py        # or: make signatures

A test compares the file with the code. Where a signature has changed, the file is written only if
the newest section of CHANGELOG.md has the name, and the names of arguments that came or went.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from typer.main import get_command

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "api" / "index.md"
FILE = ROOT / "docs" / "api" / "signatures.txt"
CHANGES = ROOT / "CHANGELOG.md"
HEAD = """\
# All public names with their signatures, written by `make signatures`. A change needs a line in
# CHANGELOG.md: "Versions" in CONTRIBUTING.md says which changes break compatibility.
"""
WIDTH = 100


def main() -> int:
    """Write the file, or say what the changelog misses."""
    found = current()
    missing = unmentioned(stored(), found, newest_changes())
    if missing:
        sys.stderr.write(
            "not written, because the newest section of CHANGELOG.md does not say:\n"
            + "".join(f"  {each}\n" for each in missing)
        )
        return 1
    FILE.write_text(HEAD + "".join(f"\n{each}" for each in found.values()) + "\n", "utf-8")
    sys.stdout.write(f"{len(found)} signatures are in {FILE.relative_to(ROOT)}\n")
    return 0


def current() -> dict[str, str]:
    """The signatures of the code, by full name."""
    # Read and not run: optional packages need not be there.
    loaded: Any = griffe.load("csgmcmc", search_paths=[ROOT / "src"], resolve_aliases=True)
    found: dict[str, str] = {}
    homes: dict[str, str] = {}  # where an object has its entry, by its canonical path
    names = list(public_names(loaded))
    for name in sorted(names, key=lambda each: (each.count(".") == 1, each)):  # packages first
        member = loaded[name.removeprefix("csgmcmc.")]
        home = homes.setdefault(member.canonical_path, name)
        if home == name:
            found |= dict(entries(name, member))
        else:
            found[name] = f"{name} = {home}"
    for name in homes.values():
        found |= dict(inherited(loaded, name, found, homes))
    return dict(sorted({**found, **dict(commands())}.items()))


def public_names(package: Any) -> Iterator[str]:
    """The names that the page lists: those of packages, and those of modules."""
    text = INDEX.read_text(encoding="utf-8")
    section = ""
    for line in text.splitlines():
        if title := re.match(r"## \[?([\w.]+)", line):
            section = title[1]
        elif row := re.match(r"\| `(csgmcmc[\w.]*)` \| (.*) \|", line):
            module = package[row[1].removeprefix("csgmcmc.")]
            own = {name for name, each in module.members.items() if not each.is_alias}
            yield from (f"{row[1]}.{n}" for n in re.findall(r"`(\w+)`", row[2]) if n in own)
        elif (row := re.match(r"\| `(\w+)` \|", line)) and section.startswith("csgmcmc"):
            yield f"{section}.{row[1]}"


def entries(name: str, member: Any) -> Iterator[tuple[str, str]]:
    """A name and, of a class, its public members; attributes that are arguments stand there."""
    if member.is_class:
        of = f" of {', '.join(str(each) for each in member.bases)}" if member.bases else ""
        yield name, call(f"class {name}", member, of)
        given = {each.name for each in member.parameters}
        for each, inner in member.members.items():
            if not each.startswith("_") and (inner.is_function or each not in given):
                yield from entries(f"{name}.{each}", inner)
    elif member.is_function:
        yield name, call(name, member, f" -> {member.returns}" if member.returns else "")
    else:
        annotation = getattr(member, "annotation", None)
        yield name, f"{name}: {annotation}" if annotation else name


def inherited(
    package: Any, name: str, found: dict[str, str], homes: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """What a class has from classes that are not public themselves."""
    member = package[name.removeprefix("csgmcmc.")]
    for base in member.mro() if member.is_class else ():
        if base.canonical_path not in homes:
            own = dict(entries(name, base))
            yield from ((key, own[key]) for key in own.keys() - found.keys())


def call(name: str, member: Any, end: str) -> str:
    """A signature, with one line for each parameter if it is long."""
    parameters = [each for each in member.parameters if each.name not in ("self", "cls")]
    shown: list[str] = []
    kind = griffe.ParameterKind
    for number, each in enumerate(parameters):
        before = [one.kind for one in parameters[:number]]
        if each.kind is kind.keyword_only and not {kind.keyword_only, kind.var_positional} & {
            *before
        }:
            shown.append("*")
        if each.kind is not kind.positional_only and kind.positional_only in before[-1:]:
            shown.append("/")
        star = {kind.var_positional: "*", kind.var_keyword: "**"}.get(each.kind, "")
        annotation = f": {each.annotation}" if each.annotation else ""
        equals = " = " if annotation else "="
        default = f"{equals}{each.default}" if each.default and not star else ""
        shown.append(f"{star}{each.name}{annotation}{default}")
    line = f"{name}({', '.join(shown)}){end}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){end}"


def commands() -> Iterator[tuple[str, str]]:
    """The commands with their arguments and options."""
    from csgmcmc.cli import app  # noqa: PLC0415  (the rest is read, not imported)

    for name, command in get_command(app).commands.items():  # pyright: ignore[reportAttributeAccessIssue]
        parts = [
            str(each.name).upper()
            if each.param_type_name == "argument"
            else "/".join([*each.opts, *each.secondary_opts])
            for each in command.params
        ]
        yield f"$ csgmcmc {name}", " ".join([f"$ csgmcmc {name}", *parts])


def stored() -> dict[str, str]:
    """The signatures of the file."""
    if not FILE.exists():
        return {}
    found: dict[str, str] = {}
    for block in re.split(r"\n(?=[\w$])", FILE.read_text(encoding="utf-8").removeprefix(HEAD)):
        text = block.strip("\n")
        if text:
            found[name_of(text)] = text
    return found


def name_of(text: str) -> str:
    (name,) = re.findall(r"\A(?:class )?(\$ csgmcmc \w+|[\w.]+)", text)
    return name


def newest_changes() -> str:
    """The newest section of the changelog."""
    return re.split(r"^## ", CHANGES.read_text(encoding="utf-8"), flags=re.MULTILINE)[1]


def unmentioned(before: dict[str, str], after: dict[str, str], changes: str) -> list[str]:
    """What has changed, and the words that the changelog does not have."""
    found = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        owner = name.rpartition(".")[0]
        if not before or old == new or (owner in before) != (owner in after):
            continue  # the first file, or members of a class that came or went itself
        words = [re.split(r"[. ]", name)[-1]]
        words += sorted(arguments(old or new or "") ^ arguments(new or old or ""))
        missing = [each for each in words if not re.search(rf"\b{each}\b", changes)]
        if missing:
            found.append(f"{name}: {', '.join(missing)}")
    return found


def arguments(text: str) -> set[str]:
    """The names of the parameters in a signature."""
    if text.startswith("$"):
        return {each.lstrip("-") for each in re.split(r"[ /]", text)[3:]}
    if "(" not in text:
        return set()
    inside = text[text.index("(") : text.rindex(")") + 1]
    function = ast.parse(f"def f{inside}: ...")
    return {each.arg for each in ast.walk(function) if isinstance(each, ast.arg)}


if __name__ == "__main__":
    sys.exit(main())
