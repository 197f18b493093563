// Products of row-major matrices, [m, k] x [k, n] -> [m, n], by the parts of CUTLASS's GEMM (multistage, mma.sync, fp32
// sums) with an epilogue of element-wise operators; one matrix of a batch a block of the grid's z. Parameters are plain
// numbers: what CUTLASS's iterators precompute is a few products of these. Rows and columns that there are not are zeros
// in shared memory, not what happens to lie there.
#include "cutlass/cutlass.h"
#include "cutlass/gemm/kernel/default_gemm.h"
#include "cutlass/epilogue/threadblock/default_epilogue_with_broadcast.h"
@EPILOGUE@
using Half = cutlass::half_t;
using RowMajor = cutlass::layout::RowMajor;
using Tile = cutlass::gemm::GemmShape<@TILE@>;
using Base = cutlass::gemm::kernel::DefaultGemm<
    Half, RowMajor, @ALIGNED_A@, Half, RowMajor, @ALIGNED_B@, Half, RowMajor, float, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, Tile, cutlass::gemm::GemmShape<@WARP@>, cutlass::gemm::GemmShape<16, 8, 16>, Epilogue<@WIDTH@>,
    cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1>, @STAGES@, false,
    cutlass::arch::OpMultiplyAdd, cutlass::gemm::SharedMemoryClearOption::kZfill>::GemmKernel;
using Mma = Base::Mma;
using End = cutlass::epilogue::threadblock::DefaultEpilogueWithBroadcastTensorOp<
    Tile, Base::Epilogue::WarpMmaOperator, Base::Epilogue::kPartitionsK, Half, Half, Half, Epilogue<@WIDTH@>,
    Base::Epilogue::kElementsPerAccess>::Epilogue;

union Storage {
  Mma::SharedStorage sums;
  End::SharedStorage end;
};
static_assert(sizeof(Storage) <= @SHARED@, "shared memory as it is launched with");

// `bias` has n elements, or is null; `source` has the shape of the result, and is read where the epilogue adds one.
extern "C" __global__ void __launch_bounds__(@THREADS@)
    gemm(const Half* a, const Half* b, const Half* bias, const Half* source, Half* result, int m, int n, int k, int pitch_a,
         int pitch_b, int step_a, int step_b) {
  extern __shared__ __align__(128) unsigned char bytes[];
  Storage& storage = *reinterpret_cast<Storage*>(bytes);
  const int thread = threadIdx.x, warp = cutlass::canonical_warp_idx_sync(), lane = threadIdx.x % 32;
  const int row = blockIdx.x * Tile::kM, column = blockIdx.y * Tile::kN, batch = blockIdx.z;
  const int64_t step = int64_t(batch) * m * n;

  const Mma::IteratorA::Params stride_a{RowMajor(pitch_a)};
  const Mma::IteratorB::Params stride_b{RowMajor(pitch_b)};
  Mma::IteratorA rows(stride_a, const_cast<Half*>(a) + int64_t(batch) * step_a, {m, k}, thread, {row, 0});
  Mma::IteratorB columns(stride_b, const_cast<Half*>(b) + int64_t(batch) * step_b, {k, n}, thread, {0, column});
  Mma::FragmentC sums;
  sums.clear();
  Mma mma(storage.sums, thread, warp, lane);
  mma((k + Tile::kK - 1) / Tile::kK, sums, rows, columns, sums);

  const cutlass::MatrixCoord extent(m, n), first(row, column);
  const End::OutputTileIterator::Params stride{RowMajor(n)};
  const End::TensorTileIterator::Params unused{RowMajor(n)};
  End::OutputTileIterator added(stride, const_cast<Half*>(source) + step, extent, thread, first);
  End::OutputTileIterator written(stride, result + step, extent, thread, first);
  End::TensorTileIterator none(unused, nullptr, extent, thread, first);
  End end(storage.end, thread, warp, lane);
  end(Epilogue<@WIDTH@>({}), bias ? bias + column : nullptr, written, sums, added, none, extent, first);
}
