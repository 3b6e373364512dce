#include "runtime/optim/host_update.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "runtime/state/thread_team.hpp"

namespace {

using namespace dslaunch::runtime::optim;
namespace kernels = dslaunch::kernels;
using host::ElementType;
using host::InstructionSet;

std::vector<float> uniform(size_t count, uint32_t seed, float low, float high) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = draw(engine);
  return values;
}

// The types of a range; without `has_low` it has no low-precision copy.
struct Types {
  ElementType gradient = ElementType::kFloat32;
  bool has_low = false;
  ElementType low = ElementType::kBFloat16;
};
const std::vector<Types> kTypes = [] {
  std::vector<Types> types;
  for (const auto gradient : {ElementType::kFloat32, ElementType::kBFloat16, ElementType::kFloat16}) {
    types.push_back({gradient});
    for (const auto low : {ElementType::kBFloat16, ElementType::kFloat16}) types.push_back({gradient, true, low});
  }
  return types;
}();

struct State {
  explicit State(size_t count) : low(count, kUntouched) {
    // The values of the longest state, made once.
    static const std::vector<float> values[] = {uniform(kLongest, 1, -2, 2), uniform(kLongest, 2, -1, 1),
                                                uniform(kLongest, 3, -1, 1), uniform(kLongest, 4, 0, 1),
                                                uniform(kLongest, 5, 0, 1)};
    std::vector<float>* arrays[] = {&master, &gradient, &first, &second, &third};
    for (size_t i = 0; i < 5; ++i) arrays[i]->assign(values[i].data(), values[i].data() + count);
    for (const float g : gradient) {
      bfloat16.push_back(c10::BFloat16(g).x);
      float16.push_back(c10::Half(g).x);
    }
  }
  const void* gradient_in(ElementType type, size_t begin) const {
    if (type == ElementType::kFloat32) return gradient.data() + begin;
    return (type == ElementType::kBFloat16 ? bfloat16 : float16).data() + begin;
  }
  static constexpr size_t kLongest = 10'000;
  static constexpr uint16_t kUntouched = 0xABCD;
  std::vector<float> master, gradient, first, second, third;
  std::vector<uint16_t> low, bfloat16, float16;
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
constexpr AdagradCoefficients kAdagrad{.step_size = 0.01F, .eps = 1e-10F, .coupled_decay = 0.02F};
constexpr RmspropCoefficients kRmsprop{
    .lr = 0.01F, .alpha = 0.9F, .one_minus_alpha = 0.1F, .eps = 1e-3F, .momentum = 0.8F, .coupled_decay = 0.02F};
constexpr NadamCoefficients kNadam{.one_minus_beta1 = 0.1F,
                                   .beta2 = 0.999F,
                                   .one_minus_beta2 = 0.001F,
                                   .eps = 1e-8F,
                                   .gradient_size = 0.01F,
                                   .moment_size = 0.02F,
                                   .inverse_root_correction = 1.7F,
                                   .decoupled_decay = 0.01F};
constexpr RadamCoefficients kRadam{.one_minus_beta1 = 0.1F,
                                   .beta2 = 0.999F,
                                   .one_minus_beta2 = 0.001F,
                                   .step_size = 0.02F,
                                   .root_weight = 1.0F,
                                   .offset = 1e-8F,
                                   .coupled_decay = 0.02F};
constexpr RadamCoefficients kEarlyRadam{
    .one_minus_beta1 = 0.1F, .beta2 = 0.999F, .one_minus_beta2 = 0.001F, .step_size = 0.02F, .decoupled_decay = 0.01F};
constexpr AdamaxCoefficients kAdamax{
    .one_minus_beta1 = 0.1F, .beta2 = 0.9F, .eps = 1e-8F, .step_size = 0.02F, .coupled_decay = 0.02F};
constexpr AdadeltaCoefficients kAdadelta{
    .lr = 0.5F, .rho = 0.9F, .one_minus_rho = 0.1F, .eps = 1e-6F, .coupled_decay = 0.02F};
constexpr RpropCoefficients kRprop{.eta_minus = 0.5F, .eta_plus = 1.2F, .min_step = 0.3F, .max_step = 0.9F};
constexpr AsgdCoefficients kAsgd{.step_size = 0.02F, .share = 0.25F, .decay = 0.01F, .coupled_decay = 0.02F};
constexpr AsgdCoefficients kEarlyAsgd{.step_size = 0.02F, .decay = 0.01F};
const LambCoefficients kLamb{.beta1 = 0.9F,
                             .one_minus_beta1 = 0.1F,
                             .beta2 = 0.999F,
                             .one_minus_beta2 = 0.001F,
                             .eps_outside = 1e-6F,
                             .decay = 0.01F,
                             .step_size = 0.02F,
                             .min_ratio = 0.01F,
                             .max_ratio = 10.0F};

host::Range range_of(State& s, size_t begin, size_t end, const Types& types) {
  return {.master = s.master.data() + begin,
          .gradient = s.gradient_in(types.gradient, begin),
          .gradient_type = types.gradient,
          .moments = {s.first.data() + begin, s.second.data() + begin, s.third.data() + begin},
          .low_precision = types.has_low ? s.low.data() + begin : nullptr,
          .low_precision_type = types.low,
          .count = static_cast<int64_t>(end - begin)};
}

// With moments that are not negative, as sums of squares are.
template <class Rule, const typename Rule::Values& kCoefficients>
void positive_moments(const host::Range& range, InstructionSet set) {
  host::Range moved = range;
  moved.moments[0] = range.moments[1];
  moved.moments[1] = range.moments[2];
  moved.moments[2] = range.moments[0];
  host::update<Rule>(moved, kCoefficients, 0.37F, set);
}

// Each loop under one signature.
using Update = void (*)(const host::Range& range, InstructionSet set);
const std::vector<std::pair<const char*, Update>> kUpdates = {
    {"adam", [](const host::Range& r, InstructionSet set) { host::update<kernels::AdamRule>(r, kAdam, 0.37F, set); }},
    {"amsgrad",
     [](const host::Range& r, InstructionSet set) { host::update<kernels::AmsgradRule>(r, kAdam, 0.37F, set); }},
    {"sgd", [](const host::Range& r, InstructionSet set) { host::update<kernels::SgdRule>(r, kMomentum, 0.37F, set); }},
    {"sgd with momentum", [](const host::Range& r,
                             InstructionSet set) { host::update<kernels::SgdMomentumRule>(r, kMomentum, 0.37F, set); }},
    {"lion", [](const host::Range& r, InstructionSet set) { host::update<kernels::LionRule>(r, kLion, 0.37F, set); }},
    {"adagrad", positive_moments<kernels::AdagradRule, kAdagrad>},
    {"rmsprop", positive_moments<kernels::RmspropRule, kRmsprop>},
    {"rmsprop with momentum", positive_moments<kernels::RmspropMomentumRule, kRmsprop>},
    {"rmsprop, centered", positive_moments<kernels::CenteredRmspropRule, kRmsprop>},
    {"rmsprop, centered, with momentum", positive_moments<kernels::CenteredRmspropMomentumRule, kRmsprop>},
    {"nadam", positive_moments<kernels::NadamRule, kNadam>},
    {"radam", positive_moments<kernels::RadamRule, kRadam>},
    {"radam before it is rectified", positive_moments<kernels::RadamRule, kEarlyRadam>},
    {"adamax", positive_moments<kernels::AdamaxRule, kAdamax>},
    {"adadelta", positive_moments<kernels::AdadeltaRule, kAdadelta>},
    {"rprop", positive_moments<kernels::RpropRule, kRprop>},
    {"asgd", positive_moments<kernels::AsgdRule, kAsgd>},
    {"asgd before it averages", positive_moments<kernels::AsgdRule, kEarlyAsgd>},
    {"lamb", [](const host::Range& r, InstructionSet set) { host::update_lamb(r, kLamb, 1.3F, set); }},
};

std::vector<InstructionSet> supported_sets() {
  std::vector<InstructionSet> sets;
  for (const auto set : {InstructionSet::kBaseline, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (host::is_supported(set)) sets.push_back(set);
  }
  return sets;
}

constexpr size_t kCounts[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 255, 256, 257, 1023, 4099};

// What LibTorch rounds the master to.
std::vector<uint16_t> rounded(const std::vector<float>& master, ElementType type) {
  std::vector<uint16_t> bits;
  for (const float p : master) bits.push_back(type == ElementType::kBFloat16 ? c10::BFloat16(p).x : c10::Half(p).x);
  return bits;
}

}  // namespace

TEST_CASE("every instruction set gives the same bits", "[runtime][host_update]") {
  for (const size_t count : kCounts) {
    const State before(count);
    for (const auto& [name, update] : kUpdates) {
      for (const auto& types : kTypes) {
        State expected = before;
        update(range_of(expected, 0, count, types), InstructionSet::kBaseline);
        for (const auto set : supported_sets()) {
          INFO(name << ", count " << count << ", set " << static_cast<int>(set) << ", gradient "
                    << static_cast<int>(types.gradient));
          State state = before;
          update(range_of(state, 0, count, types), set);
          CHECK(state == expected);
        }
      }
    }
  }
}

TEST_CASE("a gradient in half precision gives the bits of the same gradient in fp32", "[runtime][host_update]") {
  constexpr size_t kCount = 777;
  for (const auto& [name, update] : kUpdates) {
    for (const auto type : {ElementType::kBFloat16, ElementType::kFloat16}) {
      INFO(name << ", gradient " << static_cast<int>(type));
      State state(kCount), expected(kCount);
      for (size_t i = 0; i < kCount; ++i) {
        expected.gradient[i] = type == ElementType::kBFloat16
                                   ? static_cast<float>(c10::BFloat16(expected.bfloat16[i], c10::BFloat16::from_bits()))
                                   : static_cast<float>(c10::Half(expected.float16[i], c10::Half::from_bits()));
      }
      update(range_of(state, 0, kCount, {type, true}), host::best_instruction_set());
      update(range_of(expected, 0, kCount, {ElementType::kFloat32, true}), host::best_instruction_set());
      expected.gradient = state.gradient;
      CHECK(state == expected);
    }
  }
}

TEST_CASE("the low-precision copy is the new master as LibTorch rounds it", "[runtime][host_update]") {
  constexpr size_t kCount = 1337;
  for (const auto& [name, update] : kUpdates) {
    for (const auto type : {ElementType::kBFloat16, ElementType::kFloat16}) {
      INFO(name << ", copy " << static_cast<int>(type));
      State state(kCount);
      update(range_of(state, 0, kCount, {ElementType::kFloat32, true, type}), host::best_instruction_set());
      CHECK(state.low == rounded(state.master, type));
    }
  }
}

TEST_CASE("a range may begin and end anywhere, and nothing outside it is written", "[runtime][host_update]") {
  constexpr size_t kCount = 700;
  const auto& update = kUpdates.front().second;
  const State before(kCount);
  for (const auto set : supported_sets()) {
    for (size_t begin = 0; begin < 40; ++begin) {  // each place within a cache line
      for (const size_t end : {begin + 1, begin + 256, begin + 300, kCount - 3 * begin}) {
        INFO("set " << static_cast<int>(set) << ", elements " << begin << " to " << end);
        State state = before, expected = before;
        update(range_of(expected, 0, kCount, {ElementType::kBFloat16, true}), set);
        update(range_of(state, begin, end, {ElementType::kBFloat16, true}), set);
        const auto outside_of = [&](auto& updated, const auto& old) {
          std::copy_n(old.begin(), begin, updated.begin());
          std::copy(old.begin() + static_cast<int64_t>(end), old.end(), updated.begin() + static_cast<int64_t>(end));
        };
        outside_of(expected.master, before.master);
        outside_of(expected.first, before.first);
        outside_of(expected.second, before.second);
        outside_of(expected.low, before.low);
        CHECK(state == expected);
      }
    }
  }
}

TEST_CASE("ranges cut at random and shared by threads give the same bits", "[runtime][host_update]") {
  constexpr size_t kCount = State::kLongest;
  std::mt19937 engine(6);
  dslaunch::runtime::ThreadTeam team(3);
  const State before(kCount);
  for (const auto& [name, update] : kUpdates) {
    for (const auto set : supported_sets()) {
      INFO(name << ", set " << static_cast<int>(set));
      const Types types{ElementType::kBFloat16, true};
      State whole = before, state = before;
      update(range_of(whole, 0, kCount, types), set);
      std::vector<size_t> cuts = {0, kCount};
      for (int i = 0; i < 30; ++i) cuts.push_back(engine() % kCount);
      std::sort(cuts.begin(), cuts.end());
      team.run(static_cast<int64_t>(cuts.size()) - 1, 1, [&, run = update](int64_t begin, int64_t end) {
        for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
          run(range_of(state, cuts[i], cuts[i + 1], types), set);
        }
      });
      CHECK(state == whole);
    }
  }
}

TEST_CASE("Lamb's moments and sums have the same bits with every instruction set", "[runtime][host_update]") {
  for (const size_t count : kCounts) {
    State expected(count);
    const auto sums =
        host::update_lamb_moments(range_of(expected, 0, count, Types{}), kLamb, 0.37F, InstructionSet::kBaseline);
    for (const auto set : supported_sets()) {
      State state(count);
      const auto got = host::update_lamb_moments(range_of(state, 0, count, Types{}), kLamb, 0.37F, set);
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
