// Which steps are captured and replayed, and that ranks agree on it; graphs are replaced by objects that run the
// captured work again.
#include "runtime/engine/step/captured_pass.hpp"

#include <ATen/ATen.h>
#include <torch/torch.h>

#include <catch2/catch.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/captured_output.hpp"
#include "support/mesh_threads.hpp"
#include "support/one_weight.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::engine::setup;
using namespace dslaunch::runtime::engine::step;

namespace {

// What a rank did, step by step: L launched, C captured (and replayed), R replayed.
class FakeGraph final : public DeviceGraph {
 public:
  FakeGraph(std::string& log, bool fails) : log_(log), fails_(fails) {}
  void capture(const std::function<void()>& work) override {
    work_ = work;
    work();
    if (fails_) throw std::runtime_error("operation not permitted when stream is capturing");
    log_ += 'C';
  }
  void replay() override {
    if (log_.back() != 'C') log_ += 'R';
    work_();
    log_ += '.';
  }

 private:
  std::string& log_;
  const bool fails_;
  std::function<void()> work_;
};

// A model of one weight of two elements: the loss is the sum of weight * input over the rows of the input, so the
// gradient is the sum of the rows.
class Rank {
 public:
  struct Options {
    bool shapes_vary = false, measures = false;
    Result<> capturable;
    std::function<bool()> capture_fails = [] { return false; };
  };

  Rank(comm::Communicator& world, Options options)
      : parameters_(table_, test::replicated(), streams_, world, world),
        loss_scaling_({}, at::kCPU),
        pass_(
            {.actions = pipeline::plan_schedule(pipeline::ScheduleKind::k1F1B, 1, 0, 1)},
            [this](const MicroBatch& batch, const model::CarriedValues&) {
              return StageResult{loss_of(batch), {}};
            },
            parameters_, loss_scaling_, phases_) {
    parameters_.load([](int, int64_t, at::Tensor out) { out.fill_(1); });
    if (options.measures) phases_.add(clock_);
    CapturedPass::Options captured{.shapes_vary = options.shapes_vary};
    if (options.measures) captured.clock = &clock_;
    captured.capturable = options.capturable;
    captured.make_graph = [this, fails = options.capture_fails](at::Device, const DeviceGraph*) {
      return std::make_unique<FakeGraph>(log_, fails());
    };
    captured_.emplace(pass_, parameters_, streams_, world, std::move(captured));
    if (!options.measures && !captured_->check_ranks()) captured_.reset();
  }

  // A step with that many rows of these values; the gradient.
  at::Tensor step(int64_t rows, float value) {
    pass_.begin();
    const size_t before = log_.size();
    const auto fetch = [&] {
      return pass_.fetch([&] { return MicroBatch{{at::full({rows, 2}, value)}, {at::zeros({1})}, 1, 1}; });
    };
    captured_ ? captured_->compute(fetch, ++num_steps_) : pass_.compute(fetch);
    if (log_.size() == before) log_ += "L.";
    const at::Tensor gradient = parameters_.state()[0].arrays.gradient.narrow(0, 0, 2).clone();
    parameters_.release_gradients();
    return gradient;
  }
  const std::string& log() const { return log_; }

 private:
  at::Tensor loss_of(const MicroBatch& batch) {
    const at::Tensor weight = parameters_.acquire(0, UnitCall::kTraining).parameters[0].detach().requires_grad_();
    weight.register_hook([this](const at::Tensor& gradient) { parameters_.take_gradients(0, {gradient}); });
    at::Tensor loss = (weight * batch.inputs[0]).sum();
    parameters_.release(0);
    return loss;
  }

  ParameterTable table_ = test::one_weight();
  StepStreams streams_{at::kCPU, false};
  FlatParameters parameters_;
  precision::LossScaling loss_scaling_;
  StepPhases phases_;
  IssueClock clock_{at::kCPU};
  GradientPass pass_;
  std::string log_;
  int64_t num_steps_ = 0;
  std::optional<CapturedPass> captured_;
};

struct Step {
  int64_t rows;
  float value;
};

// Runs the steps of each rank; checks gradients, which are sums over ranks; returns the ranks' logs.
std::vector<std::string> run(const std::vector<std::vector<Step>>& steps, const std::vector<Rank::Options>& options) {
  std::vector<std::string> logs(steps.size());
  std::vector<std::vector<float>> wrong(steps.size());
  test::run_mesh({.data = static_cast<int>(steps.size())}, [&](const comm::Groups& groups) {
    const auto own = static_cast<size_t>(groups.world.rank());
    Rank rank(groups.world, options[own]);
    for (size_t i = 0; i < steps[own].size(); ++i) {
      float expected = 0;
      for (const auto& of_rank : steps) expected += static_cast<float>(of_rank[i].rows) * of_rank[i].value;
      const float got = rank.step(steps[own][i].rows, steps[own][i].value)[0].item<float>();
      if (got != expected) wrong[own].insert(wrong[own].end(), {static_cast<float>(i), got, expected});
    }
    logs[own] = rank.log();
  });
  for (const auto& of_rank : wrong) CHECK(of_rank.empty());
  return logs;
}

std::vector<Step> same_shape(size_t number) {
  std::vector<Step> out;
  for (size_t i = 0; i < number; ++i) out.push_back({2, static_cast<float>(i)});
  return out;
}

}  // namespace

