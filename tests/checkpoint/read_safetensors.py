"""Reads a safetensors file with nothing but struct and json, compares it with the tensors that the test made, and
writes one of its own. With the safetensors package, where there is one, too.

    read_safetensors.py <file to read> <file to write>
"""
import json
import struct
import sys

import torch

DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool}


def read(path):
    data = open(path, "rb").read()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    assert header.pop("__metadata__") == {"format": "pt"}
    body = bytearray(data[8 + size:])
    tensors, covered = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype = DTYPES[entry["dtype"]]
        assert begin == covered, (name, begin, covered)
        assert (8 + size + begin) % dtype.itemsize == 0 if hasattr(dtype, "itemsize") else True
        covered = end
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
        else:
            count = (end - begin) // torch.empty(0, dtype=dtype).element_size()
            tensors[name] = torch.frombuffer(body, dtype=dtype, count=count, offset=begin).reshape(entry["shape"])
    assert covered == len(body)
    return tensors


def write(path, tensors):
    """In the order of the names, unpadded: valid, but other than what Lockstep writes."""
    header, body = {}, b""
    for name, tensor in sorted(tensors.items()):
        raw = bytes(tensor.contiguous().view(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
        dtype = next(key for key, value in DTYPES.items() if value == tensor.dtype)
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    open(path, "wb").write(struct.pack("<Q", len(text)) + text + body)


def expected():
    linear = torch.nn.Linear(3, 2)
    norm = torch.nn.BatchNorm1d(2)
    model = torch.nn.Sequential(linear, norm)
    state = model.state_dict()
    for number, (name, tensor) in enumerate(sorted(state.items())):
        values = torch.arange(tensor.numel(), dtype=torch.float64).reshape(tensor.shape) / 3 + number
        state[name] = values.to(tensor.dtype)
    return state


def compare(tensors, where):
    wanted = expected()
    assert set(tensors) == set(wanted), (where, set(tensors) ^ set(wanted))
    for name, tensor in wanted.items():
        assert tensors[name].dtype == tensor.dtype and torch.equal(tensors[name], tensor), (where, name)


def main():
    tensors = read(sys.argv[1])
    compare(tensors, "own reader")
    try:
        from safetensors.torch import load_file
        compare(load_file(sys.argv[1]), "safetensors")
        print("compared with the safetensors package")
    except ImportError:
        print("no safetensors package: compared with an own reader only")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    model.load_state_dict(tensors)
    write(sys.argv[2], {name: tensor + 1 for name, tensor in tensors.items()})


main()
