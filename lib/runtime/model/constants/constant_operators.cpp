#include "runtime/model/constants/constant_operators.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace dslaunch::runtime::model::constants {
namespace {

// What masks, positions, tables of angles and relative positions are made of.
const std::unordered_set<std::string_view> kComputing{"aten::arange",
                                                      "aten::linspace",
                                                      "aten::zeros",
                                                      "aten::ones",
                                                      "aten::full",
                                                      "aten::eye",
                                                      "aten::zeros_like",
                                                      "aten::ones_like",
                                                      "aten::full_like",
                                                      "aten::new_zeros",
                                                      "aten::new_ones",
                                                      "aten::new_full",
                                                      "aten::tensor",
                                                      "aten::scalar_tensor",
                                                      "prim::NumToTensor",
                                                      "aten::add",
                                                      "aten::sub",
                                                      "aten::rsub",
                                                      "aten::mul",
                                                      "aten::div",
                                                      "aten::floor_divide",
                                                      "aten::remainder",
                                                      "aten::fmod",
                                                      "aten::pow",
                                                      "aten::neg",
                                                      "aten::abs",
                                                      "aten::sign",
                                                      "aten::exp",
                                                      "aten::log",
                                                      "aten::log2",
                                                      "aten::sqrt",
                                                      "aten::rsqrt",
                                                      "aten::reciprocal",
                                                      "aten::square",
                                                      "aten::sin",
                                                      "aten::cos",
                                                      "aten::tanh",
                                                      "aten::floor",
                                                      "aten::ceil",
                                                      "aten::round",
                                                      "aten::trunc",
                                                      "aten::clamp",
                                                      "aten::clamp_min",
                                                      "aten::clamp_max",
                                                      "aten::minimum",
                                                      "aten::maximum",
                                                      "aten::min",
                                                      "aten::max",
                                                      "aten::eq",
                                                      "aten::ne",
                                                      "aten::lt",
                                                      "aten::le",
                                                      "aten::gt",
                                                      "aten::ge",
                                                      "aten::logical_and",
                                                      "aten::logical_or",
                                                      "aten::logical_not",
                                                      "aten::logical_xor",
                                                      "aten::__and__",
                                                      "aten::__or__",
                                                      "aten::__xor__",
                                                      "aten::bitwise_and",
                                                      "aten::bitwise_or",
                                                      "aten::bitwise_not",
                                                      "aten::where",
                                                      "aten::masked_fill",
                                                      "aten::tril",
                                                      "aten::triu",
                                                      "aten::cumsum",
                                                      "aten::diff",
                                                      "aten::sum",
                                                      "aten::mean",
                                                      "aten::any",
                                                      "aten::all",
                                                      "aten::cat",
                                                      "aten::stack",
                                                      "aten::index",
                                                      "aten::index_select",
                                                      "aten::gather",
                                                      "aten::repeat",
                                                      "aten::repeat_interleave",
                                                      "aten::flip",
                                                      "aten::roll",
                                                      "aten::outer",
                                                      "aten::matmul",
                                                      "aten::bmm",
                                                      "aten::mm",
                                                      "aten::einsum",
                                                      "aten::bucketize",
                                                      "aten::clone",
                                                      "aten::contiguous",
                                                      "aten::to",
                                                      "aten::type_as",
                                                      "aten::reshape",
                                                      "aten::flatten",
                                                      "dslaunch::narrow_fp32",
                                                      "dslaunch::match_type"};

const std::unordered_set<std::string_view> kFree{
    "aten::slice",     "aten::select",    "aten::narrow",      "aten::unsqueeze",     "aten::squeeze",
    "aten::expand",    "aten::expand_as", "aten::view",        "aten::view_as",       "aten::permute",
    "aten::transpose", "aten::t",         "aten::detach",      "aten::alias",         "aten::lift_fresh",
    "aten::chunk",     "aten::split",     "aten::unbind",      "aten::meshgrid",      "aten::broadcast_to",
    "aten::size",      "aten::dim",       "aten::numel",       "aten::len",           "aten::Int",
    "aten::Float",     "aten::Bool",      "aten::IntImplicit", "aten::FloatImplicit", "aten::ScalarImplicit",
    "aten::item",      "prim::dtype",     "prim::device",      "prim::ListConstruct", "prim::ListUnpack"};

}  // namespace

bool is_free(const torch::jit::Node* node) {
  return kFree.count(node->kind().toQualString()) > 0;
}

bool is_repeatable(const torch::jit::Node* node) {
  if (!is_free(node) && kComputing.count(node->kind().toQualString()) == 0) return false;
  if (!node->blocks().empty() || node->isNondeterministic()) return false;
  const auto* schema = node->maybeSchema();
  if (schema == nullptr) return std::string_view(node->kind().toQualString()).substr(0, 6) == "prim::";
  return std::none_of(schema->arguments().begin(), schema->arguments().end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

}  // namespace dslaunch::runtime::model::constants
