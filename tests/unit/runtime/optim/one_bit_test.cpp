// The optimizers that exchange one bit for each element: the exchange against its definition, 50 steps on two and three
// ranks against numbers of DeepSpeed's own classes (tests/data/optimizers/one_bit.json, made by
// tests/oracle/one_bit_numbers.py), and what the numbers do not show.
#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <memory>

#include "base/error.hpp"
#include "runtime/optim/one_bit_all_reduce.hpp"
#include "support/one_bit_mean.hpp"
#include "unit/runtime/optim/one_bit_replica.hpp"

namespace {

using namespace dslaunch;
using namespace dslaunch::runtime;
using nlohmann::json;
using test::Exact;
using test::NumberedModel;

// Counts what a rank sends in collectives.
class CountingCommunicator : public test::ThreadCommunicator {
 public:
  using ThreadCommunicator::ThreadCommunicator;
  void all_to_all(comm::ConstBuffer in, comm::Buffer out) override {
    bytes += in.count * comm::size_of(in.dtype);
    ThreadCommunicator::all_to_all(in, out);
  }
  void all_gather(comm::ConstBuffer in, comm::Buffer out) override {
    bytes += out.count * comm::size_of(out.dtype);
    ThreadCommunicator::all_gather(in, out);
  }
  size_t bytes = 0;
};

double value_of(int rank, int call, size_t i) {
  return std::sin(static_cast<double>(rank * 31 + call * 7) + static_cast<double>(i) * 1.37) * (i % 5 == 0 ? 0.0 : 1.0);
}

}  // namespace

TEST_CASE("the mean of one-bit values is that of its definition, call after call", "[runtime][one_bit]") {
  struct Case {
    int ranks;
    std::vector<int64_t> numels;
    std::vector<size_t> padded;  // to chunks of whole bytes
  };
  for (const Case& c : {Case{2, {100, 1, 48}, {112, 16, 48}}, Case{3, {100, 72}, {144, 72}}}) {
    std::vector<test::OneBitMean> expected;
    for (const size_t padded : c.padded) expected.emplace_back(static_cast<size_t>(c.ranks), padded);
    std::map<int, std::vector<Exact>> want;  // by call: of each tensor
    constexpr int kCalls = 5;
    const auto values = [&](int rank, int call, size_t tensor) {
      Exact out;
      for (int64_t i = 0; i < c.numels[tensor]; ++i) {
        out.push_back(static_cast<float>(value_of(rank, call, static_cast<size_t>(i) + 1000 * tensor)));
      }
      return out;
    };
    for (int call = 0; call < kCalls; ++call) {
      for (size_t t = 0; t < c.numels.size(); ++t) {
        std::vector<Exact> of_ranks;
        for (int rank = 0; rank < c.ranks; ++rank) of_ranks.push_back(values(rank, call, t));
        want[call].push_back(expected[t].mean(of_ranks));
      }
    }
    test::on_ranks<CountingCommunicator>(c.ranks, [&](CountingCommunicator& communicator) {
      optim::OneBitAllReduce exchange(c.numels, &communicator, at::kCPU);
      for (int call = 0; call < kCalls; ++call) {
        Exact all, exact;
        for (size_t t = 0; t < c.numels.size(); ++t) {
          const Exact own = values(communicator.rank(), call, t);
          all.insert(all.end(), own.begin(), own.end());
          exact.insert(exact.end(), want[call][t].begin(), want[call][t].end());
        }
        const at::Tensor sent = at::tensor(all, at::kFloat);
        if (call == 2) {  // a skipped call leaves no trace
          exchange.mean(sent * 3, at::scalar_tensor(1.0F));
          communicator.bytes = 0;
        }
        const at::Tensor got = exchange.mean(sent, call == 3 ? at::scalar_tensor(0.0F) : at::Tensor());
        const bool is_close = at::allclose(got.to(at::kDouble), at::tensor(exact, at::kDouble), 1e-5, 1e-6);
        if (!is_close) FAIL_CHECK("rank " << communicator.rank() << " of " << c.ranks << ", call " << call);
      }
      // A bit for each element and a scale for each tensor and chunk, in two rounds.
      size_t per_call = c.numels.size() * sizeof(float) * static_cast<size_t>(c.ranks);
      for (const size_t padded : c.padded) per_call += padded / 8;
      if (communicator.bytes != 3 * 2 * per_call) FAIL_CHECK("sent " << communicator.bytes << " bytes");
    });
  }
}

// In fp32 a step rounds a weight and its moments a few times; the rounded way of a sum over n steps is as in the
// trajectories of the other optimizers.
TEST_CASE("50 steps of the 1-bit optimizers end where DeepSpeed's do", "[runtime][one_bit]") {
  const json file = test::one_bit_numbers();
  const NumberedModel model = test::make_numbered_model(file["parameters"]);
  for (const auto& entry : file["cases"]) {
    const test::OneBitJob job(model, entry["config"]);
    const int num_ranks = entry["ranks"];
    test::on_ranks<test::ThreadCommunicator>(num_ranks, [&](comm::Communicator& communicator) {
      test::OneBitReplica replica(job, communicator);
      for (int64_t step = 1; step <= 50; ++step) {
        replica.step(step);
        const auto found = entry["values"].find(std::to_string(step));
        if (found == entry["values"].end() || communicator.rank() != num_ranks - 1) continue;
        const auto expected = at::tensor(found->get<std::vector<double>>(), at::kDouble);
        const double difference = test::worst_difference(model, replica.masters(), expected);
        if (difference > 16.0 * std::sqrt(static_cast<double>(step)) * std::pow(2.0, -24)) {
          FAIL_CHECK(entry["config"].dump() << " on " << num_ranks << " ranks, step " << step << ": " << difference);
        }
      }
    });
  }
}

