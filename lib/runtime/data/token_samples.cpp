#include "runtime/data/token_samples.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "base/format.hpp"
#include "runtime/state/mapped_file.hpp"

namespace dslaunch::runtime {
namespace {

class TokenSamples : public SampleSource {
 public:
  TokenSamples(std::vector<FileArray> parts, int64_t seq_len) : parts_(std::move(parts)), seq_len_(seq_len) {
    int64_t total = 0;
    for (const auto& part : parts_) ends_.push_back(total += part.shape[0]);
    if (total <= seq_len) {
      throw UserError(
          ExitCode::kBadInput,
          fmt::format("data file '{}' has {} tokens; one sample of seq_len {} needs one token more than seq_len",
                      parts_[0].path, total, seq_len));
    }
    num_samples_ = (total - 1) / seq_len;
    infos_ = {{"input_ids", at::kLong, {seq_len}}, {"labels", at::kLong, {seq_len}}};
  }
  const std::vector<ArrayInfo>& arrays() const override { return infos_; }
  int64_t num_samples() const override { return num_samples_; }

  void read(size_t array, int64_t sample, void* out) const override {
    auto* next = static_cast<int64_t*>(out);
    for_each_range(array, sample, [&](const FileArray& part, int64_t begin, int64_t count) {
      widen(part, begin, count, next);
      next += count;
    });
  }
  void read_ahead(size_t array, const std::vector<int64_t>& samples) const override {
    for (const int64_t sample : samples) {
      for_each_range(array, sample, [](const FileArray& part, int64_t begin, int64_t count) {
        const auto size = static_cast<int64_t>(c10::elementSize(part.dtype));
        runtime::read_ahead(part.data + begin * size, static_cast<size_t>(count * size));
      });
    }
  }
  std::string describe(size_t array, int64_t sample) const override {
    const int64_t token = sample * seq_len_ + static_cast<int64_t>(array);
    const size_t part = part_of(token);
    return fmt::format("'{}' (from token {})", parts_[part].path, token - (part == 0 ? 0 : ends_[part - 1]));
  }

 private:
  // Calls take(part, begin, count) for the tokens of a sample.
  template <class Take>
  void for_each_range(size_t array, int64_t sample, Take&& take) const {
    int64_t token = sample * seq_len_ + static_cast<int64_t>(array), left = seq_len_;
    for (size_t part = part_of(token); left > 0; ++part) {
      const int64_t begin = part == 0 ? 0 : ends_[part - 1];
      const int64_t count = std::min(left, ends_[part] - token);
      take(parts_[part], token - begin, count);
      token += count;
      left -= count;
    }
  }

  size_t part_of(int64_t token) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), token) - ends_.begin());
  }

  template <class T>
  static void widen_as(const uint8_t* from, int64_t count, int64_t* out) {
    for (int64_t i = 0; i < count; ++i) {
      T token;  // the file's elements need not be aligned
      std::memcpy(&token, from + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
      out[i] = static_cast<int64_t>(token);
    }
  }
  static void widen(const FileArray& part, int64_t begin, int64_t count, int64_t* out) {
    const uint8_t* from = part.data + begin * static_cast<int64_t>(c10::elementSize(part.dtype));
    switch (part.dtype) {
      case at::kByte:
        return widen_as<uint8_t>(from, count, out);
      case at::kChar:
        return widen_as<int8_t>(from, count, out);
      case at::kShort:
        return widen_as<int16_t>(from, count, out);
      case at::kUInt16:
        return widen_as<uint16_t>(from, count, out);
      case at::kInt:
        return widen_as<int32_t>(from, count, out);
      case at::kUInt32:
        return widen_as<uint32_t>(from, count, out);
      default:
        return widen_as<int64_t>(from, count, out);
    }
  }

  std::vector<FileArray> parts_;
  int64_t seq_len_;
  std::vector<int64_t> ends_;  // of each part, in tokens
  int64_t num_samples_ = 0;
  std::vector<ArrayInfo> infos_;
};

}  // namespace

std::unique_ptr<SampleSource> make_token_samples(std::vector<FileArray> parts, int64_t seq_len) {
  return std::make_unique<TokenSamples>(std::move(parts), seq_len);
}

}  // namespace dslaunch::runtime
