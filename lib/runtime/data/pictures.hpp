// Pictures on their way into the model: a part of each, mirrored or not, converted from uint8 and normalized, on the
// device of the batch. Pure; any thread.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "runtime/data/sample_order.hpp"
#include "runtime/data/sample_source.hpp"

namespace dslaunch::runtime {

struct PictureTransform {
  std::vector<double> mean, std;      // by channel; empty: the values stay as they are
  at::ScalarType dtype = at::kFloat;  // of normalized values
  int64_t height = 0, width = 0;      // of the part
  int64_t padding = 0;                // zeros around the picture before
  int64_t tops = 1, lefts = 1;        // places of the part in the padded picture
  bool is_random = true;              // false: the part in the middle, not mirrored
  bool flips = false;
  uint64_t seed = 0;

  bool takes_parts() const { return tops > 1 || lefts > 1 || flips; }
};

using PictureTransforms = std::map<std::string, std::shared_ptr<const PictureTransform>>;  // by array

// Of the inputs whose samples are [channels, height, width]; `dtype`: the compute type. Empty when the config does not
// ask for any. Throws UserError(65) where none of the inputs is a picture, or one does not fit the config.
PictureTransforms picture_transforms(const config::Data& data, const SampleSource& source,
                                     const std::vector<size_t>& inputs, at::ScalarType dtype);
// The same for an evaluation: the part in the middle, not mirrored.
PictureTransforms without_chance(const PictureTransforms& transforms);

// The arrays with the types that forward gets: normalized pictures are floats.
std::vector<ArrayInfo> arrays_of_forward(const config::Data& data, std::vector<ArrayInfo> arrays);

// int64 [samples, 3], on the host: top, left, mirrored (0 or 1) of each sample's part. They depend on the seed, the
// step and the sample alone, so they are the same at any number of ranks. Undefined when the whole pictures are taken.
at::Tensor picture_views(const PictureTransform& transform, const MicroBatchPlan& plan);

// `pictures`: [samples, channels, height, width]; `views` as above, on the same device.
at::Tensor transform_pictures(const PictureTransform& transform, const at::Tensor& pictures, const at::Tensor& views);

}  // namespace dslaunch::runtime
