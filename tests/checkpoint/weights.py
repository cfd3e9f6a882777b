# For python_test.cpp: `weights.py write FOLDER` writes weights as programs in Python do; `weights.py read FOLDER` checks
# files that the test wrote.
import collections
import json
import os
import struct
import sys

import torch


def make_model():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    for tensor in model.state_dict().values():
        tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) / 4 + tensor.numel())
    return model


def read_safetensors(path):
    types = {"F32": torch.float32, "I64": torch.int64}
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        tensors[name] = torch.frombuffer(bytearray(data[begin:end]), dtype=types[info["dtype"]]).reshape(info["shape"])
    return tensors


def write_safetensors(path, tensors):
    names = {torch.float32: "F32", torch.int64: "I64"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        content = tensor.contiguous().numpy().tobytes()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write(folder):
    state = make_model().state_dict()
    path = lambda name: os.path.join(folder, name)
    torch.save(state, path("plain.pt"))
    torch.save(state, path("protocol4.pt"), pickle_protocol=4)
    torch.save({"module._orig_mod." + name: tensor for name, tensor in state.items()}, path("prefixed.pt"))
    torch.save({"model": state, "epoch": 3, "lr": 0.5, "losses": [1.0, 2.5], "name": "run", "best": None, "shape": (1, -2),
                "count": 2 ** 40}, path("checkpoint.pt"))
    # Shared memory, a transposed view, a parameter, and another type.
    block = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    views = collections.OrderedDict(state)
    views["0.weight"] = block[:, 1:3].t()
    views["0.bias"] = torch.nn.Parameter(block[2, :2])
    torch.save(views, path("views.pt"))
    torch.save({name: tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor
                for name, tensor in state.items()}, path("bf16.pt"))
    if hasattr(torch, "float8_e4m3fn"):
        torch.save({"w": torch.ones(4).to(torch.float8_e4m3fn)}, path("f8.pt"))
    torch.save(make_model(), path("module.pt"))
    torch.save(state, path("legacy.pt"), _use_new_zipfile_serialization=False)
    torch.jit.script(make_model()).save(path("script.pt"))
    first, rest = dict(list(state.items())[:2]), dict(list(state.items())[2:])
    write_safetensors(path("a.safetensors"), first)
    write_safetensors(path("b.safetensors"), rest)
    index = {name: "a.safetensors" for name in first}
    index.update({name: "b.safetensors" for name in rest})
    with open(path("model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": 1}, "weight_map": index}, file)


def same(found, expected):
    assert list(sorted(found)) == list(sorted(expected)), (list(found), list(expected))
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def read(folder):
    expected = {name: tensor + 1 for name, tensor in make_model().state_dict().items()}
    path = lambda name: os.path.join(folder, name)
    same(torch.load(path("ours.pt")), expected)
    same(torch.load(path("ours.pt"), weights_only=True), expected)
    same(read_safetensors(path("ours.safetensors")), expected)
    model = make_model()
    model.load_state_dict(torch.load(path("ours.pt")))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
