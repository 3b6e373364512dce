#include "runtime/data/pictures.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index.h>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "runtime/data/array_selection.hpp"

namespace dslaunch::runtime {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

std::string described(const SampleSource& source, size_t array) {
  const ArrayInfo& info = source.arrays()[array];
  return fmt::format("'{}' is {}[{}]", info.name, c10::toString(info.dtype), fmt::join(info.sample_shape, ", "));
}

bool is_picture(const ArrayInfo& array) {
  return array.sample_shape.size() == 3 && (array.dtype == at::kByte || c10::isFloatingType(array.dtype));
}

const char* first_key(const config::Data& data) {
  return data.normalize ? "data.normalize" : data.random_crop ? "data.random_crop" : "data.random_flip";
}

void require_normalizable(const config::Normalize& normalize, const SampleSource& source, size_t array) {
  const ArrayInfo& info = source.arrays()[array];
  if (info.dtype != at::kByte) {
    refuse(fmt::format(
        "data.normalize: {} of a sample, and it takes uint8 pixels: save the pictures as uint8 "
        "(tools/tokenize --dtype uint8), or leave it out for pictures that are normalized already; file: {}",
        described(source, array), source.describe(array, 0)));
  }
  if (info.sample_shape[0] != static_cast<int64_t>(normalize.mean.size())) {
    refuse(
        fmt::format("data.normalize: {} of a sample, [channels, height, width], and mean and std have {} number(s): "
                    "give one for each channel; file: {}",
                    described(source, array), normalize.mean.size(), source.describe(array, 0)));
  }
}

void set_part(PictureTransform& out, const config::RandomCrop& crop, const SampleSource& source, size_t array) {
  const auto& shape = source.arrays()[array].sample_shape;
  if (!crop.size.empty()) {
    out.height = crop.size[0];
    out.width = crop.size[1];
  }
  out.padding = crop.padding;
  out.tops = shape[1] + 2 * crop.padding - out.height + 1;
  out.lefts = shape[2] + 2 * crop.padding - out.width + 1;
  if (out.tops >= 1 && out.lefts >= 1) return;
  refuse(
      fmt::format("data.random_crop: a part of [{}, {}] does not fit: {} of a sample, with {} pixel(s) of padding on "
                  "each side: make size smaller or padding larger; file: {}",
                  out.height, out.width, described(source, array), crop.padding, source.describe(array, 0)));
}

PictureTransform transform_of(const config::Data& data, const SampleSource& source, size_t array,
                              at::ScalarType dtype) {
  const ArrayInfo& info = source.arrays()[array];
  PictureTransform out{.dtype = dtype,
                       .height = info.sample_shape[1],
                       .width = info.sample_shape[2],
                       .flips = data.random_flip,
                       .seed = data.seed};
  if (data.normalize) {
    require_normalizable(*data.normalize, source, array);
    out.mean = data.normalize->mean;
    out.std = data.normalize->std;
  }
  if (data.random_crop) set_part(out, *data.random_crop, source, array);
  return out;
}

// In [0, bound).
int64_t below(uint64_t bits, int64_t bound) {
  return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(bound)) >> 64);
}

at::Tensor take_parts(const PictureTransform& transform, const at::Tensor& pictures, const at::Tensor& views) {
  const int64_t pad = transform.padding, height = transform.height, width = transform.width;
  const at::Tensor padded = pad > 0 ? at::constant_pad_nd(pictures, {pad, pad, pad, pad}) : pictures;
  const auto view = [&](int64_t which) { return views.select(1, which).view({-1, 1, 1, 1}); };
  const at::Tensor in_row = at::arange(width, views.options()).view({1, 1, 1, width});
  const at::Tensor rows = view(0) + at::arange(height, views.options()).view({1, 1, height, 1});
  const at::Tensor columns = view(1) + in_row + view(2) * (width - 1 - 2 * in_row);
  const at::Tensor samples = at::arange(pictures.size(0), views.options()).view({-1, 1, 1, 1});
  const at::Tensor channels = at::arange(pictures.size(1), views.options()).view({1, -1, 1, 1});
  return at::index(padded, {samples, channels, rows, columns});
}

