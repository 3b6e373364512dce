// Whether the labels of a language model's data are its tokens or the tokens that follow; read off the first samples.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

enum class LabelAlignment : uint8_t {
  kUnknown,  // neither, or both, as in samples of one repeated token
  kNext,     // labels[i] is inputs[i + 1]
  kSame,     // labels[i] is inputs[i]
};

// `inputs`, `labels`: arrays of the source. Ignored labels (-100) say nothing. Generated samples are not tokens:
// kUnknown.
LabelAlignment find_label_alignment(const std::shared_ptr<const SampleSource>& source, size_t inputs, size_t labels);

}  // namespace dslaunch::runtime