TEST_CASE("0/1 Adam averages gradients at the steps that its counters give", "[runtime][one_bit]") {
  const NumberedModel model = test::make_numbered_model(test::one_bit_numbers()["parameters"]);
  for (const auto& [freeze, scaler] : std::vector<std::pair<int64_t, int64_t>>{{300, 16}, {40, 1}, {500, 3}}) {
    const test::OneBitJob job(
        model, {{"optimizer",
                 {{"type", "ZeroOneAdam"}, {"params", {{"var_freeze_step", freeze}, {"var_update_scaler", scaler}}}}}});
    const auto optimizer = optim::make_flat_optimizer(job.groups, {&model.table, &job.layout});
    int64_t interval = 1, counter = 0;  // as DeepSpeed counts
    for (int64_t step = 1; step <= 600; ++step) {
      const bool expected = step <= freeze && step % interval == 0;
      INFO("step " << step << ", scaler " << scaler);
      REQUIRE(optimizer->averages_gradients(step) == expected);
      if (expected && ++counter == scaler) {
        counter = 0;
        interval *= 2;
      }
    }
  }
}

TEST_CASE("a skipped step of a 1-bit optimizer writes nothing, in any of its phases", "[runtime][one_bit]") {
  const json file = test::one_bit_numbers();
  const NumberedModel model = test::make_numbered_model(file["parameters"]);
  for (const auto& entry : file["cases"]) {
    if (entry["ranks"] != 2) continue;
    const test::OneBitJob job(model, entry["config"]);
    std::vector<at::Tensor> plain(2), skipping(2);
    const auto run = [&](std::vector<at::Tensor>& out, bool skips) {
      test::on_ranks<test::ThreadCommunicator>(2, [&](comm::Communicator& communicator) {
        test::OneBitReplica replica(job, communicator);
        for (int64_t step = 1; step <= 32; ++step) {
          if (skips && step % 3 == 0) {
            replica.each([](const StateArrays& arrays) { return arrays.gradient; }, [](int64_t) { return INFINITY; });
            optim::StepInputs inputs = replica.inputs(step);
            inputs.skip = at::scalar_tensor(1.0F);
            replica.optimizer->step(replica.runs, inputs);
          }
          replica.step(step);
        }
        out[static_cast<size_t>(communicator.rank())] = replica.masters();
      });
    };
    run(plain, false);
    run(skipping, true);
    INFO(entry["config"].dump());
    for (size_t rank = 0; rank < 2; ++rank) CHECK(at::equal(plain[rank], skipping[rank]));
  }
}

TEST_CASE("what 1-bit Lamb keeps of its warm-up is saved", "[runtime][one_bit]") {
  const NumberedModel model = test::make_numbered_model(test::one_bit_numbers()["parameters"]);
  const test::OneBitJob job(model, {{"optimizer", {{"type", "OneBitLamb"}, {"params", {{"freeze_step", 4}}}}}});
  for (const int64_t saved_after : {3, 4, 6})
    test::on_ranks<test::ThreadCommunicator>(1, [&](comm::Communicator& communicator) {
      test::OneBitReplica whole(job, communicator), resumed(job, communicator);
      for (int64_t step = 1; step <= saved_after; ++step) whole.step(step);
      const auto saved = whole.optimizer->own_state();
      resumed.optimizer->restore_own_state([&](int parameter, const std::string& name, int64_t, const at::Tensor& out) {
        for (const auto& own : saved) {
          if (own.parameter == parameter && own.name == name) out.copy_(own.values);
        }
        return true;
      });
      for (size_t i = 0; i < whole.runs.size(); ++i) {
        resumed.runs[i].arrays.master.copy_(whole.runs[i].arrays.master);
        for (size_t m = 0; m < 3; ++m) resumed.runs[i].arrays.moments[m].copy_(whole.runs[i].arrays.moments[m]);
      }
      for (auto* each : {&whole, &resumed}) {
        for (int64_t step = saved_after + 1; step <= 8; ++step) each->step(step);
      }
      CHECK(at::equal(whole.masters(), resumed.masters()));
    });
}

TEST_CASE("a parameter that is trained from later on is refused by 1-bit optimizers", "[runtime][one_bit]") {
  const NumberedModel model = test::make_numbered_model(test::one_bit_numbers()["parameters"]);
  const test::OneBitJob job(model, {{"optimizer", {{"type", "OneBitAdam"}}}});
  test::on_ranks<test::ThreadCommunicator>(1, [&](comm::Communicator& communicator) {
    test::OneBitReplica replica(job, communicator);
    std::vector<int64_t> starts(model.table.parameters.size());
    starts[3] = 5;
    replica.set_gradients(6);
    optim::StepInputs inputs = replica.inputs(6);
    inputs.moment_starts = std::make_shared<optim::MomentStarts>(starts);
    CHECK_THROWS_WITH(replica.optimizer->step(replica.runs, inputs),
                      Catch::Matchers::Contains("cannot begin to train 'blocks.0.fc.weight' after 5 steps"));
  });
}
