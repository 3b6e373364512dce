#include "runtime/model/recomputation/input_store.hpp"

#include <ATen/ATen.h>

#include <catch2/catch.hpp>
#include <vector>

#include "support/mesh_threads.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using namespace dslaunch::runtime::model;
using namespace dslaunch::runtime::model::recomputation;

TEST_CASE("a kept tensor tells when it was changed in place", "[runtime][input_store]") {
  auto store = std::make_shared<InputStore>(false, false);
  at::Tensor tensor = at::ones({3});
  auto kept = store->save(tensor, true);
  CHECK(kept->is_intact());
  CHECK(kept->get().is_alias_of(tensor));
  tensor.add_(1);
  CHECK_FALSE(kept->is_intact());
}

TEST_CASE("the buffer is sized by the first pass and holds the next ones", "[runtime][input_store]") {
  auto store = std::make_shared<InputStore>(false, true);
  auto pass = [&](int64_t rows) {
    std::vector<at::Tensor> given{at::rand({rows, 3}), at::rand({5, rows}).t(), at::rand({rows}, at::kDouble)};
    std::vector<std::unique_ptr<InputStore::Stored>> kept;
    for (const auto& tensor : given) kept.push_back(store->save(tensor, true));
    bool all_copied = true;
    for (size_t i = 0; i < given.size(); ++i) {
      CHECK(at::equal(kept[i]->get(), given[i]));
      CHECK(kept[i]->get().strides() == given[i].strides());
      all_copied = all_copied && !kept[i]->get().is_alias_of(given[i]);
    }
    return all_copied;
  };
  CHECK_FALSE(pass(40));
  CHECK(store->buffer_bytes() == 0);
  CHECK(pass(40));
  CHECK(store->buffer_bytes() == 512 + 1024 + 512);
  CHECK(pass(10));
  CHECK_FALSE(pass(80));  // too small: what does not fit is kept as it is
  CHECK(pass(80));
  CHECK(store->buffer_bytes() == 1024 + 1792 + 768);
}

TEST_CASE("tensor ranks keep a part of each input and gather it", "[runtime][input_store]") {
  constexpr int kRanks = 3;
  const bool in_one_buffer = GENERATE(false, true);
  at::manual_seed(3);
  const std::vector<at::Tensor> given{at::rand({4, 5}), at::rand({5, 3}).t(), at::rand({2}, at::kDouble), at::rand({})};
  std::vector<std::vector<at::Tensor>> found(kRanks);
  test::run_mesh({1, 1, kRanks}, [&](const comm::Groups& groups) {
    const auto rank = static_cast<size_t>(groups.own.tensor);
    const auto stack = [&](const at::Tensor& own) {
      at::Tensor all = at::empty({kRanks, own.numel()}, own.options());
      groups.tensor->all_gather({own.data_ptr(), own.nbytes(), comm::DType::kUInt8},
                                {all.data_ptr(), all.nbytes(), comm::DType::kUInt8});
      return all;
    };
    auto store = std::make_shared<InputStore>(false, in_one_buffer, InputRanks{groups.own.tensor, kRanks, stack});
    for (int pass = 0; pass < 2; ++pass) {  // the second one with a buffer
      std::vector<std::unique_ptr<InputStore::Stored>> kept;
      for (const auto& tensor : given) {
        at::Tensor lost = tensor.clone();
        kept.push_back(store->save(lost, true));
        lost.zero_();
      }
      found[rank].clear();
      for (const auto& each : kept) found[rank].push_back(each->is_intact() ? each->get() : at::Tensor());
    }
  });
  for (const auto& of_rank : found) {
    for (size_t i = 0; i < given.size(); ++i) {
      REQUIRE(of_rank[i].defined());
      CHECK(at::equal(of_rank[i], given[i]));
      CHECK(of_rank[i].strides() == given[i].strides());
    }
  }
}

TEST_CASE("what is not an activation stays where it is", "[runtime][input_store]") {
  auto store = std::make_shared<InputStore>(true, true);
  at::Tensor mask = at::ones({100});
  CHECK(store->save(mask, false)->get().is_alias_of(mask));
  CHECK(store->save(mask, false)->get().is_alias_of(mask));
}

// A meta tensor stands for one on a device: all that must be missing for its copy is its data.
TEST_CASE("inputs go to ordinary memory where pinned memory is refused", "[runtime][input_store]") {
  const at::Tensor input = at::empty({4, 5}, at::TensorOptions().device(at::kMeta));
  for (const bool in_one_buffer : {false, true}) {
    auto store = std::make_shared<InputStore>(true, in_one_buffer);
    CHECK_THROWS_WITH(store->save(input, true), Catch::Contains("meta tensor"));  // the buffer learns its size
    CHECK_THROWS_WITH(store->save(input, true), Catch::Contains("meta tensor"));
  }
}
