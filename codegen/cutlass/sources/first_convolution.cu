// A convolution of an image of few channels by wgmma: rows are pixels of the result, columns are filters, and no other
// kernel pads the image before it.
//
//   rows of the image that a block's pixels reach, as they lie --cp.async--> shared memory -> registers -> wgmma
//   filters, in planes                                         --cp.async--> shared memory ----------------^
//                                                          activation, (+ a map), activation -> y, 16 bytes a thread
//
// A row of a window is contiguous in the image: ACROSS pixels of CHANNELS halves. So the depth of the product is DOWN rows
// of SLOTS halves, and a lane's pairs of the left operand are words of a row in shared memory: nothing is stored a second
// time. Windows begin at even places, which may be one half before the first pixel's: then slots are SHIFTed by one. What
// is no pixel of the window is made zero in the register, since a neighbour may be an infinity. Beyond the image rows are
// zeros. Blocks share a core, so that some copy while others multiply.
constexpr int CHANNELS = @CHANNELS@, DOWN = @DOWN@, ACROSS = @ACROSS@, STRIDE_Y = @STRIDE_Y@, STRIDE_X = @STRIDE_X@;
constexpr int SHIFT = @SHIFT@, COLUMNS = @COLUMNS@, CHUNK = @CHUNK@;
constexpr int UNIT = @UNIT@;  // halves of a row of the image that are copied at a time
constexpr int THREADS = 128, ROWS = 64, N_EACH = COLUMNS / 8, PIXEL = STRIDE_X * CHANNELS;
constexpr int TAPS = ACROSS * CHANNELS, SLOTS = rounded_up(SHIFT + TAPS, 2), USED = DOWN * SLOTS;
constexpr int STEPS = rounded_up(USED, 16) / 16, FILTERS = 16 * STEPS * COLUMNS;
static_assert(PIXEL % 2 == 0 && COLUMNS % 32 == 0, "");

@OPERATORS@

// What all threads of a block know: pixels of the result, and where its rows are in shared memory.
struct Task {
  int high, wide;               // of an image's result
  int filters, column;          // of all, and the block's first
  int item, row, pixel;         // the block's first: image, row and pixel of the row
  int rows, pixels;             // of the block: rows, each of so many pixels
  int pitch;                    // halves from a row of the image in shared memory to the next
};

// Neighbours of a row of the image to shared memory, or zeros where `there` is false: `from` is then not read.
__device__ __forceinline__ void copy_unit(half* to, const half* from, bool there) {
  if constexpr (UNIT == 8)
    copy_or_zero(to, from, there);
  else if constexpr (UNIT == 2)
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 4 : 0)
                 : "memory");
  else
    *to = there ? *from : __ushort_as_half(0);
}

// Rows of the image from `y` on, of `length` halves; place 0 in shared memory is half `first` of the row.
__device__ __forceinline__ void copy_rows(half* to, const half* image, const Task& task, int y, int height, int first,
                                          int length) {
  const int rows = (task.rows - 1) * STRIDE_Y + DOWN, lane = threadIdx.x % 32;
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < rows; row += THREADS / 32) {
    const bool inside = y + row >= 0 && y + row < height;
    const half* from = inside ? image + size_t(y + row) * length : image;
#pragma unroll 2
    for (int place = lane * UNIT; place < task.pitch; place += 32 * UNIT) {
      const bool there = inside && first + place >= 0 && first + place < length;
      copy_unit(to + row * task.pitch + place, there ? from + (first + place) : image, there);
    }
  }
}

// Which bits of the pair of slots from `slot` on are those of a window's pixels.
__device__ __forceinline__ constexpr uint32_t window_bits(int slot) {
  const int place = slot % SLOTS - SHIFT;
  if (slot >= USED) return 0;
  return (place >= 0 && place < TAPS ? 0xFFFFu : 0u) | (place + 1 >= 0 && place + 1 < TAPS ? 0xFFFF0000u : 0u);
}

// This lane's pair of the eight slots from FIRST on, of the window that begins at `window`, already moved by the lane's
// place. `skipped` are halves from one row's slots to the next row's.
__device__ __forceinline__ uint32_t load_pair(const half* window, int skipped, int first) {
  if (first >= USED) return 0;
  const int pair = threadIdx.x % 4;
  int place = first + first / SLOTS * skipped;
  uint32_t bits = window_bits(first);
  bool whole = bits == ~0u;
#pragma unroll
  for (int other = 1; other < 4; ++other) {
    const int slot = first + 2 * other;
    if (slot % SLOTS == 0 && slot < USED && pair >= other) place += skipped;
    if (pair == other) bits = window_bits(slot);
    whole &= window_bits(slot) == ~0u;
  }
  const uint32_t found = *reinterpret_cast<const uint32_t*>(window + place);
  return whole ? found : found & bits;
}

// Sums of products of 64 pixels, whose windows begin at two places for each lane, by all filters of the block.
__device__ __forceinline__ void multiply_windows(float (&sums)[N_EACH][4], const half* (&windows)[2], int skipped,
                                                 const half* filters) {
#pragma unroll
  for (int begin = 0; begin < STEPS; begin += CHUNK) {
    uint32_t left[CHUNK][4];
#pragma unroll
    for (int step = 0; step < CHUNK; ++step)
#pragma unroll
      for (int part = 0; part < 4; ++part)
        if (begin + step < STEPS)
          left[step][part] = load_pair(windows[part % 2], skipped, 16 * (begin + step) + part / 2 * 8);
    hold(sums);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < CHUNK; ++step)
      if (begin + step < STEPS)
        multiply_group(sums, left[step], plane_descriptor<COLUMNS>(filters + 16 * (begin + step) * COLUMNS));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold(sums);
  }
}