// In fp32 and three passes, the conversions inside of them. Divisions by tensors: by a number, a GPU multiplies with
// its inverse, which rounds differently.
at::Tensor normalize(const PictureTransform& transform, const at::Tensor& pictures) {
  const auto in_fp32 = pictures.options().dtype(at::kFloat);
  const auto by_channel = [&](const std::vector<double>& numbers) {
    at::Tensor out = at::empty({static_cast<int64_t>(numbers.size()), 1, 1}, in_fp32);
    for (size_t i = 0; i < numbers.size(); ++i) out[static_cast<int64_t>(i)].fill_(numbers[i]);
    return out;
  };
  at::Tensor values = at::div(pictures, at::full({1}, 255, in_fp32)).sub_(by_channel(transform.mean));
  at::Tensor out = at::empty(values.sizes(), in_fp32.dtype(transform.dtype));
  return at::div_out(out, values, by_channel(transform.std));
}

}  // namespace

PictureTransforms picture_transforms(const config::Data& data, const SampleSource& source,
                                     const std::vector<size_t>& inputs, at::ScalarType dtype) {
  PictureTransforms out;
  if (!data.normalize && !data.random_crop && !data.random_flip) return out;
  std::vector<std::string> others;
  for (size_t array : inputs) {
    const ArrayInfo& info = source.arrays()[array];
    if (is_picture(info)) {
      out[info.name] = std::make_shared<const PictureTransform>(transform_of(data, source, array, dtype));
    } else {
      others.push_back(described(source, array));
    }
  }
  if (out.empty()) {
    refuse(
        fmt::format("{}: none of the inputs is a picture, with samples [channels, height, width] of uint8 or floats: "
                    "{}; leave it out, or name the pictures in data.inputs",
                    first_key(data), fmt::join(others, ", ")));
  }
  return out;
}

PictureTransforms without_chance(const PictureTransforms& transforms) {
  PictureTransforms out;
  for (const auto& [array, transform] : transforms) {
    PictureTransform fixed = *transform;
    fixed.is_random = fixed.flips = false;
    out[array] = std::make_shared<const PictureTransform>(std::move(fixed));
  }
  return out;
}

std::vector<ArrayInfo> arrays_of_forward(const config::Data& data, std::vector<ArrayInfo> arrays) {
  for (auto& array : arrays) {
    if (data.normalize && is_picture(array)) array.dtype = at::kFloat;
  }
  return arrays;
}

at::Tensor picture_views(const PictureTransform& transform, const MicroBatchPlan& plan) {
  if (!transform.takes_parts()) return {};
  at::Tensor views = at::empty({static_cast<int64_t>(plan.samples.size()), 3}, at::TensorOptions().dtype(at::kLong));
  auto* view = views.mutable_data_ptr<int64_t>();
  const uint64_t of_run = mix64(mix64(transform.seed) ^ fnv1a("pictures"));
  const uint64_t of_step =
      mix64(mix64(of_run ^ static_cast<uint64_t>(plan.after.epoch)) ^ static_cast<uint64_t>(plan.after.offset));
  for (int64_t sample : plan.samples) {
    const uint64_t key = mix64(of_step ^ static_cast<uint64_t>(sample));
    view[0] = transform.is_random ? below(mix64(key + 1), transform.tops) : (transform.tops - 1) / 2;
    view[1] = transform.is_random ? below(mix64(key + 2), transform.lefts) : (transform.lefts - 1) / 2;
    view[2] = transform.flips ? below(mix64(key + 3), 2) : 0;
    view += 3;
  }
  return views;
}

at::Tensor transform_pictures(const PictureTransform& transform, const at::Tensor& pictures, const at::Tensor& views) {
  const at::Tensor parts = views.defined() ? take_parts(transform, pictures, views) : pictures;
  return transform.mean.empty() ? parts : normalize(transform, parts);
}

}  // namespace dslaunch::runtime
