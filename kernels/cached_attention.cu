// A block attends over a range of pages, for up to eight query heads that share keys. A group of lanes reads a key, and
// the value beside it, in one access of 16 bytes for each lane; groups take turns over the keys, each with a softmax of
// its own (running maximum and sum). The groups' results are joined in shared memory, those of the ranges by the block
// that ends last.
#include "kernels/cached_attention.h"

#include "kernels/eight_elements.cuh"
#include "kernels/overlapped_launch.h"
#include "kernels/with_type.cuh"

namespace dslaunch::kernels {
namespace {

constexpr int kBlock = 128;
constexpr size_t kMaxSplits = 32, kWantedBlocks = 4096;
constexpr int kMaxGroup = 8;

int group_of(const CachedAttention& attention) {
  const size_t sharing = attention.heads / attention.kv_heads;
  return sharing > 4 ? kMaxGroup : sharing > 2 ? 4 : sharing > 1 ? 2 : 1;
}

size_t blocks_of_key_head(const CachedAttention& attention) {
  const auto group = static_cast<size_t>(group_of(attention));
  return (attention.heads / attention.kv_heads + group - 1) / group;
}

// How the pages of a text are divided among blocks.
struct Splits {
  size_t count, pages;
};

// `blocks`: of a page of all texts. Where these occupy the device, blocks of more pages have less to join.
__host__ __device__ inline Splits splits_of(size_t pages_of_text, size_t blocks) {
  size_t most = kWantedBlocks / blocks;
  most = most < 1 ? 1 : most < kMaxSplits ? most : kMaxSplits;
  const size_t pages = (pages_of_text + most - 1) / most;
  return {(pages_of_text + pages - 1) / pages, pages};
}

Splits splits_of(const CachedAttention& a) {
  return splits_of(a.pages_of_text, a.texts * a.kv_heads * blocks_of_key_head(a));
}

template <ElementType kType>
__device__ inline float mask_of(const CachedAttention& a, size_t head, size_t text, int64_t key) {
  if (a.mask == nullptr) return 0.0F;
  const size_t i = head * a.mask_head + text * a.mask_text + static_cast<size_t>(key) * a.mask_key;
  if (a.mask_is_bool) return static_cast<const bool*>(a.mask)[i] ? 0.0F : -INFINITY;
  return load_element<kType>(a.mask, i);
}

// A softmax so far: the largest score, the sum of exp(score - largest), and a factor for what was summed before.
struct Running {
  float largest = -INFINITY, sum = 0.0F;

