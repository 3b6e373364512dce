// Checkpoints whose pieces are cut from slices of the parameters, as the ranks of a data × tensor mesh hold them.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <utility>

#include "rank_threads.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "runtime/checkpoint/checkpoint_survey.hpp"
#include "runtime/checkpoint/consolidate.hpp"
#include "runtime/checkpoint/shard_file.hpp"
#include "saved_example.hpp"
#include "support/checkout.hpp"
#include "support/expect_error.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"
#include "support/thread_communicator.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::example_values;
using test::expect_error;
using test::Hosts;
using test::TempDir;

namespace fs = std::filesystem;

namespace {

// Data × tensor ranks; the tensor axis is the fastest.
struct Mesh {
  int data = 1, tensor = 1;
  int size() const { return data * tensor; }
};

constexpr int64_t kStep = 30;

struct SlicedParameter {
  SavedTensor saved;
  std::optional<int64_t> dim;  // that the tensor axis cuts; empty: each of its ranks holds the whole parameter
};

const std::vector<SlicedParameter>& parameters() {
  static const std::vector<SlicedParameter> all{{{.name = "columns", .shape = {4, 6}}, 1},
                                                {{.name = "blocks.0/rows[0:1:2]@3", .shape = {6, 3}}, 0},
                                                {{.name = "middle", .shape = {2, 6, 3}}, 1},
                                                {{.name = "norm", .shape = {5}, .dtype = at::kBFloat16}, {}}};
  return all;
}

const std::vector<const char*> kStates{"master", "exp_avg"};

// The part of the parameter that the rank owns.
SliceRange share_of(const SlicedParameter& parameter, Mesh mesh, int rank) {
  const int data_rank = rank / mesh.tensor, tensor_rank = rank % mesh.tensor;
  SliceRange out;
  if (parameter.dim && mesh.tensor > 1) {
    const int64_t length = parameter.saved.shape[static_cast<size_t>(*parameter.dim)] / mesh.tensor;
    out.slice = Slice{*parameter.dim, tensor_rank * length, length};
  }
  const int64_t numel = SliceLayout(parameter.saved.shape, out.slice).numel();
  out.begin = numel * data_rank / mesh.data;
  out.end = numel * (data_rank + 1) / mesh.data;
  return out;
}

// Element i of a whole state is kStep * 1000 + i.
at::Tensor values_of(const SavedTensor& saved, const SliceRange& range) {
  at::Tensor positions = at::arange(saved.numel(), at::kFloat).reshape(saved.shape);
  if (range.slice) positions = positions.narrow(range.slice->dim, range.slice->start, range.slice->length);
  return positions.reshape({-1}).narrow(0, range.begin, range.numel()) + static_cast<double>(kStep * 1000);
}

// Master weights lie in memory, moments are read when they are written.
CheckpointPart part_of(Mesh mesh, int rank) {
  CheckpointPart part;
  for (const auto& parameter : parameters()) {
    part.metadata.parameters.push_back(parameter.saved);
    const SliceRange share = share_of(parameter, mesh, rank);
    const bool is_owner = share.slice || rank % mesh.tensor == 0;
    if (!is_owner || share.numel() == 0) continue;
    const auto read = [&saved = parameter.saved, share](int64_t begin, int64_t count) {
      return values_of(saved, share).narrow(0, begin, count);
    };
    part.pieces.push_back(
        {parameter.saved.name, "master", share.begin, values_of(parameter.saved, share), share.slice});
    part.pieces.push_back(
        {parameter.saved.name, "exp_avg", share.begin, {share.numel(), at::kFloat, read}, share.slice});
  }
  part.metadata.parameters.push_back(
      {.name = "count", .shape = {}, .dtype = at::kLong, .trainable = false, .is_buffer = true});
  if (rank == 0) part.pieces.push_back({"count", "buffer", 0, at::full({1}, kStep, at::kLong)});
  part.metadata.step = kStep;
  part.rng_state = "rng of rank " + std::to_string(rank);
  return part;
}

void save(const Hosts& hosts, Mesh mesh, const std::function<void(CheckpointPart&, int rank)>& change = {}) {
  test::MemoryStore store;
  std::vector<test::RankOutcome> outcomes(static_cast<size_t>(mesh.size()));
  test::on_all_ranks(mesh.size(), [&](int rank) {
    outcomes[static_cast<size_t>(rank)] = test::outcome_of([&] {
      CheckpointWriter writer(test::writer_options(hosts, rank, 2), store);
      auto part = part_of(mesh, rank);
      if (change) change(part, rank);
      writer.save(std::move(part));
      writer.finish();
    });
  });
  for (const auto& outcome : outcomes) {
    INFO(outcome.message);
    REQUIRE(outcome.code == 0);
  }
}

// Every rank of the mesh reads what it owns, as a run that resumes does.
void require_resumes(const Hosts& hosts, Mesh mesh) {
  test::MemoryStore store;
  auto group = std::make_shared<test::ThreadGroup>(mesh.size());
  std::vector<std::string> problems(static_cast<size_t>(mesh.size()));
  test::on_all_ranks(mesh.size(), [&](int rank) {
    std::string& problem = problems[static_cast<size_t>(rank)];
    test::ThreadCommunicator world(group, rank);
    std::map<std::pair<std::string, std::string>, at::Tensor> found;
    const auto outcome = test::outcome_of([&] {
      const RestoreOptions options{hosts.dir_of_rank(rank), "auto", hosts.placement(rank)};
      restore_checkpoint(options, store, world, [&](RestoreSource& source) {
        for (const auto& parameter : parameters()) {
          const auto& name = parameter.saved.name;
          const SliceRange share = share_of(parameter, mesh, rank);
          for (const char* state : kStates) {
            at::Tensor& values = found[{name, state}] = at::empty({share.numel()});
            source.read_into(name, state, share.begin, values, share.slice);
          }
        }
      });
    });
    problem = outcome.message;
    for (const auto& parameter : parameters()) {
      const auto expected = values_of(parameter.saved, share_of(parameter, mesh, rank));
      for (const char* state : kStates) {
        const auto& values = found[{parameter.saved.name, state}];
        if (!values.defined() || !values.equal(expected)) problem += " wrong values of " + parameter.saved.name;
      }
    }
  });
  for (const auto& problem : problems) CHECK(problem.empty());
}

}  // namespace