TEST_CASE("the fourth step is captured, later ones are replayed", "[engine][captured_pass]") {
  CHECK((run({same_shape(6)}, {{}}) == std::vector<std::string>{"L.L.L.C.R.R."}));
  CHECK((run({same_shape(5), same_shape(5)}, {{}, {}}) == std::vector<std::string>(2, "L.L.L.C.R.")));
}

TEST_CASE("where steps are measured, three more are launched before", "[engine][captured_pass]") {
  const Rank::Options measured{.measures = true};
  test::CapturedOutput errors(2);
  CHECK((run({same_shape(8), same_shape(8)}, {measured, measured}) == std::vector<std::string>(2, "L.L.L.L.L.L.C.R.")));
  CHECK(errors.text().find("steps are captured as a CUDA graph") != std::string::npos);
}

TEST_CASE("an obstacle on one rank disables capture on all, with one line", "[engine][captured_pass]") {
  const bool measures = GENERATE(false, true);
  const Rank::Options plain{.measures = measures};
  Rank::Options hindered = plain;
  hindered.capturable = Failure{"the model prints"};
  test::CapturedOutput errors(2);
  CHECK((run({same_shape(8), same_shape(8)}, {plain, hindered}) == std::vector<std::string>(2, "L.L.L.L.L.L.L.L.")));
  const std::string text = errors.text(), expected = measures ? "cannot be captured as a CUDA graph: the model prints\n"
                                                              : "graph_harvesting has no effect: the model prints\n";
  CHECK(text.find(expected) != std::string::npos);
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("a capture that fails on one rank is launched on all, now and later", "[engine][captured_pass]") {
  Rank::Options failing;
  failing.capture_fails = [] { return true; };
  test::CapturedOutput errors(2);
  const auto logs = run({same_shape(6), same_shape(6)}, {{}, failing});
  CHECK(logs[0] == "L.L.L.CL.L.");  // a capture that failed
  CHECK(logs[1] == "L.L.L.L.L.L.");
  CHECK(errors.text().find("has no effect: operation not permitted") != std::string::npos);
}

TEST_CASE("each set of shapes has its graph", "[engine][captured_pass]") {
  std::vector<Step> steps = same_shape(3);
  for (const int64_t rows : {3, 5, 3, 5, 5, 3, 4}) steps.push_back({rows, static_cast<float>(rows)});
  const Rank::Options varying{.shapes_vary = true};
  CHECK(run({steps}, {varying})[0] == "L.L.L.L.L.C.C.R.R.L.");
}

TEST_CASE("ranks with shapes of their own replay graphs that were captured together", "[engine][captured_pass]") {
  std::vector<Step> first = same_shape(3), second = same_shape(3);
  for (const auto& [one, other] :
       std::vector<std::pair<int64_t, int64_t>>{{3, 5}, {3, 6}, {3, 5}, {3, 6}, {3, 5}, {4, 5}}) {
    first.push_back({one, 1});
    second.push_back({other, 2});
  }
  const Rank::Options varying{.shapes_vary = true};
  CHECK((run({first, second}, {varying, varying}) == std::vector<std::string>(2, "L.L.L.L.L.C.C.R.L.")));
}

TEST_CASE("shapes that cannot be captured leave the graphs of others in use", "[engine][captured_pass]") {
  std::vector<Step> steps = same_shape(5);
  for (const int64_t rows : {3, 3, 2, 3, 2}) steps.push_back({rows, 7});
  Rank::Options options;
  options.capture_fails = [number = 0]() mutable { return ++number == 2; };
  test::CapturedOutput errors(2);
  CHECK(run({steps}, {options})[0] == "L.L.L.C.R.L.L.R.L.R.");
  CHECK(errors.text().find("steps of further shapes are not captured") != std::string::npos);
}

TEST_CASE("shapes that change although they must not end the run instead of a hang", "[engine][captured_pass]") {
  std::vector<Step> steps = same_shape(5);
  steps.push_back({3, 1});
  CHECK_THROWS_WITH(run({steps, steps}, {{}, {}}), Catch::Contains("the same shapes"));
}
