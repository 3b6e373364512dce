// Checkpoints in tests/data/checkpoints: format_2, which an earlier version of dslaunch wrote (make.py), and format_3,
// the same state in slices of 2 × 2 ranks, which `test_runtime_checkpoint [make_format_3]` writes.
#include <ATen/ops/empty.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "rank_threads.hpp"
#include "runtime/checkpoint/checkpoint_paths.hpp"
#include "runtime/checkpoint/checkpoint_reader.hpp"
#include "support/checkout.hpp"
#include "support/expect_error.hpp"
#include "support/memory_store.hpp"
#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::runtime;
using test::TempDir;

namespace fs = std::filesystem;

namespace {

constexpr int kData = 2, kTensor = 2;

std::string fixture(const std::string& name) {
  return test::source_file("tests/data/checkpoints/" + name);
}

at::Tensor read_whole(CheckpointReader& reader, const SavedTensor& saved, const std::string& state) {
  at::Tensor out = at::empty(saved.shape);
  reader.read_into(saved.name, state, 0, out);
  return out;
}

// Which dim the tensor axis cuts: rows and columns by turns; what is not even stays whole.
std::optional<int64_t> cut_dim(const std::vector<SavedTensor>& parameters, size_t index) {
  const auto& shape = parameters[index].shape;
  const size_t dim = index / 2 % shape.size();
  return shape[dim] % kTensor == 0 ? std::optional(static_cast<int64_t>(dim)) : std::nullopt;
}

CheckpointPart part_of(CheckpointReader& reader, int rank) {
  const int data_rank = rank / kTensor, tensor_rank = rank % kTensor;
  CheckpointPart part;
  part.metadata = reader.metadata();
  if (rank == 0) part.skeleton = *reader.skeleton();
  const auto& parameters = part.metadata.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto dim = cut_dim(parameters, i);
    if (!dim && tensor_rank > 0) continue;
    std::optional<Slice> slice;
    const int64_t length = dim ? parameters[i].shape[static_cast<size_t>(*dim)] / kTensor : 0;
    if (dim) slice = Slice{*dim, tensor_rank * length, length};
    const int64_t numel = SliceLayout(parameters[i].shape, slice).numel();
    const int64_t begin = numel * data_rank / kData, end = numel * (data_rank + 1) / kData;
    for (const char* state : {"master", "exp_avg", "exp_avg_sq"}) {
      at::Tensor values = at::empty({end - begin});
      reader.read_into(parameters[i].name, state, begin, values, slice);
      if (end > begin) part.pieces.push_back({parameters[i].name, state, begin, values, slice});
    }
  }
  return part;
}

void save_in_slices(const std::string& dir) {
  test::MemoryStore store;
  test::on_all_ranks(kData * kTensor, [&](int rank) {
    CheckpointReader reader(fixture("format_2"));
    CheckpointWriter writer(test::writer_options(test::one_host(dir, kData * kTensor), rank, 0), store);
    writer.save(part_of(reader, rank));
    writer.finish();
  });
}

}  // namespace

TEST_CASE("format_3 of tests/data/checkpoints is written", "[.make_format_3]") {
  fs::remove_all(fixture("format_3"));
  save_in_slices(fixture("format_3"));
  fs::remove(fixture("format_3/latest"));
}

TEST_CASE("a state is the same in the formats 1, 2 and 3", "[runtime][checkpoint]") {
  TempDir dir;
  CheckpointReader second(fixture("format_2"));
  // Format 1 is format 2 without a checksum.
  fs::copy(second.path(), dir / "step_00000003");
  std::string manifest = test::read_file(dir / "step_00000003/manifest.json");
  const size_t begin = manifest.find(" \"format\""), end = manifest.find(" \"program\"");
  test::write_file(dir / "step_00000003/manifest.json", manifest.replace(begin, end - begin, " \"format\": 1,\n"));
  CheckpointReader first(dir.path()), third(fixture("format_3"));
  CHECK(third.world_size() == 4);
  const auto& parameters = second.metadata().parameters;
  REQUIRE(parameters.size() == 8);
  for (const auto& saved : parameters) {
    for (const char* state : {"master", "exp_avg", "exp_avg_sq"}) {
      const at::Tensor expected = read_whole(second, saved, state);
      CHECK(read_whole(first, saved, state).equal(expected));
      CHECK(read_whole(third, saved, state).equal(expected));
    }
  }
  CHECK(first.rng_state(1) == second.rng_state(1));
}

TEST_CASE("shards of format 3 are written as they were stored", "[runtime][checkpoint]") {
  TempDir dir;
  save_in_slices(dir.path());
  for (int rank = 0; rank < kData * kTensor; ++rank) {
    const std::string name = "/step_00000003/" + shard_name(rank);
    CHECK(test::read_file(dir.path() + name) == test::read_file(fixture("format_3") + name));
  }
}

TEST_CASE("a checkpoint of a later format is told from a damaged one", "[runtime][checkpoint]") {
  TempDir dir;
  fs::copy(fixture("format_3/step_00000003"), dir / "step_00000003");
  const std::string path = dir / "step_00000003/manifest.json", manifest = test::read_file(path);
  const auto open_with = [&](const std::string& format) {
    std::string other = manifest;
    test::write_file(path, other.replace(other.find("\"format\": 3"), 11, "\"format\": " + format));
    CheckpointReader reader(dir.path());
  };
  test::expect_error(ExitCode::kBadInput, {"has the format 4", "newer version of dslaunch", "reads formats 1 to 3"},
                     [&] { open_with("4"); });
  test::expect_error(ExitCode::kBadInput, {"is damaged: its 'format' is 0"}, [&] { open_with("0"); });
  test::expect_error(ExitCode::kBadInput, {"is damaged", "checksum"}, [&] { open_with("2"); });
}
