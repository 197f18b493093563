// y = post(pre(sums + bias) + source), in floats, rounded once. Without a source, post(pre(sums + bias)).
#include <cuda_fp16.h>
@FUNCTIONS@
struct Before {
  static __device__ __forceinline__ float of(float v) {
    @BEFORE@
    return v;
  }
};
struct After {
  static __device__ __forceinline__ float of(float v) {
    @AFTER@
    return v;
  }
};

template <int N>
struct Epilogue {
  static bool const kIsSingleSource = true, kIsHeavy = false, kStoreZ = true, kStoreT = false;
  static int const kElementsPerAccess = N, kCount = N;
  using ElementOutput = cutlass::half_t;
  using ElementC = cutlass::half_t;
  using ElementZ = cutlass::half_t;
  using ElementT = cutlass::half_t;
  using ElementVector = cutlass::half_t;
  using ElementAccumulator = float;
  using ElementCompute = float;
  using FragmentAccumulator = cutlass::Array<float, N>;
  using FragmentCompute = cutlass::Array<float, N>;
  using FragmentC = cutlass::Array<cutlass::half_t, N>;
  using FragmentOutput = cutlass::Array<cutlass::half_t, N>;
  using FragmentZ = FragmentOutput;
  using FragmentT = FragmentOutput;
  struct Params {
    CUTLASS_HOST_DEVICE Params() {}
    CUTLASS_HOST_DEVICE Params(float, float) {}
  };

  CUTLASS_HOST_DEVICE Epilogue(Params const&) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return @SOURCE@; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& sums, FragmentC const& source,
                                 FragmentCompute const& bias) const {
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < N; ++k) z[k] = ElementZ(After::of(Before::of(sums[k] + bias[k]) + float(source[k])));
  }
  CUTLASS_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& sums,
                                 FragmentCompute const& bias) const {
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < N; ++k) z[k] = ElementZ(After::of(Before::of(sums[k] + bias[k])));
  }
};
