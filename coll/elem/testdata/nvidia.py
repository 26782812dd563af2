#!/usr/bin/env python3
"""Digests of what an NVIDIA GPU gives for the reductions of package elem.

Runs the instructions that NCCL's reductions compile to (PTX: two-operand
arithmetic in the type; 8-bit floats through f16x2 and a saturating conversion)
on the inputs of TestAsOnNVIDIA, and prints one line per type and operation.
Needs compute capability 9.0, the driver, and nothing else.
"""
import ctypes
import hashlib
import struct
import struct

N = 1 << 16
M64 = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & M64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & M64
    return x ^ (x >> 31)


SPECIAL = {
    2: [0, 0x8000, 0x7C00, 0xFC00, 0x7E01, 0xFE00, 0x7C01, 0x3C00, 1, 0x8001, 0x7F80, 0xFF80, 0x7FC0, 0x3F80],
    4: [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0x3F800000, 1, 0x80000001],
    8: [0, 1 << 63, 0x7FF << 52, 0xFFF << 52, 0x7FF8000000000001, 0xFFF8000000000000, 0x3FF0000000000000, 1],
}


def inputs(size):
    if size == 1:
        return bytes(i >> 8 for i in range(N)), bytes(i & 255 for i in range(N))
    out = []
    for which, period in ((0, 5), (1, 7)):
        s = SPECIAL[size]
        v = [mix(2 * i + which) & ((1 << 8 * size) - 1) for i in range(N)]
        for k, i in enumerate(range(0, N, period)):
            v[i] = s[k % len(s)]
        out.append(b"".join(x.to_bytes(size, "little") for x in v))
    return out


# name: (element size, bytes a thread takes, PTX of one thread on %ra, %rb -> %rc)
def narrow(fmt):
    return """cvt.rn.f16x2.%s %%h0, %%ra; cvt.rn.f16x2.%s %%h1, %%rb;
      OP.f16x2 %%h0, %%h0, %%h1; cvt.rn.satfinite.%s.f16x2 %%rc, %%h0;""" % (fmt, fmt, fmt)


TYPES = {
    "half": (2, 4, "OP.f16x2 %rc, %ra, %rb;"),
    "float": (4, 4, "OP.f32 %rc, %ra, %rb;"),
    "double": (8, 8, "OP.f64 %rc, %ra, %rb;"),
    "bfloat16": (2, 4, "OP.bf16x2 %rc, %ra, %rb;"),
    "f8e4m3": (1, 2, narrow("e4m3x2")),
    "f8e5m2": (1, 2, narrow("e5m2x2")),
}
OPS = {"sum": "add.rn", "prod": "mul.rn", "max": "max", "min": "min"}


def ptx(name, op):
    size, step, text = TYPES[name]
    reg = {"float": "f32", "double": "f64"}.get(name, "b%d" % (8 * step))
    return f""".version 7.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c) {{
  .reg .b32 %t<4>; .reg .b64 %p<8>; .reg .b32 %h<2>; .reg .{reg} %ra, %rb, %rc;
  mov.u32 %t0, %ctaid.x; mov.u32 %t1, %ntid.x; mov.u32 %t2, %tid.x; mad.lo.u32 %t3, %t0, %t1, %t2;
  mul.wide.u32 %p0, %t3, {step};
  ld.param.u64 %p1, [a]; ld.param.u64 %p2, [b]; ld.param.u64 %p3, [c];
  add.u64 %p1, %p1, %p0; add.u64 %p2, %p2, %p0; add.u64 %p3, %p3, %p0;
  ld.global.{reg} %ra, [%p1]; ld.global.{reg} %rb, [%p2];
  {text.replace("OP", OPS[op])}
  st.global.{reg} [%p3], %rc;
  ret;
}}
""".encode() + b"\0"


cu = ctypes.CDLL("libcuda.so.1")


def do(f, *args):
    r = getattr(cu, f)(*args)
    if r:
        raise SystemExit(f"{f}: error {r}")


P = ctypes.c_void_p
do("cuInit", 0)
dev, ctx = ctypes.c_int(), P()
do("cuDeviceGet", ctypes.byref(dev), 0)
do("cuDevicePrimaryCtxRetain", ctypes.byref(ctx), dev)
do("cuCtxSetCurrent", ctx)
label = ctypes.create_string_buffer(100)
do("cuDeviceGetName", label, 100, dev)
print("#", label.value.decode())
for name, (size, step, _) in TYPES.items():
    a, b = inputs(size)
    mem = []
    for x in (a, b, bytes(len(a))):
        d = ctypes.c_uint64()
        do("cuMemAlloc_v2", ctypes.byref(d), ctypes.c_size_t(len(a)))
        do("cuMemcpyHtoD_v2", d, x, ctypes.c_size_t(len(a)))
        mem.append(d)
    for op in OPS:
        mod, fn = P(), P()
        do("cuModuleLoadData", ctypes.byref(mod), ptx(name, op))
        do("cuModuleGetFunction", ctypes.byref(fn), mod, b"k")
        args = (P * 3)(*[ctypes.addressof(d) for d in mem])
        do("cuLaunchKernel", fn, len(a) // step // 256, 1, 1, 256, 1, 1, 0, None, args, None)
        do("cuCtxSynchronize")
        out = ctypes.create_string_buffer(len(a))
        do("cuMemcpyDtoH_v2", out, mem[2], ctypes.c_size_t(len(a)))
        got = out.raw
        if name == "double":  # the one type whose NaNs keep their payload
            nan = (0x7FFFFFFFFFFFFFFF).to_bytes(8, "little")
            got = b"".join(nan if d != d else struct.pack("<d", d) for (d,) in struct.iter_unpack("<d", got))
        print(name, op, hashlib.sha256(got).hexdigest())
