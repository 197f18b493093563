// Integers of 32 bits that wrap around, one result a thread; or, where @WARP@, one result of a line a warp.
@TYPES@
__device__ __forceinline__ int inside(int index, int rows) {
  index += index < 0 ? rows : 0;
  return index < 0 ? 0 : index < rows ? index : rows - 1;
}
// Twice the rank of a number among those of fp16, counted from zero.
__device__ __forceinline__ int ordered(half x) {
  const int bits = __half_as_ushort(x), size = 2 * (bits & 0x7fff);
  return bits & 0x8000 ? -size : size;
}
// The nearest number; the largest for what is beyond it.
__device__ __forceinline__ half number(int x) {
  return __float2half_rn(float(x < -65504 ? -65504 : x > 65504 ? 65504 : x));
}
// Cut off; NaN is 0, and infinities are the nearest integers.
__device__ __forceinline__ int whole(half x) { return __float2int_rz(__half2float(x)); }
__device__ __forceinline__ int quotient(int a, int b) { return b == 0 ? -1 : b == -1 ? int(0u - unsigned(a)) : a / b; }
__device__ __forceinline__ int remainder_of(int a, int b) { return b == 0 ? a : b == -1 ? 0 : a % b; }
__device__ __forceinline__ int modulo(int a, int b) {
  const int rest = remainder_of(a, b);
  return b != 0 && rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

extern "C" __global__ void __launch_bounds__(256) words(Result* __restrict__ y, int count@PARAMETERS@) {
  const int thread = blockIdx.x * 256 + threadIdx.x, i = @WARP@ ? thread / 32 : thread;
  if (i >= count) return;
  @STATEMENTS@
}
