#include "runtime/optim/host_update.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace {

using namespace dslaunch::runtime::optim;
using host::InstructionSet;
using host::LowPrecision;

std::vector<float> uniform(size_t count, uint32_t seed, float low, float high) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

struct State {
  explicit State(size_t count)
      : master(uniform(count, 1, -2, 2)),
        gradient(uniform(count, 2, -1, 1)),
        first(uniform(count, 3, -1, 1)),
        second(uniform(count, 4, 0, 1)),
        third(uniform(count, 5, 0, 1)),
        low(count) {}
  std::vector<float> master, gradient, first, second, third;
  std::vector<uint16_t> low;
  bool operator==(const State&) const = default;
};

const AdamCoefficients kAdam{.one_minus_beta1 = 0.1F,
                             .beta2 = 0.999F,
                             .one_minus_beta2 = 0.001F,
                             .eps = 1e-8F,
                             .step_size = 3e-3F,
                             .inverse_root_correction = 1.7F,
                             .coupled_decay = 0.02F,
                             .decoupled_decay = 0.01F};
const SgdCoefficients kMomentum{
    .lr = 0.1F, .coupled_decay = 0.01F, .keep = 0.9F, .share = 0.7F, .gradient_weight = 1.0F, .momentum_weight = 0.9F};

const LionCoefficients kLion{
    .beta1 = 0.9F, .one_minus_beta1 = 0.1F, .beta2 = 0.99F, .one_minus_beta2 = 0.01F, .lr = 0.01F, .keep = 0.999F};
const AdagradCoefficients kAdagrad{.step_size = 0.01F, .eps = 1e-10F, .coupled_decay = 0.02F};
const LambCoefficients kLamb{.beta1 = 0.9F,
                             .one_minus_beta1 = 0.1F,
                             .beta2 = 0.999F,
                             .one_minus_beta2 = 0.001F,
                             .eps_outside = 1e-6F,
                             .decay = 0.01F,
                             .step_size = 0.02F,
                             .min_ratio = 0.01F,
                             .max_ratio = 10.0F};

host::Range range_of(State& s, size_t begin, size_t end, LowPrecision type) {
  return {.master = s.master.data() + begin,
          .gradient = s.gradient.data() + begin,
          .moments = {s.first.data() + begin, s.second.data() + begin, s.third.data() + begin},
          .low_precision = s.low.data() + begin,
          .low_precision_type = type,
          .count = static_cast<int64_t>(end - begin)};
}

// Each loop under one signature.
using Update = void (*)(const host::Range& range, InstructionSet set);
const std::vector<std::pair<const char*, Update>> kUpdates = {
    {"adam", [](const host::Range& r, InstructionSet set) { host::update_adam(r, kAdam, 0.37F, set); }},
    {"amsgrad", [](const host::Range& r, InstructionSet set) { host::update_amsgrad(r, kAdam, 0.37F, set); }},
    {"sgd", [](const host::Range& r, InstructionSet set) { host::update_sgd(r, kMomentum, 0.37F, set); }},
    {"sgd with momentum",
     [](const host::Range& r, InstructionSet set) { host::update_sgd_momentum(r, kMomentum, 0.37F, set); }},
    {"lion", [](const host::Range& r, InstructionSet set) { host::update_lion(r, kLion, 0.37F, set); }},
    {"adagrad",
     [](const host::Range& r, InstructionSet set) {
       host::Range sums = r;
       sums.moments[0] = r.moments[1];  // a sum of squares is not negative
       host::update_adagrad(sums, kAdagrad, 0.37F, set);
     }},
    {"lamb", [](const host::Range& r, InstructionSet set) { host::update_lamb(r, kLamb, 1.3F, set); }},
};

std::vector<InstructionSet> supported_sets() {
  std::vector<InstructionSet> sets;
  for (const auto set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (host::is_supported(set)) sets.push_back(set);
  }
  return sets;
}

constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 1023, 4099};

}  // namespace

TEST_CASE("every instruction set gives the same bits", "[runtime][host_update]") {
  for (const auto& [name, update] : kUpdates) {
    for (const size_t count : kCounts) {
      for (const auto type : {LowPrecision::kNone, LowPrecision::kBFloat16, LowPrecision::kFloat16}) {
        State expected(count);
        update(range_of(expected, 0, count, type), InstructionSet::kBaseline);
        for (const auto set : supported_sets()) {
          INFO(name << ", count " << count << ", set " << static_cast<int>(set) << ", type " << static_cast<int>(type));
          State state(count);
          update(range_of(state, 0, count, type), set);
          CHECK(state == expected);
        }
      }
    }
  }
}

TEST_CASE("a range gives the same bits wherever it is cut", "[runtime][host_update]") {
  constexpr size_t kCount = 1000;
  for (const auto& [name, update] : kUpdates) {
    INFO(name);
    for (const auto set : supported_sets()) {
      State whole(kCount);
      update(range_of(whole, 0, kCount, LowPrecision::kBFloat16), set);
      for (const size_t cut : {1, 5, 16, 333, 999}) {
        State state(kCount);
        update(range_of(state, 0, cut, LowPrecision::kBFloat16), set);
        update(range_of(state, cut, kCount, LowPrecision::kBFloat16), set);
        CHECK(state == whole);
      }
    }
  }
}

TEST_CASE("Lamb's moments and sums have the same bits with every instruction set", "[runtime][host_update]") {
  for (const size_t count : kCounts) {
    State expected(count);
    const auto sums = host::update_lamb_moments(range_of(expected, 0, count, LowPrecision::kNone), kLamb, 0.37F,
                                                InstructionSet::kBaseline);
    for (const auto set : supported_sets()) {
      State state(count);
      const auto got = host::update_lamb_moments(range_of(state, 0, count, LowPrecision::kNone), kLamb, 0.37F, set);
      CHECK(state == expected);
      CHECK(got.parameter == sums.parameter);
      CHECK(got.update == sums.update);
    }
  }
}

TEST_CASE("a sum of squares has the same bits with every instruction set", "[runtime][host_update]") {
  for (const size_t count : kCounts) {
    const auto values = uniform(count, 9, -3, 3);
    const double expected = host::sum_of_squares(values.data(), static_cast<int64_t>(count), InstructionSet::kBaseline);
    for (const auto set : supported_sets()) {
      CHECK(host::sum_of_squares(values.data(), static_cast<int64_t>(count), set) == expected);
    }
  }
}
