// What the runtime knows of the operators of a graph: a row for each, whose columns the other rooms read. An operator
// without a row has the defaults, which claim nothing. docs/map.md says how to add one. Pure; any thread.
#pragma once
#include <ATen/core/symbol.h>

#include <cstdint>
#include <string_view>

#include "runtime/model/operators/operator_flops.hpp"

namespace dslaunch::runtime::model::operators {

// What becomes of the floating-point types of the operands.
enum class TypeRole : uint8_t {
  kElements,    // selects, moves or joins elements: a view, a slice, cat, dropout
  kArithmetic,  // any other operator: its operands are promoted to one type
  kCast,        // to a floating-point type that is a constant of the graph
  kTypeOf,      // to the type of another value, which is known only when the model runs
  kFactory,     // fills a new tensor of a floating-point type that is a constant of the graph
  kGemm,        // linear, matmul, convolution, attention: computed in the run's type
  kNorm,        // layer norm and its like: one operator whose operands have one type, precise inside
  kBatchNorm,   // takes half-precision inputs with fp32 parameters
  kTable,       // embedding
  kSoftmax,     // softmax and losses: exported in fp32 on purpose if their operand was cast before
  kReduction,   // sums, roots, powers, exponentials: likewise
  kNoFloat,     // its results are integers, booleans, sizes
};

// Whether the results for the same arguments may be kept: no side effects, random numbers or uninitialized memory.
enum class Purity : uint8_t {
  kUnknown,
  kPure,  // masks, positions, tables of angles and relative positions are made of these
  kFree,  // pure, and its results share the memory of an argument or are numbers: it costs next to nothing
};

// The sizes of the result. Those of an elementwise operator follow from `elementwise`.
enum class SizeRule : uint8_t {
  kUnknown,
  kLikeFirst,  // of the first operand
  kTableRows,  // operand 1's, then the width of a row of operand 0
  kLinear,     // operand 0's, the last replaced by the rows of operand 1
};

// What becomes of the elements of the first operand.
enum class Elements : uint8_t {
  kComputed,  // others take their place
  kMoved,     // each is an element of the result, maybe at another position
  kKept,      // each is at its position
};

// What bounds the numbers in an operand of indices.
enum class IndexBound : uint8_t { kUnknown, kTableRows, kClasses };

struct IndexOperand {
  int input = -1;  // -1: the operator takes no indices
  IndexBound bound = IndexBound::kUnknown;
};

// What of its first operand an operator reads to make a number or a type.
enum class Reads : uint8_t { kElements, kShape, kCount, kDtype, kPlacement };

enum class Gradient : uint8_t {
  kUnknown,
  kKernel,  // computed by a kernel of its own
  kPassed,  // that of the result
};

// How a fused group computes the operator (fusion/lowering.cpp).
enum class Lowering : uint8_t {
  kNone,
  kNegate,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSin,
  kCos,
  kTanh,
  kSigmoid,
  kErf,
  kNot,
  kRelu,
  kSilu,
  kGelu,
  kPower,
  kAdd,
  kSubtract,
  kReverseSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kClamp,
  kLess,
  kGreater,
  kLessEqual,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kWhere,
  kMaskedFill,
  kCast,
  kSum,
  kMean,
  kMax,
  kSoftmax,
  kLayerNorm,
  kWithBias,
  kSlice,
  kConcat,
  kDropout,
};

// The inputs of a GEMM; -1: it has none such.
struct GemmInputs {
  int factor = -1;
  int weight = -1;
  int bias = -1;
};

struct OperatorTraits {
  // Each element of the result is computed from the elements at its position; tensor operands broadcast.
  bool elementwise = false;
  SizeRule size = SizeRule::kUnknown;
  Purity purity = Purity::kUnknown;
  // The result never shares memory with an operand, whatever the arguments.
  bool makes_new_tensor = false;

  TypeRole type = TypeRole::kArithmetic;
  bool wants_one_type = false;           // all operands must have the type of the first
  bool only_first_has_elements = false;  // other tensor operands only tell sizes
  bool fills = false;                    // a new tensor, of the type that its argument `dtype` names
  bool keeps_integers = false;           // integers from integers
  bool yields_indices = false;           // results after the first are indices

  Elements elements = Elements::kComputed;
  bool keeps_classes = false;  // the last dim of the result has the meaning of that of the first operand
  IndexOperand index = {};
  Reads reads = Reads::kElements;
  bool reads_number = false;          // makes a number or a list of them of a tensor's elements
  std::string_view on_integers = {};  // the operator on integers that makes the same of a tensor's only element
  bool only_reports = false;          // changes nothing, and may run several times

  FlopFormula flops = nullptr;  // null: costs nothing itself
  GemmInputs gemm = {};
  Lowering lowering = Lowering::kNone;
  Gradient gradient = Gradient::kUnknown;
};

const OperatorTraits& traits(c10::Symbol kind);
const OperatorTraits& traits(std::string_view name);  // "aten::linear"

// aten::add_. What a row says of types, sizes and FLOPs holds for the variant in place, too, whose result has the sizes
// of the first operand; nothing else does.
bool works_in_place(c10::Symbol kind);

// Registered by this program: dslaunch::linear.
bool is_ours(c10::Symbol kind);

}  // namespace dslaunch::runtime::model::operators
