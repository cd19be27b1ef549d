#!/usr/bin/env python3
"""Write the seeds of the GGUF and safetensors fuzz targets into the folders beside this script.

usage: generate_weights.py

Needs only Python's standard library. The same files come out on every run. README.md says what they are.
"""
import json
import struct
from pathlib import Path

HERE = Path(__file__).parent
U64_MAX = 2**64 - 1


def u32(number):
    return struct.pack("<I", number)


def u64(number):
    return struct.pack("<Q", number)


def pattern(length):
    return bytes(i * 7 % 251 for i in range(length))


# GGUF ----------------------------------------------------------------------------------------------------

# Numbers of value types, and of element types with (elements, bytes) of a block.
U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
ELEMENTS = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144), "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210), "IQ4_XS": (23, 256, 136), "I8": (24, 1, 1), "I32": (26, 1, 4), "F64": (28, 1, 8),
    "BF16": (30, 1, 2),
}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return u64(len(data)) + data


def key(name, value_type, payload):
    return string(name) + u32(value_type) + payload


def array(element_type, count, payload):
    return u32(element_type) + u64(count) + payload


ARCHITECTURE = key("general.architecture", STRING, string("llama"))


def tensor(name, element, dims, offset):
    """A tensor's line; `dims` innermost first, `element` a name or a number."""
    number = ELEMENTS[element][0] if isinstance(element, str) else element
    return string(name) + u32(len(dims)) + b"".join(map(u64, dims)) + u32(number) + u64(offset)


def gguf(keys=(ARCHITECTURE,), tensors=(), data=b"", version=3, magic=b"GGUF", counts=None, alignment=32):
    tensor_count, key_count = counts or (len(tensors), len(keys))
    header = magic + u32(version) + u64(tensor_count) + u64(key_count) + b"".join(keys) + b"".join(tensors)
    return header + bytes(-len(header) % alignment) + data


