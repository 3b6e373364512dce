#include "runtime/model/operators/operator_table.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

constexpr Row kRows[] = {
    // The same elements in the same order.
    {"clone contiguous",
     {.size = SizeRule::kLikeFirst,
      .purity = Purity::kPure,
      .type = TypeRole::kElements,
      .elements = Elements::kKept,
      .keeps_classes = true}},
    {"detach",
     {.size = SizeRule::kLikeFirst, .purity = Purity::kFree, .type = TypeRole::kElements, .elements = Elements::kKept}},
    {"alias", {.size = SizeRule::kLikeFirst, .purity = Purity::kFree, .type = TypeRole::kElements}},
    {"lift_fresh", {.purity = Purity::kFree, .type = TypeRole::kElements}},
    {"lift copy", {.type = TypeRole::kElements}},
    {"to",
     {.size = SizeRule::kLikeFirst,
      .purity = Purity::kPure,
      .type = TypeRole::kCast,
      .elements = Elements::kKept,
      .keeps_classes = true,
      .lowering = Lowering::kCast}},
    {"_to_copy", {.type = TypeRole::kCast}},
    {"type_as",
     {.size = SizeRule::kLikeFirst, .purity = Purity::kPure, .type = TypeRole::kTypeOf, .lowering = Lowering::kCast}},
    {"dslaunch::narrow_fp32 dslaunch::match_type", {.size = SizeRule::kLikeFirst, .purity = Purity::kPure}},
    {"dslaunch::copy_to_tensor_group dslaunch::reduce_from_tensor_group dslaunch::reduce_in_tensor_group",
     {.size = SizeRule::kLikeFirst}},
    {"prim::unchecked_cast", {.elements = Elements::kKept}},
    {"view", {.purity = Purity::kFree, .type = TypeRole::kElements, .elements = Elements::kMoved}},
    {"reshape flatten", {.purity = Purity::kPure, .type = TypeRole::kElements, .elements = Elements::kMoved}},
    {"squeeze unsqueeze", {.purity = Purity::kFree, .type = TypeRole::kElements, .elements = Elements::kMoved}},
    {"view_as", {.purity = Purity::kFree, .type = TypeRole::kElements, .only_first_has_elements = true}},
    {"reshape_as", {.type = TypeRole::kElements, .only_first_has_elements = true}},
    {"unflatten _unsafe_view _reshape_alias", {.type = TypeRole::kElements}},

    // Another order.
    {"transpose", {.purity = Purity::kFree, .type = TypeRole::kElements, .elements = Elements::kMoved}},
    {"t permute", {.purity = Purity::kFree, .type = TypeRole::kElements}},
    {"numpy_T movedim moveaxis swapaxes swapdims rot90 pixel_shuffle pixel_unshuffle", {.type = TypeRole::kElements}},
    {"flip roll", {.purity = Purity::kPure, .type = TypeRole::kElements}},

    // Some of them, the others left out or 0.
    {"slice",
     {.purity = Purity::kFree, .type = TypeRole::kElements, .keeps_classes = true, .lowering = Lowering::kSlice}},
    {"select narrow chunk split unbind", {.purity = Purity::kFree, .type = TypeRole::kElements}},
    {"split_with_sizes tensor_split unsafe_chunk unsafe_split diagonal as_strided unfold masked_select __getitem__",
     {.type = TypeRole::kElements}},
    {"tril triu", {.purity = Purity::kPure, .type = TypeRole::kElements}},
    {"dropout",
     {.size = SizeRule::kLikeFirst,
      .type = TypeRole::kElements,
      .keeps_classes = true,
      .lowering = Lowering::kDropout,
      .gradient = Gradient::kPassed}},
    {"feature_dropout", {.size = SizeRule::kLikeFirst, .type = TypeRole::kElements}},

    // Several times, or joined.
    {"expand broadcast_to meshgrid", {.purity = Purity::kFree, .type = TypeRole::kElements}},
    {"expand_as", {.purity = Purity::kFree, .type = TypeRole::kElements, .only_first_has_elements = true}},
    {"repeat repeat_interleave", {.purity = Purity::kPure, .type = TypeRole::kElements}},
    {"tile broadcast_tensors pad constant_pad_nd", {.type = TypeRole::kElements}},
    {"upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
     "upsample_trilinear3d upsample_bicubic2d",
     {.flops = upsample_cost}},
    {"cat", {.purity = Purity::kPure, .type = TypeRole::kElements, .lowering = Lowering::kConcat}},
    {"stack", {.purity = Purity::kPure, .type = TypeRole::kElements}},
    {"concat hstack vstack", {.type = TypeRole::kElements}},

    // By indices.
    {"embedding",
     {.size = SizeRule::kTableRows, .type = TypeRole::kTable, .index = {.input = 1, .bound = IndexBound::kTableRows}}},
    {"embedding_bag", {.type = TypeRole::kTable}},
    {"gather index_select", {.purity = Purity::kPure, .type = TypeRole::kElements, .index = {.input = 2}}},
    {"index", {.purity = Purity::kPure, .type = TypeRole::kElements}},
    {"take_along_dim", {.type = TypeRole::kElements}},
    {"scatter", {.type = TypeRole::kElements, .wants_one_type = true, .index = {.input = 2}}},
    {"index_put index_copy masked_scatter", {.type = TypeRole::kElements, .wants_one_type = true}},
    {"index_add index_reduce scatter_add scatter_reduce put grid_sampler grid_sampler_2d", {.wants_one_type = true}},
    {"one_hot", {.type = TypeRole::kNoFloat, .index = {.input = 0}}},
};

}  // namespace

Rows movement_rows() {
  return kRows;
}

}  // namespace dslaunch::runtime::model::operators