  __device__ inline float add(float score, float& factor) {
    const float next = fmaxf(largest, score);
    if (next == -INFINITY) {
      factor = 1.0F;
      return 0.0F;
    }
    factor = __expf(largest - next);
    const float weight = __expf(score - next);
    largest = next;
    sum = sum * factor + weight;
    return weight;
  }
};

// Of a group of lanes: its keys of a page, where registers have room for them.
template <ElementType kType, int kLanes, int kGroup>
constexpr int kKeysAhead = kType != ElementType::kFloat32&& kLanes >= 16 && kGroup <= 2 ? 8 : 4;

template <ElementType kType, int kLanes, int kGroup>
__global__ void __launch_bounds__(kBlock)
    cached_attention_kernel(const CachedAttention a, const AttentionScratch scratch, void* out) {
  constexpr int kGroups = kBlock / kLanes;
  constexpr int kAhead = kKeysAhead<kType, kLanes, kGroup>;
  let_next_kernel_start();
  const Splits splits = splits_of(a.pages_of_text, static_cast<size_t>(gridDim.y) * gridDim.z);
  const size_t split = blockIdx.x, text = blockIdx.z, sharing = a.heads / a.kv_heads;
  const size_t blocks_each = (sharing + kGroup - 1) / kGroup;
  const size_t kv_head = blockIdx.y / blocks_each, part = blockIdx.y % blocks_each;
  const size_t first_head = kv_head * sharing + part * kGroup;
  const int num_heads = static_cast<int>(min(static_cast<size_t>(kGroup), sharing - part * kGroup));
  const int64_t position = a.positions[text];
  const int64_t tokens_each = static_cast<int64_t>(splits.pages) * kCachePageTokens;
  const int64_t begin = static_cast<int64_t>(split) * tokens_each;
  if (begin > position) return;  // others wait for earlier kernels
  const int64_t end = min(position + 1, begin + tokens_each);
  const auto num_splits = static_cast<unsigned>(position / tokens_each + 1);

  const int lane = static_cast<int>(threadIdx.x) % kLanes, own = static_cast<int>(threadIdx.x) / kLanes;
  const size_t column = static_cast<size_t>(lane) * kEach;
  const bool reads = column < a.width;
  const int32_t* pages = a.page_table + text * a.pages_of_text;
  const auto in_pages = [&](int64_t token) {
    const auto page = static_cast<size_t>(pages[token / kCachePageTokens]);
    return ((page * a.kv_heads + kv_head) * kCachePageTokens + static_cast<size_t>(token % kCachePageTokens)) *
               a.width +
           column;
  };
  const size_t new_key = kv_head * a.key.head + text * a.key.text + column;
  const size_t new_value = kv_head * a.value.head + text * a.value.text + column;
  // What is new comes from the kernels before this one; older keys and values do not.
  Packed8<kType> keys[kAhead], values[kAhead];
  const auto load_older = [&](int i, int64_t token) {
    if (token >= end || token == position || !reads) return;
    const size_t at = in_pages(token);
    keys[i] = load8_packed<kType>(a.key_pages, at);
    values[i] = load8_packed<kType>(a.value_pages, at);
  };
#pragma unroll
  for (int i = 0; i < kAhead; ++i) load_older(i, begin + i * kGroups + own);
  wait_for_earlier_kernels();
  if (end == position + 1 && part == 0 && own == 0 && reads) {
    store8_packed<kType>(a.key_pages, in_pages(position), load8_packed<kType>(a.key.values, new_key));
    store8_packed<kType>(a.value_pages, in_pages(position), load8_packed<kType>(a.value.values, new_value));
  }

  float query[kGroup][kEach] = {}, sums[kGroup][kEach] = {};
  Running running[kGroup];
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    if (h < num_heads && reads) {
      load8_wide<kType>(a.query.values, (first_head + h) * a.query.head + text * a.query.text + column, query[h]);
    }
  }
  for (int64_t turn = begin; turn < end; turn += kGroups * kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t token = turn + i * kGroups + own;
      if (token == position && reads) {  // its page is being written
        keys[i] = load8_packed<kType>(a.key.values, new_key);
        values[i] = load8_packed<kType>(a.value.values, new_value);
      }
      float key[kEach], value[kEach];
      unpack8<kType>(keys[i], key);
      unpack8<kType>(values[i], value);
      load_older(i, token + kGroups * kAhead);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float score = 0.0F;
#pragma unroll
        for (int k = 0; k < kEach; ++k) score += query[h][k] * key[k];
#pragma unroll
        for (int distance = kLanes / 2; distance > 0; distance /= 2) {
          score += __shfl_xor_sync(0xFFFFFFFFU, score, distance);
        }
        score =
            token < end && h < num_heads ? score * a.scale + mask_of<kType>(a, first_head + h, text, token) : -INFINITY;
        float factor;
        const float weight = running[h].add(score, factor);
#pragma unroll
        for (int k = 0; k < kEach; ++k) sums[h][k] = sums[h][k] * factor + weight * value[k];
      }
    }
  }

  // The groups of the block, then the ranges of the text.
  __shared__ float shared[kGroup][kGroups][kLanes * kEach];
  __shared__ float largest[kGroup][kGroups], total[kGroup][kGroups];
  __shared__ bool is_last;
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
#pragma unroll
    for (int k = 0; k < kEach; ++k) shared[h][own][lane * kEach + k] = sums[h][k];
    if (lane == 0) {
      largest[h][own] = running[h].largest;
      total[h][own] = running[h].sum;
    }
  }
  __syncthreads();
  const size_t record = a.width + 2;
  const int width = static_cast<int>(a.width);
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * width; i += kBlock) {
    const int h = i / width, c = i % width;
    float most = -INFINITY, sum = 0.0F, weight = 0.0F;
    for (int g = 0; g < kGroups; ++g) most = fmaxf(most, largest[h][g]);
    for (int g = 0; g < kGroups && most != -INFINITY; ++g) {
      const float factor = __expf(largest[h][g] - most);
      sum += shared[h][g][c] * factor;
      weight += total[h][g] * factor;
    }
    const size_t head = first_head + h;
    if (num_splits == 1) {
      store_element<kType>(out, (text * a.heads + head) * a.width + c, sum / weight);
    } else {
      float* partial = scratch.partials + ((text * a.heads + head) * splits.count + split) * record;
      partial[c] = sum;
      if (c == 0) {
        partial[a.width] = most;
        partial[a.width + 1] = weight;
      }
    }
  }
  if (num_splits == 1) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned* ticket = scratch.tickets + text * gridDim.y + blockIdx.y;
    is_last = atomicInc(ticket, num_splits - 1) == num_splits - 1;  // which is 0 again then
  }
  __syncthreads();
  if (!is_last) return;
  __threadfence();
  for (int i = static_cast<int>(threadIdx.x); i < num_heads * width; i += kBlock) {
    const int h = i / width, c = i % width;
    const size_t head = first_head + h;
    const float* partials = scratch.partials + (text * a.heads + head) * splits.count * record;
    float most = -INFINITY, sum = 0.0F, weight = 0.0F;
    for (unsigned s = 0; s < num_splits; ++s) most = fmaxf(most, __ldcg(partials + s * record + a.width));
    for (unsigned s = 0; s < num_splits && most != -INFINITY; ++s) {
      const float factor = __expf(__ldcg(partials + s * record + a.width) - most);
      sum += __ldcg(partials + s * record + c) * factor;
      weight += __ldcg(partials + s * record + a.width + 1) * factor;
    }
    store_element<kType>(out, (text * a.heads + head) * a.width + c, sum / weight);
  }
}

