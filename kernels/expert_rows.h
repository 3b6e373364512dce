// Rows of tokens that go to some experts each, in the order of the experts, and back. Entry e is a choice of token
// e / choices; entries of an expert keep their order, so that every run has the same. Nothing is read by the host. See
// expert_rows.cu.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "kernels/element_type.h"

namespace dslaunch::kernels {

constexpr size_t kMaxExperts = 511;
constexpr size_t kMaxExpertChoices = 32;  // of a token

struct ExpertOrder {
  const int64_t* experts = nullptr;  // [entries]; an entry whose number no expert has is of none, and comes last
  size_t entries = 0, num_experts = 0;
  int32_t* counts = nullptr;        // [num_expert_counts], scratch
  int32_t* entry_of_row = nullptr;  // [entries], output
  int32_t* row_of_entry = nullptr;  // [entries], output; -1: of no expert
  int32_t* ends = nullptr;          // [num_experts], output: the row after the expert's last one
};

size_t num_expert_counts(size_t entries, size_t num_experts);

// At most kMaxExperts experts, and 2^31 - 1 entries.
cudaError_t launch_expert_order(const ExpertOrder& order, cudaStream_t stream);

struct ExpertRows {
  ElementType type = ElementType::kFloat32;  // of tokens and rows
  size_t tokens = 0, choices = 0;            // choices: at most kMaxExpertChoices
  size_t columns = 0;
  const int32_t* row_of_entry = nullptr;  // [tokens * choices]
  const void* weights = nullptr;          // [tokens * choices]; null: all are 1
  ElementType weight_type = ElementType::kFloat32;
};

// Whether the next functions apply: columns are a multiple of 8, arrays are on 16 bytes, choices are not too many.
bool expert_rows_fit(size_t columns, size_t choices, const void* const* arrays, int num_arrays);

// rows[row of an entry] = that token's; the weights play no part. Rows of no expert are not written.
cudaError_t launch_expert_rows(const ExpertRows& a, const void* of_tokens, void* rows, cudaStream_t stream);

// out[token] = the sum of its rows times their weights, in fp32, rounded once.
cudaError_t launch_expert_sum(const ExpertRows& a, const void* rows, void* out, cudaStream_t stream);

// The gradients of launch_expert_sum: row_gradients[row] = upstream[token] * weight; weight_gradients[entry] = the
// scalar product of upstream[token] and rows[row], 0 for an entry of no expert. With weights.
cudaError_t launch_expert_sum_gradient(const ExpertRows& a, const void* upstream, const void* rows, void* row_gradients,
                                       void* weight_gradients, cudaStream_t stream);

}  // namespace dslaunch::kernels
