#include "kernels/block_pair_sum.cuh"
#include "kernels/eight_elements.cuh"
#include "kernels/layer_norm.h"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

// A block works on rows one after the other; a thread has the same columns in all of them, kVectors times eight.
constexpr size_t kMaxThreads = 256;
constexpr size_t kMaxColumns = kMaxThreads * kEach * 4;
constexpr size_t kMaxBlocks = 8192;       // forward
constexpr size_t kMultiprocessors = 132;  // of an H100; elsewhere the shapes are the same

template <int kVectors>
struct Columns {
  __device__ explicit Columns(size_t columns) : columns(columns) {}
  __device__ size_t first(int v) const { return (threadIdx.x + static_cast<size_t>(v) * blockDim.x) * kEach; }
  __device__ bool has(int v) const { return first(v) < columns; }

  size_t columns;
};

template <ElementType kType, int kVectors>
__device__ inline void load_columns(const void* values, size_t row, const Columns<kVectors>& mine,
                                    float (&out)[kVectors][kEach]) {
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (mine.has(v)) {
      load8_wide<kType>(values, row * mine.columns + mine.first(v), out[v]);
    } else {
#pragma unroll
      for (int k = 0; k < kEach; ++k) out[v][k] = 0.0F;
    }
  }
}

template <ElementType kType, int kVectors>
__global__ void __launch_bounds__(kMaxThreads) layer_norm_kernel(const LayerNormArguments a, void* out) {
  __shared__ BlockPairSum::Storage storage;
  BlockPairSum block_sum(storage);
  const Columns<kVectors> mine(a.columns);
  float weight[kVectors][kEach], bias[kVectors][kEach], x[kVectors][kEach];
  load_columns<kType, kVectors>(a.weight, 0, mine, weight);
  load_columns<kType, kVectors>(a.bias, 0, mine, bias);
  const float each = 1.0F / static_cast<float>(a.columns);
  for (size_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    load_columns<kType, kVectors>(a.input, row, mine, x);
    float sum = 0.0F, squares = 0.0F;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) sum += x[v][k];
    }
    const float mean = block_sum(make_float2(sum, 0.0F)).x * each;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        x[v][k] -= mean;
        if (mine.has(v)) squares += x[v][k] * x[v][k];
      }
    }
    const float rstd = rsqrtf(block_sum(make_float2(squares, 0.0F)).x * each + a.eps);
    if (threadIdx.x == 0) a.means[row] = mean, a.rstds[row] = rstd;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!mine.has(v)) continue;
#pragma unroll
      for (int k = 0; k < kEach; ++k) x[v][k] = x[v][k] * rstd * weight[v][k] + bias[v][k];
      store8_wide<kType>(out, row * a.columns + mine.first(v), x[v]);
    }
  }
}

// Threads of a multiprocessor that backward's registers leave room for. Its blocks all run at once: each has sums of
// its own to write, and a second wave of few blocks would take as long as the first.
template <int kVectors>
constexpr int kResidentThreads = kVectors == 1   ? 1024
                                 : kVectors == 2 ? 512
                                                 : 256;

// What one row of backward reads. The next row's is on its way while a row meets in its sums, where there are registers
// for it.
template <ElementType kType, int kVectors, bool kAdds>
struct GradientRow {
  static constexpr bool kIsFetchedAhead =
      sizeof(Packed8<kType>) * kVectors * (kAdds ? 3 : 2) <= (kVectors == 1 ? 64 : 128);

  __device__ void fetch(const LayerNormArguments& a, const LayerNormGradient& to, size_t row,
                        const Columns<kVectors>& mine) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!mine.has(v)) continue;  // stays zero
      const size_t at = row * mine.columns + mine.first(v);
      input[v] = load8_packed<kType>(a.input, at);
      upstream[v] = load8_packed<kType>(to.upstream, at);
      if constexpr (kAdds) residual[v] = load8_packed<kType>(to.residual, at);
    }
    mean = a.means[row], rstd = a.rstds[row];
  }

  Packed8<kType> input[kVectors], upstream[kVectors], residual[kVectors];
  float mean, rstd;
};

