#include "runtime/optim/host_update.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
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
        low(count) {}
  std::vector<float> master, gradient, first, second;
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

void adam(State& s, size_t begin, size_t end, LowPrecision type, InstructionSet set) {
  host::update_adam({.master = s.master.data() + begin,
                     .gradient = s.gradient.data() + begin,
                     .exp_avg = s.first.data() + begin,
                     .exp_avg_sq = s.second.data() + begin,
                     .low_precision = s.low.data() + begin,
                     .low_precision_type = type,
                     .count = static_cast<int64_t>(end - begin)},
                    kAdam, 0.37F, set);
}

void sgd(State& s, size_t begin, size_t end, LowPrecision type, const SgdCoefficients& c, InstructionSet set) {
  host::update_sgd({.master = s.master.data() + begin,
                    .gradient = s.gradient.data() + begin,
                    .momentum = c.momentum_weight == 0.0F ? nullptr : s.first.data() + begin,
                    .low_precision = s.low.data() + begin,
                    .low_precision_type = type,
                    .count = static_cast<int64_t>(end - begin)},
                   c, 0.37F, set);
}

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
  const SgdCoefficients plain{.lr = 0.1F, .coupled_decay = 0.01F};
  for (const size_t count : kCounts) {
    for (const auto type : {LowPrecision::kNone, LowPrecision::kBFloat16, LowPrecision::kFloat16}) {
      State adam_expected(count), momentum_expected(count), plain_expected(count);
      adam(adam_expected, 0, count, type, InstructionSet::kBaseline);
      sgd(momentum_expected, 0, count, type, kMomentum, InstructionSet::kBaseline);
      sgd(plain_expected, 0, count, type, plain, InstructionSet::kBaseline);
      for (const auto set : supported_sets()) {
        INFO("count " << count << ", set " << static_cast<int>(set) << ", type " << static_cast<int>(type));
        State a(count), m(count), p(count);
        adam(a, 0, count, type, set);
        sgd(m, 0, count, type, kMomentum, set);
        sgd(p, 0, count, type, plain, set);
        CHECK(a == adam_expected);
        CHECK(m == momentum_expected);
        CHECK(p == plain_expected);
      }
    }
  }
}

TEST_CASE("a range gives the same bits wherever it is cut", "[runtime][host_update]") {
  constexpr size_t kCount = 1000;
  for (const auto set : supported_sets()) {
    State whole(kCount), whole_sgd(kCount);
    adam(whole, 0, kCount, LowPrecision::kBFloat16, set);
    sgd(whole_sgd, 0, kCount, LowPrecision::kFloat16, kMomentum, set);
    for (const size_t cut : {1, 5, 16, 333, 999}) {
      State cut_adam(kCount), cut_sgd(kCount);
      adam(cut_adam, 0, cut, LowPrecision::kBFloat16, set);
      adam(cut_adam, cut, kCount, LowPrecision::kBFloat16, set);
      sgd(cut_sgd, 0, cut, LowPrecision::kFloat16, kMomentum, set);
      sgd(cut_sgd, cut, kCount, LowPrecision::kFloat16, kMomentum, set);
      CHECK(cut_adam == whole);
      CHECK(cut_sgd == whole_sgd);
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