// A thread has sums of eight neighbouring filters in every 32, two in each of four columns of products: filters lie in
// planes so that they do. Sums begin with the bias; those of filters that there are not with any.
__device__ __forceinline__ void begin_sums(float (&sums)[N_EACH][4], const half* biases, const Task& task) {
#pragma unroll
  for (int n = 0; n < N_EACH; n += 4) {
    float own[8];
    load<8>(own, biases + min(task.column + n * 8 + int(threadIdx.x) % 4 * 8, task.filters - 8));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sums[n + k][0] = sums[n + k][2] = own[2 * k];
      sums[n + k][1] = sums[n + k][3] = own[2 * k + 1];
    }
  }
}

// Eight neighbouring filters of a pixel by each thread of a quad, 64 bytes by all four; `place` is the pixel's in y.
template <int EIGHT>
__device__ __forceinline__ void store_pixel(const float (&sums)[N_EACH][4], size_t place, bool inside, const Task& task,
                                            const half* source, half* y) {
  const int column = task.column + threadIdx.x % 4 * 8;
  place = place * task.filters + column;
#pragma unroll
  for (int n = 0; n < N_EACH; n += 4) {
    const bool there = inside && column + n * 8 < task.filters;
    uint32_t bits[4], added[4];
    if (@SOURCE@) {
      const uint4 given = there ? *reinterpret_cast<const uint4*>(source + place + n * 8) : make_uint4(0, 0, 0, 0);
      added[0] = given.x, added[1] = given.y, added[2] = given.z, added[3] = given.w;
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      float2 value = make_float2(before_sum(sums[n + k][2 * EIGHT]), before_sum(sums[n + k][2 * EIGHT + 1]));
      if (@SOURCE@) {
        const float2 more = __half22float2(reinterpret_cast<const half2&>(added[k]));
        value = make_float2(value.x + more.x, value.y + more.y);
      }
      reinterpret_cast<half2&>(bits[k]) = __floats2half2_rn(after_sum(value.x), after_sum(value.y));
    }
    if (there) store_unit(y + place + n * 8, bits);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    first_convolution(const half* __restrict__ x, const half* __restrict__ weights, const half* __restrict__ biases,
                      const half* __restrict__ source, half* __restrict__ y, Dims image, Dims result, Dims tile) {
  extern __shared__ __align__(128) half storage[];
  half* const filters = storage;
  half* const rows = storage + FILTERS;
  const int height = image.v[0], length = image.v[1], top = image.v[2], lead = image.v[3], begin = image.v[4];
  const int bands = tile.v[3], parts = tile.v[4];
  Task task;
  task.high = result.v[0], task.wide = result.v[1], task.filters = result.v[2];
  task.pixels = tile.v[1], task.pitch = tile.v[2], task.column = blockIdx.y * COLUMNS;
  int rest = blockIdx.x;
  task.pixel = rest % parts * task.pixels, rest /= parts;
  task.row = rest % bands * tile.v[0], task.item = rest / bands;
  task.rows = min(tile.v[0], task.high - task.row);

  const half* own = weights + size_t(blockIdx.y) * FILTERS;
#pragma unroll
  for (int place = 0; place < FILTERS; place += 8 * THREADS)
    if (place + 8 * THREADS <= FILTERS || place + threadIdx.x * 8 < FILTERS)
      copy_async(filters + place + threadIdx.x * 8, own + place + threadIdx.x * 8);
  copy_rows(rows, x + size_t(task.item) * height * length, task, task.row * STRIDE_Y - top, height,
            task.pixel * PIXEL - lead, length);
  copies_done();
  fence_async();
  __syncthreads();

  // The pixels of this lane's two rows of a product: the one of a row of the block, and the row.
  const int first = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, all = task.rows * task.pixels;
  int lines[2] = {first / task.pixels, (first + 8) / task.pixels};
  int pixels[2] = {first - lines[0] * task.pixels, first + 8 - lines[1] * task.pixels};
#pragma unroll 1
  for (int done = 0; done < all; done += ROWS) {
    const half* windows[2];
    bool inside[2];
    size_t places[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {  // pixels that there are not are like the first
      inside[i] = lines[i] < task.rows && task.pixel + pixels[i] < task.wide;
      windows[i] = rows + begin + threadIdx.x % 4 * 2;
      if (inside[i]) windows[i] += lines[i] * STRIDE_Y * task.pitch + pixels[i] * PIXEL;
      places[i] = (size_t(task.item) * task.high + task.row + lines[i]) * task.wide + task.pixel + pixels[i];
      for (pixels[i] += ROWS; pixels[i] >= task.pixels; pixels[i] -= task.pixels) ++lines[i];
    }
    float sums[N_EACH][4];
    begin_sums(sums, biases, task);
    multiply_windows(sums, windows, task.pitch - SLOTS, filters);
    store_pixel<0>(sums, places[0], inside[0], task, source, y);
    store_pixel<1>(sums, places[1], inside[1], task, source, y);
  }
}
