// Attention of one new token of each of several texts over the keys and values that are kept of its text, in pages. See
// cached_attention.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

constexpr int64_t kCachePageTokens = 64;
constexpr size_t kMaxAttentionWidth = 256;

// Rows [heads, texts, width] whose last dim is contiguous: elements from a head to the next, and from a text's.
struct HeadRows {
  const void* values = nullptr;
  size_t head = 0, text = 0;
};

struct CachedAttention {
  HeadRows query, key, value;                         // of the new tokens; heads of query, kv_heads of key and value
  void *key_pages = nullptr, *value_pages = nullptr;  // [pages, kv_heads, kCachePageTokens, width]
  const int32_t* page_table = nullptr;                // [texts, pages_of_text]
  const int64_t* positions = nullptr;                 // [texts]: of the new tokens
  // Added to the scores, or, of bools, false hides a key; null: none. Elements from a head, a text, a key to the next.
  const void* mask = nullptr;
  bool mask_is_bool = false;
  size_t mask_head = 0, mask_text = 0, mask_key = 0;
  float scale = 1.0F;
  ElementType type = ElementType::kFloat32;  // of all arrays; a mask that is added as well
  size_t heads = 0, kv_heads = 0, width = 0, texts = 0, pages_of_text = 0;
  // The kernel may start while the one before it runs (overlapped_launch.h), which writes neither positions, nor the
  // page table, nor older keys and values.
  bool overlaps = false;
};

// Whether the kernel applies: the width a multiple of 8 and at most kMaxAttentionWidth, all arrays of elements 16-byte
// aligned, and so the strides.
bool cached_attention_fits(const CachedAttention& attention);

// What a launch uses beside its arguments: so many floats, whatever is in them, and so many counters, which are 0
// before and after.
struct AttentionScratch {
  float* partials = nullptr;
  unsigned* tickets = nullptr;
};
size_t num_attention_partials(const CachedAttention& attention);
size_t num_attention_tickets(const CachedAttention& attention);

// Writes the new keys and values to their pages, and out [texts, heads, width]: the attention of each new token over
// the keys of its text up to its own. All in fp32; the order of additions depends on the positions and on
// the numbers of texts and of pages.
cudaError_t launch_cached_attention(const CachedAttention& attention, const AttentionScratch& scratch, void* out,
                                    cudaStream_t stream);

}  // namespace dslaunch::kernels
