# SPDX-License-Identifier: Apache-2.0
"""A reader and a writer of safetensors files of our own, in the standard library, for the tests."""
import json
import struct


def read(path):
    """(tensors, metadata): name -> (dtype, shape, bytes), in the order of the data."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length:]
    rows = sorted(header.items(), key=lambda row: row[1]["data_offsets"])
    tensors = {name: (row["dtype"], row["shape"], body[slice(*row["data_offsets"])]) for name, row in rows}
    assert sum(len(data) for _, _, data in tensors.values()) == len(body), f"{path}: bytes of no tensor"
    return tensors, metadata


def write(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
