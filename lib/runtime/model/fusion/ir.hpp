// A region: a small program over the rows of its inputs that becomes one kernel. Plain values, pure.
//
// Every value has `width` columns (the last dim of the tensors) in each row, or one column that all columns of the row
// share (width 1). The rows are all leading dims of the region's outputs; the IR knows only how many leading dims there
// are and on which of them an input varies. Arithmetic is in fp32 (in fp64 where an input is fp64): a value is rounded
// to its dtype where it leaves the region, and where the model itself has a cast (kCast). A boolean is 0 or 1.
#pragma once
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace dslaunch::runtime::model::fusion {

enum class Op : uint8_t {
  kInput,     // `index`: of Region::inputs
  kConstant,  // `number`, in every column; width 1
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
  kNot,     // 1 where the operand is 0, else 0
  kPower,   // operand ^ `number`
  kCast,    // rounds to `dtype`
  kDetach,  // the operand, through which no gradient flows
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kLess,
  kLessEqual,
  kEqual,   // 1 or 0
  kSelect,  // operand 0 ? operand 1 : operand 2
  kRowSum,
  kRowMax,         // over the operand's columns; width 1
  kSlice,          // `width` columns from column `index` on; the operand is wider
  kConcat,         // the columns of its operands one after another
  kBroadcast,      // width 1 -> `width` equal columns
  kShareGradient,  // operand 0, whose gradient is that of operand 1, too
};

// An index into Region::nodes. Operands come before their users.
using Id = int32_t;

struct Instruction {
  Op op = Op::kConstant;
  std::vector<Id> operands = {};
  int64_t width = 1;
  int64_t index = 0;
  double number = 0;
  at::ScalarType dtype = at::kFloat;  // of kCast

  auto key() const { return std::tie(op, operands, width, index, number, dtype); }
  bool operator<(const Instruction& other) const { return key() < other.key(); }
};

struct Input {
  at::ScalarType dtype = at::kFloat;
  int64_t width = 1;
  std::vector<bool> varies = {};  // on each leading dim of the region; false: the same values all along it
  bool operator==(const Input&) const = default;
};

// What is done with an output's rows.
enum class Rows : uint8_t {
  kKeep,  // one row of the result for each row
  kSum,   // their sum is the result's only row
};

struct Output {
  Id value = 0;
  at::ScalarType dtype = at::kFloat;
  Rows rows = Rows::kKeep;
  bool operator==(const Output&) const = default;
};

struct Region {
  std::vector<Instruction> nodes;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  size_t num_leading_dims = 1;

  const Instruction& node(Id id) const { return nodes[static_cast<size_t>(id)]; }
};

bool is_reduction(Op op);  // over the row

// Reductions on the longest path from inputs to the value, by node.
std::vector<int> reduction_levels(const Region& region);

// One line a node, for logs and tests.
std::string to_text(const Region& region);

// Appends nodes to a region; equal nodes are one. A binary operation of a wide and a narrow operand is wide.
class Builder {
 public:
  explicit Builder(Region& region);

  Id input(Input input);  // a new one
  Id constant(double number) { return add({.op = Op::kConstant, .number = number}); }
  Id unary(Op op, Id operand);
  Id power(Id operand, double exponent);
  Id cast(Id operand, at::ScalarType dtype);
  Id binary(Op op, Id left, Id right);
  Id select(Id condition, Id yes, Id no);
  Id row(Op op, Id operand);  // kRowSum or kRowMax
  Id row_mean(Id operand);
  Id slice(Id operand, int64_t begin, int64_t width);
  Id concat(const std::vector<Id>& operands);
  Id broadcast(Id operand, int64_t width);

  int64_t width(Id id) const { return region_.node(id).width; }
  const Region& region() const { return region_; }

 private:
  Id add(Instruction node);

  Region& region_;
  std::map<Instruction, Id> known_;
};

// The region without what no output needs. Inputs keep their places, also those that nothing reads.
Region without_unused(const Region& region);

}  // namespace dslaunch::runtime::model::fusion
