"""The only source of randomness of the samplers.

The noise depends only on the seed, the chain, and the sizes and memory layout of the parameters. It
does not depend on the number of threads, and never uses torch's global generator. All parameters of
one device and precision share one flat buffer, which is filled in segments, each from a stream of
its own. The number of segments depends on the buffer's size alone, so that they can be filled in
any order, or in parallel, with the same result.
"""

import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from csgmcmc.arguments import check_count
from csgmcmc.shards import local_shard, shard_number

# A buffer has one segment per ELEMENTS_PER_STREAM elements, at most MAX_STREAMS of them.
ELEMENTS_PER_STREAM = 1 << 16
MAX_STREAMS = 16

# Layout of the Mersenne Twister's words in the state of torch's CPU generator.
MT_STATE_BYTES = 5056
MT_WORDS_OFFSET = 24
MT_WORDS = 624


Buffer = tuple[torch.device, torch.dtype, int]
"""The key of a buffer: device, precision, and the shard that this process holds."""


class Noise:
    """Standard normal noise for lists of parameters, with a state that can be saved.

    Args:
        seed: any non-negative integer. `None` takes a new one from the operating system. It is
            kept as the attribute `seed`, so that a run can be repeated.
        chain_id: number of the chain; chains with the same seed draw independently.
    """

    def __init__(self, seed: int | None = None, chain_id: int = 0) -> None:
        self.seed = secrets.randbits(63) if seed is None else check_count("seed", seed, at_least=0)
        self.chain_id = check_count("chain_id", chain_id, at_least=0)
        self._buffers: dict[Buffer, Tensor] = {}
        # Streams are identified by the number of the device, not by its name: replicas of a chain
        # on cuda:0 and cuda:1 must draw the same noise.
        self._numbers: dict[torch.device, int] = {}
        self._streams: dict[tuple[torch.device, int], list[torch.Generator]] = {}
        self._loaded: list[dict[str, Any]] = []

    def like(self, params: Sequence[Tensor], among: Sequence[Tensor] | None = None) -> list[Tensor]:
        """Standard normal tensors of the shapes, dtypes and devices of `params`.

        They are views of buffers that the next call overwrites. Devices are numbered in the order
        in which they appear in `among`, all parameters of the sampler, so that it does not matter
        which parameters are asked for first. Of a parameter that is sharded over processes (a
        DTensor), each process gets the noise of its own shard, independent of the others'.
        """
        if any(param.device not in self._numbers for param in params):
            for param in params if among is None else among:
                self._numbers.setdefault(param.device, len(self._numbers))
        noise: list[Tensor | None] = [None] * len(params)
        for key, indices in _by_buffer(params).items():
            mine = [local_shard(params[index]) for index in indices]
            sizes = [param.numel() for param in mine]
            pieces = self._fill(key, sum(sizes)).split(sizes)
            for index, param, piece in zip(indices, mine, pieces, strict=True):
                noise[index] = _shaped_like(param, piece)
        return noise  # pyright: ignore[reportReturnType]  (every index is in one buffer)

    def state_dict(self) -> dict[str, Any]:
        """Integers, strings and byte tensors, safe for `torch.load(weights_only=True)`."""
        devices: list[dict[str, Any]] = [dict(loaded) for loaded in self._loaded]
        devices += [{"device": "", "shards": {}}] * (len(self._numbers) - len(devices))
        for (device, shard), streams in self._streams.items():
            number = self._numbers[device]
            shards = devices[number]["shards"] if devices[number]["device"] == device.type else {}
            states = [stream.get_state() for stream in streams]
            devices[number] = {"device": device.type, "shards": {**shards, shard: states}}
        return {"seed": self.seed, "chain": self.chain_id, "devices": devices}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from where `state` was taken, with its seed and chain."""
        seed, chain_id, devices = int(state["seed"]), int(state["chain"]), list(state["devices"])
        self.seed, self.chain_id, self._loaded = seed, chain_id, devices
        # The streams are made from the loaded states when they are first needed.
        self._numbers, self._streams = {}, {}

    def __getstate__(self) -> dict[str, Any]:
        return self.state_dict()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._buffers = {}  # scratch: never copied
        self.load_state_dict(state)

    def _fill(self, key: Buffer, size: int) -> Tensor:
        device, dtype, shard = key
        buffer = self._buffers.get(key)
        if buffer is None or buffer.numel() != size:
            buffer = self._buffers[key] = torch.empty(size, device=device, dtype=dtype)
        segments = min(MAX_STREAMS, size // ELEMENTS_PER_STREAM)
        if device.type != "cpu" or segments <= 1:  # accelerators fill a whole buffer at once
            return buffer.normal_(generator=self._stream(device, shard, 0))
        for stream, segment in enumerate(buffer.tensor_split(segments)):
            segment.normal_(generator=self._stream(device, shard, stream))
        return buffer

    def _stream(self, device: torch.device, shard: int, index: int) -> torch.Generator:
        number = self._numbers[device]
        streams = self._streams.get((device, shard))
        if streams is None:
            streams = self._streams[device, shard] = self._loaded_streams(device, number, shard)
        while len(streams) <= index:
            key = (self.chain_id, number, len(streams), *([shard] if shard else []))
            streams.append(_generator(device, self.seed, key))
        return streams[index]

    def _loaded_streams(
        self, device: torch.device, number: int, shard: int
    ) -> list[torch.Generator]:
        """The loaded streams of the `number`-th device, if that was a device of the same type."""
        streams: list[torch.Generator] = []
        if number < len(self._loaded) and self._loaded[number]["device"] == device.type:
            for state in self._loaded[number]["shards"].get(shard, []):
                streams.append(torch.Generator(device))
                streams[-1].set_state(state.cpu())
        return streams


def _by_buffer(params: Sequence[Tensor]) -> dict[Buffer, list[int]]:
    """Indices of `params` by the buffer of their noise."""
    buffers: dict[Buffer, list[int]] = {}
    for index, param in enumerate(params):
        precision = torch.float64 if param.dtype == torch.float64 else torch.float32
        buffers.setdefault((param.device, precision, shard_number(param)), []).append(index)
    return buffers


def _shaped_like(param: Tensor, piece: Tensor) -> Tensor:
    """`piece` in the shape, dtype and, where it is dense, the memory layout of `param`."""
    if param.is_contiguous():
        shaped = piece.view(param.shape)
    else:  # e.g. channels_last: the same layout makes the sum with it a straight pass
        shaped = piece.as_strided(param.shape, torch.empty_like(param, device="meta").stride())
    return shaped.to(param.dtype)


def _generator(device: torch.device, seed: int, key: tuple[int, ...]) -> torch.Generator:
    """A generator on `device` whose stream depends on all bits of `seed` and `key`.

    On CPU `manual_seed` uses only 32 bits of its argument, so that among some ten thousand seeds
    two would give the same noise. There the whole state is set instead.
    """
    generator = torch.Generator(device=device)
    hashed = np.random.SeedSequence(seed, spawn_key=key)
    if device.type != "cpu":
        generator.manual_seed(int(hashed.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        return generator
    state = generator.get_state()
    if state.numel() != MT_STATE_BYTES:
        raise RuntimeError(
            f"torch {torch.__version__} has a CPU generator state of {state.numel()} bytes, not "
            f"{MT_STATE_BYTES}: this version of csgmcmc cannot seed it"
        )
    words = hashed.generate_state(MT_WORDS, np.uint32)
    words[0] |= 0x80000000  # as the Mersenne Twister's own seeding does: never all zero
    end = MT_WORDS_OFFSET + 8 * MT_WORDS
    state.numpy()[MT_WORDS_OFFSET:end] = words.astype(np.uint64).view(np.uint8)
    generator.set_state(state)
    return generator
