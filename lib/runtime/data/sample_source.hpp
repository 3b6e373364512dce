// Samples by index: named arrays with the sample as their first dim. Implementations are immutable once prepared, so
// any thread may read.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/job_config.hpp"

namespace dslaunch::runtime {

struct ArrayInfo {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sample_shape;  // without the first dim

  int64_t sample_numel() const;
  int64_t sample_bytes() const { return sample_numel() * static_cast<int64_t>(c10::elementSize(dtype)); }
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // Makes these of arrays() ready to be read, which may take a pass over them; before the first read(). Throws
  // UserError(65) for damaged ones.
  virtual void prepare(const std::vector<size_t>& /*arrays*/) {}
  virtual const std::vector<ArrayInfo>& arrays() const = 0;
  virtual int64_t num_samples() const = 0;
  // Copies one sample of arrays()[array] to `out`, sample_bytes() long.
  virtual void read(size_t array, int64_t sample, void* out) const = 0;
  // Begins to read samples that are not in memory yet, without waiting for them.
  virtual void read_ahead(size_t /*array*/, const std::vector<int64_t>& /*samples*/) const {}
  // For messages: "'b.npy'", or "synthetic data".
  virtual std::string describe(size_t array, int64_t sample) const = 0;

  // Synthetic data is endless; its num_samples() is this.
  static constexpr int64_t kEndless = int64_t{1} << 40;
};

// Opens the files named by data.train (or data.eval): paths and globs, in any of the formats. Only headers are read.
// Throws UserError: 66 for a file that is missing or unreadable and a glob without match, 65 for data that does not
// fit.
std::unique_ptr<SampleSource> open_train_samples(const config::Data& data);
std::unique_ptr<SampleSource> open_eval_samples(const config::Data& data);

// Generated numbers: a function of (seed, array, sample, element) alone.
std::unique_ptr<SampleSource> make_synthetic_samples(const std::vector<config::ArraySpec>& arrays, uint64_t seed);

}  // namespace dslaunch::runtime
