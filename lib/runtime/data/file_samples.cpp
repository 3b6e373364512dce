// Samples from files: several files with the same arrays one after the other, or one stream of tokens.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/input_file.hpp"
#include "base/raw_data.hpp"
#include "runtime/data/array_file.hpp"
#include "runtime/data/array_selection.hpp"
#include "runtime/data/megatron_file.hpp"
#include "runtime/data/sample_source.hpp"
#include "runtime/data/token_samples.hpp"
#include "runtime/state/mapped_file.hpp"
#include "runtime/state/tensor_extent.hpp"
#include "runtime/state/tensor_text.hpp"

namespace dslaunch::runtime {
namespace {

std::string array_names(const std::vector<FileArray>& arrays) {
  std::vector<std::string> names;
  for (const auto& array : arrays) names.push_back(array.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse(const std::string& message) {
  throw UserError(ExitCode::kBadInput, message);
}

// One array of the data set: its parts in the files, one after the other along the first dim.
class JoinedArray {
 public:
  explicit JoinedArray(const FileArray& first) {
    info_.name = first.name;
    info_.dtype = first.dtype;
    if (first.shape.empty()) {
      refuse(fmt::format("data file '{}': array '{}' is a scalar; its first dim must be the number of samples",
                         first.path, first.name));
    }
    info_.sample_shape.assign(first.shape.begin() + 1, first.shape.end());
    add(first);
  }

  void add(const FileArray& part) {
    const std::vector<int64_t> rest(part.shape.begin() + (part.shape.empty() ? 0 : 1), part.shape.end());
    if (part.shape.empty() || rest != info_.sample_shape || part.dtype != info_.dtype) {
      refuse(
          fmt::format("array '{}' differs between data files: {} {} in '{}', {} {} in '{}'; the dtype and all dims but "
                      "the first must be equal",
                      info_.name, c10::toString(info_.dtype), shape_text(parts_[0].shape), parts_[0].path,
                      c10::toString(part.dtype), shape_text(part.shape), part.path));
    }
    parts_.push_back(part);
    ends_.push_back(num_samples() + part.shape[0]);
  }

  const ArrayInfo& info() const { return info_; }
  int64_t num_samples() const { return ends_.empty() ? 0 : ends_.back(); }
  const std::string& first_path() const { return parts_[0].path; }

  void prepare() {
    for (auto& part : parts_) runtime::prepare(part);
  }
  // sample_bytes() from there on.
  const uint8_t* find(int64_t sample) const {
    const size_t part = part_of(sample);
    return parts_[part].data + (sample - begin_of(part)) * info_.sample_bytes();
  }
  void read(int64_t sample, void* out) const {
    const int64_t bytes = info_.sample_bytes();
    if (bytes > 0) std::memcpy(out, find(sample), static_cast<size_t>(bytes));
  }
  std::string describe(int64_t sample) const {
    const size_t part = part_of(sample);
    if (parts_.size() == 1) return fmt::format("'{}'", parts_[part].path);
    return fmt::format("'{}' (row {} of that file)", parts_[part].path, sample - begin_of(part));
  }

 private:
  size_t part_of(int64_t sample) const {
    return static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin());
  }
  int64_t begin_of(size_t part) const { return part == 0 ? 0 : ends_[part - 1]; }

  ArrayInfo info_;
  std::vector<FileArray> parts_;
  std::vector<int64_t> ends_;  // of each part, in samples
};

class ArraySamples : public SampleSource {
 public:
  explicit ArraySamples(std::vector<JoinedArray> arrays) : arrays_(std::move(arrays)) {
    for (const auto& array : arrays_) {
      infos_.push_back(array.info());
      if (array.num_samples() != arrays_[0].num_samples()) {
        refuse(fmt::format("the arrays differ in their number of samples: '{}' has {} ('{}'), '{}' has {} ('{}')",
                           arrays_[0].info().name, arrays_[0].num_samples(), arrays_[0].first_path(), array.info().name,
                           array.num_samples(), array.first_path()));
      }
    }
  }
  void prepare(const std::vector<size_t>& arrays) override {
    for (const size_t array : arrays) arrays_[array].prepare();
  }
  const std::vector<ArrayInfo>& arrays() const override { return infos_; }
  int64_t num_samples() const override { return arrays_[0].num_samples(); }
  void read(size_t array, int64_t sample, void* out) const override { arrays_[array].read(sample, out); }
  void read_ahead(size_t array, const std::vector<int64_t>& samples) const override {
    const auto bytes = static_cast<size_t>(infos_[array].sample_bytes());
    for (const int64_t sample : samples) runtime::read_ahead(arrays_[array].find(sample), bytes);
  }
  std::string describe(size_t array, int64_t sample) const override { return arrays_[array].describe(sample); }

 private:
  std::vector<JoinedArray> arrays_;
  std::vector<ArrayInfo> infos_;
};

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// .npy files are separate arrays when one of their names is given in the config or is a usual name for labels;
// otherwise they are the pieces of one array.
bool npy_files_are_named(const config::Data& data, const std::vector<std::vector<FileArray>>& files) {
  return std::any_of(files.begin(), files.end(), [&](const auto& file) {
    const std::string& name = file[0].name;
    return contains(data.inputs, name) || contains(data.labels, name) || is_label_name(name);
  });
}

std::unique_ptr<SampleSource> join_npy(const config::Data& data, std::vector<std::vector<FileArray>> files) {
  const bool named = npy_files_are_named(data, files);
  std::vector<JoinedArray> joined;
  for (auto& file : files) {
    if (!named) file[0].name = files[0][0].name;
    const auto same = std::find_if(joined.begin(), joined.end(),
                                   [&](const JoinedArray& array) { return array.info().name == file[0].name; });
    if (same == joined.end()) {
      joined.emplace_back(file[0]);
    } else {
      same->add(file[0]);
    }
  }
  return std::make_unique<ArraySamples>(std::move(joined));
}

// A file's arrays must have the same number of samples before the files are joined, or rows would be shifted silently.
void require_equal_lengths(const std::vector<FileArray>& arrays) {
  for (const auto& array : arrays) {
    if (array.shape.empty() || arrays[0].shape.empty() || array.shape[0] == arrays[0].shape[0]) continue;
    refuse(fmt::format("data file '{}': the arrays differ in their number of samples: '{}' {}, '{}' {}", array.path,
                       arrays[0].name, shape_text(arrays[0].shape), array.name, shape_text(array.shape)));
  }
}

std::unique_ptr<SampleSource> join_archives(const std::vector<std::vector<FileArray>>& files) {
  std::vector<JoinedArray> joined;
  for (const auto& array : files[0]) joined.emplace_back(array);
  for (const auto& file : files) require_equal_lengths(file);
  for (size_t i = 1; i < files.size(); ++i) {
    for (auto& array : joined) {
      const auto same = std::find_if(files[i].begin(), files[i].end(),
                                     [&](const FileArray& part) { return part.name == array.info().name; });
      if (same == files[i].end() || files[i].size() != joined.size()) {
        refuse(fmt::format("the data files have different arrays: '{}' has {}; '{}' has {}", files[0][0].path,
                           array_names(files[0]), files[i][0].path, array_names(files[i])));
      }
      array.add(*same);
    }
  }
  return std::make_unique<ArraySamples>(std::move(joined));
}

bool is_token_stream(FileFormat format) {
  return format == FileFormat::kTokens || format == FileFormat::kMegatron;
}

std::unique_ptr<SampleSource> open_tokens(const config::Data& data, const std::vector<std::string>& paths,
                                          FileFormat format) {
  if (data.seq_len <= 0) {
    refuse(fmt::format("data file '{}' is a token stream: set data.seq_len to the length of a sample", paths[0]));
  }
  std::vector<FileArray> parts;
  std::string before;
  for (const auto& path : paths) {
    if (format == FileFormat::kTokens) {
      parts.push_back(read_token_stream(path, data.dtype));
    } else if (std::exchange(before, megatron_prefix(path)) !=
               megatron_prefix(path)) {  // a glob names both files of a pair
      for (auto& range : read_megatron_tokens(path)) parts.push_back(std::move(range));
    }
  }
  return make_token_samples(std::move(parts), data.seq_len);
}

std::unique_ptr<SampleSource> open_files(const config::Data& data, const std::vector<std::string>& patterns) {
  reject_raw_data(patterns, {}, {data.format, data.dtype, data.seq_len});
  const std::vector<std::string> paths = expand_globs(patterns, "data file");
  DSL_CHECK(!paths.empty(), "no data file is named");
  const FileFormat format = file_format(paths[0], data.format, data.seq_len > 0);
  if (is_token_stream(format)) return open_tokens(data, paths, format);
  std::vector<std::vector<FileArray>> files;
  for (const auto& path : paths) {
    const FileFormat own = file_format(path, data.format, data.seq_len > 0);
    if ((own == FileFormat::kNpy) != (format == FileFormat::kNpy) || is_token_stream(own)) {
      refuse(fmt::format("the data files '{}' and '{}' are of different kinds", paths[0], path));
    }
    files.push_back(read_arrays(path, own));
    if (files.back().empty()) refuse(fmt::format("data file '{}' has no array", path));
  }
  return format == FileFormat::kNpy ? join_npy(data, std::move(files)) : join_archives(files);
}

}  // namespace

int64_t ArrayInfo::sample_numel() const {
  const auto numel = numel_of(sample_shape);
  DSL_CHECK(numel, fmt::format("array '{}' has an impossible shape", name));
  return *numel;
}

std::unique_ptr<SampleSource> open_train_samples(const config::Data& data) {
  if (data.synthetic_train) return make_synthetic_samples(data.synthetic, data.seed);
  return open_files(data, data.train);
}

std::unique_ptr<SampleSource> open_eval_samples(const config::Data& data) {
  return open_files(data, data.eval);
}

}  // namespace dslaunch::runtime
