// Neighbours in memory are of one line: a team is T neighbouring threads, some lanes of a warp or all threads of a block.
constexpr int S = 1;

struct Team {
  int line, lane, start;
  bool works;
  Elements elements;

  __device__ __forceinline__ Team(const half* x, const Lines& lines)
      : line(blockIdx.x * (THREADS / T) + threadIdx.x / T),
        lane(threadIdx.x % T),
        start(place<KEPT>(line < lines.count ? line : 0, lines.kept, lines.kept_strides)),
        works(line < lines.count),
        elements(x + start, lane, works ? lines.length : 0, lines) {}

  // Over the whole line, joined in an order that depends on nothing but its length; all threads of a team get it.
  template <class Join, class F>
  __device__ __forceinline__ void reduce(float (&result)[S], float neutral, Join join, F f) const {
    float part[V];
    EACH part[k] = neutral;
    elements.each([&](const float (&x)[V], int) { EACH part[k] = join(part[k], f(x[k], 0)); });
    float all = part[0];
#pragma unroll
    for (int k = 1; k < V; ++k) all = join(all, part[k]);
#pragma unroll
    for (int step = (T < 32 ? T : 32) / 2; step; step /= 2) all = join(all, __shfl_xor_sync(~0u, all, step));
    if constexpr (T > 32) {
      __shared__ float parts[T / 32];
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = all;
      __syncthreads();
      all = parts[0];
      for (int i = 1; i < T / 32; ++i) all = join(all, parts[i]);
      __syncthreads();
    }
    result[0] = all;
  }

  // f(element, which of the line's results it has to do with) for all, `stored` with where they lie in the array.
  template <class F, class G>
  __device__ __forceinline__ void map(F f, G stored) const {
    elements.each([&](const float (&x)[V], int i) {
      float v[V];
      EACH v[k] = f(x[k], 0);
      stored(v, start + elements.at(i));
    });
  }

  template <class G>
  __device__ __forceinline__ void once(float (&v)[S], G stored) const {
    if (works && lane == 0) stored(v, line);
  }
};