// With g = upstream * weight and n the normalized input: rstd * (g - mean(g) - n * mean(g * n)), plus the residual if
// it adds one.
template <ElementType kType, int kVectors, bool kAdds>
__global__ void __launch_bounds__(kMaxThreads, kResidentThreads<kVectors> / static_cast<int>(kMaxThreads))
    layer_norm_gradient_kernel(const LayerNormArguments a, const LayerNormGradient to) {
  using Row = GradientRow<kType, kVectors, kAdds>;
  __shared__ BlockPairSum::Storage storage;
  BlockPairSum block_sum(storage);
  const Columns<kVectors> mine(a.columns);
  Packed8<kType> weight[kVectors];
  float weight_sums[kVectors][kEach] = {}, bias_sums[kVectors][kEach] = {};
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (mine.has(v)) weight[v] = load8_packed<kType>(a.weight, mine.first(v));
  }
  const float each = 1.0F / static_cast<float>(a.columns);
  Row next;
  if constexpr (Row::kIsFetchedAhead) next.fetch(a, to, blockIdx.x, mine);
  for (size_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    if constexpr (!Row::kIsFetchedAhead) next.fetch(a, to, row, mine);
    float n[kVectors][kEach], g[kVectors][kEach];
    Packed8<kType> residual[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      unpack8<kType>(next.input[v], n[v]);
      unpack8<kType>(next.upstream[v], g[v]);
      if constexpr (kAdds) residual[v] = next.residual[v];
    }
    const float mean = next.mean, rstd = next.rstd;
    if constexpr (Row::kIsFetchedAhead) {
      if (row + gridDim.x < a.rows) next.fetch(a, to, row + gridDim.x, mine);
    }
    float2 sums = make_float2(0.0F, 0.0F);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      float weights[kEach];
      unpack8<kType>(weight[v], weights);
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        n[v][k] = (n[v][k] - mean) * rstd;
        weight_sums[v][k] += g[v][k] * n[v][k];
        bias_sums[v][k] += g[v][k];
        g[v][k] *= weights[k];  // 0 in columns beyond the end
        sums.x += g[v][k];
        sums.y += g[v][k] * n[v][k];
      }
    }
    sums = block_sum(sums);
    const float mean_g = sums.x * each, mean_gn = sums.y * each;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!mine.has(v)) continue;
#pragma unroll
      for (int k = 0; k < kEach; ++k) g[v][k] = rstd * (g[v][k] - mean_g - n[v][k] * mean_gn);
      if constexpr (kAdds) {
        float more[kEach];
        unpack8<kType>(residual[v], more);
#pragma unroll
        for (int k = 0; k < kEach; ++k) g[v][k] += more[k];
      }
      store8_wide<kType>(to.input, row * a.columns + mine.first(v), g[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (!mine.has(v)) continue;
    const size_t at = blockIdx.x * a.columns + mine.first(v);
    store8_wide<ElementType::kFloat32>(to.weight_partials, at, weight_sums[v]);
    store8_wide<ElementType::kFloat32>(to.bias_partials, at, bias_sums[v]);
  }
}

struct Shape {
  int vectors;
  unsigned threads, blocks;
};

// The rows are spread evenly over as many blocks as run at once.
Shape shape_of(size_t rows, size_t columns) {
  const size_t eights = columns / kEach;
  const int vectors = eights <= kMaxThreads ? 1 : eights <= 2 * kMaxThreads ? 2 : 4;
  const size_t threads = ((eights + vectors - 1) / vectors + 31) / 32 * 32;
  const size_t resident = vectors == 1 ? kResidentThreads<1> : vectors == 2 ? kResidentThreads<2> : kResidentThreads<4>;
  const size_t most = kMultiprocessors * (resident / threads);
  const size_t rows_each = rows > most ? (rows + most - 1) / most : 1;
  return {vectors, static_cast<unsigned>(threads), static_cast<unsigned>((rows + rows_each - 1) / rows_each)};
}

template <class Launch>
cudaError_t with_vectors(int vectors, Launch launch) {
  if (vectors == 1) return launch(std::integral_constant<int, 1>());
  if (vectors == 2) return launch(std::integral_constant<int, 2>());
  return launch(std::integral_constant<int, 4>());
}

}  // namespace

bool layer_norm_fits(size_t columns, const void* const* arrays, int num_arrays) {
  if (columns == 0 || columns % kEach != 0 || columns > kMaxColumns) return false;
  for (int i = 0; i < num_arrays; ++i) {
    if (!on_16_bytes(arrays[i])) return false;
  }
  return true;
}

cudaError_t launch_layer_norm(const LayerNormArguments& a, void* out, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  const Shape shape = shape_of(a.rows, a.columns);
  const auto blocks = static_cast<unsigned>(a.rows < kMaxBlocks ? a.rows : kMaxBlocks);
  return with_type(a.type, [&](auto type) {
    return with_vectors(shape.vectors, [&](auto vectors) {
      layer_norm_kernel<type, vectors><<<blocks, shape.threads, 0, stream>>>(a, out);
      return cudaGetLastError();
    });
  });
}

size_t num_layer_norm_partials(size_t rows, size_t columns) {
  return shape_of(rows, columns).blocks;
}

cudaError_t launch_layer_norm_gradient(const LayerNormArguments& a, const LayerNormGradient& to, cudaStream_t stream) {
  if (a.rows == 0) return cudaSuccess;
  const Shape shape = shape_of(a.rows, a.columns);
  return with_type(a.type, [&](auto type) {
    return with_vectors(shape.vectors, [&](auto vectors) {
      if (to.residual != nullptr) {
        layer_norm_gradient_kernel<type, vectors, true><<<shape.blocks, shape.threads, 0, stream>>>(a, to);
      } else {
        layer_norm_gradient_kernel<type, vectors, false><<<shape.blocks, shape.threads, 0, stream>>>(a, to);
      }
      return cudaGetLastError();
    });
  });
}

}  // namespace dslaunch::kernels
