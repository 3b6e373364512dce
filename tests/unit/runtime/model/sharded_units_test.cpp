// Models under stage 3 on ranks that are threads: each rank holds its slices, units are whole only while they run, in
// as few slots as there may be. The same training as by plain LibTorch with the gradients of all ranks.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <thread>

#include "runtime/sharding/flat_parameters.hpp"
#include "script_fixtures.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using torch::jit::Module;

namespace {

constexpr int kSteps = 3;
constexpr double kRate = 0.05;

struct Setup {
  int ranks = 2;
  int64_t prefetch_numel = 0;
  int64_t max_live_numel = 1;  // one slot
  bool recompute = false;
};

// Of rank and step; the sum's sign differs between ranks.
at::Tensor rows(int rank, int step) {
  return at::linspace(-1, 1, 12).view({3, 4}) * (1 + step) + (rank % 2 == 0 ? 0.5 : -0.5);
}

struct Outcome {
  std::mutex mutex;
  std::vector<std::vector<double>> losses;       // by step, by rank
  std::vector<double> evaluations;               // by rank, after the last step
  std::map<std::string, at::Tensor> parameters;  // after the last step
};

// A rank that failed would leave the others waiting.
void be_rank_or_abort(int rank, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    std::cerr << "rank " << rank << ": " << error.what() << std::endl;
    std::abort();
  }
}

void run_rank(const std::string& path, const Setup& setup, comm::Communicator& group, Outcome& outcome) {
  auto model = model::torchscript::load_script_model(path, {"Block"});
  const auto& table = model->facts.table;
  if (setup.recompute) model->runnable->set_recomputation({});
  model->to_device(
      at::kCPU, [](const std::string&, at::ScalarType own) { return own; },
      std::vector<bool>(table.parameters.size(), true));
  ShardingOptions options;
  options.stage = 3;
  options.compute_dtypes.assign(table.parameters.size(), at::kFloat);
  options.persistence_threshold = 0;
  options.prefetch_numel = setup.prefetch_numel;
  options.max_live_numel = setup.max_live_numel;
  StepStreams streams(at::kCPU, false);
  FlatParameters parameters(table, options, streams, group, group);
  parameters.load([&](int parameter, int64_t begin, at::Tensor out) {
    out.copy_(model->initial.value(parameter).reshape({-1}).narrow(0, begin, out.numel()));
  });
  model->runnable->set_unit_parameters(&parameters);
  const auto rank = static_cast<size_t>(group.rank());
  for (int step = 0; step < kSteps; ++step) {
    parameters.begin_accumulation_step(/*is_last=*/true);
    const auto loss = model->runnable->forward({rows(group.rank(), step)}).first;
    loss.backward();
    parameters.end_accumulation_step();
    parameters.reduce_gradients();
    {
      const std::lock_guard lock(outcome.mutex);
      outcome.losses[static_cast<size_t>(step)][rank] = loss.item<double>();
    }
    for (auto& [span, arrays] : parameters.state()) arrays.master.sub_(arrays.gradient * kRate);
    parameters.release_gradients();
    parameters.gather_parameters();
  }
  for (auto& [span, arrays] : parameters.state()) {
    for (const auto& piece : pieces_in(parameters.groups()[span.flat_group], span.range)) {
      const auto& info = table.parameters[piece.parameter];
      const std::lock_guard lock(outcome.mutex);
      auto& whole = outcome.parameters[info.name];
      if (!whole.defined()) whole = at::full({info.numel}, NAN);
      whole.narrow(0, piece.begin, piece.count).copy_(arrays.master.narrow(0, piece.offset, piece.count));
    }
  }
  const at::NoGradGuard no_grad;
  const auto evaluation = model->runnable->forward({rows(group.rank(), 0)}).first.item<double>();
  const std::lock_guard lock(outcome.mutex);
  outcome.evaluations[rank] = evaluation;
}

