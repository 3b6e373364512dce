// Kernels against a host reference at awkward sizes and alignments, bit by bit where the arithmetic is defined, with
// guard elements around every array. `kernels_test --bench` measures bandwidth against a device copy as well.
// Exit: 0 all passed, 1 something differed, 77 no CUDA device here.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernel_checks.cuh"
#include "kernels/clip_factor.h"
#include "kernels/element_step.h"
#include "kernels/lamb.h"
#include "kernels/sum_of_squares.h"

using namespace dslaunch::kernels;

namespace {

// Offsets in elements: of the master (and the moments), the gradient, the low-precision copy.
struct Layout {
  size_t master, gradient, low;
};
constexpr Layout kLayouts[] = {{0, 0, 0}, {1, 1, 1}, {3, 3, 0}, {0, 0, 1}, {2, 2, 2}, {0, 1, 0}, {1, 0, 3}};
constexpr size_t kCounts[] = {0, 1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 1023, 1024, 4097, (1 << 20) + 5};
enum class Low { kNone, kBFloat16, kFloat16 };
// Of the low-precision copy, and of the gradient: kNone is fp32.
struct Types {
  Low low = Low::kNone, gradient = Low::kNone;
};
constexpr Types kTypes[] = {{Low::kNone, Low::kNone},         {Low::kBFloat16, Low::kNone},
                            {Low::kFloat16, Low::kNone},      {Low::kNone, Low::kBFloat16},
                            {Low::kBFloat16, Low::kBFloat16}, {Low::kFloat16, Low::kFloat16}};

int variant(Types types) {
  return 10 * static_cast<int>(types.low) + static_cast<int>(types.gradient);
}

ElementType element_type(Low type) {
  return type == Low::kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat16;
}

std::string describe(const char* kernel, size_t count, const Layout& layout, int variant) {
  return std::string(kernel) + ", count " + std::to_string(count) + ", offsets " + std::to_string(layout.master) + "/" +
         std::to_string(layout.gradient) + "/" + std::to_string(layout.low) + ", variant " + std::to_string(variant);
}

struct State {
  explicit State(size_t count, Low gradient_type = Low::kNone)
      : master(uniform(count, 1, -2, 2)),
        gradient(uniform(count, 2, -1, 1)),
        first(uniform(count, 3, -1, 1)),
        second(uniform(count, 4, 0, 1)),
        low(count, 5) {
    for (float& value : gradient) {
      if (gradient_type == Low::kNone) break;
      half_gradient.push_back(rounded(value, element_type(gradient_type)));
      value = widened(half_gradient.back(), element_type(gradient_type));
    }
  }
  std::vector<float> master, gradient, first, second;
  std::vector<uint16_t> half_gradient;  // the gradient as bf16 or fp16
  std::vector<uint16_t> low;
};

// A State's arrays on the device.
struct DeviceState {
  DeviceState(const State& s, const Layout& layout)
      : count(s.master.size()),
        master(s.master, layout.master),
        gradient(s.gradient, layout.gradient),
        half_gradient(s.half_gradient, layout.gradient),
        first(s.first, layout.master),
        second(s.second, layout.master),
        low(s.low, layout.low) {}
  const size_t count;
  DeviceArray<float> master, gradient, first, second;
  DeviceArray<uint16_t> half_gradient, low;
};

// What all kinds of arguments have.
template <class Arguments>
Arguments arguments_of(DeviceState& state, Types types) {
  Arguments arguments;
  arguments.master = state.master.data();
  arguments.gradient = state.gradient.data();
  if (types.gradient != Low::kNone) {
    arguments.gradient = state.half_gradient.data();
    arguments.gradient_type = element_type(types.gradient);
  }
  arguments.count = state.count;
  if (types.low != Low::kNone) {
    arguments.low_precision = state.low.data();
    arguments.low_precision_type = element_type(types.low);
  }
  return arguments;
}

void compare(const State& expected, DeviceState& got, const std::string& name) {
  check(same_bits(got.master.download(name), expected.master), name + ": master");
  check(same_bits(got.gradient.download(name), expected.gradient), name + ": gradient was changed");
  check(same_bits(got.half_gradient.download(name), expected.half_gradient), name + ": gradient was changed");
  check(same_bits(got.first.download(name), expected.first), name + ": first moment");
  check(same_bits(got.second.download(name), expected.second), name + ": second moment");
  check(same_bits(got.low.download(name), expected.low), name + ": low-precision copy");
}

void test_adamw(size_t count, const Layout& layout, Types types) {
  const std::string name = describe("adamw", count, layout, variant(types));
  State s(count, types.gradient);
  DeviceState there(s, layout);
  DeviceArray<float> factor({0.37F}, 1);
  auto a = arguments_of<ElementArguments<AdamRule>>(there, types);
  AdamCoefficients& c = a.coefficients.value;
  c.one_minus_beta1 = 0.1F;
  c.beta2 = 0.999F;
  c.one_minus_beta2 = 0.001F;
  c.eps = 1e-8F;
  c.step_size = 3e-3F;
  c.inverse_root_correction = 1.7F;
  c.coupled_decay = 0.02F;
  c.decoupled_decay = 0.01F;
  a.moments[0] = there.first.data();
  a.moments[1] = there.second.data();
  a.control.gradient_factor = factor.data();
  finish(launch_element_step(a, nullptr), name);
  for (size_t i = 0; i < count; ++i) {
    const float g = s.gradient[i] * 0.37F + c.coupled_decay * s.master[i];
    s.first[i] = s.first[i] + (g - s.first[i]) * c.one_minus_beta1;
    s.second[i] = s.second[i] * c.beta2 + g * g * c.one_minus_beta2;
    const float denominator = std::sqrt(s.second[i]) * c.inverse_root_correction + c.eps;
    s.master[i] = s.master[i] - (c.step_size * (s.first[i] / denominator) + c.decoupled_decay * s.master[i]);
    if (types.low != Low::kNone) s.low[i] = rounded(s.master[i], a.low_precision_type);
  }
  compare(s, there, name);
}

template <class Rule>
void test_sgd(size_t count, const Layout& layout, Types types) {
  constexpr bool momentum = Rule::kMoments > 0;
  const std::string name = describe(momentum ? "sgd with momentum" : "sgd", count, layout, variant(types));
  State s(count, types.gradient);
  DeviceState there(s, layout);
  auto a = arguments_of<ElementArguments<Rule>>(there, types);
  SgdCoefficients& c = a.coefficients.value;
  c.lr = 0.1F;
  c.coupled_decay = 0.01F;
  c.keep = 0.9F;
  c.share = 0.7F;
  c.gradient_weight = 1.0F;
  c.momentum_weight = 0.9F;
  if (momentum) a.moments[0] = there.first.data();
  finish(launch_element_step(a, nullptr), name);
  for (size_t i = 0; i < count; ++i) {
    const float g = s.gradient[i] + c.coupled_decay * s.master[i];
    if (momentum) {
      s.first[i] = c.keep * s.first[i] + c.share * g;
      s.master[i] = s.master[i] - c.lr * (c.gradient_weight * g + c.momentum_weight * s.first[i]);
    } else {
      s.master[i] = s.master[i] - c.lr * g;
    }
    if (types.low != Low::kNone) s.low[i] = rounded(s.master[i], a.low_precision_type);
  }
  compare(s, there, name);
}

void test_amsgrad(size_t count, const Layout& layout, Types types) {
  const std::string name = describe("adamw with amsgrad", count, layout, variant(types));
  State s(count, types.gradient);
  std::vector<float> largest = uniform(count, 6, 0, 1);
  DeviceState there(s, layout);
  DeviceArray<float> third(largest, layout.master);
  auto a = arguments_of<ElementArguments<AmsgradRule>>(there, types);
  AdamCoefficients& c = a.coefficients.value;
  c.direction = -1.0F;
  c.one_minus_beta1 = 0.1F;
  c.beta2 = 0.9F;
  c.one_minus_beta2 = 0.1F;
  c.eps = 1e-8F;
  c.step_size = 3e-3F;
  a.moments[0] = there.first.data();
  a.moments[1] = there.second.data();
  a.moments[2] = third.data();
  finish(launch_element_step(a, nullptr), name);
  for (size_t i = 0; i < count; ++i) {
    const float g = s.gradient[i] * -1.0F;
    s.first[i] = s.first[i] + (g - s.first[i]) * c.one_minus_beta1;
    s.second[i] = s.second[i] * c.beta2 + g * g * c.one_minus_beta2;
    largest[i] = largest[i] > s.second[i] ? largest[i] : s.second[i];
    s.master[i] = s.master[i] - c.step_size * (s.first[i] / (std::sqrt(largest[i]) + c.eps));
    if (types.low != Low::kNone) s.low[i] = rounded(s.master[i], a.low_precision_type);
  }
  compare(s, there, name);
  check(same_bits(third.download(name), largest), name + ": third moment");
}

void test_lion(size_t count, const Layout& layout, Types types) {
  const std::string name = describe("lion", count, layout, variant(types));
  State s(count, types.gradient);
  DeviceState there(s, layout);
  auto a = arguments_of<ElementArguments<LionRule>>(there, types);
  LionCoefficients& c = a.coefficients.value;
  c.beta1 = 0.9F;
  c.one_minus_beta1 = 0.1F;
  c.beta2 = 0.99F;
  c.one_minus_beta2 = 0.01F;
  c.lr = 0.01F;
  c.keep = 0.999F;
  a.moments[0] = there.first.data();
  finish(launch_element_step(a, nullptr), name);
  for (size_t i = 0; i < count; ++i) {
    const float mixed = c.beta1 * s.first[i] + c.one_minus_beta1 * s.gradient[i];
    const float sign = mixed > 0.0F ? 1.0F : mixed < 0.0F ? -1.0F : mixed;
    s.master[i] = s.master[i] * c.keep - c.lr * sign;
    s.first[i] = c.beta2 * s.first[i] + c.one_minus_beta2 * s.gradient[i];
    if (types.low != Low::kNone) s.low[i] = rounded(s.master[i], a.low_precision_type);
  }
  compare(s, there, name);
}

void test_adagrad(size_t count, const Layout& layout, Types types) {
  const std::string name = describe("adagrad", count, layout, variant(types));
  State s(count, types.gradient);
  DeviceState there(s, layout);
  auto a = arguments_of<ElementArguments<AdagradRule>>(there, types);
  AdagradCoefficients& c = a.coefficients.value;
  c.step_size = 0.01F;
  c.eps = 1e-10F;
  c.coupled_decay = 0.02F;
  a.moments[0] = there.second.data();
  finish(launch_element_step(a, nullptr), name);
  for (size_t i = 0; i < count; ++i) {
    const float g = s.gradient[i] + c.coupled_decay * s.master[i];
    s.second[i] = s.second[i] + g * g;
    s.master[i] = s.master[i] - c.step_size * (g / (std::sqrt(s.second[i]) + c.eps));
    if (types.low != Low::kNone) s.low[i] = rounded(s.master[i], a.low_precision_type);
  }
  compare(s, there, name);
}

// Both passes and what stands between them; the same sums on two "ranks" double the squares of both norms.
void test_lamb(size_t count, const Layout& layout, Types types) {
  const std::string name = describe("lamb", count, layout, variant(types));
  State s(count, types.gradient);
  DeviceState there(s, layout);
  DeviceArray<float> ratio({0.0F}, 0);
  auto a = arguments_of<LambArguments>(there, types);
  LambCoefficients& c = a.coefficients.value;
  c.beta1 = 0.9F;
  c.one_minus_beta1 = 0.1F;
  c.beta2 = 0.999F;
  c.one_minus_beta2 = 0.001F;
  c.eps_inside = 1e-7F;
  c.eps_outside = 1e-6F;
  c.decay = 0.01F;
  c.step_size = 0.02F;
  a.exp_avg = there.first.data();
  a.exp_avg_sq = there.second.data();

  const size_t num_partials = num_lamb_partials(count);
  LambSums* sums = nullptr;  // two ranks' sums, then the partial ones
  require(cudaMalloc(&sums, (2 + num_partials) * sizeof(LambSums)), "cudaMalloc");
  DeviceArray<int64_t> ends({static_cast<int64_t>(num_partials)}, 0);
  require(launch_lamb_moments(a, sums + 2, nullptr), name.c_str());
  for (int rank = 0; rank < 2; ++rank) {
    require(launch_lamb_sums(sums + 2, ends.data(), 1, sums + rank, nullptr), name.c_str());
  }
  require(launch_lamb_ratios(sums, 2, 1, 0.01F, 10.0F, ratio.data(), nullptr), name.c_str());
  LambSums got;
  require(cudaMemcpy(&got, sums, sizeof(got), cudaMemcpyDeviceToHost), name.c_str());
  const float got_ratio = ratio.download(name)[0];
  finish(launch_lamb(a, ratio.data(), nullptr), name);
  cudaFree(sums);

  long double parameter = 0, update = 0;  // one after the other in double would be off by 1e-12 itself
  const auto update_of = [&](size_t i) {
    return s.first[i] / (std::sqrt(s.second[i] + c.eps_inside) + c.eps_outside) + c.decay * s.master[i];
  };
  for (size_t i = 0; i < count; ++i) {
    s.first[i] = c.beta1 * s.first[i] + c.one_minus_beta1 * s.gradient[i];
    s.second[i] = c.beta2 * s.second[i] + c.one_minus_beta2 * s.gradient[i] * s.gradient[i];
    const long double p = s.master[i], u = update_of(i);
    parameter += p * p;
    update += u * u;
  }
  const LambSums expected{static_cast<double>(parameter), static_cast<double>(update)};
  check(std::abs(got.parameter - expected.parameter) <= 1e-13 * expected.parameter, name + ": sum of the parameter");
  check(std::abs(got.update - expected.update) <= 1e-13 * expected.update, name + ": sum of the update");
  const double wanted = count == 0 ? 1.0 : std::sqrt(expected.parameter / expected.update);
  check(std::abs(got_ratio - std::min(10.0, std::max(0.01, wanted))) <= 1e-6 * got_ratio, name + ": ratio");
  for (size_t i = 0; i < count; ++i) {
    s.master[i] = s.master[i] - (c.step_size * got_ratio) * update_of(i);
    if (types.low != Low::kNone) s.low[i] = rounded(s.master[i], a.low_precision_type);
  }
  compare(s, there, name);
}

// Steered from the device: a skipped step writes nothing, and the counter picks its row of the table.
void test_step_control() {
  const std::string name = "step control";
  const size_t count = 1023;
  const State start(count);
  DeviceState there(start, {0, 0, 0});
  DeviceArray<float> skip({1.0F}, 0);
  SgdCoefficients rows[3];
  for (int i = 0; i < 3; ++i) rows[i].lr = 0.1F * static_cast<float>(i + 1);
  SgdCoefficients* table = nullptr;
  require(cudaMalloc(&table, sizeof(rows)), "cudaMalloc");
  require(cudaMemcpy(table, rows, sizeof(rows), cudaMemcpyHostToDevice), "upload");
  DeviceArray<int64_t> applied({8}, 0);
  auto a = arguments_of<ElementArguments<SgdRule>>(there, {});
  a.control.skip = skip.data();
  a.coefficients = {{}, table, applied.data(), 7, 3};
  require(launch_element_step(a, nullptr), name.c_str());
  compare(start, there, name + ", skipped");
  a.control.skip = nullptr;
  require(launch_element_step(a, nullptr), name.c_str());
  State expected = start;
  for (size_t i = 0; i < count; ++i) expected.master[i] -= rows[1].lr * expected.gradient[i];
  compare(expected, there, name + ", from the table");
  cudaFree(table);
}

double device_sum_of_squares(const void* values, ElementType type, size_t count) {
  double* buffer = nullptr;
  const size_t num_partials = num_square_partials(count);
  require(cudaMalloc(&buffer, (num_partials + 1) * sizeof(double)), "cudaMalloc");
  require(launch_square_partials(values, type, count, buffer + 1, nullptr), "square_partials");
  require(launch_sum_partials(buffer + 1, num_partials, buffer, nullptr), "sum_partials");
  double sum = -1;
  require(cudaMemcpy(&sum, buffer, sizeof(sum), cudaMemcpyDeviceToHost), "sum of squares");
  cudaFree(buffer);
  return sum;
}

void test_sum_of_squares(size_t count, size_t offset, Low low) {
  const std::string name = describe("sum_of_squares", count, {offset, 0, 0}, static_cast<int>(low));
  auto values = uniform(count, 9, -3, 3);
  std::vector<uint16_t> halves;
  for (float& value : values) {
    if (low == Low::kNone) break;
    halves.push_back(rounded(value, element_type(low)));
    value = widened(halves.back(), element_type(low));
  }
  long double expected = 0;
  for (const float value : values) expected += static_cast<long double>(value) * value;
  DeviceArray<float> floats(values, offset);
  DeviceArray<uint16_t> array(halves, offset);
  const auto sum_of = [&] {
    return low == Low::kNone ? device_sum_of_squares(floats.data(), ElementType::kFloat32, count)
                             : device_sum_of_squares(array.data(), element_type(low), count);
  };
  const double sum = sum_of();
  check(std::abs(sum - static_cast<double>(expected)) <= 1e-13 * static_cast<double>(expected), name + ": value");
  for (int repeat = 0; repeat < 3; ++repeat) {
    check(sum_of() == sum, name + ": differs between runs");
  }
}

void test_clip_factor(double sum, double max_norm, double scale, double expected_norm, float expected_factor) {
  const std::string name = "clip_factor of " + std::to_string(sum) + " at " + std::to_string(max_norm);
  DeviceArray<double> sums({sum}, 1), norm({0.0}, 0);
  DeviceArray<float> factor({0.0F}, 3);
  require(launch_clip_factor(sums.data(), max_norm, scale, norm.data(), factor.data(), nullptr), name.c_str());
  check(norm.download(name)[0] == expected_norm, name + ": norm");
  check(factor.download(name)[0] == expected_factor, name + ": factor");
}

void run_tests() {
  test_step_control();
  for (const size_t count : kCounts) {
    for (const Layout& layout : kLayouts) {
      for (const Types types : kTypes) {
        test_adamw(count, layout, types);
        test_sgd<SgdRule>(count, layout, types);
        test_sgd<SgdMomentumRule>(count, layout, types);
        test_lion(count, layout, types);
        test_adagrad(count, layout, types);
        test_lamb(count, layout, types);
        test_amsgrad(count, layout, types);
      }
      for (const Low type : {Low::kNone, Low::kBFloat16, Low::kFloat16})
        test_sum_of_squares(count, layout.master, type);
    }
  }
  test_block_codes();
  test_fp8_cast();
  test_peer_all_reduce();
  test_layer_kernels();
  test_clip_factor(25.0, 2.0, 1.0, 5.0, static_cast<float>(2.0 / (5.0 + 1e-6)));
  test_clip_factor(25.0, 6.0, 1.0, 5.0, 1.0F);
  test_clip_factor(25.0, 0.0, 1.0, 5.0, 1.0F);
  test_clip_factor(1600.0, 2.0, 0.25, 10.0, static_cast<float>(0.25 / ((10.0 + 1e-6) / 2.0)));
}

void run_bench() {
  const size_t n = size_t{1} << 28;
  const auto count = static_cast<double>(n);
  float* arrays[4] = {};
  uint16_t* low = nullptr;
  double* sums = nullptr;
  for (float*& array : arrays) {
    require(cudaMalloc(&array, n * sizeof(float)), "cudaMalloc");
    require(cudaMemset(array, 0, n * sizeof(float)), "cudaMemset");
  }
  require(cudaMalloc(&low, n * sizeof(uint16_t)), "cudaMalloc");
  require(cudaMemset(low, 0, n * sizeof(uint16_t)), "cudaMemset");
  require(cudaMalloc(&sums, (num_square_partials(n) + 1) * sizeof(double)), "cudaMalloc");

  std::printf("%zu elements\n", n);
  const double copy_ms =
      median_ms([&] { return cudaMemcpyAsync(arrays[0], arrays[1], n * 4, cudaMemcpyDeviceToDevice, nullptr); });
  const double copy = 8 * count / copy_ms * 1e-6;
  report("copy", 8 * count, copy_ms, 0);

  ElementArguments<AdamRule> a;
  a.master = arrays[0];
  a.gradient = arrays[1];
  a.moments[0] = arrays[2];
  a.moments[1] = arrays[3];
  a.count = n;
  a.coefficients.value.eps = 1e-8F;
  report("adamw", 28 * count, median_ms([&] { return launch_element_step(a, nullptr); }), copy);
  a.low_precision = low;
  report("adamw + bf16", 30 * count, median_ms([&] { return launch_element_step(a, nullptr); }), copy);
  a.gradient_type = ElementType::kBFloat16;
  report("adamw, all bf16", 28 * count, median_ms([&] { return launch_element_step(a, nullptr); }), copy);
  ElementArguments<SgdMomentumRule> s;
  s.master = arrays[0];
  s.gradient = arrays[1];
  s.moments[0] = arrays[2];
  s.count = n;
  report("sgd with momentum", 20 * count, median_ms([&] { return launch_element_step(s, nullptr); }), copy);
  ElementArguments<LionRule> l;
  l.master = arrays[0];
  l.gradient = arrays[1];
  l.moments[0] = arrays[2];
  l.count = n;
  report("lion", 20 * count, median_ms([&] { return launch_element_step(l, nullptr); }), copy);
  ElementArguments<AdagradRule> g;
  g.master = arrays[0];
  g.gradient = arrays[1];
  g.moments[0] = arrays[2];
  g.count = n;
  g.coefficients.value.eps = 1e-10F;
  report("adagrad", 20 * count, median_ms([&] { return launch_element_step(g, nullptr); }), copy);
  LambArguments b;
  b.master = arrays[0];
  b.gradient = arrays[1];
  b.exp_avg = arrays[2];
  b.exp_avg_sq = arrays[3];
  b.count = n;
  b.coefficients.value.eps_outside = 1e-8F;
  report("lamb, moments and sums", 24 * count,
         median_ms([&] { return launch_lamb_moments(b, reinterpret_cast<LambSums*>(sums), nullptr); }), copy);
  report("lamb, update", 16 * count, median_ms([&] { return launch_lamb(b, arrays[1], nullptr); }), copy);
  const auto squares = [&](ElementType type) {
    const cudaError_t result = launch_square_partials(arrays[1], type, n, sums + 1, nullptr);
    return result != cudaSuccess ? result : launch_sum_partials(sums + 1, num_square_partials(n), sums, nullptr);
  };
  report("sum of squares", 4 * count, median_ms([&] { return squares(ElementType::kFloat32); }), copy);
  report("sum of squares, bf16", 2 * count, median_ms([&] { return squares(ElementType::kBFloat16); }), copy);
  bench_block_codes(copy);
  bench_fp8_cast(copy);
  bench_layer_kernels(copy);
  for (float* array : arrays) cudaFree(array);
  cudaFree(low);
  cudaFree(sums);
}

}  // namespace

int main(int argc, char** argv) {
  int num_devices = 0;
  if (cudaGetDeviceCount(&num_devices) != cudaSuccess || num_devices == 0) {
    std::printf("kernels_test: no CUDA device here, skipped\n");
    return 77;
  }
  cudaDeviceProp properties{};
  require(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  std::printf("%s, sm_%d%d\n", properties.name, properties.major, properties.minor);
  run_tests();
  require(cudaDeviceSynchronize(), "after the tests");
  std::printf("%d checks, %d failed\n", g_checks, g_failures);
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) run_bench();
  return g_failures == 0 ? 0 : 1;
}
