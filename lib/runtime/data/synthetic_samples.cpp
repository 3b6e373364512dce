// Generated numbers, the same for every world size: a function of (seed, array, sample, element).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/nearest_name.hpp"
#include "config/synthetic.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/state/dtype_names.hpp"

namespace dslaunch::runtime {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

constexpr DtypeName kDtypes[] = {{"float32", at::kFloat}, {"float64", at::kDouble}, {"uint8", at::kByte},
                                 {"int8", at::kChar},     {"int16", at::kShort},    {"int32", at::kInt},
                                 {"int64", at::kLong},    {"bool", at::kBool}};

at::ScalarType dtype_of(const config::ArraySpec& array) {
  if (const auto dtype = dtype_named(kDtypes, array.dtype)) return *dtype;
  std::vector<std::string> names;
  for (const auto& known : kDtypes) names.emplace_back(known.name);
  refuse(fmt::format("data.synthetic.{}: unknown dtype '{}'{}; use one of {}", array.name, array.dtype,
                     did_you_mean(array.dtype, names), fmt::join(names, ", ")));
}

struct GeneratedArray {
  uint64_t key = 0;
  at::ScalarType dtype = at::kFloat;
  double low = 0, high = 1;
  int64_t numel = 1;
};

class SyntheticSamples : public SampleSource {
 public:
  SyntheticSamples(const std::vector<config::ArraySpec>& arrays, uint64_t seed) {
    if (arrays.empty()) {
      refuse(
          "\"train\": \"synthetic\" needs data.synthetic with the arrays to generate, for example "
          R"({"input_ids": {"shape": [128], "dtype": "int64", "low": 0, "high": 256}, "labels": {"like": "input_ids"}})");
    }
    for (const auto& array : arrays) {
      const config::ArraySpec& origin = original(arrays, array);
      ArrayInfo info{array.name, dtype_of(origin), origin.shape};
      if (std::any_of(info.sample_shape.begin(), info.sample_shape.end(), [](int64_t size) { return size < 0; })) {
        refuse(fmt::format("data.synthetic.{}: a size in shape is negative", array.name));
      }
      require_size(info);
      if (const auto range = config::check_range(origin); !range.ok())
        refuse(fmt::format("data.synthetic.{}: {}", array.name, range.error()));
      generated_.push_back({key_of(origin.name, seed), info.dtype, origin.low, origin.high, info.sample_numel()});
      infos_.push_back(std::move(info));
    }
  }
  const std::vector<ArrayInfo>& arrays() const override { return infos_; }
  int64_t num_samples() const override { return kEndless; }
  std::string describe(size_t, int64_t) const override { return "synthetic data"; }

  void read(size_t index, int64_t sample, void* out) const override {
    const GeneratedArray& array = generated_[index];
    switch (array.dtype) {
      case at::kFloat:
        return fill<float>(array, sample, out);
      case at::kDouble:
        return fill<double>(array, sample, out);
      case at::kByte:
        return fill<uint8_t>(array, sample, out);
      case at::kChar:
        return fill<int8_t>(array, sample, out);
      case at::kShort:
        return fill<int16_t>(array, sample, out);
      case at::kInt:
        return fill<int32_t>(array, sample, out);
      case at::kBool:
        return fill<uint8_t>(array, sample, out);
      default:
        return fill<int64_t>(array, sample, out);
    }
  }

 private:
  // "like" may name an array that itself uses "like"; more steps than arrays means a cycle.
  static const config::ArraySpec& original(const std::vector<config::ArraySpec>& arrays,
                                           const config::ArraySpec& array) {
    const config::ArraySpec* at = &array;
    for (size_t steps = 0; !at->like.empty(); ++steps) {
      const auto next =
          std::find_if(arrays.begin(), arrays.end(), [&](const auto& other) { return other.name == at->like; });
      if (next == arrays.end() || steps > arrays.size()) {
        refuse(fmt::format("data.synthetic.{}: \"like\" names '{}', which is {}", array.name, at->like,
                           next == arrays.end() ? "no array of data.synthetic" : "like itself"));
      }
      at = &*next;
    }
    return *at;
  }

  static void require_size(const ArrayInfo& array) {
    constexpr int64_t kMaxBytes = int64_t{1} << 46;  // far beyond any memory, and products of it do not overflow
    int64_t bytes = static_cast<int64_t>(c10::elementSize(array.dtype));
    for (int64_t size : array.sample_shape) {
      if (size > 0 && bytes > kMaxBytes / size) {
        refuse(fmt::format("data.synthetic.{}: one sample of shape [{}] is larger than any memory", array.name,
                           fmt::join(array.sample_shape, ", ")));
      }
      bytes *= size;
    }
  }

  static uint64_t key_of(const std::string& name, uint64_t seed) { return mix64(mix64(seed) ^ fnv1a(name)); }

  template <class T>
  static void fill(const GeneratedArray& array, int64_t sample, void* out) {
    const uint64_t key = mix64(array.key ^ static_cast<uint64_t>(sample));
    auto* values = static_cast<T*>(out);
    for (int64_t i = 0; i < array.numel; ++i) {
      const uint64_t bits = mix64(key + static_cast<uint64_t>(i));
      if constexpr (std::is_floating_point_v<T>) {
        values[i] = static_cast<T>(array.low + (array.high - array.low) * (static_cast<double>(bits >> 11) * 0x1p-53));
      } else {
        const auto span = static_cast<uint64_t>(array.high - array.low);
        const auto step = static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * span) >> 64);
        values[i] = static_cast<T>(static_cast<int64_t>(array.low) + static_cast<int64_t>(step));
      }
    }
  }

  std::vector<GeneratedArray> generated_;
  std::vector<ArrayInfo> infos_;
};

}  // namespace

std::unique_ptr<SampleSource> make_synthetic_samples(const std::vector<config::ArraySpec>& arrays, uint64_t seed) {
  return std::make_unique<SyntheticSamples>(arrays, seed);
}

}  // namespace dslaunch::runtime
