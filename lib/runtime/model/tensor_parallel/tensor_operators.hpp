// The operators that tensor parallelism puts into graphs, and their functions. A value is whole (the same on all ranks
// of the group), sharded (each rank has its part of one dim) or partial (the sum over the ranks is the value). The
// gradient of a partial value is whole; that of a whole value is whole once copy_to_tensor_group() has summed it.
//
// A node keeps its group, which is that of all nodes, as an attribute, since TorchScript has no type for it. Layouts
// are lists of numbers.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstdint>
#include <optional>

#include "runtime/model/tensor_parallel/tensor_group.hpp"

namespace dslaunch::runtime::model::tensor_parallel {

// Whole to whole, for what reads it into a sharded or partial value: backward sums the gradients of all ranks.
inline constexpr char kCopyOperator[] = "dslaunch::copy_to_tensor_group";
at::Tensor copy_to_tensor_group(const at::Tensor& whole, const TensorGroupPtr& group);

// Whether the value is a result of copy_to_tensor_group() or gather_for_parts() whose sum in backward overlaps the
// GEMMs that backward has postponed until then (units/gather_node.hpp): gradients of weights that the value is
// multiplied with.
bool is_reduced_in_backward(const at::Tensor& value);

// Partial to whole.
inline constexpr char kReduceOperator[] = "dslaunch::reduce_from_tensor_group";
at::Tensor reduce_from_tensor_group(const at::Tensor& partial, const TensorGroupPtr& group);

// The same without backward, in place of a new tensor that nothing else reads.
inline constexpr char kReduceInPlaceOperator[] = "dslaunch::reduce_in_tensor_group";

// Sharded to whole: backward takes the rank's part of the gradient.
inline constexpr char kGatherOperator[] = "dslaunch::gather_from_tensor_group";
at::Tensor gather_from_tensor_group(const at::Tensor& part, int64_t dim, const Layout& layout,
                                    const TensorGroupPtr& group);

// Whole, behind copy_to_tensor_group(), to sharded. A dim that is a multiple of the layout is cut in each of the
// groups.
inline constexpr char kOwnSliceOperator[] = "dslaunch::own_slice";
at::Tensor own_slice(const at::Tensor& whole, int64_t dim, const Layout& layout, const TensorGroupPtr& group);

// Between a partial or whole value and one of which each rank has its positions (own_positions() of the length of
// `dim`, which only a run knows). The gradient of positions is that of these positions.
//
// Partial to positions: backward gathers.
inline constexpr char kReduceScatterOperator[] = "dslaunch::reduce_to_positions";
at::Tensor reduce_to_positions(const at::Tensor& partial, int64_t dim, const TensorGroupPtr& group);
// Whole to positions: backward gathers.
inline constexpr char kOwnPositionsOperator[] = "dslaunch::take_positions";
at::Tensor take_positions(const at::Tensor& whole, int64_t dim, const TensorGroupPtr& group);
// Positions to whole. The gradient of the whole value is whole, or for what reads it into a sharded or partial value
// the sum of all ranks' gradients: backward takes the rank's positions of it.
inline constexpr char kGatherPositionsOperator[] = "dslaunch::gather_positions";
at::Tensor gather_positions(const at::Tensor& part, int64_t dim, int64_t length, const TensorGroupPtr& group);
inline constexpr char kGatherForPartsOperator[] = "dslaunch::gather_for_parts";
at::Tensor gather_for_parts(const at::Tensor& part, int64_t dim, int64_t length, const TensorGroupPtr& group);
// The number of the rank's positions.
inline constexpr char kOwnLengthOperator[] = "dslaunch::own_length";

// at::embedding of a table of which each rank has its rows, for ids of the whole table: partial. A row of an id that
// another rank has is zero here.
inline constexpr char kEmbeddingOperator[] = "dslaunch::embedding_of_slice";
at::Tensor embedding_of_slice(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_idx,
                              bool scale_grad_by_freq, bool sparse, const Layout& layout, const TensorGroupPtr& group);

// cross_entropy_of_slice() of sharded_cross_entropy.hpp.
inline constexpr char kCrossEntropyOperator[] = "dslaunch::cross_entropy_of_slice";

// Each rank drops elements of its part independently of the others, and the stream of random numbers that all ranks
// share continues alike on all of them, whatever the sizes of their parts. What is drawn follows from the shared stream
// and the rank: a recomputation draws the same again, and a checkpoint needs no other state.
inline constexpr char kDropoutOperator[] = "dslaunch::dropout_of_slice";
at::Tensor dropout_of_slice(const at::Tensor& part, double probability, bool train, const TensorGroupPtr& group);
// at::scaled_dot_product_attention, whose dropout draws likewise.
inline constexpr char kAttentionOperator[] = "dslaunch::attention_of_slice";
at::Tensor attention_of_slice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                              const std::optional<at::Tensor>& mask, double dropout, bool is_causal,
                              std::optional<double> scale, bool enable_gqa, const TensorGroupPtr& group);

// What such nodes keep, and the head of a chunked loss, of which a graph has one. A node without a group has a null
// one.
void set_tensor_group(torch::jit::Node* node, const TensorGroupPtr& group);
void set_layout(torch::jit::Node* node, const Layout& layout);
TensorGroupPtr tensor_group_of(const torch::jit::Node* node);
Layout layout_of(const torch::jit::Node* node);

// Inserts the operator at the graph's insertion point; its result.
torch::jit::Value* insert_tensor_operator(torch::jit::Graph& graph, const char* name,
                                          at::ArrayRef<torch::jit::Value*> operands, const TensorGroupPtr& group);
// Likewise one of those that have a dim and a layout.
torch::jit::Value* insert_cut(torch::jit::Graph& graph, const char* name, torch::jit::Value* operand,
                              const TensorGroupPtr& group, int64_t dim, const Layout& layout);
// A layout as such operators read it.
torch::jit::Value* insert_layout(torch::jit::Graph& graph, const Layout& layout);

}  // namespace dslaunch::runtime::model::tensor_parallel