TEST_CASE("names of pieces tell their slices", "[runtime][checkpoint][slices]") {
  const auto whole = parse_piece_name("exp_avg@4096/blocks.0/weight");
  REQUIRE(whole);
  CHECK((whole->state == "exp_avg" && !whole->slice && whole->begin == 4096 && whole->parameter == "blocks.0/weight"));
  const auto sliced = parse_piece_name("master[1:20:10]@7/w[0:1:2]@3");
  REQUIRE(sliced);
  CHECK((sliced->state == "master" && sliced->slice == Slice{1, 20, 10} && sliced->begin == 7));
  CHECK(sliced->parameter == "w[0:1:2]@3");
  for (const char* bad :
       {"master", "master/w", "master@/w", "master@-1/w", "master@1x/w", "master/w@1", "master[]@0/w",
        "master[0:1]@0/w", "master[0:1:2:3]@0/w", "master[0:1:2@0/w", "master[0:1:2]x@0/w", "master[-1:1:2]@0/w",
        "master[0:-1:2]@0/w", "master[0: 1:2]@0/w", "master[0:1:99999999999999999999]@0/w"}) {
    INFO(bad);
    CHECK_FALSE(parse_piece_name(bad));
  }
}

TEST_CASE("what a mesh saved in slices is read whole and in any part", "[runtime][checkpoint][slices]") {
  TempDir dir;
  const Mesh mesh = GENERATE(Mesh{2, 2}, Mesh{1, 3}, Mesh{3, 2}, Mesh{1, 6});
  save(test::one_host(dir.path(), mesh.size()), mesh);
  REQUIRE(inspect_checkpoint(dir / "step_00000030").loadable.ok());
  CheckpointReader reader(dir.path());
  for (const auto& [saved, dim] : parameters()) {
    const int64_t numel = saved.numel();
    for (int64_t begin = 0; begin < numel; ++begin) {
      for (int64_t end = begin; end <= numel; ++end) {
        at::Tensor out = at::empty({end - begin});
        reader.read_into(saved.name, "exp_avg", begin, out);
        REQUIRE(out.equal(values_of(saved, {std::nullopt, begin, end})));
      }
    }
    at::Tensor low = at::empty(saved.shape, at::kBFloat16);
    reader.read_into(saved.name, "master", 0, low);
    CHECK(low.view({-1}).equal(values_of(saved, {std::nullopt, 0, numel}).to(at::kBFloat16)));
  }
}

TEST_CASE("a run on any mesh resumes from slices of any other", "[runtime][checkpoint][slices]") {
  TempDir dir;
  const Mesh saved = GENERATE(Mesh{2, 2}, Mesh{1, 3}, Mesh{4, 1});
  const Mesh resumed = GENERATE(Mesh{2, 2}, Mesh{1, 1}, Mesh{3, 1}, Mesh{2, 3}, Mesh{1, 6});
  save(test::one_host(dir.path(), saved.size()), saved);
  require_resumes(test::one_host(dir.path(), resumed.size()), resumed);
}

TEST_CASE("slices that lie on other hosts are sent", "[runtime][checkpoint][slices]") {
  TempDir a, b;
  save({{0, 0, 1, 1}, {a.path(), b.path()}}, {2, 2});
  require_resumes({{0, 0, 1, 1}, {a.path(), b.path()}}, {2, 2});
  require_resumes({{0, 0, 1, 1}, {a.path(), b.path()}}, {4, 1});
  require_resumes({{0, 0, 1, 1, 1, 1}, {a.path(), b.path()}}, {2, 3});
  require_resumes({{0, 1}, {b.path(), a.path()}}, {1, 2});
}

