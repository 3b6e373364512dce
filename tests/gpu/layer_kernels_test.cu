// The kernels over a layer's rows against their definitions on the host in double: cross entropy, layer normalisation,
// sums of columns. Sums of floats have no order that a definition settles, so these agree within a bound that is stated
// for each, not bit by bit; a second launch gives the same bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kernel_checks.cuh"
#include "kernels/column_sums.h"
#include "kernels/cross_entropy.h"
#include "kernels/layer_norm.h"

namespace dslaunch::kernels {
namespace {

constexpr ElementType kTypes[] = {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An array of any element type between guards; `values` become what the type can hold.
class TypedArray {
 public:
  TypedArray(std::vector<float>& values, ElementType type, size_t offset) : type_(type) {
    if (type == ElementType::kFloat32) {
      wide_.reset(new DeviceArray<float>(values, offset));
      return;
    }
    std::vector<uint16_t> low;
    for (float& value : values) {
      low.push_back(rounded(value, type));
      value = widened(low.back(), type);
    }
    low_.reset(new DeviceArray<uint16_t>(low, offset));
  }
  void* data() { return wide_ ? static_cast<void*>(wide_->data()) : low_->data(); }
  std::vector<float> download(const std::string& name) {
    if (wide_) return wide_->download(name);
    std::vector<float> out;
    for (const uint16_t bits : low_->download(name)) out.push_back(widened(bits, type_));
    return out;
  }

 private:
  ElementType type_;
  std::unique_ptr<DeviceArray<float>> wide_;
  std::unique_ptr<DeviceArray<uint16_t>> low_;
};

// One rounding to the type, and `sums` for what was added in fp32 before.
bool near(double got, double expected, ElementType type, double sums) {
  if (std::isnan(expected) || std::isinf(expected)) return std::isnan(got) == std::isnan(expected);
  const double relative = type == ElementType::kBFloat16 ? 0x1p-8 : type == ElementType::kFloat16 ? 0x1p-11 : 0x1p-22;
  const double smallest = type == ElementType::kFloat16 ? 0x1p-24 : 0;  // fp16 is denormal early
  return std::fabs(got - expected) <= std::fabs(expected) * relative + sums + smallest;
}

void check_all(const std::vector<float>& got, const std::vector<double>& expected, ElementType type, double sums,
               const std::string& name) {
  check(got.size() == expected.size(), name + ": size");
  for (size_t i = 0; i < got.size() && i < expected.size(); ++i) {
    if (near(got[i], expected[i], type, sums)) continue;
    check(false, name + ": [" + std::to_string(i) + "] is " + std::to_string(got[i]) + ", expected " +
                     std::to_string(expected[i]));
    return;
  }
  check(true, name);
}

std::string describe(const char* what, size_t rows, size_t columns, ElementType type, size_t offset) {
  return std::string(what) + ", " + std::to_string(rows) + " x " + std::to_string(columns) + ", type " +
         std::to_string(static_cast<int>(type)) + ", offset " + std::to_string(offset);
}

struct CrossEntropyCase {
  size_t rows, classes;
  ElementType type;
  size_t offset = 0, gradient_offset = 0, padding = 0;  // elements after each row that nobody may touch
  bool mean = true;
};

constexpr float kUntouched = 3;

// Row 1 does not count, row 2 holds a masked class, row 3 a logit that is not a number.
void test_cross_entropy(const CrossEntropyCase& c) {
  const size_t rows = c.rows, classes = c.classes, stride = classes + c.padding;
  const std::string name = describe("cross entropy", rows, classes, c.type, c.offset) + (c.mean ? ", mean" : ", sum") +
                           ", stride " + std::to_string(stride);
  std::vector<float> logits = uniform(rows * stride, 21, -9, 9);
  std::vector<int64_t> labels;
  for (size_t row = 0; row < rows; ++row) labels.push_back(static_cast<int64_t>(row * 31 % classes));
  for (size_t row = 0; row < rows; ++row) std::fill_n(logits.begin() + row * stride + classes, c.padding, kUntouched);
  if (rows > 1) labels[1] = -7;
  if (rows > 2 && classes > 65) logits[2 * stride] = -kInfinity;
  if (rows > 3) logits[3 * stride + classes / 2] = std::numeric_limits<float>::quiet_NaN();
  TypedArray logits_there(logits, c.type, c.offset);
  std::vector<float> nothing(rows * stride, kUntouched);
  TypedArray gradient_there(nothing, c.type, c.gradient_offset);
  DeviceArray<int64_t> labels_there(labels, 1);
  DeviceArray<float> losses(std::vector<float>(rows, 3), 1), log_sums(std::vector<float>(rows, 3), 1), total({3, 3}, 1),
      upstream({1.5F}, 0);

  CrossEntropyArguments a;
  a.logits = logits_there.data();
  a.type = c.type;
  a.rows = rows;
  a.classes = classes;
  a.stride = stride;
  a.labels = labels_there.data();
  a.ignore_index = -7;
  finish(launch_cross_entropy(a, losses.data(), log_sums.data(), nullptr), name);
  finish(launch_cross_entropy_total(a, losses.data(), c.mean, total.data(), total.data() + 1, nullptr), name);
  const auto backward = [&] {
    finish(launch_cross_entropy_gradient(a, log_sums.data(), total.data() + 1, upstream.data(), gradient_there.data(),
                                         nullptr),
           name);
    return gradient_there.download(name);
  };

  std::vector<double> expected_losses, expected_sums, gradient;  // the gradient of an upstream of 1
  double sum = 0, counted = 0;
  for (size_t row = 0; row < rows; ++row) counted += labels[row] == -7 ? 0 : 1;
  const double weight = 1.0 / (c.mean ? counted : 1.0);
  for (size_t row = 0; row < rows; ++row) {
    const bool counts = labels[row] != -7;
    const float* const of_row = logits.data() + row * stride;
    double exponentials = 0;
    for (size_t k = 0; k < classes; ++k) exponentials += std::exp(static_cast<double>(of_row[k]));
    const double log_sum = std::log(exponentials);
    expected_sums.push_back(counts ? log_sum : 0.0);
    expected_losses.push_back(counts ? log_sum - static_cast<double>(of_row[labels[row]]) : 0.0);
    sum += expected_losses.back();
    for (size_t k = 0; k < classes; ++k) {
      const double probability = std::exp(static_cast<double>(of_row[k]) - log_sum);
      const bool is_label = static_cast<int64_t>(k) == labels[row];
      gradient.push_back(counts ? (probability - (is_label ? 1.0 : 0.0)) * weight : 0.0);
    }
    gradient.insert(gradient.end(), c.padding, kUntouched);
  }
  std::vector<double> scaled = gradient;
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= i % stride < classes ? 1.5 : 1.0;
  const double sums_bound = 4e-6;  // of logits up to 9; the fast exponential included
  const double gradient_bound = 1e-5 * 1.5 / (c.mean ? std::fmax(counted, 1.0) : 1.0);
  const auto check_sums = [&](const std::string& of) {
    check_all(losses.download(of), expected_losses, ElementType::kFloat32, sums_bound, of + ": losses");
    check_all(log_sums.download(of), expected_sums, ElementType::kFloat32, sums_bound, of + ": log sums");
  };
  check_sums(name);
  check_all(total.download(name), {c.mean ? sum / counted : sum, c.mean ? 1.0 / counted : 1.0}, ElementType::kFloat32,
            sums_bound * static_cast<double>(c.mean ? 1 : rows), name + ": total");
  const auto got = backward();
  check_all(got, scaled, c.type, gradient_bound, name + ": gradient");
  if (rows <= 3) check(same_bits(got, backward()), name + ": the same bits again");

  const std::string at_once = name + ", in one kernel";
  DeviceArray<float> weight_there({total.download(name)[1]}, 0);
  finish(launch_cross_entropy_to_gradient(a, weight_there.data(), losses.data(), log_sums.data(), logits_there.data(),
                                          nullptr),
         at_once);
  check_sums(at_once);
  check_all(logits_there.download(at_once), gradient, c.type, gradient_bound, at_once + ": gradient");
}

void test_layer_norm(size_t rows, size_t columns, ElementType type, bool adds) {
  const std::string name = describe(adds ? "layer norm and residual" : "layer norm", rows, columns, type, 0);
  std::vector<float> x = uniform(rows * columns, 31, -2, 4), w = uniform(columns, 32, 0.5F, 1.5F),
                     b = uniform(columns, 33, -1, 1), up = uniform(rows * columns, 34, -1, 1), out(rows * columns, 3),
                     past = uniform(adds ? rows * columns : 0, 35, -1, 1);
  TypedArray x_there(x, type, 0), w_there(w, type, 0), b_there(b, type, 0), up_there(up, type, 0),
      out_there(out, type, 0), dx_there(out, type, 0), past_there(past, type, 0);
  DeviceArray<float> means(std::vector<float>(rows, 3), 0), rstds(std::vector<float>(rows, 3), 0);
  const size_t num_partials = num_layer_norm_partials(rows, columns);
  const std::vector<float> blank(num_partials * columns, 3);
  DeviceArray<float> w_partials(blank, 0), b_partials(blank, 0);
  std::vector<float> column(columns, 3);
  TypedArray dw_there(column, type, 0), db_there(column, type, 0);

  LayerNormArguments a{x_there.data(), w_there.data(), b_there.data(), type,        rows,
                       columns,        1e-5F,          means.data(),   rstds.data()};
  const void* arrays[] = {a.input, a.weight, a.bias};
  check(layer_norm_fits(columns, arrays, 3), name + ": fits");
  const LayerNormGradient to{up_there.data(), adds ? past_there.data() : nullptr, dx_there.data(), w_partials.data(),
                             b_partials.data()};
  const auto run = [&] {
    finish(launch_layer_norm(a, out_there.data(), nullptr), name);
    finish(launch_layer_norm_gradient(a, to, nullptr), name);
    finish(launch_column_totals(w_partials.data(), num_partials, columns, dw_there.data(), type, nullptr), name);
    finish(launch_column_totals(b_partials.data(), num_partials, columns, db_there.data(), type, nullptr), name);
  };
  run();

  std::vector<double> y, dx, dw(columns, 0.0), db(columns, 0.0);
  const auto num = static_cast<double>(columns);
  for (size_t row = 0; row < rows; ++row) {
    const float* in = x.data() + row * columns;
    const float* in_up = up.data() + row * columns;
    double mean = 0, variance = 0, mean_g = 0, mean_gn = 0;
    for (size_t c = 0; c < columns; ++c) mean += in[c] / num;
    for (size_t c = 0; c < columns; ++c) variance += (in[c] - mean) * (in[c] - mean) / num;
    const double rstd = 1.0 / std::sqrt(variance + 1e-5);
    for (size_t c = 0; c < columns; ++c) {
      const double n = (in[c] - mean) * rstd, g = static_cast<double>(in_up[c]) * w[c];
      mean_g += g / num;
      mean_gn += g * n / num;
      dw[c] += in_up[c] * n;
      db[c] += in_up[c];
      y.push_back(n * w[c] + b[c]);
    }
    for (size_t c = 0; c < columns; ++c) {
      const double n = (in[c] - mean) * rstd, g = static_cast<double>(in_up[c]) * w[c];
      dx.push_back(rstd * (g - mean_g - n * mean_gn) + (adds ? past[row * columns + c] : 0.0));
    }
  }
  check_all(out_there.download(name), y, type, 1e-5, name + ": output");
  check_all(dx_there.download(name), dx, type, 1e-5, name + ": gradient of the input");
  check_all(dw_there.download(name), dw, type, 1e-6 * static_cast<double>(rows), name + ": gradient of the weight");
  check_all(db_there.download(name), db, type, 1e-6 * static_cast<double>(rows), name + ": gradient of the bias");
  const auto first = dw_there.download(name), first_dx = dx_there.download(name);
  run();
  check(same_bits(first, dw_there.download(name)) && same_bits(first_dx, dx_there.download(name)),
        name + ": the same bits again");
}

void test_column_sums(size_t rows, size_t columns, ElementType type, size_t offset) {
  const std::string name = describe("column sums", rows, columns, type, offset);
  std::vector<float> values = uniform(rows * columns, 41, -1, 1), blank(columns, 3);
  TypedArray there(values, type, offset), out(blank, type, 1);
  const size_t num_partials = num_column_partials(rows, columns);
  DeviceArray<float> partials(std::vector<float>(num_partials * columns, 3), 1);
  finish(launch_column_partials(there.data(), type, rows, columns, partials.data(), nullptr), name);
  finish(launch_column_totals(partials.data(), num_partials, columns, out.data(), type, nullptr), name);
  std::vector<double> expected(columns, 0.0);
  for (size_t i = 0; i < values.size(); ++i) expected[i % columns] += values[i];
  check_all(out.download(name), expected, type, 1e-6 * static_cast<double>(rows), name);
  partials.download(name);
}

// Parts of a matrix, each between columns of no interest.
void test_joined_columns(size_t rows, const std::vector<size_t>& widths, ElementType type) {
  size_t columns = 0;
  for (const size_t width : widths) columns += width;
  const std::string name = describe("joined columns", rows, columns, type, widths.size());
  std::vector<float> whole = uniform(rows * columns, 51, -1, 1), blank(columns, 3), empty(rows * columns, 3);
  TypedArray whole_there(whole, type, 0), joined(empty, type, 0), out(blank, type, 1), expected(blank, type, 1);
  std::vector<std::unique_ptr<TypedArray>> held;
  ColumnParts parts;
  size_t begin = 0;
  for (const size_t width : widths) {
    const size_t stride = width + 8;
    std::vector<float> part(rows * stride, 5);
    for (size_t i = 0; i < rows * width; ++i)
      part[i / width * stride + i % width] = whole[i / width * columns + begin + i % width];
    held.push_back(std::make_unique<TypedArray>(part, type, 0));
    begin += width;
    parts.values[parts.num_parts] = held.back()->data();
    parts.strides[parts.num_parts] = stride;
    parts.ends[parts.num_parts++] = begin;
  }
  check(joined_columns_fit(parts, type), name + ": fit");
  const size_t num_partials = num_column_partials(rows, columns);
  DeviceArray<float> partials(std::vector<float>(num_partials * columns, 3), 1);
  finish(launch_column_partials(whole_there.data(), type, rows, columns, partials.data(), nullptr), name);
  finish(launch_column_totals(partials.data(), num_partials, columns, expected.data(), type, nullptr), name);
  finish(launch_joined_partials(parts, type, rows, joined.data(), partials.data(), nullptr), name);
  finish(launch_column_totals(partials.data(), num_partials, columns, out.data(), type, nullptr), name);
  check(same_bits(joined.download(name), whole), name + ": the matrix");
  check(same_bits(out.download(name), expected.download(name)), name + ": the same sums as of the matrix");
  partials.download(name);

  parts.ends[0] -= 1;
  check(!joined_columns_fit(parts, type), name + ": cut elsewhere");
  parts.ends[0] += 1;
  parts.strides[0] += 1;
  check(!joined_columns_fit(parts, type), name + ": rows that begin elsewhere");
}

}  // namespace

void test_layer_kernels() {
  for (const ElementType type : kTypes) {
    for (const size_t classes : {1, 2, 7, 8, 9, 65, 1000, 1025, 8193, 50257}) {
      for (const size_t rows : {1, 2, 3, 5}) {
        for (const size_t offset : {0, 1, 3}) {
          for (const bool mean : {false, true}) {
            test_cross_entropy({rows, classes, type, offset, offset, (8 - classes % 8) % 8 + 8 * (offset % 2), mean});
          }
          test_cross_entropy({rows, classes, type, offset, offset});
        }
        test_cross_entropy({rows, classes, type, 0, 1});
      }
    }
    for (const size_t classes : {17000, 17001}) {  // more rows than multiprocessors
      test_cross_entropy({300, classes, type, 0, 0, 17016 - classes});
    }
    for (const size_t columns : {8, 24, 256, 768, 2048, 2056, 4096, 5120, 8192}) {
      for (const size_t rows : {1, 3, 777}) {
        for (const bool adds : {false, true}) test_layer_norm(rows, columns, type, adds);
      }
    }
    for (const size_t columns : {1, 5, 8, 255, 256, 257, 3072}) {
      for (const size_t rows : {1, 7, 8, 9, 1000}) {
        for (const size_t offset : {0, 1}) test_column_sums(rows, columns, type, offset);
      }
    }
  }
  for (const auto type : kTypes) {
    for (const size_t rows : {1, 7, 9, 1000}) {
      test_joined_columns(rows, {8, 16, 8}, type);
      test_joined_columns(rows, {768, 768, 768}, type);
      test_joined_columns(rows, {256, 8, 8, 8, 8, 8, 8, 24}, type);
    }
  }
  for (const size_t columns : {0, 4, 8200}) check(!layer_norm_fits(columns, nullptr, 0), "columns that do not fit");
}

void bench_layer_kernels(double copy_gb_per_s) {
  const size_t rows = 16384, classes = 50304, columns = 2048;
  const auto numel = static_cast<double>(rows * classes), layer = static_cast<double>(rows * columns);
  uint16_t *logits = nullptr, *gradient = nullptr;
  float *losses = nullptr, *partials = nullptr;
  int64_t* labels = nullptr;
  require(cudaMalloc(&logits, rows * classes * sizeof(uint16_t)), "cudaMalloc");
  require(cudaMalloc(&gradient, rows * classes * sizeof(uint16_t)), "cudaMalloc");
  require(cudaMalloc(&losses, 2 * rows * sizeof(float)), "cudaMalloc");
  require(cudaMalloc(&partials, (size_t{1} << 24) * sizeof(float)), "cudaMalloc");
  require(cudaMalloc(&labels, rows * sizeof(int64_t)), "cudaMalloc");
  require(cudaMemset(logits, 0, rows * classes * sizeof(uint16_t)), "cudaMemset");
  require(cudaMemset(labels, 0, rows * sizeof(int64_t)), "cudaMemset");
  require(cudaMemset(losses, 0, 2 * rows * sizeof(float)), "cudaMemset");
  CrossEntropyArguments a;
  a.logits = logits;
  a.type = ElementType::kBFloat16;
  a.rows = rows;
  a.classes = classes;
  a.stride = classes;
  a.labels = labels;
  report("cross entropy, bf16", 2 * numel,
         median_ms([&] { return launch_cross_entropy(a, losses, losses + rows, nullptr); }), copy_gb_per_s);
  report("  its gradient", 4 * numel,
         median_ms([&] { return launch_cross_entropy_gradient(a, losses + rows, losses, losses, gradient, nullptr); }),
         copy_gb_per_s);
  report("  both in one kernel", 4 * numel, median_ms([&] {
           return launch_cross_entropy_to_gradient(a, losses, losses, losses + rows, gradient, nullptr);
         }),
         copy_gb_per_s);
  report("  its total", 12.0 * rows,
         median_ms([&] { return launch_cross_entropy_total(a, losses, true, partials, partials + 1, nullptr); }),
         copy_gb_per_s);
  LayerNormArguments n{logits, gradient, gradient, a.type, rows, columns, 1e-5F, losses, losses + rows};
  report("layer norm, bf16", 4 * layer, median_ms([&] { return launch_layer_norm(n, gradient, nullptr); }),
         copy_gb_per_s);
  LayerNormGradient to{logits, nullptr, gradient, partials, partials + (size_t{1} << 23)};
  report("  its gradient", 6 * layer, median_ms([&] { return launch_layer_norm_gradient(n, to, nullptr); }),
         copy_gb_per_s);
  to.residual = logits;
  report("  with a residual's", 8 * layer, median_ms([&] { return launch_layer_norm_gradient(n, to, nullptr); }),
         copy_gb_per_s);
  const size_t norm_partials = num_layer_norm_partials(rows, columns);
  report("  totals of its columns", 4.0 * static_cast<double>(norm_partials * columns),
         median_ms([&] { return launch_column_totals(partials, norm_partials, columns, gradient, a.type, nullptr); }),
         copy_gb_per_s);
  report("column sums, bf16", 2 * layer, median_ms([&] {
           const cudaError_t result = launch_column_partials(logits, a.type, rows, columns, partials, nullptr);
           return result != cudaSuccess ? result
                                        : launch_column_totals(partials, num_column_partials(rows, columns), columns,
                                                               gradient, a.type, nullptr);
         }),
         copy_gb_per_s);
  ColumnParts parts;
  parts.num_parts = 3;
  for (size_t i = 0; i < 3; ++i) {
    parts.values[i] = logits + i * rows * columns;
    parts.strides[i] = columns;
    parts.ends[i] = (i + 1) * columns;
  }
  report("three matrices joined, with column sums, bf16", 12 * layer, median_ms([&] {
           const cudaError_t result = launch_joined_partials(parts, a.type, rows, gradient, partials, nullptr);
           return result != cudaSuccess ? result
                                        : launch_column_totals(partials, num_column_partials(rows, 3 * columns),
                                                               3 * columns, losses, ElementType::kFloat32, nullptr);
         }),
         copy_gb_per_s);
  cudaFree(logits);
  cudaFree(gradient);
  cudaFree(losses);
  cudaFree(partials);
  cudaFree(labels);
}

}  // namespace dslaunch::kernels