def gguf_of(*shapes):
    """A valid file of tensors given as (element, dims)."""
    lines, data = [], b""
    for index, (element, dims) in enumerate(shapes):
        data += bytes(-len(data) % 32)
        lines.append(tensor(f"blk.{index}.weight", element, dims, len(data)))
        _, block_len, block_bytes = ELEMENTS[element]
        elements = 1
        for dim in dims:
            elements *= dim
        data += pattern(elements // block_len * block_bytes)
    return gguf(tensors=lines, data=data)


def all_value_types():
    return [
        ARCHITECTURE,
        key("u8", U8, b"\xff"), key("i8", I8, b"\xff"),
        key("u16", U16, b"\xff\xff"), key("i16", I16, b"\xfe\xff"),
        key("u32", U32, u32(7)), key("i32", I32, struct.pack("<i", -7)),
        key("f32", F32, struct.pack("<f", 1e-5)),
        key("bool", BOOL, b"\x01"), key("u64", U64, u64(U64_MAX)),
        key("i64", I64, struct.pack("<q", -(2**63))),
        key("f64", F64, struct.pack("<d", 0.1)), key("empty", STRING, string("")),
        key("strings", ARRAY, array(STRING, 3, string("a") + string("") + string("\u00e9"))),
        key("numbers", ARRAY, array(I32, 2, struct.pack("<ii", 1, -1))),
        key("bools", ARRAY, array(BOOL, 2, b"\x00\x01")),
        key("nothing", ARRAY, array(F32, 0, b"")),
    ]


VECTOR = tensor("v", "F32", [8], 0)
GGUF = {
    "valid-no-tensors": gguf(),
    "valid-version-2": gguf(version=2, tensors=[VECTOR], data=pattern(32)),
    "valid-value-types": gguf(keys=all_value_types()),
    "valid-plain-types": gguf_of(
        ("F32", [4]), ("F16", [5, 2]), ("BF16", [3, 2, 2]), ("F64", [1]), ("I8", [9]), ("I32", [2])),
    "valid-block-types": gguf_of(
        ("Q4_0", [32, 2]), ("Q4_1", [32, 1]), ("Q5_0", [64, 1]), ("Q5_1", [32, 2]), ("Q8_0", [32, 3])),
    "valid-super-block-types": gguf_of(("Q4_K", [256, 2]), ("Q5_K", [256, 1]), ("Q6_K", [512, 1])),
    "valid-alignment-64": gguf(
        keys=[ARCHITECTURE, key("general.alignment", U32, u32(64))], tensors=[VECTOR], data=pattern(32),
        alignment=64),
    "valid-empty-and-scalar": gguf(
        tensors=[tensor("none", "F32", [3, 0], 0), tensor("one", "F32", [], 32)], data=pattern(36)),
    "damaged-magic": gguf(magic=b"GGJT"),
    "damaged-version-1": gguf(version=1),
    "damaged-big-endian": gguf(version=0x03000000),
    "damaged-tensor-count": gguf(counts=(U64_MAX, 1)),
    "damaged-key-count": gguf(counts=(0, 2**40)),
    "damaged-key-twice": gguf(keys=[ARCHITECTURE, ARCHITECTURE]),
    "damaged-string-length": gguf(keys=[string("k") + u32(STRING) + u64(U64_MAX)]),
    "damaged-string-utf8": gguf(keys=[key("k", STRING, string(b"\xc3("))]),
    "damaged-array-count": gguf(keys=[key("k", ARRAY, array(F64, 2**61, b""))]),
    "damaged-array-nested": gguf(
        keys=[key("k", ARRAY, array(ARRAY, 1, array(ARRAY, 1, array(U8, 0, b""))))]),
    "damaged-value-type": gguf(keys=[key("k", 13, b"")]),
    "damaged-bool": gguf(keys=[key("k", BOOL, b"\x02")]),
    "damaged-alignment": gguf(
        keys=[key("general.alignment", U32, u32(3))], tensors=[VECTOR], data=pattern(32)),
    "damaged-name-twice": gguf(tensors=[VECTOR, tensor("v", "F32", [8], 32)], data=pattern(64)),
    "damaged-rank": gguf(tensors=[string("v") + u32(2**32 - 1)], data=pattern(32)),
    "damaged-shape-overflow": gguf(tensors=[tensor("v", "F32", [2**32, 2**32], 0)], data=pattern(32)),
    "damaged-half-block": gguf(tensors=[tensor("v", "Q4_0", [33, 2], 0)], data=pattern(64)),
    "damaged-offset-misaligned": gguf(tensors=[tensor("v", "F32", [4], 4)], data=pattern(32)),
    "damaged-offset-outside": gguf(tensors=[tensor("v", "F32", [8], 2**64 - 32)], data=pattern(32)),
    "damaged-overlap": gguf(
        tensors=[tensor("v", "F32", [16], 0), tensor("w", "F32", [8], 32)], data=pattern(64)),
    "damaged-type-unknown": gguf(tensors=[tensor("v", 1000, [8], 0)], data=pattern(32)),
    "damaged-type-not-supported": gguf(tensors=[tensor("v", "IQ4_XS", [256], 0)], data=pattern(136)),
    "damaged-cut": gguf_of(("F32", [4]), ("Q8_0", [32, 3]))[:-1],
}


# safetensors ---------------------------------------------------------------------------------------------


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return u64(len(text) if length is None else length) + text + data


def line(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


BYTES = {"a": line("U8", [8], 0, 8)}
WIDTHS = {"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
          "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}


def all_dtypes():
    header, data = {}, b""
    for dtype, width in WIDTHS.items():
        header[f"t.{dtype}"] = line(dtype, [2, 1], len(data), len(data) + 2 * width)
        data += pattern(2 * width)
    return safetensors(header, data)


SAFETENSORS = {
    "valid-no-tensors": safetensors({}),
    "valid-one": safetensors(BYTES, pattern(8)),
    "valid-metadata": safetensors({"__metadata__": {"format": "pt", "\u00e9": "\n"}, **BYTES}, pattern(8)),
    "valid-padded": safetensors(json.dumps(BYTES).encode() + b"     ", pattern(8)),
    "valid-dtypes": all_dtypes(),
    "valid-out-of-order": safetensors(
        {"z": line("F32", [1], 0, 4), "b": line("F16", [2, 3], 4, 16)}, pattern(16)),
    "valid-empty-and-scalar": safetensors(
        {"none": line("F32", [0, 5], 0, 0), "one": line("F32", [], 0, 4)}, pattern(4)),
    "valid-eight-dimensions": safetensors({"a": line("I8", [1, 2, 1, 2, 1, 2, 1, 1], 0, 8)}, pattern(8)),
    "damaged-short": b"\x02\x00\x00",
    "damaged-length-huge": safetensors({}, length=U64_MAX),
    "damaged-length-over-limit": safetensors({}, length=100_000_001),
    "damaged-length-past-end": safetensors(BYTES, length=4096),
    "damaged-json": safetensors(b'{"a":'),
    "damaged-json-deep": safetensors(b'{"a":' + b"[" * 2000),
    "damaged-json-list": safetensors([]),
    "damaged-utf8": safetensors(b'{"\xff":{}}'),
    "damaged-name-twice": safetensors(
        b'{"a":%s,"a":%s}' % ((json.dumps(BYTES["a"]).encode(),) * 2), pattern(8)),
    "damaged-field-missing": safetensors({"a": {"dtype": "U8", "shape": [8]}}, pattern(8)),
    "damaged-dtype-unknown": safetensors({"a": line("F3", [8], 0, 8)}, pattern(8)),
    "damaged-shape-negative": safetensors({"a": line("U8", [-8], 0, 8)}, pattern(8)),
    "damaged-shape-overflow": safetensors({"a": line("F64", [2**61 + 1], 0, 8)}, pattern(8)),
    "damaged-shape-long": safetensors({"a": line("U8", [1] * 1000, 0, 1)}, pattern(1)),
    "damaged-offsets-reversed": safetensors({"a": line("U8", [8], 8, 0)}, pattern(8)),
    "damaged-offsets-outside": safetensors({"a": line("U8", [9], 0, 9)}, pattern(8)),
    "damaged-offsets-huge": safetensors({"a": line("U8", [8], U64_MAX - 8, U64_MAX)}, pattern(8)),
    "damaged-size": safetensors({"a": line("F32", [3], 0, 8)}, pattern(8)),
    "damaged-overlap": safetensors({"a": line("U8", [6], 0, 6), "b": line("U8", [4], 4, 8)}, pattern(8)),
    "damaged-hole": safetensors({"a": line("U8", [2], 0, 2), "b": line("U8", [4], 4, 8)}, pattern(8)),
    "damaged-rest": safetensors(BYTES, pattern(9)),
    "damaged-cut": safetensors(BYTES, pattern(7)),
}

for folder, seeds in {"gguf": GGUF, "safetensors": SAFETENSORS}.items():
    (HERE / folder).mkdir(exist_ok=True)
    for name, contents in seeds.items():
        assert len(contents) < 4096, name
        (HERE / folder / f"{name}.bin").write_bytes(contents)
    print(f"{folder}: {len(seeds)} seeds")