TEST_CASE("whole weights are written from slices", "[runtime][checkpoint][slices][consolidate]") {
  TempDir dir;
  save(test::one_host(dir / "c", 4), {2, 2}, [](CheckpointPart& part, int rank) {
    if (rank == 0) part.full_weights = FullWeights{};
  });
  consolidate({dir / "c", dir / "out.safetensors"});
  for (const std::string& path : {dir / "out.safetensors", dir / "c/step_00000030/weights.safetensors"}) {
    SafetensorsFile file(path);
    REQUIRE(file.entries().size() == parameters().size() + 1);
    for (const auto& [saved, dim] : parameters()) {
      const auto expected = values_of(saved, {std::nullopt, 0, saved.numel()}).to(saved.dtype);
      CHECK(file.tensor(*file.find(saved.name)).equal(expected.view(saved.shape)));
    }
  }
}

TEST_CASE("a slice that is missing is named by its elements", "[runtime][checkpoint][slices]") {
  TempDir dir;
  save(test::one_host(dir.path(), 4), {2, 2}, [](CheckpointPart& part, int rank) {
    if (rank == 1) std::erase_if(part.pieces, [](const auto& piece) { return piece.parameter == "columns"; });
  });
  CheckpointReader reader(dir.path());
  expect_error(ExitCode::kBadInput, {"no 'master' of parameter 'columns'", "for elements 3 to 5, 9 to 11"},
               [&] { reader.read_into("columns", "master", 0, at::empty({24})); });
  expect_error(ExitCode::kBadInput, {"no 'master' of slice [1:3:3] of parameter 'columns'", "for elements 0 to 5"},
               [&] {
                 reader.read_into("columns", "master", 0, at::empty({12}), Slice{1, 3, 3});
               });
  CHECK_NOTHROW(reader.read_into("columns", "master", 0, at::empty({12}), Slice{1, 0, 3}));
  CHECK_THROWS_WITH(consolidate({dir.path(), dir / "out.safetensors"}), Catch::Contains("parameter 'columns'"));
}

TEST_CASE("slices that overlap are damage, copies of a slice are not", "[runtime][checkpoint][slices]") {
  TempDir dir;
  const auto save_with = [&](const SliceRange& more) {
    save(test::one_host(dir.path(), 4), {2, 2}, [&](CheckpointPart& part, int rank) {
      const auto& saved = parameters()[0].saved;
      if (rank == 3) part.pieces.push_back({"columns", "master", more.begin, values_of(saved, more), more.slice});
    });
  };
  SECTION("a copy") {
    save_with({Slice{1, 0, 3}, 0, 6});
    CheckpointReader reader(dir.path());
    at::Tensor out = at::empty({4, 6});
    reader.read_into("columns", "master", 0, out);
    CHECK(out.view({-1}).equal(values_of(parameters()[0].saved, {std::nullopt, 0, 24})));
  }
  SECTION("a slice of another division") {
    save_with({Slice{0, 1, 1}, 2, 5});
    expect_error(ExitCode::kBadInput,
                 {"damaged", "slices of 'master' of parameter 'columns' overlap", "27 elements", "has 24"},
                 [&] { CheckpointReader reader(dir.path()); });
  }
}

TEST_CASE("a slice that the parameter does not have is damage", "[runtime][checkpoint][slices]") {
  TempDir dir;
  const auto [slice, begin] = GENERATE(table<Slice, int64_t>({{Slice{2, 0, 1}, 0},
                                                              {Slice{1, 4, 3}, 0},
                                                              {Slice{1, 0, 1}, 3},
                                                              {Slice{0, INT64_MAX, 1}, 0},
                                                              {Slice{0, 0, 1}, INT64_MAX}}));
  save(test::one_host(dir.path(), 4), {2, 2}, [&, slice = slice, begin = begin](CheckpointPart& part, int rank) {
    if (rank == 2) part.pieces.push_back({"columns", "exp_avg", begin, at::full({2}, 1.0F), slice});
  });
  expect_error(ExitCode::kBadInput, {"damaged", "rank_00002.safetensors", slice_text(slice), "does not match"},
               [&] { CheckpointReader reader(dir.path()); });
}

TEST_CASE("a changed byte of a slice is found where the slice is needed", "[runtime][checkpoint][slices]") {
  TempDir dir;
  save(test::one_host(dir.path(), 4), {2, 2});
  const std::string shard = dir / "step_00000030/rank_00001.safetensors";
  std::string bytes = test::read_file(shard);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_file(shard, bytes);
  const std::string checkpoint = dir / "step_00000030";
  CheckpointReader reader(checkpoint, *inspect_checkpoint(checkpoint).manifest);
  CHECK_NOTHROW(reader.read_into("columns", "master", 0, at::empty({12}), Slice{1, 0, 3}));
  expect_error(ExitCode::kBadInput, {"damaged", "rank_00001.safetensors has the hash"}, [&] {
    reader.read_into("columns", "master", 0, at::empty({12}), Slice{1, 3, 3});
  });
}
