"""The contents of a draw store in lines, and how its chains were made."""

from collections.abc import Mapping, Sequence
from typing import Any

from csgmcmc.draws import DrawStore


def overview(
    store: DrawStore, damages: Sequence[str] | None, checkpoints: Mapping[int, int]
) -> str:
    """Draws, chains, provenance and integrity of a store.

    `damages` are those found by `DrawStore.verify`, None if the draws were not read; `checkpoints`
    the steps that chains had taken at their newest checkpoint.
    """
    lines, headers = [repr(store)], store.headers()
    for chain_id in sorted({*headers, *store.chain_ids}):
        made, draws = headers.get(chain_id, {}).get("provenance", {}), store.of_chain(chain_id)
        where = f"steps {draws[0].step} to {draws[-1].step}" if draws else "no draw yet"
        planned, taken = made.get("total_draws"), checkpoints.get(chain_id)
        count = f"{len(draws)} of {planned or len(draws)} draws"  # old stores do not record it
        if isinstance(planned, int) and len(draws) < planned:
            running = store.is_being_written(chain_id)
            if taken is not None:
                where = f"{'last checkpoint' if running else 'stopped'} at step {taken}"
            where = f"{'is running, ' if running else ''}{where} of {made.get('total_steps')}"
        lines.append(f"chain {chain_id}: {count}, {where}")
    lines += [f"{name}: {value}" for name, value in provenance(store).items()]
    problems = (*store.problems, *(damages or ()))
    lines += [f"damaged: {line}" for line in problems]
    if damages is None:
        lines.append("integrity: sizes of files only, the draws were not read")
    elif not problems:
        lines.append("integrity: all draws are intact")
    return printable("\n".join(lines))


def provenance(store: DrawStore) -> dict[str, str]:
    """How the chains of a store were made; one value for each chain where they differ."""
    values: dict[str, dict[int, str]] = {}
    for chain_id, header in sorted(store.headers().items()):
        versions = ", ".join(f"{name} {number}" for name, number in header["versions"].items())
        for name, value in {**header["provenance"], "versions": versions}.items():
            values.setdefault(name, {})[chain_id] = _described(name, value)
    found = {}
    for name, each in values.items():
        first, *others = each.values()
        apart = "; ".join(f"chain {chain_id}: {value}" for chain_id, value in each.items())
        found[name] = apart if set(others) - {first} else first
    return found


def _described(name: str, value: Any) -> str:
    if name in ("model", "modules") and isinstance(value, dict):
        return f"{len(value)} {'tensors' if name == 'model' else 'without parameters'}"
    if name == "groups" and isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return _in_words(value)


def _in_words(value: Any) -> str:
    """Plain values for a reader: a schedule as it is written, else names and values."""
    if isinstance(value, dict) and "kind" in value:
        options = {name: each for name, each in value.items() if name != "kind"}
        if isinstance(options.get("keep"), dict):
            options["keep"] = {"kind": "Keep", **options["keep"]}
        words = ", ".join(f"{name}={_in_words(each)}" for name, each in options.items())
        return f"{value['kind']}({words})"
    if isinstance(value, dict):
        inner = {
            name: f"({_in_words(v)})" if isinstance(v, dict) else v for name, v in value.items()
        }
        return ", ".join(f"{name.replace('_', ' ')} {_in_words(v)}" for name, v in inner.items())
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_in_words, value))}]"
    return "none" if value is None else str(value)


def printable(words: object) -> str:
    """Text in which bytes of a path that are not UTF-8 are escaped."""
    return str(words).encode(errors="backslashreplace").decode()
