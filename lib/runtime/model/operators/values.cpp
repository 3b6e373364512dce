#include "runtime/model/operators/operator_table.hpp"

namespace dslaunch::runtime::model::operators {
namespace {

constexpr Row kRows[] = {
    // New tensors.
    {"arange", {.purity = Purity::kPure, .keeps_integers = true}},
    {"linspace eye tensor", {.purity = Purity::kPure}},
    {"zeros ones full scalar_tensor", {.purity = Purity::kPure, .fills = true}},
    {"zeros_like ones_like full_like new_zeros new_ones new_full",
     {.purity = Purity::kPure, .type = TypeRole::kElements, .fills = true}},
    {"empty", {.fills = true}},
    {"empty_like new_empty", {.type = TypeRole::kElements, .fills = true}},
    {"rand_like fill zero", {.type = TypeRole::kElements}},
    {"multinomial", {.type = TypeRole::kNoFloat}},
    {"prim::NumToTensor", {.purity = Purity::kPure, .type = TypeRole::kNoFloat}},

    // Numbers of what a tensor is.
    {"size dim", {.purity = Purity::kFree, .type = TypeRole::kNoFloat, .reads = Reads::kShape}},
    {"numel len", {.purity = Purity::kFree, .type = TypeRole::kNoFloat, .reads = Reads::kCount}},
    {"is_complex is_floating_point", {.type = TypeRole::kNoFloat, .reads = Reads::kCount}},
    {"sym_size stride device", {.type = TypeRole::kNoFloat}},
    {"dslaunch::shape_like", {.reads = Reads::kCount}},
    {"prim::dtype", {.purity = Purity::kFree, .type = TypeRole::kNoFloat, .reads = Reads::kDtype}},
    {"prim::device", {.purity = Purity::kFree, .type = TypeRole::kNoFloat, .reads = Reads::kPlacement}},
    {"prim::is_cuda prim::layout", {.type = TypeRole::kNoFloat, .reads = Reads::kPlacement}},

    // Numbers of its elements.
    {"Int Float Bool item IntImplicit FloatImplicit ScalarImplicit",
     {.purity = Purity::kFree, .type = TypeRole::kNoFloat, .reads_number = true}},
    {"allclose equal is_nonzero", {.type = TypeRole::kNoFloat, .reads_number = true}},
    {"prim::tolist", {.reads_number = true}},
    {"nonzero nonzero_numpy searchsorted isin", {.type = TypeRole::kNoFloat}},
    {"bucketize", {.purity = Purity::kPure, .type = TypeRole::kNoFloat}},

    // Of integers.
    {"floordiv", {.on_integers = "aten::floordiv"}},

    // Lists and tuples.
    {"prim::ListConstruct prim::ListUnpack", {.purity = Purity::kFree, .type = TypeRole::kElements}},
    {"prim::TupleConstruct prim::TupleUnpack prim::TupleIndex prim::DictConstruct", {.type = TypeRole::kElements}},

    // Messages.
    {"warn prim::Print prim::RaiseException", {.only_reports = true}},
};

}  // namespace

Rows value_rows() {
  return kRows;
}

}  // namespace dslaunch::runtime::model::operators
