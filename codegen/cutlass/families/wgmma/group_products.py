"""CUDA functions that issue one wgmma each: 64 x `columns` floats of four warps plus a product of depth 16.

c, a (64 x 16: a descriptor, or registers), b (16 x columns: a descriptor)  -->  c += a b, in flight behind the call

C++ has no words for these instructions, and each number of columns is another one with other registers. Sums are
`float c[columns / 8][4]`, in the order in which mma has them.
"""

from __future__ import annotations


def group_product(name: str, columns: int, *, left: str, begins: bool = False, turned: bool = False) -> str:
    """A function `name(c, a, b)`. `left` is "shared" or "registers"; a product that `begins` ignores what c was. The
    right operand is `turned` where its columns, and not its depth, run fastest."""
    count = columns // 2
    sums = ", ".join(f'"{"=" if begins else "+"}f"(c[{i // 4}][{i % 4}])' for i in range(count))
    registers = ",".join(f"%{i}" for i in range(count))
    if left == "registers":
        declared, a = "const uint32_t (&a)[4]", "{%" + ",%".join(str(count + i) for i in range(4)) + "}"
        inputs, b = '"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])', f"%{count + 4}"
    else:
        declared, a, inputs, b = "uint64_t a", f"%{count}", '"l"(a)', f"%{count + 1}"
    last = f"p, 1, 1, {int(turned)}" if left == "registers" else f"p, 1, 1, 0, {int(turned)}"
    return f"""__device__ __forceinline__ void {name}(float (&c)[{columns // 8}][4], {declared}, uint64_t b) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, {int(not begins)}, 0;\\n"
               "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{registers}}}, {a}, {b}, {last}; }}"
               : {sums}
               : {inputs}, "l"(b));
}}
"""
