// Lines of an array, worked on by teams of T threads: what both orders of threads share. A thread has V neighbours in
// memory at a time, which are of one line (line_rows.cuh) or of V lines (line_columns.cuh).

// Axes of the array, neighbours that are alike put together: those of a line, and those that number the lines. `length`
// and `count` are in steps of V along the axis on which neighbours lie.
struct Lines {
  int count, length;
  Dims kept, kept_strides, along, along_strides;
};

template <int RANK>
__device__ __forceinline__ int place(int i, const Dims& extents, const Dims& strides) {
  int at[RANK];
  unravel<RANK>(i, extents, at);
  return offset<RANK>(at, strides);
}

struct Plus {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};
struct Larger {
  __device__ __forceinline__ float operator()(float a, float b) const { return larger(a, b); }
};
struct Smaller {
  __device__ __forceinline__ float operator()(float a, float b) const { return smaller(a, b); }
};

// 64 over the power of two at or above m, which is held between 2^-9 and the largest half; a NaN stays one.
__device__ __forceinline__ float scaled_to_64(float m) {
  const int bits = __float_as_int(held(m, 0.001953125f, 65504.f));
  const int up = (bits & 0x7fffff) != 0;
  return m != m ? m : __int_as_float((254 + 6 - (bits >> 23) - up) << 23);
}

// What a thread has of its lines: read once into registers where HELD > 0, else from memory each time.
struct Elements {
  const half* from;
  int first, length;
  const Lines& lines;
  float values[HELD ? HELD : 1][V];

  __device__ __forceinline__ Elements(const half* from, int first, int length, const Lines& lines)
      : from(from), first(first), length(length), lines(lines) {
    if constexpr (HELD > 0) {
#pragma unroll
      for (int h = 0; h < HELD; ++h)
        if (first + h * T < length) load<V>(values[h], from + at(first + h * T));
    }
  }

  // Elements from the start of the line to step i of it.
  __device__ __forceinline__ int at(int i) const {
    return place<ALONG>(i * ALONG_STEP, lines.along, lines.along_strides);
  }

  template <class F>
  __device__ __forceinline__ void each(F f) const {
    if constexpr (HELD > 0) {
#pragma unroll
      for (int h = 0; h < HELD; ++h)
        if (first + h * T < length) f(values[h], first + h * T);
    } else {
#pragma unroll 4
      for (int i = first; i < length; i += T) {
        float x[V];
        load<V>(x, from + at(i));
        f(x, i);
      }
    }
  }
};