// The same training on the same file by LibTorch alone.
void check_against_plain(const std::string& path, const Setup& setup, const Outcome& outcome) {
  torch::jit::GraphOptimizerEnabledGuard off(false);
  auto plain = torch::jit::load(path);
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& p : plain.named_parameters()) p.value.mutable_grad().reset();
    for (int rank = 0; rank < setup.ranks; ++rank) {
      const auto loss = plain.forward({rows(rank, step)}).toTensor();
      CHECK(outcome.losses[static_cast<size_t>(step)][static_cast<size_t>(rank)] ==
            Approx(loss.item<double>()).epsilon(1e-5));
      loss.backward();
    }
    const at::NoGradGuard no_grad;
    for (const auto& p : plain.named_parameters()) {
      if (p.value.grad().defined()) at::Tensor(p.value).sub_(p.value.grad() * kRate);
    }
  }
  const at::NoGradGuard no_grad;
  for (int rank = 0; rank < setup.ranks; ++rank) {
    CHECK(outcome.evaluations[static_cast<size_t>(rank)] ==
          Approx(plain.forward({rows(rank, 0)}).toTensor().item<double>()).epsilon(1e-5));
  }
  size_t compared = 0;
  for (const auto& p : plain.named_parameters()) {
    if (!p.value.requires_grad()) continue;
    INFO(p.name);
    CHECK(at::allclose(outcome.parameters.at(p.name), p.value.reshape({-1}), 1e-5, 1e-6));
    compared += 1;
  }
  CHECK(compared == outcome.parameters.size());
}

void check_training(const Module& net, const Setup& setup) {
  CAPTURE(setup.ranks, setup.prefetch_numel, setup.max_live_numel, setup.recompute);
  test::TempDir folder;
  net.save(folder / "net.pt");
  Outcome outcome;
  outcome.losses.assign(kSteps, std::vector<double>(static_cast<size_t>(setup.ranks)));
  outcome.evaluations.resize(static_cast<size_t>(setup.ranks));
  const auto world = std::make_shared<test::ThreadGroup>(setup.ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < setup.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      be_rank_or_abort(rank, [&] {
        test::ThreadCommunicator group(world, rank);
        run_rank(folder / "net.pt", setup, group, outcome);
      });
    });
  }
  for (auto& thread : threads) thread.join();
  check_against_plain(folder / "net.pt", setup, outcome);
}

void check_training_in_all_ways(const Module& net) {
  for (const bool recompute : {false, true}) {
    check_training(net, {.ranks = 2, .recompute = recompute});
    check_training(net, {.ranks = 3, .prefetch_numel = 1000, .max_live_numel = 1'000'000, .recompute = recompute});
  }
}

}  // namespace

TEST_CASE("units in turn, one of them twice, train as without sharding", "[runtime][model][sharded_units]") {
  check_training_in_all_ways(
      test::make_net(R"(
def forward(self, x):
    x = self.one.forward(x * self.scale)
    x = self.two.forward(x)
    x = self.one.forward(x)
    return (self.three.forward(x) * self.scale).mean()
)",
                     {{"one", test::make_layer()}, {"two", test::make_layer()}, {"three", test::make_layer()}}));
}

TEST_CASE("frozen units between trained ones train as without sharding", "[runtime][model][sharded_units]") {
  check_training_in_all_ways(test::make_net(R"(
def forward(self, x):
    x = self.one.forward(self.two.forward(x) * self.scale)
    return self.three.forward(self.two.forward(x)).mean()
)",
                                            {{"one", test::make_layer()},
                                             {"two", test::make_layer(test::kTanhLayer, "Block", /*trains=*/false)},
                                             {"three", test::make_layer()}}));
}

TEST_CASE("ranks that take different branches train as without sharding", "[runtime][model][sharded_units]") {
  check_training_in_all_ways(
      test::make_net(R"(
def forward(self, x):
    x = x * 1
    y = self.one.forward(x) * self.scale
    if bool(x.sum() > 0):
        y = self.two.forward(y)
    return self.three.forward(y).mean()
)",
                     {{"one", test::make_layer()}, {"two", test::make_layer()}, {"three", test::make_layer()}}));
}

TEST_CASE("a parameter that the root shares with a unit trains as without sharding",
          "[runtime][model][sharded_units]") {
  check_training_in_all_ways(test::make_net(R"(
def forward(self, x):
    x = self.one.forward(x)
    x = self.two.forward(x) * self.scale
    return torch.matmul(x, self.one.weight.t()).square().mean()
)",
                                            {{"one", test::make_layer()}, {"two", test::make_layer()}}));
}
