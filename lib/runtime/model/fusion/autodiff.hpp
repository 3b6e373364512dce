// The backward of a region as a region. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/model/fusion/ir.hpp"

namespace dslaunch::runtime::model::fusion {

// Where an input of a backward region comes from.
struct BackwardSource {
  enum class From : uint8_t { kInput, kOutput, kGradient } from = From::kInput;  // of the forward region
  size_t index = 0;
  bool operator==(const BackwardSource&) const = default;
};

struct Backward {
  Region region;
  std::vector<BackwardSource> sources;  // by input of `region`
  // The gradients of the forward's inputs. That of an input that varies on some leading dims but not on all has one row
  // for every row, to be summed by the caller; of one that varies on none, one row. Equal gradients are one output.
  struct Gradient {
    size_t input = 0, output = 0;
  };
  std::vector<Gradient> gradients;
};

// Whether autograd will follow the derived program, for gradients of gradients: then kShareGradient stays in it, which
// changes no value.
enum class History : uint8_t { kNone, kFollowed };

// `wanted`: by forward input, whether its gradient is wanted; `given`: by forward output, whether there is a gradient
// of it. Nothing is saved but inputs and outputs, which exist anyway: what else backward needs of the forward's values
// it computes again, from outputs where it can, because a kernel that is bound by memory has time for that.
Backward derive_backward(const Region& forward, const std::vector<bool>& wanted, const std::vector<bool>& given,
                         History history = History::kNone);

struct Recomputation {
  Region region;                        // of one output
  std::vector<BackwardSource> sources;  // by input of `region`; none is a gradient
};

// An output again, from what backward keeps anyway (`kept`) and inputs of a single row among `may_be_kept` (by input).
// An output that is kept is read in place of its value, as in backward, although it is rounded. Nothing: it would take
// more than that, is kept itself, or takes reading more than twice its own bytes.
std::optional<Recomputation> derive_recomputation(const Region& forward, size_t output,
                                                  const std::vector<BackwardSource>& kept,
                                                  const std::vector<bool>& may_be_kept,
                                                  History history = History::kNone);

}  // namespace dslaunch::runtime::model::fusion
