// Neighbours in memory are of V lines: a block has THREADS / T of those, as neighbouring threads, and T threads a line.
constexpr int S = V, ACROSS = THREADS / T, WARPS = THREADS / 32;

// One for all reductions of a block: each ends with a barrier, before the next writes.
__device__ __forceinline__ float (&parts_of_warps())[WARPS][V][ACROSS] {
  __shared__ float parts[WARPS][V][ACROSS];
  return parts;
}

struct Team {
  int column, lane, start;
  bool works;
  Elements elements;

  __device__ __forceinline__ Team(const half* x, const Lines& lines)
      : column(blockIdx.x * ACROSS + threadIdx.x % ACROSS),
        lane(threadIdx.x / ACROSS),
        start(place<KEPT>((column < lines.count ? column : 0) * V, lines.kept, lines.kept_strides)),
        works(column < lines.count),
        elements(x + start, lane, works ? lines.length : 0, lines) {}

  // Over whole lines, joined in an order that depends on nothing but their length; all threads of a line get it.
  template <class Join, class F>
  __device__ __forceinline__ void reduce(float (&result)[S], float neutral, Join join, F f) const {
    EACH result[k] = neutral;
    elements.each([&](const float (&x)[V], int) { EACH result[k] = join(result[k], f(x[k], k)); });
#pragma unroll
    for (int step = ACROSS; step < 32; step *= 2)
      EACH result[k] = join(result[k], __shfl_xor_sync(~0u, result[k], step));
    if constexpr (T > 1) {
      auto& parts = parts_of_warps();
      const int x = threadIdx.x % ACROSS;
      if (threadIdx.x % 32 < ACROSS) EACH parts[threadIdx.x / 32][k][x] = result[k];
      __syncthreads();
      if (threadIdx.x < V * ACROSS) {
        float* const part = &parts[0][0][0] + threadIdx.x;
        float all = part[0];
#pragma unroll
        for (int i = 1; i < WARPS; ++i) all = join(all, part[i * (V * ACROSS)]);
        part[0] = all;
      }
      __syncthreads();
      EACH result[k] = parts[0][k][x];
      __syncthreads();
    }
  }

  // f(element, which of its lines' results it has to do with) for all, `stored` with where they lie in the array.
  template <class F, class G>
  __device__ __forceinline__ void map(F f, G stored) const {
    elements.each([&](const float (&x)[V], int i) {
      float v[V];
      EACH v[k] = f(x[k], k);
      stored(v, start + elements.at(i));
    });
  }

  template <class G>
  __device__ __forceinline__ void once(float (&v)[S], G stored) const {
    if (works && lane == 0) stored(v, column * V);
  }
};