template <ElementType kType, int kLanes, int kGroup>
cudaError_t launch(const CachedAttention& a, const AttentionScratch& scratch, void* out, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(splits_of(a).count), static_cast<unsigned>(a.kv_heads * blocks_of_key_head(a)),
                  static_cast<unsigned>(a.texts));
  void* parameters[] = {const_cast<CachedAttention*>(&a), const_cast<AttentionScratch*>(&scratch), &out};
  return launch_overlapped(reinterpret_cast<const void*>(cached_attention_kernel<kType, kLanes, kGroup>), grid, kBlock,
                           0, stream, parameters, a.overlaps);
}

template <ElementType kType, int kLanes>
cudaError_t launch_of_group(const CachedAttention& a, const AttentionScratch& scratch, void* out, cudaStream_t stream) {
  switch (group_of(a)) {
    case 1:
      return launch<kType, kLanes, 1>(a, scratch, out, stream);
    case 2:
      return launch<kType, kLanes, 2>(a, scratch, out, stream);
    case 4:
      return launch<kType, kLanes, 4>(a, scratch, out, stream);
    default:
      return launch<kType, kLanes, kMaxGroup>(a, scratch, out, stream);
  }
}

}  // namespace

bool cached_attention_fits(const CachedAttention& a) {
  bool fits = a.width % kEach == 0 && a.width <= kMaxAttentionWidth && a.kv_heads > 0 && a.heads % a.kv_heads == 0 &&
              a.pages_of_text > 0 && on_16_bytes(a.key_pages) && on_16_bytes(a.value_pages);
  for (const HeadRows& rows : {a.query, a.key, a.value}) {
    fits = fits && on_16_bytes(rows.values) && rows.head % kEach == 0 && rows.text % kEach == 0;
  }
  return fits;
}

size_t num_attention_partials(const CachedAttention& a) {
  const size_t splits = splits_of(a).count;
  return splits == 1 ? 0 : a.texts * a.heads * splits * (a.width + 2);
}

size_t num_attention_tickets(const CachedAttention& a) {
  return a.texts * a.kv_heads * blocks_of_key_head(a);
}

cudaError_t launch_cached_attention(const CachedAttention& a, const AttentionScratch& scratch, void* out,
                                    cudaStream_t stream) {
  return with_type(a.type, [&](auto type) {
    constexpr ElementType kType = decltype(type)::value;
    if (a.width <= 8 * kEach) return launch_of_group<kType, 8>(a, scratch, out, stream);
    if (a.width <= 16 * kEach) return launch_of_group<kType, 16>(a, scratch, out, stream);
    return launch_of_group<kType, 32>(a, scratch, out, stream);
  });
}

}  // namespace dslaunch::kernels
